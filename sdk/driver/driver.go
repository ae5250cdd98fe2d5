// SPDX-License-Identifier: Apache-2.0

// Package driver is what a driver author implements: six methods, and optional interfaces for what the kind of
// sandbox can do natively.
//
// # The words
//
// A driver makes sandboxes of one kind. A sandbox is one live, isolated environment with a workspace root. The core
// chooses every id. Paths inside a sandbox are POSIX strings, absolute or relative to the workspace root, on every
// host.
//
// # Optional interfaces
//
// A [Driver] or [Sandbox] value may implement any of the interfaces in optional.go. They are found by type assertion
// once per value. What is missing the SDK emulates through [Sandbox.Run] where it can, and refuses with
// errs.Unsupported where it cannot. [Description.Features] names what is native.
//
// # Rules
//
// Every method may be called from several goroutines. A method returns when its context ends, and stops the remote
// work too. Errors are *errs.Error; anything else reaches the core as errs.Internal and fails the conformance suite.
// No argument may be kept or changed after the call, unless its comment says so.
package driver

import (
	"cmp"
	"context"
	"time"

	"github.com/berth-dev/berth/sdk/schema"
)

// Driver makes sandboxes of one kind.
type Driver interface {
	// Describe is static: it does no I/O but probing of this machine, and always answers the same.
	Describe() Description

	// Create makes a sandbox. The same SandboxID twice MUST give the same sandbox. A create that fails or is cancelled
	// MUST leave nothing behind, or something that List finds.
	Create(ctx context.Context, req *CreateRequest) (Sandbox, error)

	// Resume finds a sandbox again by what [Sandbox.State] gave. It MUST answer errs.SandboxGone when the sandbox no
	// longer exists, and never make a fresh one.
	Resume(ctx context.Context, req *ResumeRequest) (Sandbox, error)
}

// Sandbox is one live sandbox.
type Sandbox interface {
	// State is what Resume needs: at most 64 KiB and no secret. It may change during the sandbox's life.
	State() State

	// Run runs one command to its end. A non-zero exit is a result and not an error. When ctx ends first the whole
	// process tree MUST be ended, unless cmd.Detached. Run returns when the process has ended, not when every process
	// that holds its pipes has.
	Run(ctx context.Context, cmd *Command, streams Streams) (Exit, error)

	// Destroy ends every process and removes everything. Idempotent.
	Destroy(ctx context.Context) error
}

// Description says what a driver is and can do.
type Description struct {
	Name          string // [a-z][a-z0-9-]{0,38}
	Version       string // semantic version
	Features      []Feature
	ProcessConfig *schema.Schema // of the driver block; nil = none
	SandboxConfig *schema.Schema // of the sandbox's config block; nil = none
	Mounts        []MountSupport
	Limits        Limits
	Platforms     []Platform // where sandboxes can be made; empty = everywhere
	Docs          string     // address of the documentation
	StateVersion  uint32
	// StateReadable are the older state versions that Resume still takes.
	StateReadable   []uint32
	SecretsEnv      []string // environment variables that the driver would like to be given
	Unimplementable []Unimplementable
	Isolation       []Isolation // what is enforced on this machine; found by probing
}

// Isolation says what is enforced on one axis.
type Isolation struct {
	Axis      string `json:"axis"`      // filesystem, processes, kill, network, unix_sockets, user, kernel, limits, …
	Statement string `json:"statement"` // exact, for people
	Strength  uint32 `json:"strength"`  // higher is stronger, within the axis; 0 = not isolated
	Gap       string `json:"gap,omitempty"`
}

// MountSupport is one kind of storage with the strategies that work for it.
type MountSupport struct {
	Kind         string
	Strategies   []string
	ReadOnlyOnly bool
}

// Limits are the kind's own bounds; zero = none known.
type Limits struct {
	MaxSandboxes   uint32
	MaxLifetime    time.Duration
	MaxFileBytes   uint64
	MaxExecTimeout time.Duration
}

// Platform is an operating system and a processor, in Go's words.
type Platform struct{ OS, Arch string }

// Unimplementable is a feature that this kind of sandbox can never have.
type Unimplementable struct {
	Feature Feature
	Reason  string
}

// CreateRequest describes the sandbox that is wanted.
type CreateRequest struct {
	SandboxID string // ULID
	Config    schema.Value
	Workspace Workspace
	Env       map[string]string
	SecretEnv map[string]string // like Env, but never stored, logged or shown
	Ports     []uint16
	Mounts    []MountSpec
	Grants    []PathGrant
	Accounts  Accounts
	Labels    map[string]string
	// NativeSnapshot restores from the driver's own snapshot; empty = a fresh sandbox.
	NativeSnapshot string
	MaxLifetime    time.Duration // 0 = the driver's default
	Network        NetworkPolicy
	OrphanTTL      *time.Duration // nil = 2 minutes; 0 = end at once when nobody is attached
	RunAs          string         // user of commands that name none; empty = the driver's default
	Limits         ResourceLimits
	// Progress may be called with news until Create returns; it is never nil when the SDK calls.
	Progress func(Progress)
}

// ResumeRequest finds a sandbox again. Everything but ID and State comes from today's configuration.
type ResumeRequest struct {
	SandboxID string
	State     State
	Config    schema.Value
	Env       map[string]string
	SecretEnv map[string]string
	Mounts    []MountSpec
	Grants    []PathGrant
	OrphanTTL *time.Duration
	Progress  func(Progress)
}

// Workspace is where the agent works.
type Workspace struct {
	Root  string // absolute POSIX path inside the sandbox
	Owner string // empty = the sandbox's default user
	Group string
	Mode  uint32 // 0 = 0755
	// Template is the key of a workspace that the driver may have materialised before: the same key is the same
	// contents. Empty = never reuse. See [Preserved] and [ImportOptions.Template].
	Template string
}

// PathGrant makes a host path visible inside the sandbox.
type PathGrant struct {
	Path        string // inside
	HostPath    string // empty = the same as Path
	ReadOnly    bool
	Description string
}

// Accounts are the users and groups that must exist inside the sandbox.
type Accounts struct {
	Users  []string
	Groups []Group
}

// Group is a group with its members.
type Group struct {
	Name  string
	Users []string
}

// NetworkPolicy bounds what the sandbox may reach.
type NetworkPolicy struct {
	Mode  string // "" or "default", "none", "allow_list"
	Allow []string
}

// ResourceLimits bound the sandbox; zero = the driver's default.
type ResourceLimits struct {
	Processes   uint32
	MemoryBytes uint64
	CPUs        float64
	FileBytes   uint64
	OpenFiles   uint32
}

// Replace puts what is bounded here in the place of a driver's own figures, and leaves the others.
func (l ResourceLimits) Replace(processes *uint32, memory *uint64, cpus *float64, fileSize *uint64, openFiles *uint32) {
	*processes = cmp.Or(l.Processes, *processes)
	*memory = cmp.Or(l.MemoryBytes, *memory)
	*cpus = cmp.Or(l.CPUs, *cpus)
	*fileSize = cmp.Or(l.FileBytes, *fileSize)
	*openFiles = cmp.Or(l.OpenFiles, *openFiles)
}

// MountSpec is storage to attach. See package mounts/spec for kinds and fields.
type MountSpec struct {
	ID             string
	Kind           string
	Path           string
	ReadOnly       bool
	Strategy       string
	Source         schema.Value
	StrategyConfig schema.Value
	Credentials    map[string]string // never stored, logged or shown
	HostPath       string            // a directory of the driver's host that already holds the mount
}

// State is a driver's own record of a sandbox.
type State struct {
	Version  uint32            `json:"version"`
	Data     []byte            `json:"data"`
	Display  map[string]string `json:"display,omitempty"` // facts for people
	Deadline time.Time         `json:"deadline,omitzero"` // when the vendor will end it; zero = never
}

// Progress is news of a long operation.
type Progress struct {
	Phase       string // pulling, creating, starting, mounting, …
	Message     string
	Done, Total uint64 // Total 0 = unknown
}

// Info is what is known of a sandbox.
type Info struct {
	SandboxID string
	Status    Status
	Labels    map[string]string
	Created   time.Time
	Deadline  time.Time
	Root      string // workspace root inside
	OS, Arch  string
	Isolation []Isolation
	Display   map[string]string
	Features  []Feature // of this sandbox, where they differ from the driver's
}

// Status is where a sandbox is in its life.
type Status string

// The states of a sandbox.
const (
	StatusCreating Status = "creating"
	StatusRunning  Status = "running"
	StatusPaused   Status = "paused"
	StatusStopped  Status = "stopped"
	StatusGone     Status = "gone"
)
