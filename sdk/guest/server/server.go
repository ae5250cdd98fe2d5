// SPDX-License-Identifier: Apache-2.0

//go:build linux

package server

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest"
	"github.com/berth-dev/berth/sdk/guest/api"
	"github.com/berth-dev/berth/sdk/guest/internal/accounts"
	"github.com/berth-dev/berth/sdk/guest/link"
	"github.com/berth-dev/berth/sdk/guest/proc"
)

const (
	// firstHost is how long the first host may take to come, however short the lease is.
	firstHost = 30 * time.Second
	// stopTime bounds the end of all processes, and partTime the last words to the host.
	stopTime = 20 * time.Second
	partTime = 2 * time.Second
	// minSilence is how long a host on a shared stream may at least be silent, however short the lease is.
	minSilence = 5 * time.Second
	// maxConnections bounds connections, most of which did not prove yet who they are.
	maxConnections = 32
)

// Files is what serves file and tree requests.
type Files interface {
	driver.FileSystem
	driver.TreeIO
}

// Config says what to serve.
type Config struct {
	// Exactly one of Listener and Conn. A Conn that ends is the end of the guest, since nobody can come back.
	Listener net.Listener
	Conn     io.ReadWriteCloser
	CallDir  string // see guest.Config; only with Conn
	// Carried says that another program carries the Listener's connections to the host, and may live longer than it.
	Carried bool

	Version   string        // of the program
	Key       []byte        // at least 16 bytes
	OrphanTTL time.Duration // 0 = end as soon as nobody is attached

	Root      string            // the directory of commands that name none
	Env       map[string]string // base environment of every command
	SecretEnv map[string]string
	User      string // of commands that name none; empty = the guest's own
	Files     Files  // nil = file requests are errs.Unsupported

	// SpawnThread runs once on the locked thread that starts every command, before the first; nil = nothing.
	SpawnThread    func() error
	Kill           guest.KillConfig
	KillHelper     []string // see proc.Config.Helper
	OOMFile        string
	MaxProcesses   int           // 0 = 1024
	Stall          time.Duration // see proc.Config.Stall
	PrivateNetwork bool
	Report         []driver.Isolation
}

// Serve serves until ctx ends, the host asks for the end, or the lease runs out. Then it ends every process and returns;
// nil when it was asked for or the lease ran out.
func Serve(ctx context.Context, cfg Config) error {
	if (cfg.Listener == nil) == (cfg.Conn == nil) {
		return errs.New(errs.InvalidArgument, "a guest serves one listener or one stream")
	}
	table, err := proc.New(proc.Config{
		Root: cfg.Root, Env: cfg.Env, SecretEnv: cfg.SecretEnv, User: cfg.User, SpawnThread: cfg.SpawnThread,
		Kill: cfg.Kill, Helper: cfg.KillHelper, OOMFile: cfg.OOMFile, MaxProcesses: cfg.MaxProcesses, Stall: cfg.Stall,
	})
	if err != nil {
		return err
	}
	s := &server{cfg: cfg, table: table, started: time.Now(), instance: rand.Text(), stop: make(chan error, 1), calls: make(chan struct{}, maxConnections)}
	s.lease = newLease(cfg.OrphanTTL, func() { s.end(nil) })
	opts := link.AcceptorOptions{Key: cfg.Key, Info: s.hello, Handle: s.handle, Attached: s.lease.attached, Carried: cfg.Carried}
	if cfg.Conn != nil || cfg.Carried {
		// Nothing tells of the host's end. A living host renews the lease; that nobody does is noticed within it.
		opts.Silence = min(max(cfg.OrphanTTL, minSilence), link.MaxSilence)
		s.silence = opts.Silence
	}
	if cfg.CallDir != "" {
		opts.Knocked = s.knocked
	}
	s.acceptor, err = link.NewAcceptor(opts)
	if err != nil {
		return err
	}

	if cfg.Conn != nil {
		go func() { s.end(s.ended(s.acceptor.Serve(cfg.Conn, true))) }()
	} else {
		go func() { s.end(s.accept()) }()
		defer cfg.Listener.Close()
	}
	select {
	case err = <-s.stop:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	s.lease.stop()

	stopping, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), stopTime, errors.New("out of time"))
	defer cancel()
	closeErr := table.Close(stopping)
	if s.onStopped != nil {
		s.onStopped(closeErr)
	}
	parting, cancel2 := context.WithTimeoutCause(context.WithoutCancel(ctx), partTime, errors.New("out of time"))
	defer cancel2()
	s.acceptor.Close(parting)
	if err == nil {
		err = closeErr
	}
	return err
}

type server struct {
	cfg      Config
	table    *proc.Table
	acceptor *link.Acceptor
	lease    *lease
	started  time.Time
	instance string
	silence  time.Duration // that is borne of a host; 0 = as long as is usual
	stop     chan error
	calls    chan struct{} // a value for each host that is called, or speaks over that

	working sync.Once

	mu        sync.Mutex
	shut      bool
	onStopped func(error) // set before stop is told; answers the host that asked for the end
}

func (s *server) end(err error) {
	select {
	case s.stop <- err:
	default: // it is being ended
	}
}

func (s *server) ended(err error) error {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return errs.Wrap(errs.ExecTransport, "guest.serve", err)
}

// accept serves whoever connects.
func (s *server) accept() error {
	slots := make(chan struct{}, maxConnections)
	for {
		slots <- struct{}{}
		c, err := s.cfg.Listener.Accept()
		if err != nil {
			return s.ended(fmt.Errorf("accept a connection: %w", err))
		}
		go func() {
			s.acceptor.Serve(c, false) //nolint:errcheck // the next connection goes on
			<-slots
		}()
	}
}

// callTime bounds the wait for a host that has knocked.
const callTime = 5 * time.Second

// knocked calls the host that has its socket under a name. It may be gone by now: then it goes on without.
func (s *server) knocked(name string) {
	if filepath.Base(name) != name {
		return
	}
	select {
	case s.calls <- struct{}{}:
	default:
		return
	}
	go func() {
		defer func() { <-s.calls }()
		c, err := (&net.Dialer{Timeout: callTime}).Dial("unix", filepath.Join(s.cfg.CallDir, name))
		if err == nil {
			s.acceptor.Serve(c, false) //nolint:errcheck // the next connection goes on
		}
	}()
}

func (s *server) hello() []byte {
	b, err := json.Marshal(api.Hello{
		Version: s.cfg.Version, Instance: s.instance, OS: runtime.GOOS, Arch: runtime.GOARCH, PID: int64(os.Getpid()),
		Root: s.cfg.Root, Started: s.started, Isolation: s.cfg.Report, SilenceMS: s.silence.Milliseconds(),
	})
	if err != nil {
		return nil
	}
	return b
}

// handle serves one request.
func (s *server) handle(st *link.Stream, opening []byte) {
	// A guest that waits is content with the one processor that it may have begun with.
	s.working.Do(runtime.SetDefaultGOMAXPROCS)
	var req api.Request
	if err := json.Unmarshal(opening, &req); err != nil {
		st.Finish(api.NewResult(nil, errs.New(errs.InvalidArgument, "the request cannot be read: %v", err)))
		return
	}
	if req.Op == api.OpShutdown {
		s.shutdown(st)
		return
	}
	value, err := s.dispatch(st, &req)
	st.Finish(api.NewResult(value, err))
}

// shutdown ends the guest. The answer comes when every process has ended.
func (s *server) shutdown(st *link.Stream) {
	s.mu.Lock()
	first := !s.shut
	s.shut = true
	if first {
		s.onStopped = func(err error) { st.Finish(api.NewResult(nil, err)) }
	}
	s.mu.Unlock()
	if first {
		s.end(nil)
	} else {
		<-st.Context().Done()
		st.Finish(nil)
	}
}

func (s *server) dispatch(st *link.Stream, req *api.Request) (any, error) {
	switch req.Op { //nolint:exhaustive // the others follow below
	case api.OpRun:
		return serve(st, req, s.run)
	case api.OpAttach:
		return serve(st, req, s.attach)
	case api.OpSignal:
		return serve(st, req, s.signal)
	case api.OpResize:
		return serve(st, req, s.resize)
	case api.OpProcesses:
		return nil, s.processes(st)
	case api.OpDial:
		return serve(st, req, s.dial)
	case api.OpWatch:
		return nil, s.watch(st)
	case api.OpAccounts:
		return serve(st, req, func(_ *link.Stream, a *driver.Accounts) (any, error) { return nil, accounts.Ensure("/", *a) })
	}
	if s.cfg.Files == nil {
		return nil, errs.New(errs.Unsupported, "this guest serves no files").With("feature", string(driver.FilesNative))
	}
	switch req.Op {
	case api.OpStat:
		return serve(st, req, s.stat)
	case api.OpList:
		return serve(st, req, s.list)
	case api.OpOpen:
		return serve(st, req, s.open)
	case api.OpWrite:
		return serve(st, req, s.write)
	case api.OpMkdir:
		return serve(st, req, s.mkdir)
	case api.OpRemove:
		return serve(st, req, s.remove)
	case api.OpMove:
		return serve(st, req, s.move)
	case api.OpSetMeta:
		return serve(st, req, s.setMeta)
	case api.OpExport:
		return serve(st, req, s.export)
	case api.OpImport:
		return serve(st, req, s.importTree)
	default:
		return nil, errs.New(errs.Unsupported, "this guest knows no request %q", req.Op)
	}
}

// serve decodes the arguments.
func serve[T any](st *link.Stream, req *api.Request, do func(*link.Stream, *T) (any, error)) (any, error) {
	var args T
	if err := json.Unmarshal(req.Args, &args); err != nil {
		return nil, errs.New(errs.InvalidArgument, "the arguments of %q cannot be read: %v", req.Op, err)
	}
	return do(st, &args)
}
