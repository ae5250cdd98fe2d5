// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	pb "github.com/berth-dev/berth/sdk/proto/berth/driver/v1"
	"github.com/berth-dev/berth/sdk/stream"
	"github.com/berth-dev/berth/sdk/wire"
)

const (
	// ackEvery is how much output of a process that can be followed again is received between acknowledgements. It is
	// less than the least that a driver retains.
	ackEvery = 32 << 10
	// endWait bounds, beside the command's own grace, how long Run waits after its context has ended.
	endWait = 5 * time.Second
)

// Run runs a command to its end. When ctx ends first it waits until the driver has ended the process, within bounds.
func (s *Sandbox) Run(ctx context.Context, cmd *driver.Command, streams driver.Streams) (driver.Exit, error) {
	a := &attachment{sandbox: s, op: "run", id: cmd.ID, streams: streams, acks: cmd.Detached}
	exit, err := a.run(ctx, &pb.ProcessInput{Input: &pb.ProcessInput_Start{
		Start: wire.StartProto(s.id, cmd, streams.Stdin != nil),
	}})
	if err != nil && ctx.Err() != nil && !cmd.Detached && a.processID() != "" {
		s.awaitEnd(ctx, cmd, a)
	}
	return exit, err
}

// Attach follows a process from an output offset.
func (s *Sandbox) Attach(ctx context.Context, id string, offset uint64, streams driver.Streams) (driver.Exit, error) {
	a := &attachment{sandbox: s, op: "attach", id: id, streams: streams, acks: true, offset: offset}
	return a.run(ctx, &pb.ProcessInput{Input: &pb.ProcessInput_Reattach{
		Reattach: &pb.Reattach{SandboxId: s.id, ProcessId: id, Offset: offset},
	}})
}

// awaitEnd waits until a process that is being ended has ended: it is unknown, or its stream ends.
func (s *Sandbox) awaitEnd(ctx context.Context, cmd *driver.Command, a *attachment) {
	grace := cmd.KillGrace
	if grace == 0 {
		grace = driver.DefaultKillGrace
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), grace+endWait, errs.New(errs.Canceled, "the process did not end"))
	defer cancel()
	_, _ = s.Attach(ctx, a.processID(), a.offset, driver.Streams{}) // whatever it answers, the wait is over
}

// Exec runs a short command in one exchange and keeps the beginning and the end of its output.
func (s *Sandbox) Exec(ctx context.Context, cmd *driver.Command, stdin []byte, headBytes, tailBytes uint64) (ExecResult, error) {
	resp, err := s.d.processes.Exec(ctx, &pb.ExecRequest{
		Start: wire.StartProto(s.id, cmd, len(stdin) > 0), Stdin: stdin, HeadBytes: headBytes, TailBytes: tailBytes,
	})
	if err != nil {
		return ExecResult{}, s.d.fail(ctx, "exec", err)
	}
	return ExecResult{
		Exit: wire.Exit(resp.GetExited()), Stdout: captured(resp.GetStdout()), Stderr: captured(resp.GetStderr()),
	}, nil
}

// ExecResult is how a short command ended.
type ExecResult struct {
	Exit           driver.Exit
	Stdout, Stderr Captured
}

// Captured is bounded output; Dropped bytes between Head and Tail were not kept.
type Captured struct {
	Head, Tail []byte
	Dropped    uint64
}

func captured(p *pb.CapturedOutput) Captured {
	return Captured{Head: p.GetHead(), Tail: p.GetTail(), Dropped: p.GetDropped()}
}

// Signal sends a signal to a process.
func (s *Sandbox) Signal(ctx context.Context, id string, sig driver.Signal) error {
	_, err := s.d.processes.Signal(ctx, &pb.SignalRequest{SandboxId: s.id, ProcessId: id, Signal: wire.SignalProto(sig)})
	return s.d.fail(ctx, "signal", err)
}

// Processes lists what was started.
func (s *Sandbox) Processes(ctx context.Context) ([]driver.Process, error) {
	var out []driver.Process
	err := watch(ctx, s.d, "list processes", func(ctx context.Context) (grpc.ServerStreamingClient[pb.ProcessInfo], error) {
		return s.d.processes.ListProcesses(ctx, &pb.ListProcessesRequest{SandboxId: s.id})
	}, func(p *pb.ProcessInfo) { out = append(out, wire.Process(p)) })
	return out, err
}

// attachment is one stream that follows a process.
type attachment struct {
	sandbox *Sandbox
	op      string
	streams driver.Streams
	acks    bool
	offset  uint64 // of the next byte of output
	acked   uint64

	stream grpc.BidiStreamingClient[pb.ProcessInput, pb.ProcessEvent]
	sendMu sync.Mutex // one sender at a time

	mu sync.Mutex
	id string // guarded by mu
}

func (a *attachment) processID() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.id
}

func (a *attachment) send(m any) error {
	a.sendMu.Lock()
	defer a.sendMu.Unlock()
	return a.stream.SendMsg(m)
}

func (a *attachment) run(parent context.Context, first *pb.ProcessInput) (driver.Exit, error) {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(context.Canceled)
	d := a.sandbox.d
	var err error
	if a.stream, err = d.processes.Attach(ctx); err != nil {
		return driver.Exit{}, d.fail(parent, a.op, err)
	}
	// An error of Send is io.EOF; Recv tells what is wrong.
	_ = a.send(first)
	if a.acks {
		a.ack()
	}
	if a.streams.Stdin != nil {
		go a.pumpStdin()
	}
	started := make(chan struct{})
	if a.streams.Resize != nil || a.streams.Signals != nil {
		go a.control(ctx, started)
	}
	m := stream.Message{Header: &pb.ProcessEvent{}}
	defer m.Free()
	for {
		if err := a.stream.RecvMsg(&m); err != nil {
			return driver.Exit{}, d.ended(parent, a.op, err)
		}
		switch e := m.Header.(*pb.ProcessEvent).GetEvent().(type) { //nolint:forcetypeassert // made above
		case *pb.ProcessEvent_Started:
			a.mu.Lock()
			a.id = e.Started.GetProcessId()
			a.mu.Unlock()
			select {
			case <-started:
			default:
				close(started)
				if a.streams.OnStart != nil {
					a.streams.OnStart(wire.Started(e.Started))
				}
			}
		case *pb.ProcessEvent_Output:
			if err := a.output(&m, e.Output); err != nil {
				return driver.Exit{}, err
			}
		case *pb.ProcessEvent_Gap:
			a.offset = e.Gap.GetTo()
			if a.streams.OnGap != nil {
				a.streams.OnGap(driver.Gap{From: e.Gap.GetFrom(), To: e.Gap.GetTo()})
			}
			if a.acks {
				a.ack() // a driver that counts by offset would wait for what is lost
			}
		case *pb.ProcessEvent_Exited:
			return wire.Exit(e.Exited), nil
		}
	}
}

// output writes a payload where it belongs.
func (a *attachment) output(m *stream.Message, out *pb.Output) error {
	if out.GetOffset() != a.offset {
		return errs.New(errs.OutputGap, "output continues at offset %d, not %d", out.GetOffset(), a.offset)
	}
	w := a.streams.Stdout
	if out.GetFd() == pb.Fd_FD_STDERR {
		w = a.streams.Stderr
	}
	for _, b := range m.Data {
		p := b.ReadOnlyData()
		if w != nil {
			if _, err := w.Write(p); err != nil {
				return &errs.Error{Code: errs.Canceled, Op: a.op, Message: "write output", MaybeApplied: true, Err: err}
			}
		}
		a.offset += uint64(len(p))
	}
	m.Free()
	if a.acks && a.offset-a.acked >= ackEvery {
		a.ack()
	}
	return nil
}

func (a *attachment) ack() {
	a.acked = a.offset
	_ = a.send(&pb.ProcessInput{Input: &pb.ProcessInput_Ack{Ack: &pb.Ack{Offset: a.offset}}}) // as above
}

// pumpStdin sends standard input until its end. It may outlive the call in a Read that does not return.
func (a *attachment) pumpStdin() {
	size := stream.InteractiveChunk
	for {
		buf := stream.Pool().Get(size)
		n, err := a.streams.Stdin.Read(*buf)
		if n > 0 {
			if n == size {
				size = stream.BulkChunk
			}
			*buf = (*buf)[:n]
			m := stream.Message{
				Header: &pb.ProcessInput{Input: &pb.ProcessInput_Stdin{}},
				Data:   mem.BufferSlice{mem.NewBuffer(buf, stream.Pool())},
			}
			if a.send(&m) != nil {
				return
			}
		} else {
			stream.Pool().Put(buf)
		}
		if err != nil {
			_ = a.send(&pb.ProcessInput{Input: &pb.ProcessInput_CloseStdin{CloseStdin: &pb.CloseStdin{}}}) // as above
			return
		}
	}
}

// control passes sizes and signals on. Signals take a call of their own, so that they arrive when the process does not
// read its input and the stream is full.
func (a *attachment) control(ctx context.Context, started <-chan struct{}) {
	select {
	case <-started:
	case <-ctx.Done():
		return
	}
	resize, signals := a.streams.Resize, a.streams.Signals
	for resize != nil || signals != nil {
		select {
		case size, ok := <-resize:
			if !ok {
				resize = nil
				continue
			}
			_ = a.send(&pb.ProcessInput{Input: &pb.ProcessInput_Resize{Resize: wire.SizeProto(size)}}) // as above
		case sig, ok := <-signals:
			if !ok {
				signals = nil
				continue
			}
			if err := a.sandbox.Signal(ctx, a.processID(), sig); errors.Is(err, errs.Unsupported) {
				_ = a.send(&pb.ProcessInput{Input: &pb.ProcessInput_Signal{Signal: wire.SignalProto(sig)}}) // as above
			}
		case <-ctx.Done():
			return
		}
	}
}
