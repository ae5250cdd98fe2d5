// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"encoding/json"
	"time"

	"github.com/berth-dev/berth/core/value"
)

// Agent is an `agent` block: what to do. Any number of runs may use it at once.
type Agent struct {
	Label              string // identity
	Name               string // shown; empty = Label
	Description        string
	HandoffDescription string
	Sandboxed          bool
	Model              *ModelChoice
	Settings           *ModelSettings
	Instructions       Text
	BaseInstructions   *Text // nil = the built-in prompt
	Prompt             *StoredPrompt
	Manifest           *Manifest
	RunAs              string
	Tools              []*Tool
	MCPServers         []*MCPServer
	Handoffs           []*Handoff
	AgentTools         []*AgentTool
	InputGuardrails    []*Guardrail
	OutputGuardrails   []*Guardrail
	OutputSchema       *OutputSchema
	ToolUseBehavior    string // run_llm_again, stop_on_first_tool, stop_at_tools
	StopAtTools        []string
	ResetToolChoice    *bool
	Capabilities       Capabilities
	Approvals          *Approvals
	// OwnModel says that neither the run nor whoever starts it puts another model in the place of Model.
	OwnModel bool
	Hooks    map[string]string // on_start, … -> registered Go name
	Pos      Pos
}

// Capabilities are the sandbox-native abilities; nil = the agent does not have it. After load the default set has been
// filled in.
type Capabilities struct {
	Shell      *ShellCapability
	Filesystem *FilesystemCapability
	Compaction *CompactionCapability
	Skills     *SkillsCapability
	Memory     *MemoryCapability
	Plugins    map[string]map[string]any
}

// ShellCapability runs commands.
type ShellCapability struct {
	DefaultShell    []string // empty = bash -lc where there is bash, else sh -lc
	YieldTime       time.Duration
	MaxOutputTokens int // 0 = 10,000
	Env             map[string]string
	Pos             Pos
}

// FilesystemCapability patches files and looks at images.
type FilesystemCapability struct {
	ApplyPatch bool
	ViewImage  bool
	Pos        Pos
}

// CompactionCapability shortens long transcripts.
type CompactionCapability struct {
	Policy        string // static, dynamic; empty = by model
	Threshold     float64
	ContextWindow int
	Pos           Pos
}

// SkillsCapability gives the agent skills.
type SkillsCapability struct {
	Path     string
	Skills   []Skill
	From     *Entry // local_dir, git_repo or mount
	LazyFrom *Entry // local_dir or git_repo
	Pos      Pos
}

// Skill is an inline skill.
type Skill struct {
	Name, Description, Content, Compatibility string
	Deferred                                  bool
	Entries                                   []Entry
}

// MemoryCapability remembers over runs.
type MemoryCapability struct {
	MemoriesDir, SessionsDir string
	Read                     bool
	LiveUpdate               bool
	Generate                 *MemoryGenerate
	Pos                      Pos
}

// MemoryGenerate is the writing side of memory.
type MemoryGenerate struct {
	MaxRawMemories                     int
	PhaseOneModel, PhaseTwoModel       *ModelChoice
	PhaseOneSettings, PhaseTwoSettings *ModelSettings
	ExtraPrompt                        string
}

// StoredPrompt is a prompt that the provider keeps.
type StoredPrompt struct {
	ID, Version string
	Variables   map[string]string
}

// Handoff passes the run to another agent.
type Handoff struct {
	Agent         *Agent
	ToolName      string // empty = transfer_to_LABEL
	Description   string
	Input         json.RawMessage // JSON Schema; nil = none
	InputFilter   string          // none, remove_all_tools, or a registered Go name
	History       string          // full, nested, last, none
	Workspace     string          // shared, own
	NeedsApproval bool
	Enabled       Expr
	Pos           Pos
}

// AgentTool offers another agent as a tool.
type AgentTool struct {
	Name          string
	Agent         *Agent
	Description   string
	MaxTurns      int
	Enabled       Expr
	NeedsApproval bool
	Parameters    json.RawMessage
	IncludeSchema bool
	Workspace     string // shared, clone, own, none
	History       string // none, full
	Output        Expr
	Budget        Budget
	Pos           Pos
}

// Approvals are rules over tool calls.
type Approvals struct {
	Default string         // auto, allow, ask, deny
	KeepFor *time.Duration // nil = 15 minutes at a terminal, else 0
	Rules   []ApprovalRule
}

// ApprovalRule is one rule; the first that matches decides.
type ApprovalRule struct {
	Name       string
	Tools      []string // globs
	MCPServers []*MCPServer
	Agents     []*Agent
	Match      []string // regular expressions over the command or the JSON arguments
	Paths      []string // globs
	Decision   string   // allow, ask, deny
	Reason     string
	Remember   string // call, run, session
	Pos        Pos
}

// Tool is a `tool` block.
type Tool struct {
	Kind, Label   string // go, command, http, hosted, mcp
	Description   string
	Parameters    json.RawMessage // JSON Schema
	Strict        *bool
	NeedsApproval bool
	ApprovalExpr  Expr
	Timeout       time.Duration
	OnTimeout     string // error_as_result, fail
	DeferLoading  bool
	Enabled       Expr
	InputGuards   []*Guardrail
	OutputGuards  []*Guardrail
	Body          map[string]any // attributes of the kind; run-time parts are Expr, secrets value.Secret
	Pos           Pos
}

// MCPServer is an `mcp_server` block.
type MCPServer struct {
	Kind, Label string // stdio, streamable_http, sse, hosted
	Command     []string
	Env         map[string]value.Secret
	Cwd         string
	RunIn       string // sandbox, host
	URL         string
	Headers     map[string]value.Secret
	Options     map[string]any // the remaining attributes
	Pos         Pos
}

// Guardrail is a `guardrail` block.
type Guardrail struct {
	Stage, Label string // input, output, tool_input, tool_output
	Agent        *Agent
	Tripwire     Expr
	Regex        string
	Require      string // match, no_match
	Command      []string
	Target       string
	Go           string
	Message      string
	Parallel     *bool
	OnTrip       string // halt, reject
	Pos          Pos
}

// OutputSchema is an `output_schema` block.
type OutputSchema struct {
	Label       string
	Schema      json.RawMessage // JSON Schema
	Strict      bool
	Description string
	Retry       int
	Pos         Pos
}
