// SPDX-License-Identifier: Apache-2.0

//go:build linux

package proc

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/proc/output"
	"github.com/berth-dev/berth/sdk/guest/proc/pump"
	"github.com/berth-dev/berth/sdk/guest/proc/spawn"
)

// Process is one command that was started.
type Process struct {
	t        *Table
	id       string
	argv     []string
	user     string
	tty      bool
	detached bool
	helper   bool // not a command: nobody is told of it
	grace    time.Duration
	mark     uint64
	out      *output.Output

	ready    chan struct{} // the fields up to startErr are set
	pid      int
	began    time.Time
	group    string // cgroup of its own, empty = none
	oomsAt   uint64 // counter at the start
	stdin    *os.File
	master   *os.File // terminal
	pump     *pump.Pump
	pumped   chan struct{} // every stream has ended
	startErr error

	timedOut atomic.Bool
	stopped  atomic.Bool
	ending   sync.Once
	endMu    sync.Mutex    // guards over
	over     chan struct{} // closed when the whole tree has been ended; nil = nobody ends it

	stdinMu  sync.Mutex // one writer at a time
	lastByte byte       // written to the terminal, guarded by stdinMu

	exited chan struct{} // the leader was reaped
	status syscall.WaitStatus
	ended  time.Time
	done   chan struct{} // exit is set: the output is complete
	exit   driver.Exit
}

// ID names the process.
func (p *Process) ID() string { return p.id }

// PID is the process id of the leader.
func (p *Process) PID() int { return p.pid }

// Detached tells whether it was started to outlive its caller.
func (p *Process) Detached() bool { return p.detached }

// TTY tells whether it has a terminal.
func (p *Process) TTY() bool { return p.tty }

// Done is closed when the process has ended and all it wrote is there.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit is how it ended; valid when Done is closed.
func (p *Process) Exit() driver.Exit { return p.exit }

// Reader reads the output from an offset on.
func (p *Process) Reader(from uint64) *output.Reader { return p.out.Reader(from) }

// life is a context that ends with the leader.
func (p *Process) life() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	go func() {
		<-p.exited
		cancel(nil)
	}()
	return ctx
}

func (p *Process) describe() driver.Process {
	total, _ := p.out.Total()
	d := driver.Process{
		ID: p.id, PID: int64(p.pid), Argv: p.argv, User: p.user, TTY: p.tty, Started: p.began, OutputBytes: total,
	}
	select {
	case <-p.done:
		exit := p.exit
		d.Exit = &exit
		d.OutputBytes = exit.OutputBytes
	default:
	}
	return d
}

// WriteStdin writes all of b, and waits while the process does not read. A process that has closed its input, or ended,
// takes everything and it is lost, as in a pipe whose reader is gone.
func (p *Process) WriteStdin(b []byte) error {
	p.stdinMu.Lock()
	defer p.stdinMu.Unlock()
	f := p.stdin
	if p.tty {
		f = p.master
	}
	if f == nil {
		return errs.New(errs.InvalidArgument, "the process %q has no standard input", p.id)
	}
	_, err := f.Write(b)
	if len(b) > 0 {
		p.lastByte = b[len(b)-1]
	}
	if err == nil || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.EIO) || errors.Is(err, os.ErrClosed) {
		return nil
	}
	return errs.Wrap(errs.ExecTransport, "process.stdin", err)
}

// CloseStdin ends the input. At a terminal it types the end-of-file character, twice when a line was begun.
func (p *Process) CloseStdin() {
	p.stdinMu.Lock()
	defer p.stdinMu.Unlock()
	if !p.tty {
		if p.stdin != nil {
			p.stdin.Close()
		}
		return
	}
	eof := spawn.EndOfFile(p.master)
	if eof == 0 {
		return
	}
	b := []byte{eof}
	if p.lastByte != 0 && p.lastByte != '\n' && p.lastByte != '\r' {
		b = append(b, eof)
	}
	p.master.Write(b) //nolint:errcheck // a terminal that is gone needs no end of file
}

// Resize sets the terminal's size.
func (p *Process) Resize(size driver.Size) error {
	if !p.tty {
		return errs.New(errs.InvalidArgument, "the process %q has no terminal", p.id)
	}
	return errs.Wrap(errs.ExecTransport, "process.resize", spawn.SetSize(p.master, size))
}

const (
	// quietTime is how long the output is watched after the leader's end, when something else still holds it open.
	quietTime = 20 * time.Millisecond
	// drainTime bounds that for a tree that goes on writing.
	drainTime = 500 * time.Millisecond
)

// finish is called once, when the leader was reaped.
func (p *Process) finish(status syscall.WaitStatus) {
	p.status, p.ended = status, time.Now()
	close(p.exited)
	if p.helper {
		return
	}
	go func() {
		if p.stdin != nil {
			p.stdin.Close()
		}
		p.drain()
		p.endMu.Lock()
		over := p.over
		p.endMu.Unlock()
		if over != nil {
			<-over // the leader is gone, and nothing may be left of its tree when this is told
		}
		p.out.Close()
		total, _ := p.out.Total()
		p.exit = driver.Exit{
			TimedOut: p.timedOut.Load(), KilledByStop: p.stopped.Load(), Ran: p.ended.Sub(p.began), OutputBytes: total,
		}
		if status.Signaled() {
			p.exit.Code, p.exit.Signal = 128+int(status.Signal()), signalName(status.Signal())
			p.exit.OOM = status.Signal() == syscall.SIGKILL && OOMKills(p.t.cfg.OOMFile) > p.oomsAt
		} else {
			p.exit.Code = status.ExitStatus()
		}
		p.t.over(p)
		close(p.done)
	}()
}

// drain waits until all that the leader wrote has been read. It does not wait for others that hold the output open, but
// for a moment, since they are often about to end too.
func (p *Process) drain() {
	select {
	case <-p.pumped:
		return
	default:
	}
	streams := p.pump.Streams()
	started := make([]int64, len(streams))
	for i, w := range streams {
		started[i] = w.Drained()
	}
	empty := make([]bool, len(streams))
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-p.pumped:
			return
		case <-tick.C:
		}
		all := true
		for i, w := range streams {
			// What the leader wrote was in the pipe when it ended; a pipe holds no more than that.
			empty[i] = empty[i] || w.Pending() == 0 || w.Drained()-started[i] > pipeSize
			all = all && empty[i]
		}
		if !all {
			continue
		}
		_, last := p.out.Total()
		if last.Before(p.ended) {
			last = p.ended
		}
		if time.Since(last) >= quietTime || time.Since(p.ended) >= drainTime {
			return
		}
	}
}

// Signal sends a signal to the leader or to the whole tree. What has ended gets none.
func (p *Process) Signal(sig driver.Signal) error {
	n, err := signalNumber(sig.Name)
	if err != nil {
		return err
	}
	if sig.LeaderOnly {
		p.t.signalLeader(p, n)
		return nil
	}
	if n == syscall.SIGKILL {
		return p.t.killTree(p)
	}
	now, _ := p.t.members(p)
	for _, pid := range now {
		unix.Kill(pid, n) //nolint:errcheck // it may have ended meanwhile
	}
	return nil
}

func (p *Process) timeOut() {
	select {
	case <-p.exited:
		return
	default:
	}
	p.timedOut.Store(true)
	p.Terminate()
}

// Terminate ends the whole tree: SIGTERM, the grace, SIGKILL. It returns when nothing is left. When the leader has ended
// already, what it left in the background goes on.
func (p *Process) Terminate() {
	p.endMu.Lock()
	select {
	case <-p.exited:
		p.endMu.Unlock()
		return
	default:
	}
	if p.over == nil {
		p.over = make(chan struct{})
	}
	over := p.over
	p.endMu.Unlock()

	p.ending.Do(func() {
		defer close(over)
		now, _ := p.t.members(p)
		for _, pid := range now {
			unix.Kill(pid, unix.SIGTERM) //nolint:errcheck // it may have ended meanwhile
			unix.Kill(pid, unix.SIGCONT) //nolint:errcheck // a stopped process would not see the first
		}
		deadline := time.Now().Add(p.grace)
		for wait := time.Millisecond; time.Now().Before(deadline); wait = min(2*wait, 20*time.Millisecond) {
			if now, whole := p.t.members(p); len(now) == 0 && whole {
				break
			}
			time.Sleep(wait)
		}
		p.t.killTree(p) //nolint:errcheck // what cannot be killed is in the kernel's hands; the exit is told when it is reaped
	})
	<-over
}

// Wait gives the exit, or ctx's cause.
func (p *Process) Wait(ctx context.Context) (driver.Exit, error) {
	select {
	case <-p.done:
		return p.exit, nil
	case <-ctx.Done():
		return driver.Exit{}, context.Cause(ctx)
	}
}
