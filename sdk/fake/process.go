// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/stream"
)

const (
	stdout = 1
	stderr = 2

	// followBytes is what one write to a caller's stream has at most.
	followBytes = 64 << 10
)

// process is one command.
type process struct {
	s       *Sandbox
	cmd     driver.Command
	env     map[string]string
	pid     int64
	started time.Time
	now     time.Time // of the command itself; only its goroutine reads it
	ring    *stream.Ring
	in      *io.PipeReader
	feed    *io.PipeWriter
	input   bool
	done    chan struct{} // closed when exit is set and on disk
	exit    driver.Exit   // read after done
	ended   chan struct{} // closed by a signal that ends it
	stopped atomic.Bool   // by Stop or Destroy

	mu       sync.Mutex
	by       string      // guarded by mu; the signal that ends it
	deaf     bool        // guarded by mu; does not end by TERM
	timedOut bool        // guarded by mu
	size     driver.Size // guarded by mu

	last *driver.Exit // guarded by the sandbox's mutex; what the disk is told, before done
}

var nextPID atomic.Int64

func (s *Sandbox) newProcess(cmd driver.Command, started time.Time, input bool) *process {
	retain := cmd.ReplayBytes
	if retain == 0 {
		retain = driver.DefaultReplayBytes
	}
	p := &process{
		s: s, cmd: cmd, pid: 100 + nextPID.Add(1), started: started, now: started, ring: stream.NewRing(0, retain),
		input: input, done: make(chan struct{}), ended: make(chan struct{}), size: cmd.Size,
	}
	if p.size == (driver.Size{}) {
		p.size = driver.Size{Rows: 24, Cols: 80}
	}
	p.in, p.feed = io.Pipe()
	if !input {
		p.feed.Close() // never fails
	}
	p.env = map[string]string{"PATH": "/bin", "HOME": s.root, "PWD": s.root, "$": strconv.FormatInt(p.pid, 10)}
	maps.Copy(p.env, s.env)
	maps.Copy(p.env, s.secrets)
	maps.Copy(p.env, cmd.Env)
	maps.Copy(p.env, cmd.SecretEnv)
	return p
}

// recordedLocked is the process for the disk, without secrets. The caller holds the sandbox's mutex.
func (p *process) recordedLocked() procRecord {
	r := procRecord{Command: p.cmd, Started: p.started, Stdin: p.input, Exit: p.last}
	r.Command.SecretEnv = nil
	return r
}

// replay starts a recorded process again at its own time.
func (s *Sandbox) replay(r procRecord) {
	p := s.newProcess(r.Command, r.Started, r.Stdin)
	if s.procs == nil {
		s.procs = map[string]*process{}
	}
	s.procs[r.Command.ID] = p
	s.order = append(s.order, r.Command.ID)
	if s.servers == nil {
		s.listen(nil)
	}
	go p.run(r.Exit)
}

// user says whether there is a user; empty is the default one.
func (s *Sandbox) user(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name == "" || name == "root" || slices.Contains(s.accounts.Users, name) {
		return nil
	}
	return errs.New(errs.InvalidArgument, "there is no user %q", name).With("user", name)
}

// start starts a command, or gives the process that has the id already.
func (s *Sandbox) start(cmd *driver.Command, input bool) (p *process, fresh bool, err error) {
	if len(cmd.Argv) == 0 {
		return nil, false, errs.New(errs.InvalidArgument, "argv is empty")
	}
	if !known(cmd.Argv[0]) {
		return nil, false, errs.New(errs.ExecNotFound, "%s: not found", cmd.Argv[0]).With("path", cmd.Argv[0])
	}
	if err := s.user(cmd.User); err != nil {
		return nil, false, err
	}
	s.mu.Lock()
	switch s.status {
	case driver.StatusRunning:
	case driver.StatusGone:
		s.mu.Unlock()
		return nil, false, gone(s.id)
	default:
		s.mu.Unlock()
		return nil, false, errs.New(errs.SandboxUnknown, "sandbox %s is %s: resume it", s.id, s.status)
	}
	c := *cmd
	if c.ID == "" {
		c.ID = "p" + strconv.Itoa(len(s.order)+1)
	}
	if p = s.procs[c.ID]; p != nil {
		s.mu.Unlock()
		return p, false, nil
	}
	p = s.newProcess(c, time.Now(), input)
	s.fs.mu.Lock()
	at, ferr := s.fs.findLocked(p.dir(), true)
	s.fs.mu.Unlock()
	if ferr != nil || at.node == nil {
		s.mu.Unlock()
		return nil, false, fileError(errs.FileNotFound, p.dir(), "no such directory")
	}
	if s.procs == nil {
		s.procs = map[string]*process{}
	}
	s.procs[c.ID] = p
	s.order = append(s.order, c.ID)
	s.mu.Unlock()
	s.record()
	go p.run(nil)
	return p, true, nil
}

// run interprets the command to its end. A process that had ended already, as a record says, only makes its output.
func (p *process) run(had *driver.Exit) {
	if p.cmd.Timeout > 0 {
		t := time.AfterFunc(time.Until(p.started.Add(p.cmd.Timeout)), func() {
			p.mu.Lock()
			p.timedOut = true
			p.mu.Unlock()
			p.end(p.cmd.KillGrace)
		})
		defer t.Stop()
	}
	code, err := p.interpret()
	p.mu.Lock()
	exit := driver.Exit{Code: code, Ran: time.Since(p.started), TimedOut: p.timedOut, KilledByStop: p.stopped.Load(), OutputBytes: p.ring.Head()}
	if errors.Is(err, errEnded) && p.by != "" {
		exit.Signal, exit.Code = p.by, 128+signals[p.by]
	}
	p.mu.Unlock()
	if had != nil {
		exit = *had
	}
	p.s.mu.Lock()
	p.last = &exit
	gone := p.s.status == driver.StatusGone
	p.s.mu.Unlock()
	if !gone {
		p.s.record()
	}
	p.exit = exit
	p.in.CloseWithError(io.ErrClosedPipe) // never fails
	p.ring.Close()
	close(p.done)
}

var errEnded = errors.New("ended by a signal")

var signals = map[string]int{"HUP": 1, "INT": 2, "QUIT": 3, "ABRT": 6, "KILL": 9, "USR1": 10, "SEGV": 11, "USR2": 12, "PIPE": 13, "TERM": 15}

// signal delivers a signal. All but USR1 and USR2 end a process, unless it is deaf and the signal is not KILL.
func (p *process) signal(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.by != "" || signals[name] == 0 || name == "USR1" || name == "USR2" || p.deaf && name != "KILL" {
		return
	}
	p.by = name
	close(p.ended)
	p.in.CloseWithError(errEnded) // never fails
	p.ring.Close()
}

// end is TERM, and KILL after the grace.
func (p *process) end(grace time.Duration) {
	if grace == 0 {
		grace = driver.DefaultKillGrace
	}
	p.signal("TERM")
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-p.done:
	case <-t.C:
		p.signal("KILL")
	}
}

// wait lets the command's own time pass.
func (p *process) wait(d time.Duration) error {
	p.now = p.now.Add(d)
	left := time.Until(p.now)
	if left <= 0 {
		select {
		case <-p.ended:
			return errEnded
		default:
			return nil
		}
	}
	t := time.NewTimer(left)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-p.ended:
		return errEnded
	}
}

func (p *process) write(fd int32, b []byte) error {
	if p.cmd.TTY {
		fd = stdout
	}
	if _, err := p.ring.Write(fd, b); err != nil {
		return errEnded
	}
	return nil
}

// follow passes output on from an offset, and input in, until the process has ended.
func (p *process) follow(ctx context.Context, offset uint64, streams driver.Streams, reattached bool) (driver.Exit, error) {
	if streams.OnStart != nil {
		streams.OnStart(driver.Started{ProcessID: p.cmd.ID, PID: p.pid, Reattached: reattached})
	}
	if streams.Stdin != nil {
		go func() {
			// An input that fails is as good as one that ends, but for one that only moves to another follower.
			if _, err := io.Copy(p.feed, streams.Stdin); err == nil {
				p.feed.Close() // never fails
			}
		}()
	}
	over := make(chan struct{})
	var control sync.WaitGroup
	control.Go(func() { p.control(streams, over) })
	defer control.Wait()
	defer close(over)
	f := p.ring.Follow(ctx, offset)
	defer f.Close()
	for {
		piece, err := f.Next(followBytes)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return driver.Exit{}, errs.Wrap(errs.Canceled, "run", err)
		}
		if piece.Lost != piece.Offset && streams.OnGap != nil {
			streams.OnGap(driver.Gap{From: piece.Lost, To: piece.Offset})
		}
		w := streams.Stdout
		if piece.Stream == stderr {
			w = streams.Stderr
		}
		data := piece.Data.Materialize()
		piece.Data.Free()
		if w != nil && len(data) > 0 {
			if _, err := w.Write(data); err != nil {
				return driver.Exit{}, errs.Wrap(errs.Canceled, "write output", err)
			}
		}
	}
	select {
	case <-p.done:
		return p.exit, nil
	case <-ctx.Done():
		return driver.Exit{}, errs.Wrap(errs.Canceled, "run", context.Cause(ctx))
	}
}

func (p *process) control(streams driver.Streams, over <-chan struct{}) {
	resize, sigs := streams.Resize, streams.Signals
	for resize != nil || sigs != nil {
		select {
		case size, ok := <-resize:
			if !ok {
				resize = nil
				continue
			}
			p.mu.Lock()
			p.size = size
			p.mu.Unlock()
		case sig, ok := <-sigs:
			if !ok {
				sigs = nil
				continue
			}
			p.signal(sig.Name)
		case <-over:
			return
		}
	}
}

// Run runs a command.
func (h *handle) Run(ctx context.Context, cmd *driver.Command, streams driver.Streams) (driver.Exit, error) {
	end, err := h.d.faults.begin(ctx, "run")
	if err != nil {
		return driver.Exit{}, err
	}
	p, fresh, err := h.s.start(cmd, streams.Stdin != nil)
	if err != nil {
		return driver.Exit{}, err
	}
	exit, err := h.follow(ctx, p, 0, streams, !fresh)
	if err != nil && ctx.Err() != nil && !cmd.Detached {
		p.end(cmd.KillGrace)
		<-p.done
	}
	return exit, end(err)
}

// follow is [process.follow] until the driver crashes, if it does.
func (h *handle) follow(ctx context.Context, p *process, offset uint64, streams driver.Streams, reattached bool) (driver.Exit, error) {
	w := &crashWriter{h: h}
	out := streams
	out.Stdout, out.Stderr = w.to(streams.Stdout), w.to(streams.Stderr)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-h.d.faults.gone:
			cancel(errCrashed)
		case <-over:
		}
	}()
	exit, err := p.follow(ctx, offset, out, reattached)
	if err != nil && errors.Is(context.Cause(ctx), errCrashed) || errors.Is(err, errCrashed) {
		return exit, errCrashed
	}
	return exit, err
}

// crashWriter makes each write of output an operation, run.output, so that a driver can die in the midst of it.
type crashWriter struct{ h *handle }

func (c *crashWriter) to(w io.Writer) io.Writer {
	if w == nil {
		w = io.Discard
	}
	return writerFunc(func(p []byte) (int, error) {
		end, err := c.h.d.faults.begin(context.Background(), "run.output")
		if err != nil {
			return 0, err
		}
		n, err := w.Write(p)
		return n, end(err)
	})
}

type writerFunc func([]byte) (int, error)

// Write calls the function.
func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func (h *handle) find(id string) (*process, error) {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	p := h.s.procs[id]
	if p == nil {
		return nil, errs.New(errs.ProcessUnknown, "there is no process %q", id).With("process", id)
	}
	return p, nil
}

// Attach follows a process from an output offset.
func (h *handle) Attach(ctx context.Context, id string, offset uint64, streams driver.Streams) (driver.Exit, error) {
	end, err := h.d.faults.begin(ctx, "attach")
	if err != nil {
		return driver.Exit{}, err
	}
	p, err := h.find(id)
	if err != nil {
		return driver.Exit{}, err
	}
	exit, err := h.follow(ctx, p, offset, streams, true)
	return exit, end(err)
}

// Signal sends a signal.
func (h *handle) Signal(ctx context.Context, id string, sig driver.Signal) error {
	end, err := h.d.faults.begin(ctx, "signal")
	if err != nil {
		return err
	}
	p, err := h.find(id)
	if err != nil {
		return err
	}
	if signals[sig.Name] == 0 {
		return errs.New(errs.InvalidArgument, "there is no signal %q", sig.Name)
	}
	p.signal(sig.Name)
	return end(nil)
}

// Processes lists what was started.
func (h *handle) Processes(ctx context.Context) ([]driver.Process, error) {
	if _, err := h.d.faults.begin(ctx, "processes"); err != nil {
		return nil, err
	}
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	var out []driver.Process
	for _, id := range h.s.order {
		p := h.s.procs[id]
		info := driver.Process{ID: id, PID: p.pid, Argv: p.cmd.Argv, User: p.cmd.User, TTY: p.cmd.TTY, Started: p.started, OutputBytes: p.ring.Head()}
		select {
		case <-p.done:
			exit := p.exit
			info.Exit = &exit
		default:
		}
		out = append(out, info)
	}
	return out, nil
}

// dir is where the command works.
func (p *process) dir() string {
	d := p.cmd.Dir
	if d == "" || !path.IsAbs(d) {
		d = path.Join(p.s.root, d)
	}
	return d
}

// CrashProcess ends this process as nothing else does, for [Options.Crash].
func CrashProcess() {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		self.Kill() //nolint:errcheck // then it does not die, and the test that asked for it fails
	}
	select {}
}
