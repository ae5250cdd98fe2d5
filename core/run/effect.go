// SPDX-License-Identifier: Apache-2.0

package run

// Effect is work for the executor: [Persist], [PrepareSandbox], [CallModel], [RunTool], [AskApproval], [AnswerCall],
// [CheckOutput], [CheckInput], [PassOn], [CancelEffects], [Emit] or [Finish]. The effects of a step are started in their order; those that have
// a result run at the same time.
type Effect interface{ effectType() string }

// Persist puts the step's event into the log and the items at the end of the transcript. It is the first effect of
// every step that changed the state, and MUST be complete before the others start. It has no result: an executor that
// cannot persist must not go on.
type Persist struct {
	Items []Ref `json:"items,omitempty"`
	// Settled are the tool calls that got their output in this step. The executor keeps them for [PlannedCall.Prior].
	Settled []SettledCall `json:"settled,omitempty"`
	// Sync asks for stable storage, before a tool is run and at the end of a run: a power failure must not undo it.
	Sync bool `json:"sync,omitempty"`
}

// SettledCall is a tool call with its output.
type SettledCall struct {
	CallID string `json:"call_id"`
	PriorCall
}

// PrepareSandbox opens the sandbox of an agent. The result is [SandboxPrepared] or [SandboxFailed].
type PrepareSandbox struct {
	ID    EffectID `json:"id"`
	Agent string   `json:"agent"`
	// Workspace is the label of the agent whose workspace it is; empty = the run's first.
	Workspace string `json:"workspace,omitempty"`
}

// CheckInput looks at the run's input: at what can be known before there is a sandbox, or Beside the first model call at
// the rest. The result is [InputChecked].
type CheckInput struct {
	ID     EffectID `json:"id"`
	Agent  string   `json:"agent"`
	Beside bool     `json:"beside,omitempty"`
}

// PassOn hands the run to another agent, after a call that asked for it. The result is [PassedOn] or [PassOnFailed].
type PassOn struct {
	ID    EffectID `json:"id"`
	From  string   `json:"from"`
	To    string   `json:"to"`
	Call  CallRef  `json:"call"`
	Items Span     `json:"items"` // what the last request held, and what came since
}

// CallModel sends the span of the transcript to the agent's model. The result is [ModelAnswered] or [ModelFailed].
type CallModel struct {
	ID    EffectID `json:"id"`
	Agent string   `json:"agent"`
	Turn  int      `json:"turn"`
	Items Span     `json:"items"`
	// ResetToolChoice leaves the configured tool choice out.
	ResetToolChoice bool `json:"reset_tool_choice,omitempty"`
}

// RunTool performs a tool call. The result is [ToolDone], [ToolFailed] or [ToolSuspended], or with Again [ToolUnsure].
type RunTool struct {
	ID    EffectID `json:"id"`
	Agent string   `json:"agent"`
	Call  CallRef  `json:"call"`
	// Again says that the call may have been started before, and that its end is not known.
	Again bool `json:"again,omitempty"`
}

// AskApproval wants a decision about a call. The result is [Decided].
type AskApproval struct {
	ID     EffectID `json:"id"`
	Agent  string   `json:"agent"`
	Call   CallRef  `json:"call"`
	Reason string   `json:"reason,omitempty"`
	// Remember says that the answer counts for later calls.
	Remember bool `json:"remember,omitempty"`
	// Unsure says that the call may have been made before; allowing it makes it (again).
	Unsure bool `json:"unsure,omitempty"`
}

// AnswerCall makes the output of a call that is not run. The result is [ToolDone].
type AnswerCall struct {
	ID      EffectID `json:"id"`
	Agent   string   `json:"agent"`
	Call    CallRef  `json:"call"`
	Problem Problem  `json:"problem"`
}

// CheckOutput checks a final output against the agent's schema. The result is [OutputChecked].
type CheckOutput struct {
	ID    EffectID `json:"id"`
	Agent string   `json:"agent"`
	Item  Ref      `json:"item"`
}

// CancelEffects cancels effects that are in flight. Each still gives its result, soon; only an [AskApproval] gives none.
type CancelEffects struct {
	IDs []EffectID `json:"ids"`
}

// Emit tells those who watch.
type Emit struct {
	Notice  Notice   `json:"notice"`
	Effect  EffectID `json:"effect,omitempty"`
	CallID  string   `json:"call_id,omitempty"`
	Message string   `json:"message,omitempty"`
}

// Notice is what an [Emit] is about.
type Notice string

// The notices.
const (
	NoticeTurn     Notice = "turn_started"
	NoticeIgnored  Notice = "result_ignored" // for an effect that is unknown or finished
	NoticeRepeated Notice = "call_repeated"  // the model repeated a settled call; its output was repeated, not the call
	NoticeOutput   Notice = "output_rejected"
	NoticeHandoff  Notice = "handed_over" // the Message is the label of the agent that had the run
)

// Finish is the last effect: the run ended.
type Finish struct {
	Status Status   `json:"status"`
	Output *Ref     `json:"output,omitempty"` // nil = none, or empty
	Error  *Failure `json:"error,omitempty"`  // why it is not Completed
}

func (Persist) effectType() string        { return "persist" }
func (PrepareSandbox) effectType() string { return "prepare_sandbox" }
func (CallModel) effectType() string      { return "call_model" }
func (RunTool) effectType() string        { return "run_tool" }
func (AskApproval) effectType() string    { return "ask_approval" }
func (AnswerCall) effectType() string     { return "answer_call" }
func (CheckOutput) effectType() string    { return "check_output" }
func (CheckInput) effectType() string     { return "check_input" }
func (PassOn) effectType() string         { return "pass_on" }
func (CancelEffects) effectType() string  { return "cancel_effects" }
func (Emit) effectType() string           { return "emit" }
func (Finish) effectType() string         { return "finish" }
