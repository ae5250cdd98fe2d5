// SPDX-License-Identifier: Apache-2.0

// Package spec is what a project says, as immutable data: agents, manifests, sandboxes, models, runs. Package config
// decodes HCL into it, programs build it by hand, and every other layer only reads it. It does no I/O.
//
// The zero value of a field means that the file did not say it, unless the field's comment says otherwise. Defaults
// that belong to a layer are applied by that layer.
package spec

import (
	"fmt"
	"time"

	"github.com/berth-dev/berth/core/value"
)

// Pos is where something was said, for errors. The zero Pos is nowhere.
type Pos struct {
	File         string
	Line, Column int
}

// Project is everything that one directory of files says.
type Project struct {
	Dir string // absolute directory of the configuration

	RequiredVersion string
	RequiredDrivers map[string]DriverRequirement

	Providers      map[string]*ModelProvider
	Models         map[string]*Model
	Drivers        map[string]*DriverProcess
	SnapshotStores map[string]*SnapshotStore // key "KIND.NAME"
	Manifests      map[string]*Manifest
	Sandboxes      map[string]*Sandbox
	MCPServers     map[string]*MCPServer // key "KIND.NAME"
	Tools          map[string]*Tool      // key "KIND.NAME"
	Guardrails     map[string]*Guardrail // key "STAGE.NAME"
	OutputSchemas  map[string]*OutputSchema
	Agents         map[string]*Agent
	Runs           map[string]*Run
}

// DriverRequirement is one entry of required_drivers.
type DriverRequirement struct {
	Source  string // namespace/name
	Version string // constraint
	Pos     Pos
}

// Text is a text that is known at load time, or an expression over run.* and, in tools, param.*.
type Text struct {
	Literal string
	Expr    Expr // nil = Literal
}

// Eval gives the text.
func (t Text) Eval(vars RunVars) (string, error) {
	if t.Expr == nil {
		return t.Literal, nil
	}
	v, err := t.Expr.Eval(vars)
	if err != nil {
		return "", err
	}
	switch v := v.(type) {
	case string:
		return v, nil
	case nil:
		return "", nil
	default:
		return fmt.Sprint(v), nil
	}
}

// Expr is an expression that is evaluated at run time. Errors carry the place in the file.
type Expr interface {
	Eval(vars RunVars) (any, error) // string, float64, bool, nil, []any, map[string]any
	Pos() Pos
}

// RunVars are the names that run-time expressions may use.
type RunVars struct {
	RunID     string
	Input     string
	Vars      map[string]any
	StartedAt time.Time
	Agent     string
	SandboxID string
	Ports     map[string]string // port -> URL
	Params    map[string]any    // arguments of a tool call
	Output    any               // what a guardrail looks at
}

// Enabled evaluates an `enabled` attribute; nothing said is yes.
func Enabled(e Expr, vars RunVars) (bool, error) {
	if e == nil {
		return true, nil
	}
	v, err := e.Eval(vars)
	if err != nil {
		return false, fmt.Errorf("enabled: %w", err)
	}
	on, ok := v.(bool)
	if !ok {
		return false, fmt.Errorf("enabled is %v, it has to be true or false", v)
	}
	return on, nil
}

// DriverConfig is a driver's configuration body, checked against the driver's schema at load.
type DriverConfig interface {
	// Encode resolves secrets and gives the driver's value. The error carries file and line.
	Encode() (DriverValue, error)
	Pos() Pos
}

// DriverValue is an encoded body; see schema.Value.
type DriverValue struct {
	MsgPack []byte
	JSON    []byte
}

// DriverProcess is a `driver` block: the configuration of one driver process.
type DriverProcess struct {
	Label        string
	Uses         string // name in required_drivers; empty = Label
	Config       DriverConfig
	LogLevel     string
	Env          map[string]value.Secret
	IdleTimeout  *time.Duration // nil = 10 minutes, 0 = never
	MaxSandboxes int
	Pos          Pos
}

// Sandbox is a `sandbox` block.
type Sandbox struct {
	Label    string
	Driver   string // label of a driver block, else a driver's name
	Config   DriverConfig
	Ports    []Port
	Snapshot *SnapshotPolicy
	Session  SessionPolicy
	Lifetime Lifetime
	Limits   Limits
	Archive  ArchiveLimits
	Network  Network
	Trusted  []string // trusted_mount_credential_paths
	Timeouts Timeouts
	Pos      Pos
}

// Port is one exposed port.
type Port struct {
	Port     uint16
	Protocol string // http, https, tcp, ws; empty = http
	Public   bool
}

// SnapshotPolicy is a `snapshot` block of a sandbox.
type SnapshotPolicy struct {
	Kind     string // store, local, none
	Store    *SnapshotStore
	Dir      string
	Persist  string // on_stop, every_turn, interval, manual, never
	Interval time.Duration
	Restore  string // latest, never, or an id
	Exclude  []string
	Native   string // auto, never, always
	Pos      Pos
}

// SnapshotStore is a `snapshot_store` block.
type SnapshotStore struct {
	Kind, Label string
	Fields      map[string]any // of the kind; see mounts/spec
	Credentials map[string]value.Secret
	Ambient     bool // use what identity the host's environment has
	Prefix      string
	Compression string // zstd, none
	Key         value.Secret
	Keep        int
	MaxAge      time.Duration
	Pos         Pos
}

// SessionPolicy says where a session comes from and what becomes of it.
type SessionPolicy struct {
	Source    string // create, resume, resume_or_create, attach; empty = create
	Key       Text
	StateFile string
	OnGone    string // fail, restore_snapshot, create; empty = fail
	OnDrift   string // reuse, recreate, fail; empty = fail where it cannot be given anew, else tell
	AtEnd     string // destroy, stop, pause, keep; empty = stop
	OrphanTTL *time.Duration
	Pos       Pos
}

// Lifetime bounds a sandbox's life.
type Lifetime struct {
	Max            time.Duration
	Extend         *bool
	SnapshotBefore time.Duration
	Idle           time.Duration
}

// Limits bound concurrency and output; nil = default, 0 = unlimited.
type Limits struct {
	ManifestEntries *int
	LocalDirFiles   *int
	Processes       *int
	OutputBytes     *uint64 // of head and of tail
	MemoryBytes     uint64
	CPUs            float64
}

// ArchiveLimits bound imports; zero = default.
type ArchiveLimits struct{ MaxInputBytes, MaxExtractedBytes, MaxMembers uint64 }

// Network is a `network` block.
type Network struct {
	Mode  string
	Allow []string
	Pos   Pos
}

// Timeouts bound the sandbox's operations; nil = default, 0 = none.
type Timeouts struct{ Create, Resume, Exec, Stop *time.Duration }

// Run is a `run` block.
type Run struct {
	Label            string
	Agent            *Agent
	Sandbox          *Sandbox  // nil = the default driver
	Manifest         *Manifest // nil = the agent's
	Input            string
	MaxTurns         *int // nil = 10; 0 = no bound
	Cwd              string
	Model            *ModelChoice
	Settings         *ModelSettings
	InputGuardrails  []*Guardrail
	OutputGuardrails []*Guardrail
	WorkflowName     string
	ConversationID   string
	PreviousResponse string
	SessionStore     string
	SessionID        Text
	SessionLimit     int
	HandoffHistory   string
	MaxToolsAtOnce   int // 0 = no bound
	GuardFirst       bool
	OnUnknownTool    string // return_error, raise
	OnToolCollision  string // error, warn
	ReasoningIDs     string // preserve, omit
	Budget           Budget
	Approvals        *Approvals
	Trace            *Trace
	Vars             map[string]any
	Pos              Pos
}

// Budget bounds a run; zero = no bound.
type Budget struct {
	TotalTokens int64
	CostUSD     float64
	WallTime    time.Duration
	ToolCalls   int
}

// Trace is a `trace` block.
type Trace struct {
	Disabled             bool
	ID, GroupID          string
	Metadata             map[string]any
	IncludeSensitiveData bool
	IncludeTurnSpans     *bool
	APIKey               value.Secret
}
