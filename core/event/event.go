// SPDX-License-Identifier: Apache-2.0

// Package event is the one stream of what happens in a run. The terminal, --json, the run log and later the API and UI
// read it. The set of kinds is closed; fields are only ever added.
package event

import (
	"encoding/json"
	"time"

	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/sdk/driver"
)

// Event is one thing that happened. Seq counts from 1 within a run.
type Event struct {
	Seq   uint64    `json:"seq"`
	Time  time.Time `json:"time"`
	RunID string    `json:"run_id"`
	Agent string    `json:"agent,omitempty"`
	Turn  int       `json:"turn,omitempty"`
	Kind  Kind      `json:"type"`
	Data  Data      `json:"data"`
}

// Kind names the type of [Event.Data].
type Kind string

// The kinds.
const (
	KindRunStarted      Kind = "run.started"
	KindRunFinished     Kind = "run.finished"
	KindWarning         Kind = "warning"
	KindSandboxProgress Kind = "sandbox.progress"
	KindSandboxReady    Kind = "sandbox.ready"
	KindSandboxLost     Kind = "sandbox.lost" // the driver or the sandbox died; recovery follows
	KindSandboxEnded    Kind = "sandbox.ended"
	KindTurnStarted     Kind = "turn.started"
	KindModelDelta      Kind = "model.delta"
	KindModelRetry      Kind = "model.retry"
	KindModelDone       Kind = "model.done"
	KindToolStarted     Kind = "tool.started"
	KindToolOutput      Kind = "tool.output"
	KindToolFinished    Kind = "tool.finished"
	KindApprovalWanted  Kind = "approval.wanted"
	KindApprovalDecided Kind = "approval.decided"
	KindAgentChanged    Kind = "agent.changed"
	KindGuardrailAsked  Kind = "guardrail.asked"
	KindCompacted       Kind = "context.compacted"
	KindMemoryWritten   Kind = "memory.written"
)

// Data is the content of an event; one type per [Kind].
type Data interface{ Kind() Kind }

// RunStarted is the first event.
type RunStarted struct {
	Input   string `json:"input"`
	Model   string `json:"model"`
	Driver  string `json:"driver,omitempty"`
	Resumed bool   `json:"resumed,omitempty"`
}

// RunFinished is the last event.
type RunFinished struct {
	// completed, failed, cancelled, max_turns, budget, paused
	Status string      `json:"status"`
	Code   string      `json:"code,omitempty"` // of the failure
	Output string      `json:"output,omitempty"`
	Error  string      `json:"error,omitempty"`
	Hint   string      `json:"hint,omitempty"` // what to do next, for example how to resume
	Usage  model.Usage `json:"usage"`
	Turns  int         `json:"turns"`
}

// Warning is something that a person should know.
type Warning struct {
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// SandboxProgress is news while a sandbox is made.
type SandboxProgress struct {
	Phase   string `json:"phase"`
	Message string `json:"message,omitempty"`
	Done    uint64 `json:"done,omitempty"`
	Total   uint64 `json:"total,omitempty"`
}

// SandboxReady says what the agent works in and what is enforced.
type SandboxReady struct {
	SandboxID  string             `json:"sandbox_id"`
	Driver     string             `json:"driver"`
	Root       string             `json:"root"`
	Isolation  []driver.Isolation `json:"isolation,omitempty"`
	Reattached bool               `json:"reattached,omitempty"`
	Ports      []Port             `json:"ports,omitempty"` // that were asked for
}

// Port is a port inside a sandbox that is reachable from outside.
type Port struct {
	Port uint16 `json:"port"`
	URL  string `json:"url"`
	// Here says that the address is one of this machine and is served by this process, for as long as it has the session.
	Here bool `json:"here,omitempty"`
}

// SandboxLost says that the sandbox or its driver died.
type SandboxLost struct {
	SandboxID string `json:"sandbox_id"`
	Reason    string `json:"reason"`
}

// SandboxEnded says what became of the sandbox.
type SandboxEnded struct {
	SandboxID string `json:"sandbox_id"`
	// destroyed, stopped, paused, kept
	Outcome string `json:"outcome"`
}

// TurnStarted precedes each model call.
type TurnStarted struct{}

// ModelDelta is text as it comes.
type ModelDelta struct {
	Text      string `json:"text,omitempty"`
	Reasoning string `json:"reasoning,omitempty"`
}

// ModelRetry voids the deltas of this turn so far.
type ModelRetry struct {
	Attempt int           `json:"attempt"`
	After   time.Duration `json:"after_ns"`
	Error   string        `json:"error"`
}

// ModelDone ends a model call.
type ModelDone struct {
	ResponseID string      `json:"response_id,omitempty"`
	Text       string      `json:"text,omitempty"` // of the messages in this response
	Usage      model.Usage `json:"usage"`
	ToolCalls  int         `json:"tool_calls"`
}

// ToolStarted is a call that begins.
type ToolStarted struct {
	CallID    string `json:"call_id"`
	Tool      string `json:"tool"`
	Arguments string `json:"arguments"`
}

// ToolOutput is a part of a running command's output.
type ToolOutput struct {
	CallID string `json:"call_id"`
	Text   string `json:"text,omitempty"`
	Note   string `json:"note,omitempty"`
}

// ToolFinished is a call that ended.
type ToolFinished struct {
	CallID   string         `json:"call_id"`
	Tool     string         `json:"tool"`
	OK       bool           `json:"ok"`
	Summary  string         `json:"summary,omitempty"`
	Code     string         `json:"code,omitempty"` // of a failure
	Detail   map[string]any `json:"detail,omitempty"`
	Duration time.Duration  `json:"duration_ns"`
	Text     string         `json:"-"` // what the model gets, for a trace that may hold it
}

// ApprovalWanted pauses the run until somebody decides.
type ApprovalWanted struct {
	CallID    string          `json:"call_id"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Reason    string          `json:"reason,omitempty"`
	// Unsure says that the call may have been made before berth ended; to allow it makes it (again).
	Unsure bool `json:"unsure,omitempty"`
	// Covers says which calls an answer covers that is to count for later ones; empty = it cannot.
	Covers string `json:"covers,omitempty"`
}

// ApprovalDecided ends the wait for a decision.
type ApprovalDecided struct {
	CallID  string `json:"call_id"`
	Tool    string `json:"tool"`
	Allow   bool   `json:"allow"`
	Message string `json:"message,omitempty"`
	By      string `json:"by,omitempty"`
	Covers  string `json:"covers,omitempty"` // the later calls that it decides too; empty = none
}

// AgentChanged says that another agent goes on with the run.
type AgentChanged struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// GuardrailAsked says what a guardrail found.
type GuardrailAsked struct {
	Guardrail string `json:"guardrail"`
	Stage     string `json:"stage"` // input, output, tool_input, tool_output
	Tripped   bool   `json:"tripped,omitempty"`
	Message   string `json:"message,omitempty"`
}

// Compacted says that a summary of the model's takes the place of what came before.
type Compacted struct {
	Tokens int64 `json:"tokens"` // that the request would have had, by estimate
	Items  int   `json:"items"`
}

// MemoryWritten says that an agent's memory was brought up to date. Its usage is not part of the run's.
type MemoryWritten struct {
	Agent    string      `json:"agent"`
	Rollouts int         `json:"rollouts"` // pieces of work that were looked at
	Failed   int         `json:"failed,omitempty"`
	Merged   bool        `json:"merged"` // the handbook is new
	Usage    model.Usage `json:"usage"`
}

func (RunStarted) Kind() Kind      { return KindRunStarted }
func (RunFinished) Kind() Kind     { return KindRunFinished }
func (Warning) Kind() Kind         { return KindWarning }
func (SandboxProgress) Kind() Kind { return KindSandboxProgress }
func (SandboxReady) Kind() Kind    { return KindSandboxReady }
func (SandboxLost) Kind() Kind     { return KindSandboxLost }
func (SandboxEnded) Kind() Kind    { return KindSandboxEnded }
func (TurnStarted) Kind() Kind     { return KindTurnStarted }
func (ModelDelta) Kind() Kind      { return KindModelDelta }
func (ModelRetry) Kind() Kind      { return KindModelRetry }
func (ModelDone) Kind() Kind       { return KindModelDone }
func (ToolStarted) Kind() Kind     { return KindToolStarted }
func (ToolOutput) Kind() Kind      { return KindToolOutput }
func (ToolFinished) Kind() Kind    { return KindToolFinished }
func (ApprovalWanted) Kind() Kind  { return KindApprovalWanted }
func (ApprovalDecided) Kind() Kind { return KindApprovalDecided }
func (AgentChanged) Kind() Kind    { return KindAgentChanged }
func (GuardrailAsked) Kind() Kind  { return KindGuardrailAsked }
func (Compacted) Kind() Kind       { return KindCompacted }
func (MemoryWritten) Kind() Kind   { return KindMemoryWritten }
