// SPDX-License-Identifier: Apache-2.0

package adapter

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	pb "github.com/berth-dev/berth/sdk/proto/berth/driver/v1"
	"github.com/berth-dev/berth/sdk/stream"
	"github.com/berth-dev/berth/sdk/wire"
)

const (
	fdStdout = int32(pb.Fd_FD_STDOUT)
	fdStderr = int32(pb.Fd_FD_STDERR)

	// firstTimeout is how long a new Attach may say nothing.
	firstTimeout = 10 * time.Second
	// defaultExecBytes is kept of each end of each stream when Exec says nothing else, maxExecBytes at most: the
	// answer is one message.
	defaultExecBytes = 64 << 10
	maxExecBytes     = 1 << 20
)

type processServer struct {
	*Server
	pb.UnimplementedProcessesServer
}

// command checks and completes what a client wants to start. Forget takes its secrets out of the redaction set.
func (s processServer) command(p *pb.Start) (cmd *driver.Command, forget func(), err error) {
	cmd = wire.Command(p)
	if len(cmd.Argv) == 0 || cmd.Argv[0] == "" {
		return nil, nil, errs.New(errs.InvalidArgument, "argv is empty")
	}
	if cmd.ID == "" {
		cmd.ID = newID()
	}
	return cmd, s.redact.AddValues(cmd.SecretEnv), nil
}

func (s processServer) Exec(ctx context.Context, req *pb.ExecRequest) (*pb.ExecResponse, error) {
	return callSandbox(ctx, s.Server, req.GetStart().GetSandboxId(), func(ctx context.Context, _ *session, have sandboxFeatures) (*pb.ExecResponse, error) {
		cmd, forget, err := s.command(req.GetStart())
		if err != nil {
			return nil, err
		}
		head, tail := execBytes(req.GetHeadBytes()), execBytes(req.GetTailBytes())
		stdout, stderr := stream.HeadTail{Head: head, Tail: tail}, stream.HeadTail{Head: head, Tail: tail}
		streams := driver.Streams{Stdout: &stdout, Stderr: &stderr, OnStart: func(driver.Started) {}, OnGap: func(driver.Gap) {}}
		if len(req.GetStdin()) > 0 {
			streams.Stdin = bytes.NewReader(req.GetStdin())
		}
		exit, err := have.sandbox.Run(ctx, cmd, streams)
		if err != nil {
			err = s.cleanError(err)
		}
		forget()
		return &pb.ExecResponse{Exited: wire.ExitProto(exit), Stdout: captured(&stdout), Stderr: captured(&stderr)}, err
	})
}

func execBytes(n uint64) int {
	if n == 0 {
		return defaultExecBytes
	}
	return int(min(n, maxExecBytes))
}

func captured(h *stream.HeadTail) *pb.CapturedOutput {
	if h.Total() == 0 {
		return nil
	}
	head, tail, dropped := h.Result()
	return &pb.CapturedOutput{Head: head, Tail: tail, Dropped: dropped}
}

func (s processServer) Signal(ctx context.Context, req *pb.SignalRequest) (*pb.SignalResponse, error) {
	return callSandbox(ctx, s.Server, req.GetSandboxId(), func(ctx context.Context, ss *session, have sandboxFeatures) (*pb.SignalResponse, error) {
		sig := wire.Signal(req.GetSignal())
		if have.table != nil {
			return &pb.SignalResponse{}, have.table.Signal(ctx, req.GetProcessId(), sig)
		}
		p, err := ss.processes.find(req.GetProcessId())
		if err != nil {
			return nil, err
		}
		return &pb.SignalResponse{}, p.signal(ctx, sig)
	})
}

// signal hands a signal to Run. A process that has ended needs none.
func (p *process) signal(ctx context.Context, sig driver.Signal) error {
	select {
	case p.signals <- sig:
		return nil
	case <-p.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s processServer) ListProcesses(req *pb.ListProcessesRequest, st grpc.ServerStreamingServer[pb.ProcessInfo]) error {
	_, err := callSandbox(st.Context(), s.Server, req.GetSandboxId(), func(ctx context.Context, ss *session, have sandboxFeatures) (struct{}, error) {
		all := ss.processes.list()
		if have.table != nil {
			var err error
			if all, err = have.table.Processes(ctx); err != nil {
				return struct{}{}, err
			}
		}
		for _, p := range all {
			if err := st.Send(wire.ProcessProto(p)); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	return err
}

type attachStream = grpc.BidiStreamingServer[pb.ProcessInput, pb.ProcessEvent]

// input is what the receiving goroutine hands to the handler: the first message, or why there is none.
type input struct {
	message *stream.Message
	err     error
}

func (s processServer) Attach(st attachStream) error {
	first := make(chan input, 1)
	attached := make(chan *attachment, 1)
	go receiveInput(st, first, attached)
	timer := time.NewTimer(firstTimeout)
	defer timer.Stop()
	var in input
	select {
	case in = <-first:
	case <-st.Context().Done():
		return context.Cause(st.Context())
	case <-timer.C:
		return errs.New(errs.InvalidArgument, "neither start nor reattach within %s", firstTimeout)
	}
	if in.err != nil {
		return in.err
	}
	header := in.message.Header.(*pb.ProcessInput) //nolint:errcheck,forcetypeassert // receiveInput made it
	switch {
	case header.GetStart() != nil:
		return s.start(st, header.GetStart(), attached)
	case header.GetReattach() != nil:
		return s.reattach(st, header.GetReattach(), attached)
	default:
		return errs.New(errs.InvalidArgument, "the first message is neither start nor reattach")
	}
}

func (s processServer) start(st attachStream, req *pb.Start, attached chan<- *attachment) error {
	ss, err := s.session(req.GetSandboxId())
	if err != nil {
		return err
	}
	cmd, forget, err := s.command(req)
	if err != nil {
		return err
	}
	have := ss.sandbox()
	run := func(ctx context.Context, streams driver.Streams) (driver.Exit, error) {
		exit, err := have.sandbox.Run(ctx, cmd, streams)
		if err != nil {
			err = s.cleanError(err)
		}
		return exit, err
	}
	a := &attachment{stdin: req.GetStdin()}
	if have.table == nil {
		a.known = ss.processes.launch(ss.ctx, cmd, req.GetStdin(), forget, func(p *process) { a.join(st, ss, p) }, run)
		return s.follow(st, a, attached)
	}
	p := newProcess(cmd, 0, 0, req.GetStdin())
	p.detached = cmd.Detached
	return s.callTable(st, ss, p, a, attached, func(ctx context.Context, streams driver.Streams) (driver.Exit, error) {
		defer forget()
		return run(ctx, streams)
	})
}

func (s processServer) reattach(st attachStream, req *pb.Reattach, attached chan<- *attachment) error {
	ss, err := s.session(req.GetSandboxId())
	if err != nil {
		return err
	}
	have := ss.sandbox()
	if have.table == nil {
		p, err := ss.processes.find(req.GetProcessId())
		if err != nil {
			return err
		}
		a := &attachment{offset: req.GetOffset(), known: true}
		a.join(st, ss, p)
		return s.follow(st, a, attached)
	}
	p := newProcess(nil, req.GetOffset(), 0, true)
	p.detached = true
	return s.callTable(st, ss, p, &attachment{offset: req.GetOffset()}, attached, func(ctx context.Context, streams driver.Streams) (driver.Exit, error) {
		start := streams.OnStart
		streams.OnStart = func(d driver.Started) {
			d.Reattached = true
			if d.ProcessID == "" {
				d.ProcessID = req.GetProcessId()
			}
			start(d)
		}
		return have.table.Attach(ctx, req.GetProcessId(), req.GetOffset(), streams)
	})
}

// callTable follows a call to a sandbox that remembers its processes itself. The call ends with the stream.
func (s processServer) callTable(st attachStream, ss *session, p *process, a *attachment, attached chan<- *attachment, call func(context.Context, driver.Streams) (driver.Exit, error)) error {
	ctx, cancel := context.WithCancelCause(ss.ctx)
	p.cancel = cancel
	a.table = true
	a.join(st, ss, p)
	go p.run(ctx, s.log, call)
	return s.follow(st, a, attached)
}

// attachment is one client of a process.
type attachment struct {
	process  *process
	follower *stream.Follower
	ctx      context.Context //nolint:containedctx // of the client's stream
	end      func()          // frees ctx
	leave    context.CancelFunc
	offset   uint64
	stdin    bool // the end of the client's stream is that of standard input
	known    bool // the process was there before
	table    bool // the process goes on by itself when the call to the driver is cancelled
	detach   bool // the client said so; guarded by process.mu
}

// join makes the client a follower of a process. It comes before the process starts: output that nobody follows is not
// kept.
func (a *attachment) join(st attachStream, ss *session, p *process) {
	a.process = p
	ctx, end := ss.bind(st.Context())
	ctx, left := context.WithCancelCause(ctx)
	a.ctx, a.end = ctx, end
	a.leave = func() { left(context.Canceled) }
	p.mu.Lock()
	p.followers++
	p.mu.Unlock()
	a.follower = p.ring.Follow(ctx, a.offset)
}

// follow serves one client until the process has ended or the client is gone.
func (s processServer) follow(st attachStream, a *attachment, attached chan<- *attachment) error {
	defer func() {
		a.follower.Close()
		unfollow(a)
		a.leave()
		a.end()
	}()
	attached <- a
	err := s.deliver(a.ctx, st, a)
	if a.ctx.Err() != nil && a.detachedByClient() {
		return nil
	}
	return err
}

func (a *attachment) detachedByClient() bool {
	a.process.mu.Lock()
	defer a.process.mu.Unlock()
	return a.detach
}

// unfollow ends what its starter leaves, unless it was detached. Other clients come and go.
func unfollow(a *attachment) {
	p := a.process
	p.mu.Lock()
	p.followers--
	detached, byClient := p.detached, a.detach
	p.mu.Unlock()
	switch {
	case a.table && byClient:
		// The call drains the process's output to nowhere until its end.
		go func() {
			<-p.done
			p.ring.Release()
		}()
		return
	case a.table, !a.known && !detached:
		// In a table the driver leaves a detached process alone and ends another one.
		p.cancel(errs.New(errs.Canceled, "the client is gone"))
		<-p.done
	case detached:
		return
	}
	p.mu.Lock()
	last := p.followers == 0
	p.mu.Unlock()
	if last {
		p.ring.Release()
	}
}

// deliver sends the events of a process in their order.
func (s processServer) deliver(ctx context.Context, st attachStream, a *attachment) error {
	p := a.process
	select {
	case <-p.start:
	case <-p.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-p.start:
	default:
		return p.err
	}
	started := wire.StartedProto(p.started)
	started.Reattached = started.GetReattached() || a.known
	if err := st.Send(&pb.ProcessEvent{Event: &pb.ProcessEvent_Started{Started: started}}); err != nil {
		return err
	}
	var m stream.Message
	for {
		piece, err := a.follower.Next(stream.BulkChunk)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if piece.Lost < piece.Offset {
			gap := &pb.Gap{From: piece.Lost, To: piece.Offset}
			if err := st.Send(&pb.ProcessEvent{Event: &pb.ProcessEvent_Gap{Gap: gap}}); err != nil {
				piece.Data.Free()
				return err
			}
		}
		if len(piece.Data) == 0 {
			continue
		}
		m.Header = &pb.ProcessEvent{Event: &pb.ProcessEvent_Output{Output: &pb.Output{
			Offset: piece.Offset, Fd: pb.Fd(piece.Stream),
		}}}
		m.Data = piece.Data
		if err := st.SendMsg(&m); err != nil {
			return err
		}
	}
	<-p.done
	if p.err != nil {
		return p.err
	}
	exit := wire.ExitProto(p.exit)
	if exit.OutputBytes == 0 {
		exit.OutputBytes = p.ring.Head()
	}
	return st.Send(&pb.ProcessEvent{Event: &pb.ProcessEvent_Exited{Exited: exit}})
}

// receiveInput takes the client's messages until its stream ends. A process that does not read its input makes it
// wait, and thereby the client.
func receiveInput(st attachStream, first chan<- input, attached <-chan *attachment) {
	m := &stream.Message{Header: &pb.ProcessInput{}}
	if err := st.RecvMsg(m); err != nil {
		if errors.Is(err, io.EOF) {
			err = errs.New(errs.InvalidArgument, "the stream ended before start or reattach")
		}
		first <- input{err: err}
		return
	}
	first <- input{message: m}
	var a *attachment
	select {
	case a = <-attached:
	case <-st.Context().Done():
		return
	}
	for {
		m := stream.Message{Header: &pb.ProcessInput{}}
		if err := st.RecvMsg(&m); err != nil {
			if errors.Is(err, io.EOF) && a.stdin {
				a.closeStdin()
			}
			return
		}
		a.take(st.Context(), &m)
	}
}

func (a *attachment) closeStdin() {
	if a.process.stdin != nil {
		a.process.stdin.close()
	}
}

// take acts on one message of the client.
func (a *attachment) take(ctx context.Context, m *stream.Message) {
	p := a.process
	header := m.Header.(*pb.ProcessInput) //nolint:errcheck,forcetypeassert // receiveInput made it
	switch in := header.GetInput().(type) {
	case *pb.ProcessInput_Stdin:
		if p.stdin == nil {
			m.Free()
			return
		}
		p.stdin.push(ctx, m.Data)
	case *pb.ProcessInput_CloseStdin:
		a.closeStdin()
	case *pb.ProcessInput_Resize:
		size := wire.Size(in.Resize)
		for {
			select {
			case p.resize <- size:
				return
			default:
			}
			// Only the newest size matters.
			select {
			case <-p.resize:
			default:
			}
		}
	case *pb.ProcessInput_Signal:
		_ = p.signal(ctx, wire.Signal(in.Signal)) // it fails with the stream only
	case *pb.ProcessInput_Ack:
		a.follower.Ack(in.Ack.GetOffset())
	case *pb.ProcessInput_Detach:
		p.mu.Lock()
		p.detached, a.detach = true, true
		p.mu.Unlock()
		if p.command != nil && !a.table {
			p.ring.Retain(replayBytes(p.command))
		}
		a.leave()
	}
}
