// SPDX-License-Identifier: Apache-2.0

// Package adapter serves a [driver.Driver] over gRPC.
//
// What a driver implements is found out once, by type assertion, into a [Features] value; what it lacks is emulated
// where that is possible and refused with errs.Unsupported where not. The adapter adds what every driver needs:
//
//   - the same sandbox id twice is the same sandbox, and a create that everybody has given up leaves nothing behind;
//   - a process that was detached keeps running, and its output can be followed again from an offset, while the driver
//     process lives (drivers whose sandboxes are a [driver.ProcessTable] do that themselves, and better);
//   - a panic in the driver is errs.Internal with the stack in the log, and secrets are taken out of errors;
//   - at most 8 transfers of files at a time, 2 of each sandbox; 64 more wait.
//
// Size: seven services over one set of sessions, which they all need; most of it is one short function a call.
package adapter

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/internal/redact"
	pb "github.com/berth-dev/berth/sdk/proto/berth/driver/v1"
	"github.com/berth-dev/berth/sdk/stream"
	"github.com/berth-dev/berth/sdk/wire"
)

// maxMessageBytes bounds a message that is received.
const maxMessageBytes = 16 << 20

// Config says what to serve.
type Config struct {
	Driver driver.Driver
	Log    hclog.Logger // nil = none
	// Emulate gives files and trees to a sandbox that has none of its own; nil, or a nil result, refuses them.
	Emulate func(driver.Sandbox, []driver.PathGrant) (driver.FileSystem, driver.TreeIO)
	// Redact knows the secrets; nil = a set of its own.
	Redact *redact.Set
	// OnConfigure is called with what the core tells, before the driver is; nil = nothing to do.
	OnConfigure func(driver.Host)
	// StallTimeout ends a download whose reader takes nothing for so long; 0 = 60 s.
	StallTimeout time.Duration
}

// Server serves one driver. Use [New].
type Server struct {
	cfg    Config
	desc   driver.Description
	wire   *pb.DescribeResponse
	log    hclog.Logger
	redact *redact.Set
	found  driverFeatures

	bulk bulkGate

	mu       sync.Mutex
	sessions map[string]*session // guarded by mu
	flights  map[string]*flight  // guarded by mu
	gone     map[string]struct{} // guarded by mu; destroyed ids
	goneList []string            // guarded by mu; the same, oldest first
	draining bool                // guarded by mu
	host     driver.Host         // guarded by mu
	faults   map[string]bool     // guarded by mu; those that were logged
}

// New prepares to serve. It fails when the driver's description does not fit the driver.
func New(cfg Config) (*Server, error) {
	if cfg.Log == nil {
		cfg.Log = hclog.NewNullLogger()
	}
	if cfg.Redact == nil {
		cfg.Redact = new(redact.Set)
	}
	if cfg.StallTimeout == 0 {
		cfg.StallTimeout = defaultStall
	}
	s := &Server{
		cfg: cfg, log: cfg.Log, redact: cfg.Redact, bulk: newBulkGate(),
		sessions: map[string]*session{}, flights: map[string]*flight{}, gone: map[string]struct{}{},
		faults: map[string]bool{}, host: driver.Host{Orphans: driver.OrphanPark},
	}
	s.desc = cfg.Driver.Describe()
	var err error
	if s.wire, err = wire.DescriptionProto(s.desc); err != nil {
		return nil, errs.Wrap(errs.Internal, "describe driver "+s.desc.Name, err)
	}
	s.found = discoverDriver(cfg.Driver)
	if err := s.found.check(s.desc); err != nil {
		return nil, err
	}
	return s, nil
}

// Options are what the gRPC server must be made with.
func (s *Server) Options() []grpc.ServerOption {
	return append(stream.ServerOptions(), grpc.MaxRecvMsgSize(maxMessageBytes),
		grpc.ChainUnaryInterceptor(s.guardUnary), grpc.ChainStreamInterceptor(s.guardStream))
}

// Register adds the services to a gRPC server that was made with [Server.Options].
func (s *Server) Register(r grpc.ServiceRegistrar) {
	pb.RegisterDriverServer(r, driverServer{Server: s})
	pb.RegisterSandboxesServer(r, sandboxServer{Server: s})
	pb.RegisterProcessesServer(r, processServer{Server: s})
	pb.RegisterFilesServer(r, fileServer{Server: s})
	pb.RegisterSnapshotsServer(r, snapshotServer{Server: s})
	pb.RegisterPortsServer(r, portServer{Server: s})
	pb.RegisterMountsServer(r, mountServer{Server: s})
}

// Host is what the core told last.
func (s *Server) Host() driver.Host {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.host
}

// session finds a sandbox that this process knows.
func (s *Server) session(id string) (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return nil, errs.New(errs.SandboxNotReady, "the driver is shutting down")
	}
	if ss := s.sessions[id]; ss != nil {
		return ss, nil
	}
	if id == "" {
		return nil, errs.New(errs.InvalidArgument, "sandbox_id is empty")
	}
	return nil, errs.New(errs.SandboxUnknown, "this driver process does not know sandbox %s", id).
		With("sandbox", id).WithHint("resume the sandbox, then repeat")
}

// session is one sandbox that this process knows.
type session struct {
	id      string
	created time.Time
	base    driver.Info // what the request said
	// ctx ends when the sandbox is destroyed or the driver ends.
	ctx    context.Context //nolint:containedctx // it is the life of the sandbox
	cancel context.CancelCauseFunc
	slots  chan struct{} // of bulk transfers

	mu     sync.Mutex
	have   sandboxFeatures // guarded by mu; replaced by a resume
	sent   driver.State    // guarded by mu; the state that the core knows
	secret func()          // guarded by mu; forgets the secrets

	processes table
}

// sandbox gives what the sandbox can do at the moment.
func (ss *session) sandbox() sandboxFeatures {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.have
}

// bind ends a request's context with the session's.
func (ss *session) bind(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(ss.ctx, func() { cancel(context.Cause(ss.ctx)) })
	return ctx, func() {
		stop()
		cancel(context.Canceled)
	}
}

// newState gives the state when the core does not know it yet.
func (ss *session) newState() (*pb.SandboxState, error) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	st := ss.have.sandbox.State()
	if sameState(st, ss.sent) {
		return nil, nil
	}
	if err := checkState(st); err != nil {
		return nil, err
	}
	ss.sent = st
	return wire.StateProto(st), nil
}

func checkState(st driver.State) error {
	if len(st.Data) > wire.MaxStateBytes {
		return errs.New(errs.Internal, "the driver's state has %d bytes, more than the %d allowed", len(st.Data), wire.MaxStateBytes)
	}
	return nil
}

func sameState(a, b driver.State) bool {
	return a.Version == b.Version && string(a.Data) == string(b.Data) && maps.Equal(a.Display, b.Display) &&
		a.Deadline.Equal(b.Deadline)
}
