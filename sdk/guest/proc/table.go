// SPDX-License-Identifier: Apache-2.0

//go:build linux

package proc

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest"
	"github.com/berth-dev/berth/sdk/guest/proc/output"
	"github.com/berth-dev/berth/sdk/guest/proc/spawn"
	"github.com/berth-dev/berth/sdk/guest/proc/tree"
)

// The bounds of what is remembered of processes that have ended.
const (
	rememberCount = 256
	rememberFor   = 10 * time.Minute

	defaultMaxProcesses = 1024
	defaultStall        = time.Minute
	maxGrace            = time.Minute
)

// Config makes a Table.
type Config struct {
	Root      string            // directory of commands that name none
	Env       map[string]string // base environment of every command
	SecretEnv map[string]string // like Env
	User      string            // of commands that name none; empty = this program's own
	// Etc holds passwd and group; empty = /etc.
	Etc string
	// SpawnThread runs once on the thread that starts every process; nil = nothing.
	SpawnThread  func() error
	Kill         guest.KillConfig
	OOMFile      string
	MaxProcesses int // that run at once; 0 = 1024
	// Stall is how long a process is held up by a reader that takes nothing; 0 = a minute.
	Stall time.Duration
	// Helper is the program, with its first arguments, that sends a signal to everything in the signal scope; it gets the
	// signal's number and this program's process id as arguments. Needed for Kill.SignalScope only.
	Helper []string
}

// Table holds processes.
type Table struct {
	cfg       Config
	spawner   *spawn.Thread
	groups    *tree.Groups // nil = none
	victims   *victims
	marks     bool // processes can be marked by a limit
	firstMark uint64

	started chan struct{} // a child was started; cap 1
	quit    chan struct{} // closed when everything has been ended
	reaped  chan struct{} // closed when the reaper has ended
	once    sync.Once
	forkMu  sync.Mutex // held from a fork until the child is in byPID, and by the reaper from peek to reap

	mu       sync.Mutex
	byID     map[string]*Process
	byPID    map[int]*Process // that were not reaped
	ended    []*Process       // oldest first
	running  int
	closed   bool
	nextMark uint64
}

// New makes this program a subreaper and starts the threads that start and reap.
func New(cfg Config) (*Table, error) {
	if cfg.MaxProcesses == 0 {
		cfg.MaxProcesses = defaultMaxProcesses
	}
	if cfg.Stall == 0 {
		cfg.Stall = defaultStall
	}
	if cfg.Etc == "" {
		cfg.Etc = "/etc"
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, errs.Wrap(errs.StartFailed, "guest.start", fmt.Errorf("become a subreaper: %w", err))
	}
	t := &Table{
		cfg:     cfg,
		started: make(chan struct{}, 1),
		quit:    make(chan struct{}),
		reaped:  make(chan struct{}),
		byID:    map[string]*Process{},
		byPID:   map[int]*Process{},
		victims: newVictims(),
	}
	t.marks = tree.CanMark()
	t.firstMark = tree.RandomStart()
	t.nextMark = t.firstMark
	if cfg.Kill.Cgroup != "" {
		g, err := tree.OpenGroups(cfg.Kill.Cgroup)
		if err != nil {
			return nil, errs.Wrap(errs.StartFailed, "guest.start", err)
		}
		t.groups = g
	}
	s, err := spawn.Start(cfg.SpawnThread)
	if err != nil {
		return nil, errs.Wrap(errs.StartFailed, "guest.start", fmt.Errorf("prepare the thread that starts processes: %w", err))
	}
	t.spawner = s
	go t.reap()
	return t, nil
}

// KillMeans names the strongest means of ending a whole tree.
func (t *Table) KillMeans() string {
	switch {
	case t.groups != nil && !t.groups.Broken.Load():
		return "cgroup.kill"
	case t.cfg.Kill.Freezer != "":
		return "freezer"
	case os.Getpid() == 1:
		return "namespace"
	case t.cfg.Kill.SignalScope:
		return "signal scope"
	default:
		return "best effort"
	}
}

// Start starts a command. Out reads its output from the first byte, of which nothing is lost however late the reading
// begins; the caller closes it. A command with the id of a process that is known is not started again: that process is
// the answer, and out is nil.
func (t *Table) Start(cmd *driver.Command) (p *Process, out *output.Reader, err error) {
	if len(cmd.Argv) == 0 || cmd.Argv[0] == "" {
		return nil, nil, errs.New(errs.InvalidArgument, "no command was given")
	}
	id := cmd.ID
	if id == "" {
		id = rand.Text()
	}
	keep := cmd.ReplayBytes
	if keep == 0 {
		keep = driver.DefaultReplayBytes
	}
	grace := cmd.KillGrace
	if grace == 0 {
		grace = driver.DefaultKillGrace
	}
	p = &Process{
		t: t, id: id, argv: slices.Clone(cmd.Argv), user: cmd.User, tty: cmd.TTY, detached: cmd.Detached,
		grace: min(grace, maxGrace), out: output.New(keep, t.cfg.Stall),
		ready: make(chan struct{}), exited: make(chan struct{}), done: make(chan struct{}),
	}

	t.mu.Lock()
	t.forgetLocked()
	if old := t.byID[id]; old != nil {
		t.mu.Unlock()
		<-old.ready
		if old.startErr != nil {
			return nil, nil, old.startErr
		}
		return old, nil, nil
	}
	if t.closed {
		t.mu.Unlock()
		return nil, nil, errs.New(errs.SandboxGone, "the sandbox is being ended")
	}
	if t.running >= t.cfg.MaxProcesses {
		t.mu.Unlock()
		return nil, nil, errs.New(errs.QuotaExceeded, "%d processes run already", t.cfg.MaxProcesses).
			WithHint("end some of them, or raise the limit")
	}
	t.running++
	t.nextMark++
	p.mark = tree.Mark(t.nextMark)
	t.byID[id] = p
	t.mu.Unlock()

	out = p.out.Reader(0) // before there is anything to read
	if err := p.start(cmd); err != nil {
		p.startErr = err
		t.mu.Lock()
		t.running--
		delete(t.byID, id)
		t.mu.Unlock()
		close(p.ready)
		return nil, nil, err
	}
	close(p.ready)
	if cmd.Timeout > 0 {
		timer := time.AfterFunc(cmd.Timeout, p.timeOut)
		context.AfterFunc(p.life(), func() { timer.Stop() })
	}
	return p, out, nil
}

// Get finds a process that runs, or ended not long ago.
func (t *Table) Get(id string) (*Process, error) {
	t.mu.Lock()
	t.forgetLocked()
	p := t.byID[id]
	t.mu.Unlock()
	if p != nil {
		<-p.ready
	}
	if p == nil || p.startErr != nil {
		return nil, errs.New(errs.ProcessUnknown, "no process has the id %q", id).With("process_id", id)
	}
	return p, nil
}

// List gives what is known, oldest first.
func (t *Table) List() []driver.Process {
	t.mu.Lock()
	t.forgetLocked()
	all := slices.Collect(maps.Values(t.byID))
	t.mu.Unlock()
	var ps []driver.Process
	for _, p := range all {
		select {
		case <-p.ready:
			if p.startErr == nil {
				ps = append(ps, p.describe())
			}
		default: // is being started
		}
	}
	slices.SortFunc(ps, func(a, b driver.Process) int {
		if c := a.Started.Compare(b.Started); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return ps
}

// over puts a process among those that are remembered.
func (t *Table) over(p *Process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running--
	t.ended = append(t.ended, p)
	t.forgetLocked()
}

// forgetLocked forgets the processes that ended long ago, or are too many. Their background processes go on.
func (t *Table) forgetLocked() {
	for len(t.ended) > 0 {
		p := t.ended[0]
		if len(t.ended) <= rememberCount && time.Since(p.ended) < rememberFor {
			return
		}
		delete(t.byID, p.id)
		t.ended[0] = nil
		t.ended = t.ended[1:]
		if t.groups != nil {
			t.groups.Remove(p.group)
		}
	}
}

// Close ends every process, also what belongs to no command any more, and waits for it until ctx ends.
func (t *Table) Close(ctx context.Context) error {
	t.mu.Lock()
	t.closed = true
	all := slices.Collect(maps.Values(t.byID))
	t.mu.Unlock()
	for _, p := range all {
		p.stopped.Store(true)
	}
	err := t.killAll(ctx)
	for _, p := range all {
		<-p.ready
		if p.startErr != nil {
			continue
		}
		select {
		case <-p.done:
		case <-ctx.Done():
			return errs.Wrap(errs.StopFailed, "guest.stop", fmt.Errorf("processes did not end: %w", context.Cause(ctx)))
		}
	}
	if t.groups != nil {
		for _, p := range all {
			t.groups.Remove(p.group)
		}
	}
	if err != nil {
		return err
	}
	t.once.Do(func() {
		close(t.quit)
		t.spawner.Close()
		t.victims.close()
	})
	select {
	case <-t.reaped:
		return nil
	case <-ctx.Done():
		return errs.Wrap(errs.StopFailed, "guest.stop", fmt.Errorf("children are left: %w", context.Cause(ctx)))
	}
}
