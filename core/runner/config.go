// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/berth-dev/berth/core/approval"
	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/runlog"
	"github.com/berth-dev/berth/core/spec"
)

// DefaultMaxTurns bounds a run that says nothing about it.
const DefaultMaxTurns = 10

// Log keeps a run; *runlog.Log is one. It is used by one goroutine at a time, and closed by whoever opened it.
type Log interface {
	// Put keeps an item, at the latest with the next Append. The item's bytes are one line.
	Put(model.Item) (run.Ref, error)
	// Get gives an item that was put. The result is the caller's.
	Get(run.Ref) (model.Item, error)
	// Append writes entries in order, all or none, before it returns; with sync, to stable storage.
	Append(sync bool, entries ...runlog.Entry) error
	// Records gives everything that was appended.
	Records() iter.Seq2[runlog.Record, error]
}

// Session is the sandbox that a run works in.
type Session interface {
	// Close ends the run's use of the sandbox. The status says how the run ended: what can be resumed wants its
	// sandbox back.
	Close(ctx context.Context, status run.Status) error
}

// Config is everything that a run needs.
type Config struct {
	RunID string // required
	// Run is the agent, its input and limits; required. It is only read.
	Run *spec.Run
	// Member is what the run's agent works with.
	Member
	// Others are the agents that the run can be handed to, by label; see [Reachable].
	Others map[string]Other
	// Log keeps the run; required. Run wants one without a run in it; entries of types that are not the runner's ("step",
	// "state", "event") may stand in it.
	Log Log

	// History is what was said before, in the conversation that the run goes on with. Of [Run]: in the log it is from then on.
	History []model.Item
	// Warnings are told at the beginning.
	Warnings []event.Warning
	// Notes are what the model must be told when a run goes on, before its next answer.
	Notes []string

	// Rules decide whether a call may run; nil = every call may. They are asked before the call's effect is issued, and
	// not again after a resume.
	Rules *approval.Rules
	// Approve decides a call that the rules want to be asked about, or that may have been made by a process that ended;
	// nil = nobody can, and the model is told so. It may wait as long as it likes, but ends with the context; with
	// [ErrUndecided] the run pauses as soon as it waits for nothing else.
	Approve func(context.Context, Approval) (Decision, error)
	// CheckOutput checks a final output against the agent's schema; required when there is one.
	CheckOutput func(*spec.OutputSchema, string) error
	// Guard looks at a text for a guardrail and gives what tripped; nil = nothing. Required when there is a guardrail. The
	// session is nil when there is none (yet).
	Guard func(ctx context.Context, g *spec.Guardrail, s Session, text string) (*Trip, error)
	// Cost prices a call of a model in US dollars; required for a cost budget.
	Cost func(modelName string, u model.Usage) float64

	// Emit gets the events, one at a time and in order, from a goroutine of its own; nil = nobody looks. An Emit that
	// is slow does not slow the run: deltas are joined and, in the end, left out. Events of kinds that are in the log
	// are only left out when 65,536 of them wait.
	Emit func(event.Event)
	// Watch gets the events that are in the log, at once and in order, from whoever sends them: it must not wait for
	// anything. nil = nobody does.
	Watch func(event.Event)
	// Call is the call of another run's tool that this run is; empty = none. Models that play a transcript look at it.
	Call string
	// Stop ends the run cleanly when it is closed; nil = only the context does.
	Stop <-chan struct{}
	// Now is the clock; nil = time.Now. It may be called from several goroutines.
	Now func() time.Time
}

// Other is an agent that a run can be handed to.
type Other struct {
	Agent *spec.Agent
	Member
}

// Trip is what a guardrail says about a text that it does not let through.
type Trip struct{ Message string }

// Result is how a run ended.
type Result struct {
	RunID  string
	Status run.Status
	Agent  string // that had the run at the end
	Output string
	Usage  model.Usage
	// MicroUSD is what the run cost, in millionths of a US dollar; 0 without prices.
	MicroUSD int64
	Turns    int
	// Failure says why the run is not complete; nil when it is, or was cancelled.
	Failure *run.Failure
	// Hint says what to do next, for example how to resume; may be empty.
	Hint string
}

// validate finds all faults and fills in defaults.
func (c *Config) validate() error {
	var faults []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	need(c.RunID != "", "the run has no id")
	need(c.Model != nil && c.ModelName != "", "the run has no model")
	need(c.Log != nil, "the run has no log")
	need(c.Run != nil && c.Run.Agent != nil, "the run has no agent")
	for label, o := range c.Others {
		need(o.Agent != nil && o.Agent.Label == label && o.Model != nil && o.ModelName != "", "agent %q has no model, or another label", label)
	}
	if len(faults) > 0 {
		return errors.Join(faults...)
	}
	r := c.Run
	for _, m := range c.team() {
		a := m.spec
		need(!a.Sandboxed || m.OpenSession != nil, "agent %q works in a sandbox, and there is none", a.Label)
		need(a.OutputSchema == nil || c.CheckOutput != nil, "agent %q has an output schema, and nothing checks it", a.Label)
		need(c.Guard != nil || len(a.InputGuardrails)+len(a.OutputGuardrails) == 0, "agent %q has guardrails, and nothing looks at them", a.Label)
		need((a.Approvals == nil && r.Approvals == nil) || c.Rules != nil, "agent %q has approval rules, and nothing looks at them", a.Label)
		need(a.Prompt == nil, "agent %q: stored prompts are not available yet", a.Label)
		need(len(a.Hooks) == 0, "agent %q: hooks are not available yet", a.Label)
		for _, h := range a.Handoffs {
			_, there := c.Others[h.Agent.Label]
			need(there || h.Agent.Label == r.Agent.Label, "agent %q hands over to agent %q, which is not there", a.Label, h.Agent.Label)
		}
	}
	need(c.Guard != nil || len(r.InputGuardrails)+len(r.OutputGuardrails) == 0, "run %q has guardrails, and nothing looks at them", r.Label)
	need(r.Budget.CostUSD == 0 || c.Cost != nil, "a cost budget needs prices, which are not available yet")
	need(r.ConversationID == "" && r.PreviousResponse == "", "run %q: conversations of the provider are not available yet", r.Label)
	if c.Now == nil {
		c.Now = time.Now
	}
	return errors.Join(faults...)
}

// machine is what the engine must know of the configuration.
func (c *Config) machine() run.Config {
	r := c.Run
	turns := DefaultMaxTurns
	if r.MaxTurns != nil {
		turns = *r.MaxTurns
	}
	agents := map[string]run.Agent{}
	for label, m := range c.team() {
		agents[label] = c.engineAgent(m.spec)
	}
	return run.Config{
		Limits: run.Limits{
			Turns: turns, Tokens: r.Budget.TotalTokens, MicroUSD: int64(r.Budget.CostUSD * 1e6),
			ToolCalls: r.Budget.ToolCalls, WallTime: r.Budget.WallTime,
		},
		Agents:       agents,
		RaiseUnknown: r.OnUnknownTool == "raise",
	}
}

func (c *Config) engineAgent(a *spec.Agent) run.Agent {
	agent := run.Agent{
		Sandboxed:       a.Sandboxed,
		StopOnFirstTool: a.ToolUseBehavior == "stop_on_first_tool",
		ResetToolChoice: a.ResetToolChoice == nil || *a.ResetToolChoice,
		CheckOutput:     a.OutputSchema != nil,
		GuardOutput:     len(a.OutputGuardrails)+len(c.Run.OutputGuardrails) > 0,
	}
	for _, g := range c.inputGuards(a) {
		first := guardFirst(g)
		agent.GuardFirst, agent.GuardBeside = agent.GuardFirst || first, agent.GuardBeside || !first
	}
	if a.ToolUseBehavior == "stop_at_tools" {
		agent.StopAtTools = a.StopAtTools
	}
	if a.OutputSchema != nil {
		agent.OutputRetries = a.OutputSchema.Retry
	}
	return agent
}
