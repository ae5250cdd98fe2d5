// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"time"

	"github.com/modal-labs/modal-client/go"
	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Kind is what an error of the SDK comes to: some of its calls give types of their own, others what gRPC gave them.
type Kind uint8

// The kinds.
const (
	Other           Kind = iota
	Unauthenticated      // the token is not taken
	Forbidden            // it may not do this
	NotFound             // no such object
	Finished             // the sandbox has ended
	Exists               // the name is in use
	Invalid              // the request is wrong
	Unbuildable          // the image could not be built
	Exhausted            // no capacity, or a quota
	Throttled            // the vendor asks for a pause, see RetryAfter
	Unavailable          // the vendor cannot be reached, or failed
	TimeLimit            // a time limit, the caller's or the SDK's
	ExecTimedOut         // the time limit of an exec
	Canceled             // by the caller
	Unimplemented        // the vendor does not know the call
)

// KindOf classifies an error.
func KindOf(err error) Kind {
	if RetryAfter(err) > 0 {
		return Throttled
	}
	switch {
	case is[modal.NotFoundError](err), is[modal.SandboxFilesystemNotFoundError](err):
		return NotFound
	case is[modal.ConflictError](err):
		return Finished
	case is[modal.AlreadyExistsError](err):
		return Exists
	case is[modal.InvalidError](err):
		return Invalid
	case is[modal.RemoteError](err):
		return Unbuildable
	case is[modal.ResourceExhaustedError](err):
		return Exhausted
	case is[modal.ExecTimeoutError](err):
		return ExecTimedOut
	case is[modal.TimeoutError](err), is[modal.SandboxTimeoutError](err), errors.Is(err, context.DeadlineExceeded):
		return TimeLimit
	case is[modal.ClientClosedError](err):
		return Unavailable
	case errors.Is(err, context.Canceled):
		return Canceled
	}
	switch status.Code(cause(err)) {
	case codes.Unauthenticated:
		return Unauthenticated
	case codes.PermissionDenied:
		return Forbidden
	case codes.NotFound:
		return NotFound
	case codes.AlreadyExists:
		return Exists
	case codes.InvalidArgument, codes.OutOfRange:
		return Invalid
	case codes.FailedPrecondition, codes.Aborted:
		return Finished
	case codes.ResourceExhausted:
		return Exhausted
	case codes.Unavailable, codes.Internal, codes.DataLoss:
		return Unavailable
	case codes.DeadlineExceeded:
		return TimeLimit
	case codes.Canceled:
		return Canceled
	case codes.Unimplemented:
		return Unimplemented
	default:
		return Other
	}
}

func is[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}

// cause finds the gRPC error within.
func cause(err error) error {
	var g interface{ GRPCStatus() *status.Status }
	if errors.As(err, &g) {
		return g.GRPCStatus().Err()
	}
	return err
}

// CodeOf is the name of the gRPC code in an error; empty when there is none.
func CodeOf(err error) string {
	var g interface{ GRPCStatus() *status.Status }
	if errors.As(err, &g) {
		return g.GRPCStatus().Code().String()
	}
	return ""
}

// RetryAfter is the pause that the vendor asks for in an error; 0 = none.
func RetryAfter(err error) time.Duration {
	var g interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &g) {
		return 0
	}
	for _, d := range g.GRPCStatus().Details() {
		if p, ok := d.(*pb.RPCRetryPolicy); ok {
			return max(time.Duration(float64(p.GetRetryAfterSecs())*float64(time.Second)), time.Millisecond)
		}
	}
	return 0
}
