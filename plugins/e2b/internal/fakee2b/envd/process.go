// SPDX-License-Identifier: Apache-2.0

//go:build linux

package envd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/berth-dev/berth/plugins/e2b/internal/wire/process"
)

// retention is how long an ended process is remembered.
const retention = 30 * time.Second

// proc is a process that was started through the daemon.
type proc struct {
	pid    uint32
	cmd    *exec.Cmd
	config *process.ProcessConfig
	tag    *string
	stdin  *os.File
	master *os.File // of a terminal
	pipes  []*os.File
	out    chan *process.ProcessEvent

	mu       sync.Mutex
	writing  sync.Mutex
	subs     map[*sub]struct{}     // guarded by mu
	end      *process.ProcessEvent // set before ended is closed
	ended    chan struct{}
	killOnce sync.Once
}

// sub is who follows a process.
type sub struct {
	ch   chan *process.ProcessEvent
	gone chan struct{}
}

func (d *daemon) processes(mux *http.ServeMux) {
	const at = "/process.Process/"
	mux.Handle(at+"Start", connect.NewServerStreamHandler(at+"Start", d.start))
	mux.Handle(at+"Connect", connect.NewServerStreamHandler(at+"Connect", d.connect))
	mux.Handle(at+"StreamInput", connect.NewClientStreamHandler(at+"StreamInput", d.streamInput))
	unary(mux, at+"List", func(context.Context, *connect.Request[process.ListRequest]) (*process.ListResponse, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		out := &process.ListResponse{}
		for _, p := range d.procs {
			select {
			case <-p.ended:
			default:
				out.Processes = append(out.Processes, &process.ProcessInfo{Config: p.config, Pid: p.pid, Tag: p.tag})
			}
		}
		return out, nil
	})
	unary(mux, at+"Update", func(_ context.Context, r *connect.Request[process.UpdateRequest]) (*process.UpdateResponse, error) {
		p, err := d.find(r.Msg.GetProcess())
		if err != nil {
			return nil, err
		}
		if size := r.Msg.GetPty().GetSize(); size != nil {
			if p.master == nil {
				return nil, connect.NewError(connect.CodeInternal, errors.New("tty not assigned to process"))
			}
			if err := resize(p.master, size.GetRows(), size.GetCols()); err != nil {
				return nil, connect.NewError(connect.CodeInternal, err)
			}
		}
		return &process.UpdateResponse{}, nil
	})
	unary(mux, at+"SendInput", func(_ context.Context, r *connect.Request[process.SendInputRequest]) (*process.SendInputResponse, error) {
		p, err := d.find(r.Msg.GetProcess())
		if err == nil {
			err = p.input(r.Msg.GetInput())
		}
		return &process.SendInputResponse{}, err
	})
	unary(mux, at+"SendSignal", func(_ context.Context, r *connect.Request[process.SendSignalRequest]) (*process.SendSignalResponse, error) {
		p, err := d.find(r.Msg.GetProcess())
		if err != nil {
			return nil, err
		}
		switch r.Msg.GetSignal() {
		case process.Signal_SIGNAL_SIGKILL:
			p.kill()
		case process.Signal_SIGNAL_SIGTERM:
			_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		default:
			return nil, connect.NewError(connect.CodeUnimplemented, fmt.Errorf("invalid signal: %s", r.Msg.GetSignal()))
		}
		return &process.SendSignalResponse{}, nil
	})
	unary(mux, at+"CloseStdin", func(_ context.Context, r *connect.Request[process.CloseStdinRequest]) (*process.CloseStdinResponse, error) {
		p, err := d.find(r.Msg.GetProcess())
		if err != nil {
			return nil, err
		}
		if p.master != nil {
			return nil, connect.NewError(connect.CodeUnknown, errors.New("cannot close stdin of a PTY process"))
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.stdin != nil {
			_ = p.stdin.Close() // nothing is buffered
			p.stdin = nil
		}
		return &process.CloseStdinResponse{}, nil
	})
}

// find gives a process by pid, or by tag as far as that works.
func (d *daemon) find(sel *process.ProcessSelector) (*proc, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch s := sel.GetSelector().(type) {
	case *process.ProcessSelector_Pid:
		if p := d.procs[s.Pid]; p != nil {
			return p, nil
		}
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("process with pid %d not found", s.Pid))
	case *process.ProcessSelector_Tag:
		for _, p := range d.procs { // the first that comes, and no other
			if p.tag != nil && *p.tag == s.Tag {
				return p, nil
			}
			break
		}
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("process with tag %s not found", s.Tag))
	}
	return nil, connect.NewError(connect.CodeUnimplemented, errors.New("invalid input type"))
}

func (p *proc) input(in *process.ProcessInput) error {
	p.writing.Lock()
	defer p.writing.Unlock()
	var to *os.File
	var b []byte
	switch v := in.GetInput().(type) {
	case *process.ProcessInput_Stdin:
		p.mu.Lock()
		to = p.stdin
		p.mu.Unlock()
		b = v.Stdin
		if to == nil {
			return connect.NewError(connect.CodeInternal, errors.New("error writing to stdin: stdin not enabled or closed"))
		}
	case *process.ProcessInput_Pty:
		if to, b = p.master, v.Pty; to == nil {
			return connect.NewError(connect.CodeInternal, errors.New("error writing to tty: tty not assigned to process"))
		}
	default:
		return connect.NewError(connect.CodeUnimplemented, errors.New("invalid input type"))
	}
	if _, err := to.Write(b); err != nil {
		return connect.NewError(connect.CodeInternal, fmt.Errorf("error writing to stdin: %w", err))
	}
	return nil
}

func (d *daemon) streamInput(_ context.Context, st *connect.ClientStream[process.StreamInputRequest]) (*connect.Response[process.StreamInputResponse], error) {
	var p *proc
	for st.Receive() {
		switch e := st.Msg().GetEvent().(type) {
		case *process.StreamInputRequest_Start_:
			var err error
			if p, err = d.find(e.Start.GetProcess()); err != nil {
				return nil, err
			}
		case *process.StreamInputRequest_Data_:
			if p == nil {
				panic(http.ErrAbortHandler) // as the real one does
			}
			if err := p.input(e.Data.GetInput()); err != nil {
				return nil, err
			}
		case *process.StreamInputRequest_Keepalive:
		default:
			return nil, connect.NewError(connect.CodeUnimplemented, errors.New("invalid event type"))
		}
	}
	if err := st.Err(); err != nil {
		return nil, err
	}
	return connect.NewResponse(&process.StreamInputResponse{}), nil
}

func (d *daemon) start(ctx context.Context, r *connect.Request[process.StartRequest], st *connect.ServerStream[process.StartResponse]) error {
	p, s, err := d.launch(r)
	if err != nil {
		return err
	}
	err = p.stream(ctx, s, every(r.Header()), func(e *process.ProcessEvent) error { return st.Send(&process.StartResponse{Event: e}) })
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		_ = p.cmd.Process.Kill() // the leader only
		return connect.NewError(connect.CodeDeadlineExceeded, errors.New("context deadline exceeded"))
	}
	return err
}

func (d *daemon) connect(ctx context.Context, r *connect.Request[process.ConnectRequest], st *connect.ServerStream[process.ConnectResponse]) error {
	p, err := d.find(r.Msg.GetProcess())
	if err != nil {
		return err
	}
	return p.stream(ctx, p.subscribe(), every(r.Header()), func(e *process.ProcessEvent) error { return st.Send(&process.ConnectResponse{Event: e}) })
}

func every(h http.Header) time.Duration {
	if n, err := strconv.Atoi(h.Get("Keepalive-Ping-Interval")); err == nil {
		return time.Duration(n) * time.Second
	}
	return 90 * time.Second
}

// launch starts a process.
func (d *daemon) launch(r *connect.Request[process.StartRequest]) (*proc, *sub, error) {
	a, err := d.caller(r.Header())
	if err != nil {
		return nil, nil, err
	}
	cfg := r.Msg.GetProcess()
	dir := cfg.GetCwd()
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(a.home, dir)
	}
	if _, err := os.Stat(dir); err != nil {
		return nil, nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("cwd '%s' does not exist", dir))
	}
	p := &proc{
		cmd: command(cfg.GetCmd(), cfg.GetArgs()), config: cfg, tag: r.Msg.Tag, out: make(chan *process.ProcessEvent, 64), //nolint:protogetter // absent is another thing than empty
		subs: map[*sub]struct{}{}, ended: make(chan struct{}),
	}
	p.cmd.Dir, p.cmd.Env = dir, d.environment(a, cfg.GetEnvs())
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: a.uid, Gid: a.gid, Groups: a.groups}}
	var theirs []*os.File
	var readers []func()
	if size := r.Msg.GetPty(); size != nil {
		master, slave, err := terminal(size.GetSize().GetRows(), size.GetSize().GetCols())
		if err != nil {
			return nil, nil, connect.NewError(connect.CodeInternal, err)
		}
		_ = os.Chown(slave.Name(), int(a.uid), -1) // then it cannot be opened by name
		p.master, theirs = master, []*os.File{slave}
		p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = slave, slave, slave
		p.cmd.SysProcAttr.Setsid, p.cmd.SysProcAttr.Setctty = true, true
		readers = append(readers, p.read(master, 16<<10, func(b []byte) *process.ProcessEvent_Data {
			return &process.ProcessEvent_Data{Output: &process.ProcessEvent_Data_Pty{Pty: b}}
		}))
	} else {
		outR, outW, e1 := os.Pipe()
		errR, errW, e2 := os.Pipe()
		if err := errors.Join(e1, e2); err != nil {
			return nil, nil, connect.NewError(connect.CodeInternal, err)
		}
		theirs = []*os.File{outW, errW}
		p.cmd.Stdout, p.cmd.Stderr, p.pipes = outW, errW, []*os.File{outR, errR}
		if r.Msg.Stdin == nil || r.Msg.GetStdin() {
			inR, inW, err := os.Pipe()
			if err != nil {
				return nil, nil, connect.NewError(connect.CodeInternal, err)
			}
			p.cmd.Stdin, p.stdin = inR, inW
			theirs = append(theirs, inR)
		}
		readers = append(readers, p.read(outR, 32<<10, func(b []byte) *process.ProcessEvent_Data {
			return &process.ProcessEvent_Data{Output: &process.ProcessEvent_Data_Stdout{Stdout: b}}
		}), p.read(errR, 32<<10, func(b []byte) *process.ProcessEvent_Data {
			return &process.ProcessEvent_Data{Output: &process.ProcessEvent_Data_Stderr{Stderr: b}}
		}))
	}
	err = p.cmd.Start()
	for _, f := range theirs {
		_ = f.Close() // the process has its own
	}
	if err != nil {
		return nil, nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	p.pid = uint32(p.cmd.Process.Pid)
	d.mu.Lock()
	d.procs[p.pid] = p
	d.mu.Unlock()
	s := p.subscribe() // before any output
	go p.fanOut()
	go func() {
		var all sync.WaitGroup
		for _, f := range readers {
			all.Go(f)
		}
		state, _ := p.cmd.Process.Wait() // the state says it
		all.Wait()                       // the end waits for everybody who holds the pipes, unless it was killed
		end := &process.ProcessEvent_End{ExitCode: int32(state.ExitCode()), Exited: state.Exited(), Status: state.String()}
		if !state.Success() {
			text := state.String()
			end.Error = &text
		}
		p.mu.Lock()
		p.end = &process.ProcessEvent{Event: &process.ProcessEvent_End_{End: end}}
		p.mu.Unlock()
		close(p.out)
		time.AfterFunc(retention, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.procs[p.pid] == p {
				delete(d.procs, p.pid)
			}
		})
	}()
	return p, s, nil
}

// read passes output on until everybody has closed it, or the process was killed by the API.
func (p *proc) read(f *os.File, size int, wrap func([]byte) *process.ProcessEvent_Data) func() {
	return func() {
		defer f.Close()
		for {
			b := make([]byte, size)
			n, err := f.Read(b)
			if n > 0 {
				p.out <- &process.ProcessEvent{Event: &process.ProcessEvent_Data_{Data: wrap(b[:n])}}
			}
			if err != nil {
				return // a terminal has no other end than an error
			}
		}
	}
}

// kill ends the leader, and with it everything that is waited for.
func (p *proc) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	p.killOnce.Do(func() {
		go func() {
			time.Sleep(20 * time.Millisecond) // what was written before
			for _, f := range append(p.pipes, p.master) {
				if f != nil {
					_ = f.Close() // ends the readers
				}
			}
		}()
	})
}

// fanOut gives each event to everybody, and waits for the slowest. Without anybody it is lost.
func (p *proc) fanOut() {
	for e := range p.out {
		p.mu.Lock()
		var all []*sub
		for s := range p.subs {
			all = append(all, s)
		}
		p.mu.Unlock()
		for _, s := range all {
			select {
			case s.ch <- e:
			case <-s.gone:
			}
		}
	}
	close(p.ended)
}

func (p *proc) subscribe() *sub {
	s := &sub{ch: make(chan *process.ProcessEvent), gone: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.subs[s] = struct{}{}
	return s
}

func (p *proc) stream(ctx context.Context, s *sub, alive time.Duration, send func(*process.ProcessEvent) error) error {
	defer func() {
		close(s.gone)
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.subs, s)
	}()
	if err := send(&process.ProcessEvent{Event: &process.ProcessEvent_Start_{Start: &process.ProcessEvent_Start{Pid: p.pid}}}); err != nil {
		return err
	}
	tick := time.NewTicker(alive)
	defer tick.Stop()
	for {
		select {
		case e := <-s.ch:
			if err := send(e); err != nil {
				return err
			}
			tick.Reset(alive)
		case <-p.ended:
			return send(p.end)
		case <-tick.C:
			if err := send(&process.ProcessEvent{Event: &process.ProcessEvent_Keepalive{Keepalive: &process.ProcessEvent_KeepAlive{}}}); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
