// SPDX-License-Identifier: Apache-2.0

package run

import (
	"time"

	"github.com/berth-dev/berth/core/model"
)

// Event is something that happened: [Start], [Resume], [SandboxPrepared], [SandboxFailed], [ModelAnswered],
// [ModelFailed], [ToolDone], [ToolFailed], [ToolUnsure], [Decided], [OutputChecked], [InputChecked], [PassedOn], [PassOnFailed],
// [ToolSuspended], [Tick], [Pause] or [Cancel].
type Event interface {
	eventType() string
	when() time.Time
}

// Start begins a run.
type Start struct {
	Time   time.Time `json:"time"`
	RunID  string    `json:"run_id"`
	Agent  string    `json:"agent"` // label of the first agent
	Config Config    `json:"config"`
	Input  []Ref     `json:"input"`
}

// Resume goes on with a run that crashed or ended early. Every unfinished effect is issued again.
type Resume struct {
	Time   time.Time `json:"time"`
	Config Config    `json:"config"`
	Notes  []Ref     `json:"notes,omitempty"` // items that the model must be told
}

// SandboxPrepared answers [PrepareSandbox].
type SandboxPrepared struct {
	Time   time.Time `json:"time"`
	Effect EffectID  `json:"effect"`
}

// SandboxFailed answers [PrepareSandbox]. It ends the run.
type SandboxFailed struct {
	Time   time.Time `json:"time"`
	Effect EffectID  `json:"effect"`
	Error  Failure   `json:"error"`
}

// ModelAnswered answers [CallModel].
type ModelAnswered struct {
	Time     time.Time     `json:"time"`
	Effect   EffectID      `json:"effect"`
	Items    []Ref         `json:"items"` // the answer, in order
	Calls    []PlannedCall `json:"calls,omitempty"`
	Output   *Ref          `json:"output,omitempty"`     // the last message with text, nil = none
	Refusal  string        `json:"refusal,omitempty"`    // why the model refused
	Cut      string        `json:"incomplete,omitempty"` // why the answer ended early
	Usage    model.Usage   `json:"usage"`
	MicroUSD int64         `json:"micro_usd,omitempty"`
}

// PlannedCall is a tool call in an answer with what the executor found out about it.
type PlannedCall struct {
	CallRef
	// Problem answers the call without running it: there is no such tool, the arguments are broken, a rule denies it.
	Problem *Problem `json:"problem,omitempty"`
	// Ask wants a decision first. Ignored when there is a Problem.
	Ask    bool   `json:"ask,omitempty"`
	Reason string `json:"reason,omitempty"` // of Ask
	// Remember says that the answer counts for later calls. Of Ask.
	Remember bool `json:"remember,omitempty"`
	// Handoff says that the call hands the run to another agent.
	Handoff *Handoff `json:"handoff,omitempty"`
	// Prior is the settled call of an earlier answer in this run with the same call id.
	Prior *PriorCall `json:"prior,omitempty"`
}

// PriorCall is a call that was settled.
type PriorCall struct {
	Fingerprint string `json:"fingerprint"`
	Output      Ref    `json:"output"`
	OK          bool   `json:"ok,omitempty"`
}

// ModelFailed answers [CallModel] after the provider's retries. It ends the run, unless the run is stopping anyway.
type ModelFailed struct {
	Time   time.Time `json:"time"`
	Effect EffectID  `json:"effect"`
	Error  Failure   `json:"error"`
}

// ToolDone answers [RunTool] and [AnswerCall]: the output that goes to the model, be it good or bad.
type ToolDone struct {
	Time   time.Time `json:"time"`
	Effect EffectID  `json:"effect"`
	Output Ref       `json:"output"`
	OK     bool      `json:"ok,omitempty"` // the tool succeeded
	// Usage and MicroUSD are what the call itself used of models.
	Usage    *model.Usage `json:"usage,omitempty"`
	MicroUSD int64        `json:"micro_usd,omitempty"`
}

// ToolSuspended answers [RunTool] when the call cannot go on for now and a resume can take it up: it waits for a decision
// in a run of its own, or was told to end. The run pauses when nothing else is left to do.
type ToolSuspended struct {
	Time   time.Time `json:"time"`
	Effect EffectID  `json:"effect"`
}

// ToolFailed answers [RunTool] when there is nothing to tell the model: a broken invariant, a policy that ends the run.
type ToolFailed struct {
	Time   time.Time `json:"time"`
	Effect EffectID  `json:"effect"`
	Error  Failure   `json:"error"`
	// Unstarted says that the call was not made: a resume makes it as if for the first time.
	Unstarted bool `json:"unstarted,omitempty"`
}

// ToolUnsure answers [RunTool] with Again when nobody can know whether the call was made. Somebody decides whether it is
// made (again).
type ToolUnsure struct {
	Time   time.Time `json:"time"`
	Effect EffectID  `json:"effect"`
	Reason string    `json:"reason,omitempty"` // for whoever decides
}

// Decided answers [AskApproval].
type Decided struct {
	Time    time.Time `json:"time"`
	Effect  EffectID  `json:"effect"`
	Allow   bool      `json:"allow"`
	Problem *Problem  `json:"problem,omitempty"` // of a denial, for the model; nil = a standard text
	// Answer counts for later calls; nil = the decision is about this call only.
	Answer *Answer `json:"answer,omitempty"`
}

// OutputChecked answers [CheckOutput].
type OutputChecked struct {
	Time     time.Time `json:"time"`
	Effect   EffectID  `json:"effect"`
	Problem  string    `json:"problem,omitempty"`  // empty = the output is good
	Feedback *Ref      `json:"feedback,omitempty"` // of a bad one: the item that tells the model
	Trip     *Failure  `json:"trip,omitempty"`     // a guardrail ends the run
}

// InputChecked answers [CheckInput].
type InputChecked struct {
	Time   time.Time `json:"time"`
	Effect EffectID  `json:"effect"`
	Trip   *Failure  `json:"trip,omitempty"` // a guardrail ends the run
}

// PassedOn answers [PassOn]: the agent is ready.
type PassedOn struct {
	Time    time.Time `json:"time"`
	Effect  EffectID  `json:"effect"`
	Items   []Ref     `json:"items,omitempty"`   // for the transcript
	Replace bool      `json:"replace,omitempty"` // they stand for everything before them
}

// PassOnFailed answers [PassOn]. It ends the run.
type PassOnFailed struct {
	Time   time.Time `json:"time"`
	Effect EffectID  `json:"effect"`
	Error  Failure   `json:"error"`
}

// Tick says that time passed. It makes the working time bound act while an effect is in flight.
type Tick struct {
	Time time.Time `json:"time"`
}

// Pause ends a run that only waits for decisions, until somebody can decide. It is an error in any other state.
type Pause struct {
	Time time.Time `json:"time"`
}

// Cancel ends the run. What is in flight is cancelled and its results are awaited, unless Now is set.
type Cancel struct {
	Time time.Time `json:"time"`
	Now  bool      `json:"now,omitempty"`
}

func (Start) eventType() string           { return "start" }
func (Resume) eventType() string          { return "resume" }
func (SandboxPrepared) eventType() string { return "sandbox_prepared" }
func (SandboxFailed) eventType() string   { return "sandbox_failed" }
func (ModelAnswered) eventType() string   { return "model_answered" }
func (ModelFailed) eventType() string     { return "model_failed" }
func (ToolDone) eventType() string        { return "tool_done" }
func (ToolFailed) eventType() string      { return "tool_failed" }
func (ToolUnsure) eventType() string      { return "tool_unsure" }
func (Decided) eventType() string         { return "decided" }
func (OutputChecked) eventType() string   { return "output_checked" }
func (InputChecked) eventType() string    { return "input_checked" }
func (PassedOn) eventType() string        { return "passed_on" }
func (PassOnFailed) eventType() string    { return "pass_on_failed" }
func (ToolSuspended) eventType() string   { return "tool_suspended" }
func (Tick) eventType() string            { return "tick" }
func (Pause) eventType() string           { return "pause" }
func (Cancel) eventType() string          { return "cancel" }

func (e Start) when() time.Time           { return e.Time }
func (e Resume) when() time.Time          { return e.Time }
func (e SandboxPrepared) when() time.Time { return e.Time }
func (e SandboxFailed) when() time.Time   { return e.Time }
func (e ModelAnswered) when() time.Time   { return e.Time }
func (e ModelFailed) when() time.Time     { return e.Time }
func (e ToolDone) when() time.Time        { return e.Time }
func (e ToolFailed) when() time.Time      { return e.Time }
func (e ToolUnsure) when() time.Time      { return e.Time }
func (e Decided) when() time.Time         { return e.Time }
func (e OutputChecked) when() time.Time   { return e.Time }
func (e InputChecked) when() time.Time    { return e.Time }
func (e PassedOn) when() time.Time        { return e.Time }
func (e PassOnFailed) when() time.Time    { return e.Time }
func (e ToolSuspended) when() time.Time   { return e.Time }
func (e Tick) when() time.Time            { return e.Time }
func (e Pause) when() time.Time           { return e.Time }
func (e Cancel) when() time.Time          { return e.Time }
