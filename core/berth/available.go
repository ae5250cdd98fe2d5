// SPDX-License-Identifier: Apache-2.0

package berth

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/berth-dev/berth/core/memory/fit"
	"github.com/berth-dev/berth/core/mount"
	"github.com/berth-dev/berth/core/outschema"
	"github.com/berth-dev/berth/core/runner/handover"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/sdk/errs"
)

// available refuses what the language has and this version does not do.
func available(r *spec.Run) error {
	checks := []error{runAvailable(r), sandboxAvailable(r.Sandbox)}
	for _, a := range everybody(r.Agent) {
		checks = append(checks, agentAvailable(a), manifestAvailable(manifestOf(r, a)))
	}
	for _, check := range checks {
		if check != nil {
			return check
		}
	}
	return fit.Check(everybody(r.Agent))
}

// everybody lists the agents that can come to work in a run, the first one first.
func everybody(first *spec.Agent) []*spec.Agent {
	all := []*spec.Agent{first}
	add := func(a *spec.Agent) {
		if !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	for i := 0; i < len(all); i++ {
		for _, h := range all[i].Handoffs {
			add(h.Agent)
		}
		for _, t := range all[i].AgentTools {
			add(t.Agent)
		}
	}
	return all
}

// manifestOf is the manifest that counts for an agent in a run; nil = none.
func manifestOf(r *spec.Run, a *spec.Agent) *spec.Manifest {
	return cmp.Or(r.Manifest, a.Manifest, r.Agent.Manifest)
}

func agentAvailable(a *spec.Agent) error {
	c := a.Capabilities
	switch {
	case c.Skills != nil && c.Skills.From != nil && c.Skills.From.Kind == spec.EntryMount:
		return unavailable(c.Skills.Pos, "agent %q has skills that come from a mount", a.Label)
	case len(c.Plugins) > 0:
		return unavailable(a.Pos, "agent %q has capabilities of plugins", a.Label)
	case toolsAvailable(a) != nil:
		return toolsAvailable(a)
	case hosted(a) != nil:
		return unavailable(hosted(a).Pos, "agent %q uses MCP server %s.%s", a.Label, hosted(a).Kind, hosted(a).Label)
	case remembers(a.Approvals) != nil:
		return unavailable(remembers(a.Approvals).Pos, "rule %q remembers answers for a session", remembers(a.Approvals).Name)
	case a.Prompt != nil:
		return unavailable(a.Pos, "agent %q has a stored prompt", a.Label)
	case len(a.Hooks) > 0:
		return unavailable(a.Pos, "agent %q has hooks", a.Label)
	}
	if s := a.OutputSchema; s != nil {
		if err := outschema.Valid(s.Schema); err != nil {
			return schemaFault(s, err)
		}
		if s.Strict {
			if _, err := outschema.Strict(s.Schema); err != nil {
				return schemaFault(s, err)
			}
		}
	}
	for _, h := range a.Handoffs {
		if h.InputFilter != "" && h.InputFilter != "none" && h.InputFilter != handover.FilterTools {
			return unavailable(h.Pos, "handoff %q of agent %q has the input filter %q", h.ToolName, a.Label, h.InputFilter)
		}
	}
	for _, t := range a.AgentTools {
		switch {
		case t.Workspace == "clone":
			return unavailable(t.Pos, "agent tool %q of agent %q works in a clone of the workspace", t.Name, a.Label)
		case t.History == "full":
			return unavailable(t.Pos, "agent tool %q of agent %q gets the whole conversation", t.Name, a.Label)
		}
	}
	return nil
}

func schemaFault(s *spec.OutputSchema, err error) error {
	at := ""
	if s.Pos.File != "" {
		at = fmt.Sprintf("%s:%d: ", filepath.Base(s.Pos.File), s.Pos.Line)
	}
	return errs.New(errs.ConfigInvalid, "%soutput_schema %q: %s", at, s.Label, err)
}

func toolsAvailable(a *spec.Agent) error {
	for _, t := range a.Tools {
		switch {
		case t.Kind != "command" && t.Kind != "http":
			return unavailable(t.Pos, "agent %q uses tool %s.%s", a.Label, t.Kind, t.Label)
		case t.DeferLoading:
			return unavailable(t.Pos, "tool %s.%s is only offered when it is searched for", t.Kind, t.Label)
		}
	}
	return nil
}

// hosted is the first server that the provider reaches.
func hosted(a *spec.Agent) *spec.MCPServer {
	for _, s := range a.MCPServers {
		if s.Kind == "hosted" {
			return s
		}
	}
	return nil
}

func runAvailable(r *spec.Run) error {
	switch {
	case remembers(r.Approvals) != nil:
		return unavailable(remembers(r.Approvals).Pos, "rule %q remembers answers for a session", remembers(r.Approvals).Name)
	case r.ConversationID != "" || r.PreviousResponse != "":
		return unavailable(r.Pos, "run %q goes on with a conversation of the provider", r.Label)
	case r.HandoffHistory != "" && r.HandoffHistory != handover.Full:
		return unavailable(r.Pos, "run %q sets the history of all handoffs", r.Label)
	case r.SessionStore != "" && r.SessionStore != defaultStore:
		return unavailable(r.Pos, "run %q has the session store %q", r.Label, r.SessionStore)
	case r.Budget.CostUSD != 0:
		return unavailable(r.Pos, "run %q has a cost budget", r.Label)
	}
	return nil
}

// remembers is the first rule whose answers outlive the run.
func remembers(a *spec.Approvals) *spec.ApprovalRule {
	if a == nil {
		return nil
	}
	for i := range a.Rules {
		if a.Rules[i].Remember == "session" {
			return &a.Rules[i]
		}
	}
	return nil
}

func manifestAvailable(m *spec.Manifest) error {
	if m == nil {
		return nil
	}
	for i := range m.Entries {
		if e := &m.Entries[i]; e.Kind == spec.EntryMount {
			if err := mount.Check(e); err != nil {
				return err
			}
		}
	}
	return nil
}

func sandboxAvailable(s *spec.Sandbox) error {
	if s == nil {
		return nil
	}
	if s.Snapshot != nil && s.Snapshot.Kind == "store" && (s.Snapshot.Store == nil || s.Snapshot.Store.Kind != "noop") {
		return storeAvailable(s.Snapshot.Store)
	}
	return nil
}
