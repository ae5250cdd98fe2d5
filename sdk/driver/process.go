// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"io"
	"time"
)

// DefaultKillGrace is the time between SIGTERM and SIGKILL when a command says nothing else.
const DefaultKillGrace = 2 * time.Second

// DefaultReplayBytes is how much output is kept for a later attach when a command says nothing else.
const DefaultReplayBytes = 1 << 20

// Command is one command to run.
type Command struct {
	// ID is chosen by the caller, unique in the sandbox, and also the idempotency key. Empty = one is made.
	ID        string
	Argv      []string // never empty; Argv[0] is looked up in the sandbox's PATH unless it holds a slash
	Env       map[string]string
	SecretEnv map[string]string // like Env, but never stored, logged or shown
	Dir       string            // absolute, or relative to the workspace root; empty = the root
	User      string            // empty = the sandbox's default
	TTY       bool              // a terminal: output arrives on Stdout only
	Size      Size              // of the terminal; zero = 24 × 80
	Timeout   time.Duration     // 0 = none; when it ends, the whole tree is ended and Exit.TimedOut is set
	KillGrace time.Duration     // 0 = DefaultKillGrace
	// Detached lets the process outlive the context of Run: the caller attaches again by ID.
	Detached    bool
	ReplayBytes uint64 // 0 = DefaultReplayBytes
}

// Streams connect a command. The callee never closes them.
//
// Output offsets count all bytes of Stdout and Stderr together, in the order in which they are written; Stdout and
// Stderr are never written at the same time. That order is the one in which the process wrote, as far as two pipes tell:
// of what waits in both, the pipe that was written to first comes first, and whole.
type Streams struct {
	Stdin   io.Reader // nil = closed from the start
	Stdout  io.Writer // nil = thrown away
	Stderr  io.Writer
	Resize  <-chan Size   // nil = never; closing it means nothing
	Signals <-chan Signal // nil = never; each goes to the whole tree unless LeaderOnly
	OnStart func(Started) // nil = not wanted; called once, before any output
	OnGap   func(Gap)     // nil = not wanted; output between the offsets was not kept
}

// Size of a terminal, in characters.
type Size struct{ Rows, Cols uint16 }

// Signal is a signal for a process.
type Signal struct {
	Name       string // without SIG: TERM, KILL, INT, HUP, …
	LeaderOnly bool   // not to the whole tree
}

// Started says that the process exists.
type Started struct {
	ProcessID  string
	PID        int64 // inside the sandbox; 0 = unknown
	Reattached bool
}

// Gap is output that was lost, by offsets: From is the first byte missing, To the first byte present again.
type Gap struct{ From, To uint64 }

// Exit is how a process ended.
type Exit struct {
	Code         int    // 0…255; 128+n when a signal ended it
	Signal       string // its name without SIG, when a signal ended it
	TimedOut     bool
	OOM          bool // the kernel ended it for lack of memory (a counter said so, not a guess)
	KilledByStop bool
	Ran          time.Duration
	OutputBytes  uint64
}

// Process is one process that was started through the driver.
type Process struct {
	ID          string
	PID         int64
	Argv        []string
	User        string
	TTY         bool
	Started     time.Time
	Exit        *Exit // nil while it runs
	OutputBytes uint64
}
