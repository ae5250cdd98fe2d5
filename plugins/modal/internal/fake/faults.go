// SPDX-License-Identifier: Apache-2.0

//go:build linux

package fake

import (
	"context"
	"slices"
	"sync"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
)

// Fault is something that goes wrong with calls of one method. A call meets the first fault that fits.
type Fault struct {
	Method string // without the service: SandboxCreateV2
	Skip   int    // so many calls go through first
	Times  int    // how often; 0 = always
	Code   codes.Code
	// RetryAfter puts a wish for a pause into the error, which the vendor's clients heed; 0 = none.
	RetryAfter time.Duration
	After      bool          // the call is done, and its answer lost
	Delay      time.Duration // before anything else
	Messages   int           // of a stream: so many go through, either way, and then it breaks with Code
	Do         func()        // called when it strikes
}

func (f *Fault) err() error {
	st := status.New(f.Code, "injected: "+f.Method)
	if f.RetryAfter > 0 {
		with, err := st.WithDetails(protoadapt.MessageV1Of(pb.RPCRetryPolicy_builder{RetryAfterSecs: float32(f.RetryAfter.Seconds())}.Build()))
		if err == nil {
			st = with
		}
	}
	return st.Err()
}

func (f *Fault) wait(ctx context.Context) error {
	if f.Delay == 0 {
		return nil
	}
	t := time.NewTimer(f.Delay)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

type faults struct {
	mu   sync.Mutex
	list []*Fault // guarded by mu
	hits int      // guarded by mu
}

// Inject adds a fault.
func (s *Server) Inject(f Fault) {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.list = append(s.faults.list, &f)
}

// Clear takes all faults away and says how often one struck.
func (s *Server) Clear() int {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.list = nil
	return s.faults.hits
}

func (f *faults) take(method string) *Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, x := range f.list {
		if x.Method != method {
			continue
		}
		if x.Skip > 0 {
			x.Skip--
			return nil
		}
		if x.Times--; x.Times == 0 {
			f.list = slices.Delete(f.list, i, i+1)
		}
		f.hits++
		c := *x
		return &c
	}
	return nil
}

// cut is a stream that breaks after so many messages.
type cut struct {
	grpc.ServerStream
	left int
	err  error
}

func (c *cut) SendMsg(m any) error {
	if c.left == 0 {
		return c.err
	}
	c.left--
	return c.ServerStream.SendMsg(m)
}

func (c *cut) RecvMsg(m any) error {
	if c.left == 0 {
		return c.err
	}
	c.left--
	return c.ServerStream.RecvMsg(m)
}

// Call is a call that arrived.
type Call struct {
	Method   string
	Metadata metadata.MD
	Request  proto.Message // nil of a stream
}

type record struct {
	mu    sync.Mutex
	calls []Call // guarded by mu
}

func (r *record) add(ctx context.Context, method string, req any) {
	md, _ := metadata.FromIncomingContext(ctx)
	m, _ := req.(proto.Message)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, Call{Method: method, Metadata: md, Request: m})
}

// Calls are the calls of one method so far, or of all when method is empty.
func (s *Server) Calls(method string) []Call {
	s.record.mu.Lock()
	defer s.record.mu.Unlock()
	var out []Call
	for _, c := range s.record.calls {
		if method == "" || c.Method == method {
			out = append(out, c)
		}
	}
	return out
}
