// SPDX-License-Identifier: Apache-2.0

package adapter

import (
	"context"
	"sync"

	"google.golang.org/grpc"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/internal/sensitive"
	pb "github.com/berth-dev/berth/sdk/proto/berth/driver/v1"
	"github.com/berth-dev/berth/sdk/wire"
)

type driverServer struct {
	*Server
	pb.UnimplementedDriverServer
}

func (s driverServer) Describe(context.Context, *pb.DescribeRequest) (*pb.DescribeResponse, error) {
	return s.wire, nil
}

func (s driverServer) Configure(ctx context.Context, req *pb.ConfigureRequest) (*pb.ConfigureResponse, error) {
	host := wire.Host(req)
	config := wire.Value(req.GetConfig())
	secrets, err := sensitive.Texts(s.desc.ProcessConfig, config)
	if err != nil {
		return nil, err
	}
	s.redact.Add(secrets...) // for the life of the process
	s.mu.Lock()
	s.host = host
	s.mu.Unlock()
	if s.cfg.OnConfigure != nil {
		s.cfg.OnConfigure(host)
	}
	if s.found.configurer == nil {
		return &pb.ConfigureResponse{}, nil
	}
	ds := s.found.configurer.Configure(ctx, host, config)
	return &pb.ConfigureResponse{Diagnostics: wire.DiagnosticsProto(s.redactDiagnostics(ds))}, nil
}

func (s driverServer) Validate(ctx context.Context, req *pb.ValidateRequest) (*pb.ValidateResponse, error) {
	if s.found.validator == nil {
		return nil, unsupported(driver.ConfigUnknown, "checks of a configuration")
	}
	config := wire.Value(req.GetConfig())
	secrets, err := sensitive.Texts(s.desc.SandboxConfig, config)
	if err != nil {
		return nil, err
	}
	defer s.redact.Add(secrets...)()
	ds := s.found.validator.Validate(ctx, config, req.GetOnline())
	return &pb.ValidateResponse{Diagnostics: wire.DiagnosticsProto(s.redactDiagnostics(ds))}, nil
}

func (s *Server) redactDiagnostics(in []driver.Diagnostic) []driver.Diagnostic {
	out := make([]driver.Diagnostic, len(in))
	for i, d := range in {
		d.Summary, d.Detail = s.redact.String(d.Summary), s.redact.String(d.Detail)
		out[i] = d
	}
	return out
}

func (s driverServer) WatchHealth(_ *pb.WatchHealthRequest, st grpc.ServerStreamingServer[pb.Health]) error {
	if s.found.health == nil {
		if err := st.Send(&pb.Health{Status: pb.Health_STATUS_HEALTHY}); err != nil {
			return err
		}
		<-st.Context().Done()
		return context.Cause(st.Context())
	}
	var send sender[*pb.Health]
	return send.until(st.Context(), st.Send, func(ctx context.Context, put func(*pb.Health)) error {
		return s.found.health.WatchHealth(ctx, func(h driver.Health) {
			status := pb.Health_STATUS_UNHEALTHY
			if h.Healthy {
				status = pb.Health_STATUS_HEALTHY
			}
			put(&pb.Health{Status: status, Description: s.redact.String(h.Description)})
		})
	})
}

func (s driverServer) Drain(req *pb.DrainRequest, st grpc.ServerStreamingServer[pb.DrainEvent]) error {
	var send sender[*pb.DrainEvent]
	return send.until(st.Context(), st.Send, func(ctx context.Context, put func(*pb.DrainEvent)) error {
		return s.Server.Drain(ctx, wire.OrphanPolicy(req.GetPolicy()), func(r driver.DrainResult) {
			e := &pb.DrainEvent{SandboxId: r.SandboxID, Outcome: r.Outcome}
			if r.Err != nil {
				e.Error = s.redact.String(r.Err.Error())
			}
			put(e)
		})
	})
}

// Drain takes no more work and parks or ends every session. Report is never called twice at the same time.
func (s *Server) Drain(ctx context.Context, policy driver.OrphanPolicy, report func(driver.DrainResult)) error {
	s.mu.Lock()
	s.draining = true
	open := make([]*session, 0, len(s.sessions))
	for _, ss := range s.sessions {
		open = append(open, ss)
	}
	s.mu.Unlock()
	var mu sync.Mutex
	locked := func(r driver.DrainResult) {
		mu.Lock()
		defer mu.Unlock()
		report(r)
	}
	err := s.guard("drain", func() error {
		if s.found.drainer != nil {
			return s.found.drainer.Drain(ctx, policy, locked)
		}
		s.drainEach(ctx, policy, open, locked)
		return nil
	})
	// What still runs in this process on behalf of a client ends with it.
	for _, ss := range open {
		ss.cancel(errs.New(errs.SandboxNotReady, "the driver is shutting down"))
		ss.processes.close()
	}
	return err
}

func (s *Server) drainEach(ctx context.Context, policy driver.OrphanPolicy, open []*session, report func(driver.DrainResult)) {
	var all sync.WaitGroup
	room := make(chan struct{}, 16)
	for _, ss := range open {
		all.Add(1)
		room <- struct{}{}
		go func() {
			defer func() {
				<-room
				all.Done()
			}()
			r := driver.DrainResult{SandboxID: ss.id, Outcome: "parked"}
			r.Err = s.guard("drain", func() error {
				have := ss.sandbox()
				switch {
				case policy == driver.OrphanDestroy:
					r.Outcome = "destroyed"
					return have.sandbox.Destroy(ctx)
				case policy == driver.OrphanStop && have.stopper != nil:
					r.Outcome = "stopped"
					return have.stopper.Stop(ctx, true)
				default:
					return nil
				}
			})
			if r.Err != nil {
				r.Outcome = "failed"
			}
			report(r)
		}()
	}
	all.Wait()
}

// sender hands what a driver reports from any goroutine to a stream, in order.
type sender[T any] struct {
	mu  sync.Mutex
	err error
}

// until runs watch until it returns or ctx ends. A stream that cannot be sent to ends watch.
func (s *sender[T]) until(ctx context.Context, send func(T) error, watch func(context.Context, func(T)) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(context.Canceled)
	err := watch(ctx, func(v T) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.err != nil || ctx.Err() != nil {
			return
		}
		if s.err = send(v); s.err != nil {
			cancel(s.err)
		}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	// Late reports find the stream closed.
	s.err = context.Canceled
	return err
}
