// SPDX-License-Identifier: Apache-2.0

package adapter

import (
	"context"
	"errors"
	"runtime/debug"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/wire"
)

func (s *Server) guardUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (resp any, err error) {
	err = s.guard(info.FullMethod, func() error {
		resp, err = next(ctx, req)
		return err
	})
	return resp, s.status(err)
}

func (s *Server) guardStream(srv any, st grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	return s.status(s.guard(info.FullMethod, func() error { return next(srv, st) }))
}

// guard turns a panic into an error and logs its stack.
func (s *Server) guard(op string, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("panic in the driver", "op", op, "error", p, "stack", string(debug.Stack()))
			err = errs.New(errs.Internal, "the driver panicked: %v", p).WithHint("the stack is in the driver's log")
		}
	}()
	return f()
}

// status gives the error that gRPC sends.
func (s *Server) status(err error) error {
	if err == nil {
		return nil
	}
	var typed *errs.Error
	if _, isStatus := err.(interface{ GRPCStatus() *status.Status }); isStatus && !errors.As(err, &typed) {
		return err
	}
	return wire.StatusError(err, s.redact.String)
}

// The bounds of transfers.
const (
	maxBulk           = 8
	maxBulkQueued     = 64
	maxBulkPerSession = 2
)

// bulkGate bounds the transfers of one driver process.
type bulkGate struct {
	slots   chan struct{}
	waiting *atomic.Int32
}

func newBulkGate() bulkGate {
	return bulkGate{make(chan struct{}, maxBulk), new(atomic.Int32)}
}

// enter waits for a place. The returned function gives it back.
func (g bulkGate) enter(ctx context.Context, ss *session) (leave func(), err error) {
	if g.waiting.Add(1) > maxBulkQueued {
		g.waiting.Add(-1)
		return nil, errs.New(errs.RateLimited, "%d transfers are waiting already", maxBulkQueued)
	}
	defer g.waiting.Add(-1)
	for _, slots := range []chan struct{}{ss.slots, g.slots} {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			if slots == g.slots {
				<-ss.slots
			}
			return nil, errs.Wrap(errs.Canceled, "wait for a transfer", context.Cause(ctx))
		}
	}
	return func() {
		<-g.slots
		<-ss.slots
	}, nil
}

// callSandbox is for the many unary calls: it finds the sandbox and runs f.
func callSandbox[T any](ctx context.Context, s *Server, id string, f func(context.Context, *session, sandboxFeatures) (T, error)) (T, error) {
	ss, err := s.session(id)
	if err != nil {
		var zero T
		return zero, err
	}
	ctx, cancel := ss.bind(ctx)
	defer cancel()
	return f(ctx, ss, ss.sandbox())
}
