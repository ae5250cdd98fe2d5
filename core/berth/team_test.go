// SPDX-License-Identifier: Apache-2.0

//go:build linux

package berth_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/core/berth"
	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/runlog"
	"github.com/berth-dev/berth/core/runner"
	"github.com/berth-dev/berth/core/runs"
	"github.com/berth-dev/berth/core/spec"
)

// second is another agent that works with a shell.
func second(label string) *spec.Agent {
	return &spec.Agent{
		Label: label, Sandboxed: true, Instructions: spec.Text{Literal: "Work on as " + label + "."},
		Capabilities: spec.Capabilities{Shell: &spec.ShellCapability{}},
	}
}

func handTo(name string) map[string]any {
	return map[string]any{"tool": name, "args": map[string]any{}}
}

// A plain agent passes the run to one with a sandbox, that one to another, which finds the files; nothing is left.
func TestHandoffKeepsTheWorkspace(t *testing.T) {
	f := newFixture(t)
	p, r := worker()
	r.Manifest, r.Agent.Manifest = nil, r.Manifest
	reviewer := second("reviewer")
	r.Agent.Handoffs = []*spec.Handoff{{Agent: reviewer, ToolName: "transfer_to_reviewer", History: "nested"}}
	work := r.Agent
	r.Agent = &spec.Agent{Label: "desk", Instructions: spec.Text{Literal: "Pass it on."}, Handoffs: []*spec.Handoff{{Agent: work, ToolName: "transfer_to_worker"}}}
	var rec recorded
	res, err := f.Run(t.Context(), berth.RunOptions{ID: runlog.NewID(time.Now()), Project: p, Run: r, Name: "replay", Emit: rec.emit, Model: player(t,
		turn{"calls": []any{handTo("transfer_to_worker")}},
		turn{"expect": []string{`{"assistant":"worker"}`}, "calls": []any{exec("cat in/a.txt > copy; echo made >> copy"), handTo("transfer_to_reviewer")}},
		turn{"calls": []any{exec("cat copy; cat in/a.txt")}},
		turn{"expect": []string{"one", "made"}, "say": "reviewed"},
	)})
	if err != nil {
		t.Fatal(err)
	}
	if res.Status != run.Completed || res.Output != "reviewed" || res.Agent != "reviewer" || res.Turns != 4 {
		t.Errorf("%+v", res)
	}
	if changed, n := find[event.AgentChanged](&rec); n != 2 || changed != (event.AgentChanged{From: "worker", To: "reviewer"}) {
		t.Errorf("%d changes, the last %+v", n, changed)
	}
	if _, n := find[event.SandboxReady](&rec); n != 1 {
		t.Errorf("%d sandboxes were made", n)
	}
	if ended, n := find[event.SandboxEnded](&rec); n != 1 || ended.Outcome != "destroyed" {
		t.Errorf("%d sandboxes ended, the last %+v", n, ended)
	}
}

// With a workspace of its own the next agent starts with its own manifest, and both sandboxes end with the run.
func TestHandoffToAnOwnWorkspace(t *testing.T) {
	f := newFixture(t)
	p, r := worker()
	r.Manifest, r.Agent.Manifest = nil, r.Manifest
	other := second("other")
	other.Manifest = &spec.Manifest{Root: spec.DefaultRoot, Entries: []spec.Entry{
		{Kind: spec.EntryFile, Path: "mine", File: &spec.FileEntry{Content: []byte("of its own\n")}},
	}}
	r.Agent.Handoffs = []*spec.Handoff{{Agent: other, ToolName: "to_other", Workspace: "own"}}
	other.Handoffs = []*spec.Handoff{{Agent: r.Agent, ToolName: "back"}}
	var rec recorded
	res, err := f.Run(t.Context(), berth.RunOptions{ID: runlog.NewID(time.Now()), Project: p, Run: r, Name: "replay", Emit: rec.emit, Model: player(t,
		turn{"calls": []any{exec("echo first > made"), handTo("to_other")}},
		turn{"calls": []any{exec("ls; cat mine; echo other > made")}},
		turn{"expect": []string{"Output:\nmine\nof its own\n"}, "calls": []any{handTo("back")}},
		turn{"calls": []any{exec("cat made")}},
		turn{"expect": []string{"Output:\nfirst\n"}, "say": "back again"},
	)})
	if err != nil || res.Status != run.Completed || res.Agent != "worker" {
		t.Fatalf("%+v, %v", res, err)
	}
	if _, n := find[event.SandboxReady](&rec); n != 2 {
		t.Errorf("%d sandboxes were made", n)
	}
	if _, n := find[event.SandboxEnded](&rec); n != 2 {
		t.Errorf("%d sandboxes ended", n)
	}
}

// team is a worker with an explorer as a tool that asks before it runs a command.
func team() (*spec.Project, *spec.Run, *spec.AgentTool) {
	p, r := worker()
	explorer := second("explorer")
	explorer.Approvals = &spec.Approvals{Rules: []spec.ApprovalRule{{Name: "look", Tools: []string{"exec_command"}, Decision: "ask"}}}
	tl := &spec.AgentTool{Name: "explore", Agent: explorer, Description: "Looks around.", MaxTurns: 5}
	r.Agent.AgentTools = []*spec.AgentTool{tl}
	return p, r, tl
}

func explore(id string) map[string]any {
	return map[string]any{"tool": "explore", "id": id, "args": map[string]any{"input": "what is in in/?"}}
}

// An agent as a tool works in the workspace of the agent that calls it. What it must ask about is asked of the outer run,
// which pauses; the decision of another process lets both go on, and no turn is made twice.
func TestAgentToolAsksThroughTheOuterRun(t *testing.T) {
	f := newFixture(t)
	turns := []turn{
		{"calls": []any{exec("echo fresh > in/new"), explore("ask-explorer")}, "usage": map[string]any{"total_tokens": 10}},
		{"in_call": "ask-explorer", "calls": []any{exec("ls in; echo seen >> seen")}, "usage": map[string]any{"total_tokens": 100}},
		{"in_call": "ask-explorer", "expect": []string{"a.txt\nnew"}, "say": "a.txt and new", "usage": map[string]any{"total_tokens": 100}},
		{"expect": []string{"a.txt and new"}, "calls": []any{exec("wc -l < seen")}, "usage": map[string]any{"total_tokens": 10}},
		{"expect": []string{"Output:\n1\n"}, "say": "it looked once", "usage": map[string]any{"total_tokens": 10}},
	}
	p, r, _ := team()
	id := runlog.NewID(time.Now())
	o := berth.RunOptions{ID: id, Project: p, Run: r, Name: "replay", Model: player(t, turns...)}
	res, err := f.Run(t.Context(), o)
	if err != nil || res.Status != run.Paused {
		t.Fatalf("%+v, %v", res, err)
	}
	reg, err := f.Runs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	waits, err := reg.Read(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if len(waits.Waiting) != 1 || waits.Waiting[0].Agent != "explorer" || waits.Waiting[0].Run != runs.NestedID(id, "ask-explorer") {
		t.Fatalf("%+v", waits.Waiting)
	}
	if list, err := reg.List(t.Context()); err != nil || len(list) != 1 || list[0].Waiting != 1 {
		t.Errorf("the list is %+v, %v", list, err)
	}
	doc, err := reg.Export(t.Context(), id)
	if err != nil || doc.Nested["ask-explorer"].RunID != waits.Waiting[0].Run {
		t.Errorf("the exported run has no nested one: %v", err)
	}
	if _, won, err := reg.Decide(t.Context(), id, waits.Waiting[0], runs.Decision{Allow: true, By: "somebody"}); err != nil || !won {
		t.Fatal(won, err)
	}
	p, r, _ = team()
	o.Project, o.Run, o.Model = p, r, player(t, turns...)
	res, err = f.Resume(t.Context(), o)
	if err != nil || res.Status != run.Completed || res.Output != "it looked once" {
		t.Fatalf("%+v, %v", res, err)
	}
	if res.Usage.TotalTokens != 230 || res.Usage.Requests != 5 {
		t.Errorf("the usage of both runs is %+v", res.Usage)
	}
	if err := reg.Remove(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if _, err := reg.Dir.Read(runs.NestedID(id, "ask-explorer")); err == nil {
		t.Error("the nested run is left")
	}
}

// A run that is cut off inside an agent as a tool goes on inside it.
func TestAgentToolIsTakenUp(t *testing.T) {
	f := newFixture(t)
	turns := []turn{
		{"calls": []any{explore("c")}},
		{"in_call": "c", "calls": []any{exec("echo one >> steps")}},
		{"in_call": "c", "calls": []any{exec("echo two >> steps")}},
		{"in_call": "c", "say": "explored"},
		{"expect": []string{"explored"}, "calls": []any{exec("cat steps")}},
		{"expect": []string{"Output:\none\n"}, "say": "done"}, // the second command was cut off; the first was not made again
	}
	p, r, tl := team()
	tl.Agent.Approvals = nil
	id := runlog.NewID(time.Now())
	ctx, cut := context.WithCancelCause(t.Context())
	defer cut(nil)
	calls := 0
	rec := recorded{on: func(d event.Data) {
		if out, ok := d.(event.ToolOutput); ok && strings.Contains(out.Note, "exec_command") {
			if calls++; calls == 2 {
				cut(errors.New("the process ends"))
			}
		}
	}}
	o := berth.RunOptions{ID: id, Project: p, Run: r, Name: "replay", Model: player(t, turns...), Emit: rec.emit}
	if res, err := f.Run(ctx, o); err != nil || res.Status != run.Cancelled {
		t.Fatalf("%+v, %v", res, err)
	}
	p, r, tl = team()
	tl.Agent.Approvals = nil
	o.Project, o.Run, o.Model, o.Emit = p, r, player(t, turns...), nil
	o.Approve = func(context.Context, runner.Approval) (runner.Decision, error) {
		return runner.Decision{Allow: true}, nil
	}
	res, err := f.Resume(t.Context(), o)
	if err != nil || res.Status != run.Completed {
		t.Fatalf("%+v, %v", res, err)
	}
	if res.Output != "done" {
		t.Errorf("%+v", res)
	}
}

// A nested run that fails, or goes over its part of the budget, is a result that the outer model reads.
func TestAgentToolFails(t *testing.T) {
	f := newFixture(t)
	p, r, tl := team()
	tl.MaxTurns = 1
	tl.Agent.Approvals = nil
	res, err := f.Run(t.Context(), berth.RunOptions{ID: runlog.NewID(time.Now()), Project: p, Run: r, Name: "replay", Model: player(t,
		turn{"calls": []any{explore("c"), map[string]any{"tool": "explore", "args": map[string]any{"input": " "}}}},
		turn{"in_call": "c", "calls": []any{exec("true")}},
		turn{"expect": []string{`"code":"max_turns"`, "agent explorer", `argument \"input\" is empty`}, "say": "without it, then"},
	)})
	if err != nil || res.Output != "without it, then" {
		t.Fatalf("%+v, %v", res, err)
	}
}

// Two tools with one name are an error.
func TestTeamNames(t *testing.T) {
	f := newFixture(t)
	p, r, tl := team()
	tl.Name = "exec_command"
	_, err := f.Run(t.Context(), berth.RunOptions{ID: runlog.NewID(time.Now()), Project: p, Run: r, Name: "replay", Model: player(t, turn{"say": "x"})})
	if err == nil || !strings.Contains(err.Error(), `two tools with the name "exec_command"`) {
		t.Errorf("got %v", err)
	}
}
