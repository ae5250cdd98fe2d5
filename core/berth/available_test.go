// SPDX-License-Identifier: Apache-2.0

//go:build linux

package berth_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/berth-dev/berth/core/berth"
	"github.com/berth-dev/berth/core/plugin"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/sdk/errs"
)

// What the language has and this version does not do is refused with its place, before anything is made.
func TestUnavailable(t *testing.T) {
	dir := t.TempDir()
	m := plugin.NewManager(plugin.Config{})
	t.Cleanup(func() { _ = m.Close(t.Context()) })
	h := harness(m, nil, dir)
	at := spec.Pos{File: "/project/main.berth.hcl", Line: 12, Column: 3}
	for name, edit := range map[string]func(*spec.Run){
		"skills": func(r *spec.Run) {
			r.Agent.Capabilities.Skills = &spec.SkillsCapability{From: &spec.Entry{Kind: spec.EntryMount}, Pos: at}
		},
		"capabilities of plug": func(r *spec.Run) { r.Agent.Capabilities.Plugins = map[string]map[string]any{"x": nil} },
		"tool go.x":            func(r *spec.Run) { r.Agent.Tools = []*spec.Tool{{Kind: "go", Label: "x", Pos: at}} },
		"tool command.x is only offered": func(r *spec.Run) {
			r.Agent.Tools = []*spec.Tool{{Kind: "command", Label: "x", DeferLoading: true, Pos: at}}
		},
		"MCP server hosted.x": func(r *spec.Run) { r.Agent.MCPServers = []*spec.MCPServer{{Kind: "hosted", Label: "x", Pos: at}} },
		"the input filter \"mine\"": func(r *spec.Run) {
			r.Agent.Handoffs = []*spec.Handoff{{Agent: &spec.Agent{Label: "b"}, ToolName: "b", InputFilter: "mine", Pos: at}}
		},
		"a clone of the workspace": func(r *spec.Run) {
			r.Agent.AgentTools = []*spec.AgentTool{{Agent: &spec.Agent{Label: "b"}, Name: "b", Workspace: "clone", Pos: at}}
		},
		"the whole conversation": func(r *spec.Run) {
			r.Agent.AgentTools = []*spec.AgentTool{{Agent: &spec.Agent{Label: "b"}, Name: "b", History: "full", Pos: at}}
		},
		"remembers answers": func(r *spec.Run) {
			r.Agent.Approvals = &spec.Approvals{Rules: []spec.ApprovalRule{{Remember: "session", Pos: at}}}
		},
		"of the kind \"s3\"": func(r *spec.Run) {
			r.Sandbox.Snapshot = &spec.SnapshotPolicy{Kind: "store", Store: &spec.SnapshotStore{Kind: "s3", Label: "x", Pos: at}}
		},
		"stored prompt":                func(r *spec.Run) { r.Agent.Prompt = &spec.StoredPrompt{ID: "x"} },
		"hooks":                        func(r *spec.Run) { r.Agent.Hooks = map[string]string{"on_start": "x"} },
		"conversation of the provider": func(r *spec.Run) { r.ConversationID = "x" },
		"goes on with":                 func(r *spec.Run) { r.PreviousResponse = "x" },
		"session store":                func(r *spec.Run) { r.SessionStore = "x" },
		"cost budget":                  func(r *spec.Run) { r.Budget.CostUSD = 1 },
		"mount \"data\"": func(r *spec.Run) {
			r.Manifest.Entries = append(r.Manifest.Entries, spec.Entry{Kind: spec.EntryMount, Path: "data", Mount: &spec.MountEntry{Kind: "s3_files"}, Pos: at})
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, r := worker()
			r.Pos, r.Agent.Pos, r.Sandbox.Pos = at, at, at
			edit(r)
			_, err := h.Run(t.Context(), berth.RunOptions{Project: p, Run: r, Name: "replay", Model: player(t, turn{"say": "x"})})
			if err == nil || !errors.Is(err, errs.Unsupported) || !strings.HasPrefix(err.Error(), "main.berth.hcl:12: ") || !strings.Contains(err.Error(), name) {
				t.Errorf("got %v", err)
			}
		})
	}
	// Nothing that the default configuration fills in is refused.
	p, r := worker()
	r.Agent.Pos = at
	r.Agent.Capabilities.Compaction = &spec.CompactionCapability{Pos: at}
	r.Sandbox.Session = spec.SessionPolicy{Source: "create", OnGone: "fail", AtEnd: "destroy"}
	plan, err := h.Plan(t.Context(), p, r)
	if err != nil || len(plan.Unavailable) > 0 {
		t.Errorf("%+v, %v", plan, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("something was made: %v, %v", entries, err)
	}
}
