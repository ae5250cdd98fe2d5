// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/core/model"
)

var (
	sampleTime   = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	sampleRef    = Ref{Hash: "ab12", Size: 34, Kind: model.ItemMessage}
	sampleCall   = CallRef{CallID: "c1", Kind: model.ToolFunction, Name: "look", Fingerprint: "f1", Item: sampleRef}
	sampleProb   = Problem{Code: "denied", Message: "no", Retryable: true, Hint: "ask"}
	sampleAnswer = Answer{Allow: true, Message: "no", Covers: Cover{
		Agent: "main", Tool: "look", Server: "s", Words: []string{"git", "push"}, Command: "a | b", Arguments: "{}", Paths: []string{"a"},
	}}
	sampleFail   = Failure{Code: "model_auth", Message: "no key", Hint: "set one"}
	sampleConfig = Config{
		Limits: Limits{Turns: 1, Tokens: 2, MicroUSD: 3, ToolCalls: 4, WallTime: 5},
		Agents: map[string]Agent{"main": {
			Sandboxed: true, StopOnFirstTool: true, StopAtTools: []string{"submit"}, ResetToolChoice: true,
			CheckOutput: true, GuardOutput: true, GuardFirst: true, GuardBeside: true, OutputRetries: 2,
		}},
		RaiseUnknown: true,
	}
)

// One of every kind, with every field set, in the order of the golden file.
var (
	sampleEvents = []Event{
		Start{Time: sampleTime, RunID: "r", Agent: "main", Config: sampleConfig, Input: []Ref{sampleRef}},
		Resume{Time: sampleTime, Config: sampleConfig, Notes: []Ref{sampleRef}},
		SandboxPrepared{Time: sampleTime, Effect: 1},
		SandboxFailed{Time: sampleTime, Effect: 1, Error: sampleFail},
		ModelAnswered{
			Time: sampleTime, Effect: 2, Items: []Ref{sampleRef}, Output: &sampleRef, Refusal: "unsafe", Cut: "max_output_tokens",
			Calls: []PlannedCall{{
				CallRef: sampleCall, Problem: &sampleProb, Ask: true, Reason: "careful", Remember: true,
				Handoff: &Handoff{Agent: "other", Own: true},
				Prior:   &PriorCall{Fingerprint: "f1", Output: sampleRef, OK: true},
			}},
			Usage: model.Usage{Requests: 1, InputTokens: 2, CachedTokens: 3, OutputTokens: 4, ReasoningTokens: 5, TotalTokens: 6}, MicroUSD: 7,
		},
		ModelFailed{Time: sampleTime, Effect: 2, Error: sampleFail},
		ToolDone{Time: sampleTime, Effect: 3, Output: sampleRef, OK: true, Usage: &model.Usage{Requests: 1}, MicroUSD: 2},
		ToolFailed{Time: sampleTime, Effect: 3, Error: sampleFail, Unstarted: true},
		ToolUnsure{Time: sampleTime, Effect: 3, Reason: "careful"},
		Decided{Time: sampleTime, Effect: 4, Allow: true, Problem: &sampleProb, Answer: &sampleAnswer},
		OutputChecked{Time: sampleTime, Effect: 5, Problem: "bad", Feedback: &sampleRef, Trip: &sampleFail},
		InputChecked{Time: sampleTime, Effect: 5, Trip: &sampleFail},
		PassedOn{Time: sampleTime, Effect: 6, Items: []Ref{sampleRef}, Replace: true},
		PassOnFailed{Time: sampleTime, Effect: 6, Error: sampleFail},
		ToolSuspended{Time: sampleTime, Effect: 7},
		Tick{Time: sampleTime},
		Pause{Time: sampleTime},
		Cancel{Time: sampleTime, Now: true},
	}
	sampleEffects = []Effect{
		Persist{Items: []Ref{sampleRef}, Sync: true, Settled: []SettledCall{{CallID: "c1", PriorCall: PriorCall{Fingerprint: "f1", Output: sampleRef, OK: true}}}},
		PrepareSandbox{ID: 1, Agent: "main", Workspace: "other"},
		CallModel{ID: 2, Agent: "main", Turn: 3, Items: Span{From: 4, To: 5}, ResetToolChoice: true},
		RunTool{ID: 3, Agent: "main", Call: sampleCall, Again: true},
		AskApproval{ID: 4, Agent: "main", Call: sampleCall, Reason: "careful", Unsure: true, Remember: true},
		AnswerCall{ID: 5, Agent: "main", Call: sampleCall, Problem: sampleProb},
		CheckOutput{ID: 6, Agent: "main", Item: sampleRef},
		CheckInput{ID: 7, Agent: "main", Beside: true},
		PassOn{ID: 8, From: "main", To: "other", Call: sampleCall, Items: Span{From: 1, To: 2}},
		CancelEffects{IDs: []EffectID{1, 2}},
		Emit{Notice: NoticeTurn, Effect: 1, CallID: "c1", Message: "m"},
		Finish{Status: Failed, Output: &sampleRef, Error: &sampleFail},
	}
)

// The JSON of logs that exist must stay readable: a change here needs a new version of the state.
func TestJSONGolden(t *testing.T) {
	var got bytes.Buffer
	for _, ev := range sampleEvents {
		got.Write(must(MarshalEvent(ev)))
		got.WriteByte('\n')
	}
	for _, ef := range sampleEffects {
		got.Write(must(MarshalEffect(ef)))
		got.WriteByte('\n')
	}
	s := State{
		Version: StateVersion, RunID: "r", Status: Running, Config: sampleConfig, Agent: "main", Turn: 1,
		Items: Span{From: 1, To: 2}, LastID: 9, Sandbox: Sandbox{Slot: Slot{ID: 1, InFlight: true}, Ready: true},
		Model: &Slot{ID: 2}, Check: &Check{Slot: Slot{ID: 3}, Item: sampleRef},
		Calls: []Call{{
			CallRef: sampleCall, Stage: StageRun, Slot: Slot{ID: 4}, Reason: "careful", Problem: &sampleProb,
			Output: &sampleRef, OK: true, Ran: true, Repeat: true, Unsure: true, Remember: true,
			Handoff: &Handoff{Agent: "other", Own: true}, Suspended: true,
		}},
		Guard:      &Guard{Slot: Slot{ID: 5}, Beside: true},
		PassOn:     &Passing{Slot: Slot{ID: 6}, Handoff: Handoff{Agent: "other"}, Call: sampleCall},
		Workspaces: map[string]string{"other": "main"},
		Stop:       &Stop{Status: Failed, Error: &sampleFail, Output: &sampleRef, Told: true}, Final: &Final{Item: sampleRef},
		Answers: []Answer{sampleAnswer}, Notes: []Ref{sampleRef},
		UsedTools: []string{"main"}, BadOutput: 1, Usage: model.Usage{Requests: 1}, MicroUSD: 2, ToolCalls: 3, Elapsed: 4,
		LastTime: sampleTime,
	}
	got.Write(must(json.Marshal(s)))
	got.WriteByte('\n')

	file := filepath.Join("testdata", "golden-v2.jsonl")
	if *update {
		if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("the JSON changed; logs that exist must stay readable (-want +got):\n%s", diff)
	}

	// What the golden file holds reads back into the same values.
	lines := strings.Split(strings.TrimSpace(string(want)), "\n")
	for i, ev := range sampleEvents {
		if diff := cmp.Diff(ev, must(UnmarshalEvent([]byte(lines[i])))); diff != "" {
			t.Errorf("event %d (-want +got):\n%s", i, diff)
		}
	}
	for i, ef := range sampleEffects {
		if diff := cmp.Diff(ef, must(UnmarshalEffect([]byte(lines[len(sampleEvents)+i])))); diff != "" {
			t.Errorf("effect %d (-want +got):\n%s", i, diff)
		}
	}
	var back State
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s, back); diff != "" {
		t.Errorf("state (-want +got):\n%s", diff)
	}
}

// What the first version wrote is read, and a run that it left can go on.
func TestFirstVersionIsRead(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "golden.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	for _, l := range lines[:14] {
		must(UnmarshalEvent([]byte(l)))
	}
	for _, l := range lines[14 : len(lines)-1] {
		must(UnmarshalEffect([]byte(l)))
	}
	var s State
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &s); err != nil {
		t.Fatal(err)
	}
	if s.Version != 1 {
		t.Fatalf("the first golden file has version %d", s.Version)
	}
	next, effects, err := Step(s, Resume{Time: sampleTime, Config: s.Config})
	if err != nil || next.Version != StateVersion || len(effects) < 2 {
		t.Errorf("resumed: version %d, %d effects, %v", next.Version, len(effects), err)
	}
	s.Version = StateVersion + 1
	if _, _, err := Step(s, Resume{Time: sampleTime, Config: s.Config}); err == nil {
		t.Error("a state of a later version was resumed")
	}
}

func TestUnmarshalRefusesWhatItDoesNotKnow(t *testing.T) {
	for _, in := range []string{``, `{}`, `[]`, `{"type":"dance"}`, `{"type":"tick","time":7}`, `{"type":1}`} {
		if ev, err := UnmarshalEvent([]byte(in)); err == nil {
			t.Errorf("UnmarshalEvent(%q) gave %v", in, ev)
		}
		if ef, err := UnmarshalEffect([]byte(in)); err == nil {
			t.Errorf("UnmarshalEffect(%q) gave %v", in, ef)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
