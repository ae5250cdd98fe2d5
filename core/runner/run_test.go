// SPDX-License-Identifier: Apache-2.0

package runner_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/runner"
)

func role(it model.Item) string {
	var in struct{ Role string }
	_ = json.Unmarshal(it.Raw, &in)
	return in.Role
}

func TestRunCallsToolsAndFinishes(t *testing.T) {
	m := &fakeModel{deltas: []string{"a", "b"}, answer: script(
		calls(call("c1", "look", `{"n":1}`), call("c2", "look", `{"n":2}`)),
		say("all done"),
	)}
	rec := &recorder{}
	cfg, _ := newConfig(t, m, &fakeTool{name: "look"})
	cfg.Emit = rec.emit
	res, err := runner.Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	want := &runner.Result{
		RunID: "run-1", Status: run.Completed, Agent: "main", Output: "all done", Turns: 2,
		Usage: model.Usage{Requests: 2, InputTokens: 20, OutputTokens: 10, TotalTokens: 30},
	}
	if diff := cmp.Diff(want, res); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	var texts []string
	for _, it := range m.requests[1].Items {
		texts = append(texts, string(it.Type)+" "+it.Text())
	}
	wantItems := []string{
		"message do it", "function_call ", "function_call ",
		`function_call_output done {"n":1}`, `function_call_output done {"n":2}`,
	}
	if diff := cmp.Diff(wantItems, texts); diff != "" {
		t.Errorf("second request (-want +got):\n%s", diff)
	}
	evs := rec.all()
	if evs[0].Kind != event.KindRunStarted || evs[len(evs)-1].Kind != event.KindRunFinished {
		t.Errorf("events are %v", rec.kinds())
	}
	for i := 1; i < len(evs); i++ {
		if evs[i].Seq <= evs[i-1].Seq {
			t.Errorf("event %d has number %d after %d", i, evs[i].Seq, evs[i-1].Seq)
		}
	}
}

func TestReasoningIDs(t *testing.T) {
	thought, err := model.ParseItem([]byte(`{"type":"reasoning","id":"rs_1","summary":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	for policy, want := range map[string]string{
		"":     `{"type":"reasoning","id":"rs_1","summary":[]}`,
		"omit": `{"summary":[],"type":"reasoning"}`,
	} {
		m := &fakeModel{answer: func(_ context.Context, req *model.Request) (*model.Response, error) {
			if len(req.Items) == 1 {
				return &model.Response{Items: append([]model.Item{thought}, calls(call("1", "look", `{}`))...)}, nil
			}
			return &model.Response{Items: say("fine")}, nil
		}}
		cfg, _ := newConfig(t, m, &fakeTool{name: "look"})
		cfg.Run.ReasoningIDs = policy
		if _, err := runner.Run(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		if got := string(m.requests[1].Items[1].Raw); got != want {
			t.Errorf("policy %q sends %s", policy, got)
		}
	}
}
