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
	"github.com/berth-dev/berth/core/tool"
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
	// Model answers, under the name ModelName; both required.
	Model     model.Model
	ModelName string
	// Log keeps the run; required. Run wants one without a run in it; entries of types that are not the runner's ("step",
	// "state", "event") may stand in it.
	Log Log

	// OpenSession opens the sandbox of a sandboxed agent, before its first turn. It may emit sandbox events as long as
	// the run lasts. nil = the agent works without a sandbox.
	OpenSession func(ctx context.Context, emit func(event.Data)) (Session, error)
	// Tools gives what the model may call; nil = nothing. The session is nil without a sandbox.
	Tools func(Session) ([]tool.Tool, error)
	// Instructions gives the system text, once per process; nil = none.
	Instructions func(context.Context, Session) (string, error)

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
	// Cost prices a model call in US dollars; required for a cost budget.
	Cost func(model.Usage) float64

	// Emit gets the events, one at a time and in order, from a goroutine of its own; nil = nobody looks. An Emit that
	// is slow does not slow the run: deltas are joined and, in the end, left out. Events of kinds that are in the log
	// are only left out when 65,536 of them wait.
	Emit func(event.Event)
	// Stop ends the run cleanly when it is closed; nil = only the context does.
	Stop <-chan struct{}
	// Now is the clock; nil = time.Now. It may be called from several goroutines.
	Now func() time.Time
}

// Result is how a run ended.
type Result struct {
	RunID  string
	Status run.Status
	Output string
	Usage  model.Usage
	Turns  int
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
	if len(faults) > 0 {
		return errors.Join(faults...)
	}
	a, r := c.Run.Agent, c.Run
	need(!a.Sandboxed || c.OpenSession != nil, "agent %q works in a sandbox, and there is none", a.Label)
	need(a.OutputSchema == nil || c.CheckOutput != nil, "agent %q has an output schema, and nothing checks it", a.Label)
	need(r.Budget.CostUSD == 0 || c.Cost != nil, "a cost budget needs prices, which are not available yet")
	later := func(used bool, what string) {
		need(!used, "agent %q: %s are not available yet", a.Label, what)
	}
	later(len(a.Handoffs) > 0, "handoffs")
	later(len(a.AgentTools) > 0, "agents as tools")
	later(len(a.InputGuardrails)+len(a.OutputGuardrails)+len(r.InputGuardrails)+len(r.OutputGuardrails) > 0, "guardrails")
	need((a.Approvals == nil && r.Approvals == nil) || c.Rules != nil, "agent %q has approval rules, and nothing looks at them", a.Label)
	later(a.Prompt != nil, "stored prompts")
	later(len(a.Hooks) > 0, "hooks")
	later(r.ConversationID != "" || r.PreviousResponse != "" || r.SessionStore != "", "conversations over several runs")
	if c.Now == nil {
		c.Now = time.Now
	}
	return errors.Join(faults...)
}

// machine is what the engine must know of the configuration.
func (c *Config) machine() run.Config {
	r, a := c.Run, c.Run.Agent
	turns := DefaultMaxTurns
	if r.MaxTurns != nil {
		turns = *r.MaxTurns
	}
	agent := run.Agent{
		Sandboxed:       a.Sandboxed,
		StopOnFirstTool: a.ToolUseBehavior == "stop_on_first_tool",
		ResetToolChoice: a.ResetToolChoice == nil || *a.ResetToolChoice,
		CheckOutput:     a.OutputSchema != nil,
	}
	if a.ToolUseBehavior == "stop_at_tools" {
		agent.StopAtTools = a.StopAtTools
	}
	if a.OutputSchema != nil {
		agent.OutputRetries = a.OutputSchema.Retry
	}
	return run.Config{
		Limits: run.Limits{
			Turns: turns, Tokens: r.Budget.TotalTokens, MicroUSD: int64(r.Budget.CostUSD * 1e6),
			ToolCalls: r.Budget.ToolCalls, WallTime: r.Budget.WallTime,
		},
		Agents:       map[string]run.Agent{a.Label: agent},
		RaiseUnknown: r.OnUnknownTool == "raise",
	}
}
