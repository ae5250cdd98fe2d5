// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/runner/calling"
	"github.com/berth-dev/berth/core/runner/handover"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/tool"
)

// Member is what an agent of a run works with.
type Member struct {
	// Model answers, under the name ModelName; both required.
	Model     model.Model
	ModelName string
	// Settings tune the calls; nil = the provider's.
	Settings *spec.ModelSettings
	// StrictSchema is the strict form of the agent's output schema; nil = it has none, or is sent as it is.
	StrictSchema json.RawMessage
	// CompactAt is how many tokens, by estimate, a request may have before this program has the model summarise what came
	// before; 0 = the provider does it, or nobody.
	CompactAt int64
	// OpenSession opens the sandbox of a sandboxed agent, before its first turn: its own, or with a label that of another
	// agent. It may emit sandbox events as long as the run lasts. nil = the agent works without a sandbox.
	OpenSession func(ctx context.Context, workspace string, emit func(event.Data)) (Session, error)
	// Tools gives what the model may call, besides handovers; nil = nothing. The session is nil without a sandbox.
	Tools func(Session) ([]tool.Tool, error)
	// Instructions gives the system text, once per process; nil = none.
	Instructions func(context.Context, Session) (string, error)
}

// member is an agent at work.
type member struct {
	Member
	spec    *spec.Agent
	session Session // nil = none is open
	ready   bool
	tools   calling.Toolbox
	system  string
}

// team makes the agents of a run.
func (c *Config) team() map[string]*member {
	all := map[string]*member{}
	for label, other := range c.Others {
		all[label] = &member{Member: other.Member, spec: other.Agent}
	}
	all[c.Run.Agent.Label] = &member{Member: c.Member, spec: c.Run.Agent}
	return all
}

// now is the agent that acts.
func (x *executor) now() *member {
	if m := x.team[x.state.Agent]; m != nil {
		return m
	}
	return x.team[x.cfg.Run.Agent.Label] // before the first step
}

// prepare gets an agent's tools and instructions, once in a process. It may be called in an effect's goroutine: nobody
// else looks at a member that is being prepared.
func (x *executor) prepare(ctx context.Context, m *member) error {
	if m.ready {
		return nil
	}
	var tools []tool.Tool
	if m.Tools != nil {
		var err error
		if tools, err = m.Tools(m.session); err != nil {
			return fmt.Errorf("prepare the tools: %w", err)
		}
	}
	vars := spec.RunVars{RunID: x.cfg.RunID, Input: x.cfg.Run.Input, Vars: x.cfg.Run.Vars, Agent: m.spec.Label, StartedAt: x.started}
	for _, h := range m.spec.Handoffs {
		on, err := spec.Enabled(h.Enabled, vars)
		if err != nil {
			return fmt.Errorf("handoff %q: %w", h.ToolName, err)
		}
		if on {
			tools = append(tools, handover.Tool{Handoff: h})
		}
	}
	box, warnings, err := calling.NewToolbox(m.spec.Label, tools, x.cfg.Run.OnToolCollision == "warn")
	if err != nil {
		return err
	}
	for _, w := range warnings {
		x.stream.Send(w)
	}
	if m.Instructions != nil {
		if m.system, err = m.Instructions(ctx, m.session); err != nil {
			return fmt.Errorf("prepare the instructions: %w", err)
		}
	}
	m.tools, m.ready = box, true
	return nil
}

// closeSessions ends the use of every sandbox, the last opened first.
func (x *executor) closeSessions(ctx context.Context, status run.Status) {
	for _, m := range slices.Backward(x.opened) {
		x.closeSession(ctx, m.session, status)
		m.session = nil
	}
	x.opened = nil
}

// passOn gets the next agent ready and works out what it reads.
func (x *executor) passOn(ctx context.Context, ef run.PassOn) error {
	from, to := x.team[ef.From], x.team[ef.To]
	c, err := x.callOf(ef.Call)
	if err != nil {
		return err
	}
	var h *spec.Handoff
	if from != nil && to != nil {
		if t, ok := from.tools.Find(c).(handover.Tool); ok {
			h = t.Handoff
		}
		for _, other := range from.spec.Handoffs { // after a crash the tools were not prepared
			if h == nil && other.ToolName == c.Name {
				h = other
			}
		}
	}
	if h == nil {
		x.inbox = append(x.inbox, run.PassOnFailed{Time: x.cfg.Now(), Effect: ef.ID, Error: run.Failure{
			Code:    "handoff",
			Message: fmt.Sprintf("agent %q handed over to agent %q, and the files do not say so any more", ef.From, ef.To),
			Hint:    "bring the handoff back and resume the run",
		}})
		return nil
	}
	items, replace := handover.History(h, from.spec, c, x.items[ef.Items.From:ef.Items.To:ef.Items.To])
	x.launch(ctx, ef.ID, func(ctx context.Context) result {
		var err error
		if !to.spec.Sandboxed {
			err = x.prepare(ctx, to)
		}
		return result{event: func() (run.Event, error) {
			x.landed(ef.ID)
			if err != nil {
				x.keepCause(err)
				return run.PassOnFailed{Time: x.cfg.Now(), Effect: ef.ID, Error: calling.FailureOf("handoff", err)}, nil //nolint:nilerr // the event is the failure
			}
			ev := run.PassedOn{Time: x.cfg.Now(), Effect: ef.ID, Replace: replace}
			for _, it := range items {
				ref, err := x.put(it)
				if err != nil {
					return nil, err
				}
				ev.Items = append(ev.Items, ref)
			}
			return ev, nil
		}}
	})
	return nil
}

// Reachable lists the agents that a run which begins with an agent can be handed to, by label and without that one.
func Reachable(first *spec.Agent) []*spec.Agent {
	seen := map[string]*spec.Agent{}
	var walk func(a *spec.Agent)
	walk = func(a *spec.Agent) {
		if seen[a.Label] == nil {
			seen[a.Label] = a
			for _, h := range a.Handoffs {
				walk(h.Agent)
			}
		}
	}
	walk(first)
	delete(seen, first.Label)
	var out []*spec.Agent
	for _, label := range slices.Sorted(maps.Keys(seen)) {
		out = append(out, seen[label])
	}
	return out
}
