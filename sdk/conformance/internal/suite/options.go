// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"io"
	"net/http"
	"time"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/handshake"
	"github.com/berth-dev/berth/sdk/schema"
)

// Version is the version of the suite: it changes when a check is added, dropped or made stricter.
const Version = "1"

// The defaults of [Options].
const (
	DefaultRepeat    = 10
	DefaultLives     = 50
	DefaultTimeout   = 2 * time.Minute
	DefaultWorkspace = "/workspace"
)

// Options say which driver is tested and how. Exactly one of Binary, Driver and Reattach is set.
type Options struct {
	Binary string // path of a driver program; the suite starts and ends it as often as it needs
	// Driver makes a driver in this process, once for each process that a binary would be started as. What one value
	// has created another one must find again by its state.
	Driver   func() driver.Driver
	Reattach *handshake.Reattach // a driver that runs already; what needs another process is skipped

	Env           []string     // more environment of the driver process, as NAME=value
	ProcessConfig schema.Value // of the driver block
	SandboxConfig schema.Value // of a sandbox's config block
	Workspace     string       // root of the workspace inside; empty = DefaultWorkspace
	// Secrets are texts of the two configurations that must not show in state, logs or errors.
	Secrets []string

	// Storage is what the checks attach, for each kind and strategy that the driver claims.
	Storage []Storage

	Only     []string          // groups, or "group/check"; empty = all
	Skip     map[string]string // "group/check", or a group, to the reason
	Repeat   int               // how often idempotent calls are made; 0 = DefaultRepeat
	Lives    int               // sandboxes that come and go where leaks are looked for; 0 = DefaultLives, fewer find larger leaks only
	Parallel int               // checks at once within a group; 0 = 1
	Timeout  time.Duration     // of one check; 0 = DefaultTimeout
	Budget   Budget            // what the run may cost
	Faults   bool              // also kill drivers
	Perf     bool              // also measure
	// Small is a directory inside, on a file system of its own with 64 MiB at most, that checks may fill. Empty = a host
	// directory is granted, where the driver can and the suite may mount one.
	Small string
	// Transport carries the requests to exposed ports; nil = one of the suite's own. The addresses of a fake vendor may be in no
	// directory, and their certificates signed by nobody.
	Transport *http.Transport
	// States are states of sandboxes that are gone, by this version of the driver and by earlier ones.
	States []SavedState
	// KeepOnFail leaves the sandboxes of failed checks, and says which.
	KeepOnFail bool
	Log        io.Writer // takes what driver processes write to standard error; nil = nowhere
}

// Storage is storage that can be attached, and may be written to.
type Storage struct {
	Spec          driver.MountSpec // but for ID, Path and ReadOnly
	File, Content string           // what is there
}

// SavedState is the state of a sandbox as the core keeps it.
type SavedState struct {
	SandboxID string       `json:"sandbox_id"`
	State     driver.State `json:"state"`
}

func (o *Options) fill() {
	if o.Workspace == "" {
		o.Workspace = DefaultWorkspace
	}
	if o.Repeat <= 0 {
		o.Repeat = DefaultRepeat
	}
	if o.Lives <= 0 {
		o.Lives = DefaultLives
	}
	if o.Parallel <= 0 || o.Budget.Sandboxes > 0 {
		o.Parallel = 1
	}
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
}
