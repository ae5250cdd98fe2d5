// SPDX-License-Identifier: Apache-2.0

package run

import (
	"time"

	"github.com/berth-dev/berth/core/model"
)

// StateVersion is the version of [State]'s JSON that this code writes. It reads all before it too: a field that was not
// there then means what its zero value means.
//
// Version 2 has handovers, calls that wait inside a run of their own, and checks of the input.
const StateVersion = 2

// Ref refers to a transcript item in the store.
type Ref struct {
	Hash string         `json:"hash"` // SHA-256 of the stored bytes, hex
	Size int64          `json:"size"`
	Kind model.ItemType `json:"kind"`
}

// EffectID names an effect within its run, from 1.
type EffectID uint64

// Status is where a run stands.
type Status string

// The statuses. All but Running are ends; all but Completed can be resumed.
const (
	Running   Status = "running"
	Completed Status = "completed"
	Failed    Status = "failed"
	Cancelled Status = "cancelled"
	MaxTurns  Status = "max_turns"
	Budget    Status = "budget"
	Paused    Status = "paused"
)

// Config is what the machine must know of the configuration. It arrives with [Start] and again with [Resume], because
// files may have changed in between.
type Config struct {
	Limits Limits           `json:"limits"`
	Agents map[string]Agent `json:"agents"` // by label
	// RaiseUnknown fails the run when the model calls a tool that does not exist; else the model gets an error.
	RaiseUnknown bool `json:"raise_unknown,omitempty"`
}

// Limits bound a run; zero = no bound.
type Limits struct {
	Turns     int           `json:"turns,omitempty"`
	Tokens    int64         `json:"tokens,omitempty"`
	MicroUSD  int64         `json:"micro_usd,omitempty"`
	ToolCalls int           `json:"tool_calls,omitempty"`
	WallTime  time.Duration `json:"wall_time_ns,omitempty"` // time at work; waiting for a person does not count
}

// Agent is what the machine must know of an agent.
type Agent struct {
	Sandboxed bool `json:"sandboxed,omitempty"` // needs a sandbox before its first turn
	// StopOnFirstTool ends the run with the first good tool result, in call order.
	StopOnFirstTool bool `json:"stop_on_first_tool,omitempty"`
	// StopAtTools ends the run with the first good result of one of these tools, in call order.
	StopAtTools []string `json:"stop_at_tools,omitempty"`
	// ResetToolChoice unsets the tool choice once the agent has used a tool.
	ResetToolChoice bool `json:"reset_tool_choice,omitempty"`
	CheckOutput     bool `json:"check_output,omitempty"` // the final output has a schema
	GuardOutput     bool `json:"guard_output,omitempty"` // the final output is looked at by guardrails
	// GuardFirst wants the input checked before anything else, GuardBeside while the model is asked for the first time;
	// no tool runs before that check is over. Both count for the run's first agent.
	GuardFirst    bool `json:"guard_first,omitempty"`
	GuardBeside   bool `json:"guard_beside,omitempty"`
	OutputRetries int  `json:"output_retries,omitempty"` // how often a bad output is sent back
}

// State is a run as a value. The zero State is a run that has not started.
type State struct {
	Version int    `json:"version"`
	RunID   string `json:"run_id"`
	Status  Status `json:"status"`
	Config  Config `json:"config"`

	Agent  string   `json:"agent"`   // label of the one who acts
	Turn   int      `json:"turn"`    // model calls begun
	Items  Span     `json:"items"`   // of the transcript, what the next request holds
	LastID EffectID `json:"last_id"` // of the newest effect

	// What is pending. A run that is Running has at least one effect in flight; any other has none, and keeps here what
	// a resume must do.
	Sandbox Sandbox  `json:"sandbox"`
	Model   *Slot    `json:"model,omitempty"`
	Calls   []Call   `json:"calls,omitempty"` // of the last answer, until all are answered
	Check   *Check   `json:"check,omitempty"`
	Guard   *Guard   `json:"guard,omitempty"`   // the check of the input, until it is over
	PassOn  *Passing `json:"pass_on,omitempty"` // another agent takes over
	Stop    *Stop    `json:"stop,omitempty"`    // set = nothing new is issued

	Answers []Answer `json:"answers,omitempty"` // that count for later calls, oldest first
	Notes   []Ref    `json:"notes,omitempty"`   // for the transcript, before the next model call

	Final     *Final   `json:"final,omitempty"`      // the output, once there is one
	UsedTools []string `json:"used_tools,omitempty"` // agents that have used a tool
	// Workspaces say whose workspace an agent works in, by label, for those that were handed to. Others work in their own.
	Workspaces map[string]string `json:"workspaces,omitempty"`
	BadOutput  int               `json:"bad_output,omitempty"` // final outputs that did not fit the schema

	Usage     model.Usage   `json:"usage"`
	MicroUSD  int64         `json:"micro_usd,omitempty"`
	ToolCalls int           `json:"tool_calls,omitempty"` // calls begun
	Elapsed   time.Duration `json:"elapsed_ns,omitempty"`
	LastTime  time.Time     `json:"last_time"`
}

// Span is a part of the transcript, by item number.
type Span struct {
	From int `json:"from"`
	To   int `json:"to"`
}

// Slot is an effect that has a result. It keeps its id until the result is there, also when it is not in flight.
type Slot struct {
	ID       EffectID `json:"id"`
	InFlight bool     `json:"in_flight,omitempty"`
}

// Sandbox is the state of the sandbox as the machine sees it.
type Sandbox struct {
	Slot
	Ready bool `json:"ready,omitempty"`
}

// Stage is how far a tool call is.
type Stage string

// The stages.
const (
	StageAsk    Stage = "ask"    // somebody must decide
	StageRun    Stage = "run"    // to be run
	StageAnswer Stage = "answer" // to be answered with Problem
	StageTwin   Stage = "twin"   // the same call stands before it in this answer; its output serves both
	StageDone   Stage = "done"
)

// Call is a tool call that the model made and that is not settled.
type Call struct {
	CallRef
	Stage   Stage    `json:"stage"`
	Slot    Slot     `json:"slot"`
	Reason  string   `json:"reason,omitempty"` // of StageAsk
	Problem *Problem `json:"problem,omitempty"`
	Output  *Ref     `json:"output,omitempty"`
	OK      bool     `json:"ok,omitempty"`     // the tool succeeded
	Ran     bool     `json:"ran,omitempty"`    // the tool was started
	Repeat  bool     `json:"repeat,omitempty"` // the call id was settled, or taken, before
	Unsure  bool     `json:"unsure,omitempty"` // of StageAsk: the call may have been made, and nobody knows
	// Remember says that the answer counts for later calls. Of StageAsk.
	Remember bool     `json:"remember,omitempty"`
	Handoff  *Handoff `json:"handoff,omitempty"` // a good end of the call hands the run to another agent
	// Suspended says that the call cannot go on for now, and is taken up by a resume. Of StageRun.
	Suspended bool `json:"suspended,omitempty"`
}

// Handoff is what a call hands the run to.
type Handoff struct {
	Agent string `json:"agent"`
	Own   bool   `json:"own,omitempty"` // the agent works in a workspace of its own, else in that of the one before it
}

// Passing is a handover that is being made.
type Passing struct {
	Slot
	Handoff
	Call CallRef `json:"call"`
}

// Guard is the check of the run's input.
type Guard struct {
	Slot
	Beside bool `json:"beside,omitempty"` // the model is asked meanwhile
}

// Answer is a decision about a call that counts for later calls too.
type Answer struct {
	Covers  Cover  `json:"covers"`
	Allow   bool   `json:"allow,omitempty"`
	Message string `json:"message,omitempty"` // of a denial
}

// Cover is a kind of call: those of an agent's tool that also are what the one field says that is set. See
// core/approval, which makes and reads it.
type Cover struct {
	Agent     string   `json:"agent"`
	Tool      string   `json:"tool"`
	Server    string   `json:"server,omitempty"`
	Words     []string `json:"words,omitempty"`     // a plain command that begins with these
	Command   string   `json:"command,omitempty"`   // this command
	Arguments string   `json:"arguments,omitempty"` // these arguments
	Paths     []string `json:"paths,omitempty"`     // on no path but these
}

// CallRef identifies a tool call.
type CallRef struct {
	CallID      string         `json:"call_id"` // the model's
	Kind        model.ToolKind `json:"kind"`
	Name        string         `json:"name"`
	Fingerprint string         `json:"fingerprint"` // over kind, name and arguments
	Item        Ref            `json:"item"`        // holds the arguments
}

// Problem is a failure in the shape in which it goes back to the model.
type Problem struct {
	Code      string `json:"code"`
	Message   string `json:"message"`
	Retryable bool   `json:"retryable,omitempty"`
	Hint      string `json:"hint,omitempty"`
}

// The codes of problems that this package makes or looks at.
const (
	CodeUnknownTool = "unknown_tool"
	CodeCallReused  = "call_id_reused"
	CodeDenied      = "approval_denied"
	CodeInterrupted = "interrupted"
	CodeHandedOver  = "handed_over"
)

// Check is an output that is being checked against the agent's schema.
type Check struct {
	Slot
	Item Ref `json:"item"`
}

// Final is the output of a run: the texts of a message, or of a tool's output. The zero Item is an empty output.
type Final struct {
	Item Ref `json:"item"`
}

// Stop says that the run is ending before it is complete.
type Stop struct {
	Status Status   `json:"status"`
	Error  *Failure `json:"error,omitempty"`
	Output *Ref     `json:"output,omitempty"` // what there is of an output
	Told   bool     `json:"told,omitempty"`   // the executor was told to cancel what is in flight
}

// Failure says why a run ended early.
type Failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// The codes of failures that this package makes.
const (
	FailUnknownTool = "unknown_tool"
	FailNoCallID    = "call_without_id"
	FailRefused     = "refused"
	FailIncomplete  = "incomplete"
	FailOutput      = "invalid_output"
	FailTurns       = "max_turns"
	FailTokens      = "token_budget"
	FailCost        = "cost_budget"
	FailTime        = "time_budget"
	FailToolCalls   = "tool_call_budget"
)

// Remaining is the working time that is left; ok is false when there is no bound. It holds as of the last event.
func (s *State) Remaining() (left time.Duration, ok bool) {
	if s.Config.Limits.WallTime == 0 {
		return 0, false
	}
	return max(0, s.Config.Limits.WallTime-s.Elapsed), true
}

// InFlight lists the ids of the effects that wait for a result, in the order in which they were first issued.
func (s *State) InFlight() []EffectID {
	var ids []EffectID
	add := func(sl *Slot) {
		if sl.InFlight {
			ids = append(ids, sl.ID)
		}
	}
	add(&s.Sandbox.Slot)
	if s.Model != nil {
		add(s.Model)
	}
	for i := range s.Calls {
		add(&s.Calls[i].Slot)
	}
	if s.Check != nil {
		add(&s.Check.Slot)
	}
	if s.Guard != nil {
		add(&s.Guard.Slot)
	}
	if s.PassOn != nil {
		add(&s.PassOn.Slot)
	}
	return ids
}

// OnlyAsks reports whether all that the run waits for are decisions.
func (s *State) OnlyAsks() bool {
	asks := 0
	for i := range s.Calls {
		if c := &s.Calls[i]; c.Stage == StageAsk && c.Slot.InFlight {
			asks++
		}
	}
	return asks > 0 && asks == len(s.InFlight())
}

// clone copies what Step may change.
func (s *State) clone() *State {
	c := *s
	c.Model = cloned(s.Model)
	c.Check = cloned(s.Check)
	c.Stop = cloned(s.Stop)
	c.Guard = cloned(s.Guard)
	c.PassOn = cloned(s.PassOn)
	c.Calls = append([]Call(nil), s.Calls...)
	c.Answers = append([]Answer(nil), s.Answers...)
	c.Notes = append([]Ref(nil), s.Notes...)
	return &c
}

func cloned[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}
