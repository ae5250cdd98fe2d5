// SPDX-License-Identifier: Apache-2.0

// Package shell is the capability to run commands in the sandbox: the tools exec_command and write_stdin, with the
// parameters and the result text that models are trained on.
//
// A command that outlives its yield time keeps running under a session number; the model polls it, types into its
// terminal, interrupts it or lets it go. Output is bounded: head and tail are kept, what is dropped is counted.
package shell

import (
	"context"
	"sync"
	"time"

	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/tool"
	"github.com/berth-dev/berth/sdk/driver"
)

// Sandbox is what the capability needs of a session.
type Sandbox interface {
	Run(ctx context.Context, cmd *driver.Command, streams driver.Streams) (driver.Exit, error)
	Attach(ctx context.Context, id string, offset uint64, streams driver.Streams) (driver.Exit, error)
	Signal(ctx context.Context, id string, sig driver.Signal) error
}

// The defaults.
const (
	DefaultYield        = 10 * time.Second
	DefaultOutputTokens = 10_000
	DefaultProcesses    = 64
	DefaultOutputBytes  = 64 << 10

	minYield      = 250 * time.Millisecond
	maxYield      = 30 * time.Second
	minPollYield  = 5 * time.Second
	writeYield    = 250 * time.Millisecond
	quietPrompt   = 20 * time.Millisecond  // after output without a newline: most likely a prompt
	quietTerminal = 150 * time.Millisecond // after other output of a terminal
)

// Config configures the capability.
type Config struct {
	Spec    *spec.ShellCapability // nil = all defaults
	Dir     string                // where relative directories start; empty = the workspace root
	User    string                // empty = the sandbox's default
	Timeout time.Duration         // of each command; 0 = none
	// MaxProcesses bounds the running commands; 0 = 64. OutputBytes is kept of head and of tail; 0 = 64 KiB.
	MaxProcesses int
	OutputBytes  int
	// Now is the clock; nil = time.Now.
	Now func() time.Time
}

// Shell is the capability for one session.
type Shell struct {
	sandbox Sandbox
	cfg     Config
	life    context.Context //nolint:containedctx // commands live as long as the capability, not as long as a call
	end     context.CancelCauseFunc

	mu        sync.Mutex
	processes map[int]*process // guarded by mu
	next      int              // guarded by mu

	shellOnce sync.Once
	shell     []string // set by shellOnce
}

// New makes the capability. The caller closes it.
func New(sandbox Sandbox, cfg Config) *Shell {
	if cfg.Spec == nil {
		cfg.Spec = &spec.ShellCapability{}
	}
	if cfg.MaxProcesses == 0 {
		cfg.MaxProcesses = DefaultProcesses
	}
	if cfg.OutputBytes == 0 {
		cfg.OutputBytes = DefaultOutputBytes
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Shell{sandbox: sandbox, cfg: cfg, processes: map[int]*process{}, next: 1}
	s.life, s.end = context.WithCancelCause(context.Background())
	return s
}

// Tools gives the tools.
func (s *Shell) Tools(model.Support) []tool.Tool {
	return []tool.Tool{execTool{s}, stdinTool{s}}
}

// Instructions tell the model how to use the tools.
func (s *Shell) Instructions() string {
	return `Run commands with exec_command. A command that is still running when its yield time is over goes on; the result
gives a session number, and write_stdin with empty chars waits for more of its output. Set tty for programs that want a
terminal, and type into them with write_stdin; "\u0003" is Ctrl-C and also interrupts a command without a terminal.
Output is cut in the middle when it is long: prefer commands that print little, search with rg where it is installed.`
}

// Close ends every command that still runs and waits for them.
func (s *Shell) Close(ctx context.Context) error {
	s.mu.Lock()
	var running []*process
	for _, p := range s.processes {
		running = append(running, p)
	}
	s.processes = map[int]*process{}
	s.mu.Unlock()
	for _, p := range running {
		p.kill(ctx)
	}
	s.end(context.Canceled)
	for _, p := range running {
		select {
		case <-p.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// argv makes the command line of a script. Without a wish it is a login bash, or sh where there is no bash.
func (s *Shell) argv(ctx context.Context, script, shell string, login bool) []string {
	flag := "-c"
	if login {
		flag = "-lc"
	}
	if shell != "" {
		return []string{shell, flag, script}
	}
	if own := s.cfg.Spec.DefaultShell; len(own) > 0 {
		return append(append([]string(nil), own...), script)
	}
	s.shellOnce.Do(func() {
		s.shell = []string{"sh"}
		exit, err := s.sandbox.Run(ctx, &driver.Command{Argv: []string{"bash", "-c", ":"}, User: s.cfg.User}, driver.Streams{})
		if err == nil && exit.Code == 0 {
			s.shell = []string{"bash"}
		}
	})
	return append(append([]string(nil), s.shell...), flag, script)
}
