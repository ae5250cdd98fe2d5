// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"io"
	"iter"
	"net"
	"time"

	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/schema"
)

// The interfaces below are optional. The first group belongs to a Driver, the second to a Sandbox.

// Host is what a driver process is told about where it runs.
type Host struct {
	CoreVersion string
	CoreID      string
	RunDir      string // private to this process; removed by the core
	CacheDir    string // shared by all processes of the driver; may be emptied at any time
	StateDir    string // shared, and survives this process and the core
	LogLevel    string
	Orphans     OrphanPolicy
	Labels      map[string]string // put on every sandbox
}

// OrphanPolicy says what becomes of sessions when the core is gone.
type OrphanPolicy uint8

// The policies. Park leaves a sandbox to its own lease or deadline.
const (
	OrphanPark OrphanPolicy = iota + 1
	OrphanStop
	OrphanDestroy
)

// Configurer takes the process configuration, once, before any other call but Describe.
type Configurer interface {
	Configure(ctx context.Context, host Host, config schema.Value) []Diagnostic
}

// Validator checks a sandbox configuration by meaning. It does no network I/O unless online.
type Validator interface {
	Validate(ctx context.Context, config schema.Value, online bool) []Diagnostic
}

// HealthWatcher calls report at once and on each change, until ctx ends.
type HealthWatcher interface {
	WatchHealth(ctx context.Context, report func(Health)) error
}

// Lister finds this driver's sandboxes by labels; all labels must match.
type Lister interface {
	List(ctx context.Context, labels map[string]string) iter.Seq2[Info, error]
}

// Drainer parks or ends every session; report is called for each.
type Drainer interface {
	Drain(ctx context.Context, policy OrphanPolicy, report func(DrainResult)) error
}

// StateUpgrader turns an older state into the current one.
type StateUpgrader interface {
	UpgradeState(from uint32, data []byte) ([]byte, error)
}

// SnapshotStore lists and deletes native snapshots of sandboxes that may be gone.
type SnapshotStore interface {
	Snapshots(ctx context.Context, labels map[string]string) iter.Seq2[NativeSnapshot, error]
	DeleteSnapshot(ctx context.Context, id string) error
}

// Diagnostic is a finding about configuration.
type Diagnostic struct {
	Warning bool // otherwise an error
	Summary string
	Detail  string
	Path    Path
	URL     string
}

// DiagnosticOf makes a finding of an error.
func DiagnosticOf(err error) Diagnostic {
	e, ok := errors.AsType[*errs.Error](err)
	if !ok {
		return Diagnostic{Summary: err.Error()}
	}
	return Diagnostic{Summary: e.Error(), Detail: e.Hint, Path: e.Path}
}

// Health is how a driver is.
type Health struct {
	Healthy     bool
	Description string
}

// DrainResult is what became of one session.
type DrainResult struct {
	SandboxID string
	Outcome   string // parked, stopped, destroyed, failed
	Err       error
}

// NativeSnapshot is a snapshot that the driver's own service keeps.
type NativeSnapshot struct {
	ID        string
	SandboxID string
	Created   time.Time
	Bytes     uint64
	Memory    bool // processes are in it too
	Labels    map[string]string
}

// Stopper ends every process and, with persist, keeps the workspace for Resume.
type Stopper interface {
	Stop(ctx context.Context, persist bool) error
}

// Pauser freezes the sandbox; Resume thaws it.
type Pauser interface {
	Pause(ctx context.Context) error
}

// Inspector says how the sandbox is now.
type Inspector interface {
	Inspect(ctx context.Context) (Info, error)
}

// Preserved tells whether the workspace already holds its contents: it was resumed, or made from a template or a
// native snapshot. Without it a created sandbox is taken as empty and a resumed one as preserved.
type Preserved interface {
	WorkspacePreserved() bool
}

// Reattached tells whether Resume found the sandbox with its processes. Without it the answer is true.
type Reattached interface {
	Reattached() bool
}

// DeadlineExtender moves the vendor's deadline and returns the one that holds now.
type DeadlineExtender interface {
	ExtendDeadline(ctx context.Context, deadline time.Time) (time.Time, error)
}

// Watcher reports what happens to the sandbox until ctx ends.
type Watcher interface {
	Watch(ctx context.Context, report func(Event)) error
}

// Event is something that happened to a sandbox.
type Event struct {
	Kind     EventKind
	Message  string
	Deadline time.Time
	Port     uint16
}

// EventKind is the kind of an [Event].
type EventKind uint8

// The kinds.
const (
	EventDied EventKind = iota + 1
	EventPaused
	EventDeadlineNear
	EventStateChanged
	EventOutOfMemory
	EventPortOpened
	EventPortClosed
)

// FileSystem reads and writes files natively. Paths stay inside the workspace and the granted paths whatever links
// say: errs.PathEscapes otherwise. A link itself is what Remove and Move act on.
type FileSystem interface {
	Stat(ctx context.Context, paths []string, opts StatOptions) ([]StatResult, error)
	List(ctx context.Context, path string, opts ListOptions) iter.Seq2[FileInfo, error]
	// Open reads a regular file as a stream. The caller closes it.
	Open(ctx context.Context, path string, opts ReadOptions) (FileInfo, io.ReadCloser, error)
	Write(ctx context.Context, path string, opts WriteOptions, r io.Reader) (WriteResult, error)
	Mkdir(ctx context.Context, path string, mode uint32, parents bool, user string) error
	// Remove refuses the workspace root. A missing path is errs.FileNotFound unless recursive.
	Remove(ctx context.Context, path string, recursive bool, user string) error
	Move(ctx context.Context, from, to string, replace bool, user string) error
	SetMeta(ctx context.Context, path string, change MetaChange) error
}

// FileWatcher reports changes below path until ctx ends.
type FileWatcher interface {
	WatchFiles(ctx context.Context, path string, recursive bool, resumeToken string, report func(FileEvent)) error
}

// TreeIO moves whole trees as tar streams (PAX).
type TreeIO interface {
	Export(ctx context.Context, opts ExportOptions, w io.Writer) error
	Import(ctx context.Context, opts ImportOptions, r io.Reader) (ImportResult, error)
}

// ProcessTable knows the processes that were started, also those of an earlier driver process.
type ProcessTable interface {
	// Attach follows a process from an output offset, like Run. It also works after the process has ended, as long as
	// the sandbox remembers it. errs.ProcessUnknown otherwise.
	Attach(ctx context.Context, id string, offset uint64, streams Streams) (Exit, error)
	Signal(ctx context.Context, id string, sig Signal) error
	Processes(ctx context.Context) ([]Process, error)
}

// NativeSnapshotter takes snapshots with the kind's own means.
type NativeSnapshotter interface {
	Snapshot(ctx context.Context, name string, memory bool, labels map[string]string) (NativeSnapshot, error)
}

// PortExposer gives a server inside the sandbox an address outside.
type PortExposer interface {
	Expose(ctx context.Context, port uint16, protocol string, public bool) (Endpoint, error)
	Unexpose(ctx context.Context, port uint16) error
}

// PortForwarder connects to a port inside the sandbox.
type PortForwarder interface {
	Dial(ctx context.Context, port uint16) (net.Conn, error)
}

// Endpoint is an address outside. Headers may be secret.
type Endpoint struct {
	Host    string
	Port    uint16
	TLS     bool
	Path    string
	Query   string
	Headers map[string]string
	Expires time.Time
}

// Mounter attaches storage.
type Mounter interface {
	Mount(ctx context.Context, spec MountSpec) (MountInfo, error)
	Unmount(ctx context.Context, id string) error
	RefreshCredentials(ctx context.Context, id string, credentials map[string]string) (expires time.Time, err error)
	ProbeMount(ctx context.Context, id string) error
}

// MountInfo is a mount that is attached.
type MountInfo struct {
	ID, Path           string
	ReadOnly           bool
	Strategy           string
	CredentialsExpires time.Time
}

// AccountKeeper makes users and groups. Idempotent.
type AccountKeeper interface {
	EnsureAccounts(ctx context.Context, accounts Accounts) error
}
