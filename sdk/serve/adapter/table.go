// SPDX-License-Identifier: Apache-2.0

package adapter

import (
	"context"
	"crypto/rand"
	"runtime/debug"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/stream"
)

// maxEnded bounds how many detached processes of a sandbox are remembered after their end.
const maxEnded = 64

// timeoutSlack is how long after a command's own timeout the SDK ends it when the driver did not.
const timeoutSlack = 3 * time.Second

// process is a call of Run or Attach with what connects it to its clients.
type process struct {
	command *driver.Command // nil when it was attached to
	ring    *stream.Ring
	stdin   *stdin // nil = closed from the start
	signals chan driver.Signal
	resize  chan driver.Size
	began   time.Time

	startOnce sync.Once
	start     chan struct{}  // closed when started is set
	started   driver.Started // read after start
	done      chan struct{}  // closed when exit and err are set
	exit      driver.Exit    // read after done
	err       error          // read after done
	cancel    context.CancelCauseFunc

	mu        sync.Mutex
	detached  bool // guarded by mu; goes on without clients
	followers int  // guarded by mu
}

func newProcess(cmd *driver.Command, offset, retain uint64, withStdin bool) *process {
	p := &process{
		command: cmd, ring: stream.NewRing(offset, retain),
		signals: make(chan driver.Signal, 16), resize: make(chan driver.Size, 1),
		began: time.Now(), start: make(chan struct{}), done: make(chan struct{}),
	}
	if withStdin {
		p.stdin = newStdin()
	}
	return p
}

func (p *process) streams() driver.Streams {
	s := driver.Streams{
		Stdout: outWriter{p, fdStdout}, Stderr: outWriter{p, fdStderr},
		Resize: p.resize, Signals: p.signals, OnStart: p.markStarted,
		OnGap: func(g driver.Gap) {
			p.markStarted(driver.Started{})
			p.ring.Skip(g.To)
		},
	}
	if p.stdin != nil {
		s.Stdin = p.stdin
	}
	return s
}

// markStarted also serves drivers that forget to say so before the first output.
func (p *process) markStarted(s driver.Started) {
	p.startOnce.Do(func() {
		if s.ProcessID == "" && p.command != nil {
			s.ProcessID = p.command.ID
		}
		p.started = s
		close(p.start)
	})
}

type outWriter struct {
	p  *process
	fd int32
}

func (w outWriter) Write(b []byte) (int, error) {
	w.p.markStarted(driver.Started{})
	return w.p.ring.Write(w.fd, b)
}

// Keep takes a large piece without copying it.
func (w outWriter) Keep(b []byte, free func()) error {
	w.p.markStarted(driver.Started{})
	return w.p.ring.Keep(w.fd, b, free)
}

// run calls the driver and records how it ends.
func (p *process) run(ctx context.Context, log hclog.Logger, call func(context.Context, driver.Streams) (driver.Exit, error)) {
	defer func() {
		if v := recover(); v != nil {
			log.Error("panic in the driver", "op", "run", "error", v, "stack", string(debug.Stack()))
			p.err = errs.New(errs.Internal, "the driver panicked: %v", v).WithHint("the stack is in the driver's log")
		}
		p.cancel(context.Canceled)
		if p.stdin != nil {
			p.stdin.close()
		}
		p.ring.Close()
		if p.err == nil {
			p.markStarted(driver.Started{})
		}
		close(p.done)
	}()
	ctx, stop := p.timeout(ctx)
	defer stop()
	p.exit, p.err = call(ctx, p.streams())
	if cause := context.Cause(ctx); p.err != nil && cause != nil && errs.CodeOf(p.err) == errs.Internal {
		p.err = errs.Wrap(errs.Canceled, "run", cause)
	}
}

// timeout is a second line of defence behind the driver's own.
func (p *process) timeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if p.command == nil || p.command.Timeout <= 0 {
		return ctx, func() {}
	}
	grace := p.command.KillGrace
	if grace == 0 {
		grace = driver.DefaultKillGrace
	}
	return context.WithTimeoutCause(ctx, p.command.Timeout+grace+timeoutSlack,
		errs.New(errs.ExecTimeout, "the command ran longer than %s and the driver did not end it", p.command.Timeout))
}

// info describes the process.
func (p *process) info() driver.Process {
	out := driver.Process{OutputBytes: p.ring.Head(), Started: p.began}
	if c := p.command; c != nil {
		out.ID, out.Argv, out.User, out.TTY = c.ID, c.Argv, c.User, c.TTY
	}
	select {
	case <-p.start:
		out.PID = p.started.PID
	default:
	}
	select {
	case <-p.done:
		exit := p.exit
		out.Exit = &exit
	default:
	}
	return out
}

// table remembers the processes of a sandbox that does not do it itself. The zero value is empty.
type table struct {
	log hclog.Logger

	mu    sync.Mutex
	all   map[string]*process // guarded by mu
	ended []string            // guarded by mu; ids, oldest first
}

// newID makes an id for a command that has none.
func newID() string { return "p-" + rand.Text() }

// launch starts a command, or finds the process that was started with the same id. Join is called with it before it
// starts.
func (t *table) launch(ctx context.Context, cmd *driver.Command, withStdin bool, forget func(), join func(*process), call func(context.Context, driver.Streams) (driver.Exit, error)) (known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.all[cmd.ID]; p != nil {
		forget()
		join(p)
		return true
	}
	var retain uint64
	if cmd.Detached {
		retain = replayBytes(cmd)
	}
	p := newProcess(cmd, 0, retain, withStdin)
	p.detached = cmd.Detached
	ctx, p.cancel = context.WithCancelCause(ctx)
	if t.all == nil {
		t.all = map[string]*process{}
	}
	t.all[cmd.ID] = p
	join(p)
	go func() {
		p.run(ctx, t.log, call)
		forget()
		t.settle(p)
	}()
	return false
}

func replayBytes(cmd *driver.Command) uint64 {
	if cmd.ReplayBytes == 0 {
		return driver.DefaultReplayBytes
	}
	return cmd.ReplayBytes
}

// settle forgets a process that has ended, now or when its turn comes.
func (t *table) settle(p *process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p.mu.Lock()
	keep := p.detached
	p.mu.Unlock()
	if !keep {
		t.dropLocked(p.command.ID)
		return
	}
	if t.ended = append(t.ended, p.command.ID); len(t.ended) > maxEnded {
		t.dropLocked(t.ended[0])
		t.ended = t.ended[1:]
	}
}

func (t *table) dropLocked(id string) {
	p := t.all[id]
	delete(t.all, id)
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.followers == 0 {
		p.ring.Release()
	}
}

func (t *table) find(id string) (*process, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.all[id]; p != nil {
		return p, nil
	}
	return nil, errs.New(errs.ProcessUnknown, "no process %s", id).With("process", id)
}

func (t *table) list() []driver.Process {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]driver.Process, 0, len(t.all))
	for _, p := range t.all {
		out = append(out, p.info())
	}
	return out
}

// close ends every process and forgets them.
func (t *table) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, p := range t.all {
		p.cancel(errs.New(errs.SandboxGone, "the sandbox has ended"))
		t.dropLocked(id)
	}
	t.ended = nil
}
