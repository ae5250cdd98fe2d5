// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"io"
	"maps"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/berth-dev/berth/plugins/e2b/internal/wire/process"
	"github.com/berth-dev/berth/sdk/errs"
)

// Command is a program to start.
type Command struct {
	Cmd   string
	Args  []string
	Env   map[string]string
	Dir   string // empty = the user's home
	User  string // empty = the sandbox's default
	Stdin bool   // keep standard input open; else it is empty
	// Rows and Cols, when not zero, make a terminal of that size.
	Rows, Cols uint32
}

// EventKind is the kind of an [Event].
type EventKind uint8

// The kinds.
const (
	Stdout EventKind = iota + 1
	Stderr
	Terminal
	Ended
)

// Event is output of a process, or its end.
type Event struct {
	Kind EventKind
	Data []byte // of output
	// Code is the exit code of an end, -1 when a signal ended the process; Signal is then its name without SIG as far as
	// the daemon tells it: killed, terminated, …
	Code   int
	Signal string
}

// Process is a process in a sandbox, followed by one stream. Closing it leaves the process alone.
type Process struct {
	s      *Sandbox
	pid    uint32
	user   string
	next   func() (*process.ProcessEvent, error)
	close  func() error
	cancel context.CancelCauseFunc
}

// errClosed ends streams that are not wanted any more.
var errClosed = errors.New("closed by the caller")

// Start starts a program. The process outlives the stream and ctx; output that nobody follows is thrown away.
func (s *Sandbox) Start(ctx context.Context, c Command) (*Process, error) {
	m := &process.StartRequest{Process: &process.ProcessConfig{Cmd: c.Cmd, Args: c.Args, Envs: c.Env}, Stdin: &c.Stdin}
	if c.Dir != "" {
		m.Process.Cwd = &c.Dir
	}
	if c.Rows > 0 || c.Cols > 0 {
		m.Pty = &process.PTY{Size: &process.Size{Rows: c.Rows, Cols: c.Cols}}
	}
	return follow(ctx, s, "start", c.User, func(ctx context.Context) (*connect.ServerStreamForClient[process.StartResponse], error) {
		return s.start.CallServerStream(ctx, request(s, c.User, m))
	}, (*process.StartResponse).GetEvent)
}

// Attach follows a process that runs, or ended at most 30 seconds ago: errs.ProcessUnknown otherwise. It gives output from
// now on only.
func (s *Sandbox) Attach(ctx context.Context, pid uint32, user string) (*Process, error) {
	return follow(ctx, s, "attach", user, func(ctx context.Context) (*connect.ServerStreamForClient[process.ConnectResponse], error) {
		return s.attach.CallServerStream(ctx, request(s, user, &process.ConnectRequest{Process: selector(pid)}))
	}, (*process.ConnectResponse).GetEvent)
}

func selector(pid uint32) *process.ProcessSelector {
	return &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: pid}}
}

// follow opens a stream and waits for the word that the process exists. The stream ends with ctx.
func follow[T any](ctx context.Context, s *Sandbox, op, user string, open func(context.Context) (*connect.ServerStreamForClient[T], error), event func(*T) *process.ProcessEvent) (*Process, error) {
	inner, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(startTime, func() { cancel(errs.New(errs.VendorFailed, "the sandbox's daemon said nothing for %s", startTime)) })
	defer late.Stop()
	missing := errs.ProcessUnknown
	st, err := open(inner)
	if err != nil {
		cancel(errClosed)
		return nil, s.failed(inner, op, missing, err)
	}
	p := &Process{s: s, user: user, cancel: cancel}
	p.next = func() (*process.ProcessEvent, error) {
		if st.Receive() {
			return event(st.Msg()), nil
		}
		if err := st.Err(); err != nil {
			return nil, s.failed(inner, op, missing, err)
		}
		return nil, io.EOF
	}
	p.close = st.Close
	for p.pid == 0 {
		e, err := p.next()
		if errors.Is(err, io.EOF) {
			err = &errs.Error{Code: errs.ExecTransport, Op: op, Message: "the stream ended before the process began", MaybeApplied: true}
		}
		if err != nil {
			p.Close()
			return nil, err
		}
		p.pid = e.GetStart().GetPid()
	}
	return p, nil
}

// startTime bounds the wait for the first word of a stream.
const startTime = 30 * time.Second

// PID is the process's inside the sandbox.
func (p *Process) PID() uint32 { return p.pid }

// Next gives the next output, or the end. A stream that breaks before the end is errs.ExecTransport: the process may go
// on, and Attach finds it.
func (p *Process) Next() (Event, error) {
	for {
		e, err := p.next()
		if errors.Is(err, io.EOF) {
			err = &errs.Error{Code: errs.ExecTransport, Op: "follow the process", Message: "the stream ended before the process did"}
		}
		if err != nil {
			return Event{}, err
		}
		switch v := e.GetEvent().(type) {
		case *process.ProcessEvent_Data_:
			switch d := v.Data.GetOutput().(type) {
			case *process.ProcessEvent_Data_Stdout:
				return Event{Kind: Stdout, Data: d.Stdout}, nil
			case *process.ProcessEvent_Data_Stderr:
				return Event{Kind: Stderr, Data: d.Stderr}, nil
			case *process.ProcessEvent_Data_Pty:
				return Event{Kind: Terminal, Data: d.Pty}, nil
			}
		case *process.ProcessEvent_End_:
			signal, _ := strings.CutPrefix(v.End.GetStatus(), "signal: ")
			if v.End.GetExited() {
				signal = ""
			}
			return Event{Kind: Ended, Code: int(v.End.GetExitCode()), Signal: signal}, nil
		}
	}
}

// Close stops following. The process goes on.
func (p *Process) Close() {
	p.cancel(errClosed)
	_ = p.close() // it was cancelled
}

// Kill ends the leader with SIGKILL, or Terminate with SIGTERM. What it started goes on: run programs under setsid, and
// signal the group, to end trees.
func (p *Process) Kill(ctx context.Context) error {
	return p.s.signal(ctx, p.pid, p.user, process.Signal_SIGNAL_SIGKILL)
}

// Terminate sends SIGTERM to the leader.
func (p *Process) Terminate(ctx context.Context) error {
	return p.s.signal(ctx, p.pid, p.user, process.Signal_SIGNAL_SIGTERM)
}

func (s *Sandbox) signal(ctx context.Context, pid uint32, user string, sig process.Signal) error {
	_, err := s.sendSignal.CallUnary(ctx, request(s, user, &process.SendSignalRequest{Process: selector(pid), Signal: sig}))
	if err != nil {
		return s.failed(ctx, "signal", errs.ProcessUnknown, err)
	}
	return nil
}

// Resize gives a terminal another size.
func (p *Process) Resize(ctx context.Context, rows, cols uint32) error {
	_, err := p.s.update.CallUnary(ctx, request(p.s, p.user, &process.UpdateRequest{
		Process: selector(p.pid), Pty: &process.PTY{Size: &process.Size{Rows: rows, Cols: cols}},
	}))
	if err != nil {
		return p.s.failed(ctx, "resize", errs.ProcessUnknown, err)
	}
	return nil
}

// CloseStdin ends standard input. A terminal has no end: write the byte 4 to it.
func (p *Process) CloseStdin(ctx context.Context) error {
	_, err := p.s.closeStdin.CallUnary(ctx, request(p.s, p.user, &process.CloseStdinRequest{Process: selector(p.pid)}))
	if err != nil {
		return p.s.failed(ctx, "close standard input", errs.ProcessUnknown, err)
	}
	return nil
}

// Input opens a stream to standard input, or with terminal to the terminal, for one writer. The daemon logs what comes in
// single calls, and does not log what comes in such a stream. Closing it leaves standard input open.
func (p *Process) Input(ctx context.Context, terminal bool) (*Input, error) {
	inner, cancel := context.WithCancelCause(ctx)
	answered := make(chan struct{})
	inner = context.WithValue(inner, answeredKey{}, sync.OnceFunc(func() { close(answered) }))
	st := p.s.streamInput.CallClientStream(inner)
	maps.Copy(st.RequestHeader(), p.s.headers(p.user))
	in := &Input{p: p, st: st, ctx: inner, cancel: cancel, terminal: terminal, answered: answered}
	err := st.Send(&process.StreamInputRequest{Event: &process.StreamInputRequest_Start_{
		Start: &process.StreamInputRequest_Start{Process: selector(p.pid)},
	}})
	if err != nil {
		return nil, in.failed(err)
	}
	return in, nil
}

// answeredKey is the key of a function in a request's context that is told of its answer.
type answeredKey struct{}

// Input is a stream to a process's standard input, or terminal.
type Input struct {
	p        *Process
	st       *connect.ClientStreamForClient[process.StreamInputRequest, process.StreamInputResponse]
	ctx      context.Context //nolint:containedctx // the stream's
	cancel   context.CancelCauseFunc
	terminal bool
	answered <-chan struct{}
	once     sync.Once
	end      error
}

// inputChunk is the most that one message carries.
const inputChunk = 256 << 10

// Done is closed when nothing is taken any more: it was refused, broke, or was closed. Write then says why.
func (in *Input) Done() <-chan struct{} { return in.answered }

// Write implements io.Writer. It waits while the process does not read.
func (in *Input) Write(b []byte) (int, error) {
	n := 0
	for len(b) > 0 {
		part := b[:min(len(b), inputChunk)]
		m := &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: part}}
		if in.terminal {
			m.Input = &process.ProcessInput_Pty{Pty: part}
		}
		err := in.st.Send(&process.StreamInputRequest{Event: &process.StreamInputRequest_Data_{Data: &process.StreamInputRequest_Data{Input: m}}})
		if err != nil {
			return n, in.failed(err)
		}
		n += len(part)
		b = b[len(part):]
	}
	return n, nil
}

// failed gives what the daemon said about it.
func (in *Input) failed(err error) error {
	if errors.Is(err, io.EOF) {
		err = in.finish()
	}
	err = in.p.s.failed(in.ctx, "write to standard input", errs.ProcessUnknown, err)
	in.cancel(errClosed)
	return err
}

func (in *Input) finish() error {
	in.once.Do(func() { _, in.end = in.st.CloseAndReceive() })
	if in.end == nil {
		return io.ErrClosedPipe
	}
	return in.end
}

// Close implements io.Closer: it waits until the daemon has taken everything, or ctx ends.
func (in *Input) Close() error {
	err := in.finish()
	in.cancel(errClosed)
	if errors.Is(err, io.ErrClosedPipe) {
		return nil
	}
	return in.p.s.failed(context.WithoutCancel(in.ctx), "write to standard input", errs.ProcessUnknown, err)
}

// Running is a process that the daemon knows.
type Running struct {
	PID  uint32
	Cmd  string
	Args []string
}

// Processes lists the processes that were started through the daemon and run.
func (s *Sandbox) Processes(ctx context.Context) ([]Running, error) {
	res, err := s.list.CallUnary(ctx, request(s, "", &process.ListRequest{}))
	if err != nil {
		return nil, s.failed(ctx, "list processes", errs.ProcessUnknown, err)
	}
	var out []Running
	for _, p := range res.Msg.GetProcesses() {
		out = append(out, Running{PID: p.GetPid(), Cmd: p.GetConfig().GetCmd(), Args: p.GetConfig().GetArgs()})
	}
	return out, nil
}

// Signal ends a process that Processes gave: with SIGKILL, or else SIGTERM.
func (s *Sandbox) Signal(ctx context.Context, pid uint32, user string, kill bool) error {
	sig := process.Signal_SIGNAL_SIGTERM
	if kill {
		sig = process.Signal_SIGNAL_SIGKILL
	}
	return s.signal(ctx, pid, user, sig)
}
