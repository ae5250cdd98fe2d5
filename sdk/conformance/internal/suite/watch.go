// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"errors"
	"io"
	"path"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/wire"
)

// watched is a connection that looks at every answer: how long it took, whether its error has a code, and whether it
// tells a secret.
type watched struct {
	grpc.ClientConnInterface
	suite *Suite
}

// Invoke makes a call and looks at its answer.
func (w watched) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	began := time.Now()
	err := w.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
	w.look(ctx, method, time.Since(began), err)
	if of, ok := args.(interface{ GetSandboxId() string }); ok && err == nil && path.Base(method) == "Destroy" {
		w.suite.gone(of.GetSandboxId())
	}
	return err
}

// NewStream opens a stream that is looked at.
func (w watched) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	began := time.Now()
	st, err := w.ClientConnInterface.NewStream(ctx, desc, method, opts...)
	if err != nil {
		w.look(ctx, method, time.Since(began), err)
		return nil, err
	}
	return &watchedStream{ClientStream: st, w: w, ctx: ctx, method: method, began: began}, nil
}

type watchedStream struct {
	grpc.ClientStream
	w      watched
	ctx    context.Context //nolint:containedctx // of the stream
	method string
	began  time.Time
	first  bool // something came
}

// RecvMsg receives a message. The time of a stream is that to its first message.
func (s *watchedStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		s.w.look(s.ctx, s.method, 0, err)
	case !s.first:
		s.first = true
		s.w.look(s.ctx, s.method, time.Since(s.began), nil)
	}
	return err
}

func (w watched) look(ctx context.Context, method string, took time.Duration, err error) {
	if err == nil {
		w.suite.took(strings.TrimPrefix(path.Dir(method), "/berth.driver.v1.")+"."+path.Base(method), took)
		return
	}
	c, ok := ctx.Value(checkKey{}).(*C)
	if !ok {
		return
	}
	c.noSecret("an error", err.Error())
	if text := untyped(ctx, err); text != "" {
		c.untyped("%s answered %s", path.Base(method), text)
	}
}

// untyped says what is wrong with an error that has no code, or the code of a fault; empty = nothing.
func untyped(ctx context.Context, err error) string {
	e, typed := wire.Error(err)
	switch {
	case typed && e.Code == errs.Internal:
		return "with code internal: " + e.Error()
	case typed, ctx.Err() != nil:
		return ""
	}
	// The other side's clock may be a little ahead.
	if at, ok := ctx.Deadline(); ok && time.Until(at) < time.Second {
		return ""
	}
	switch c := status.Code(err); c {
	case codes.Unavailable, codes.Unimplemented: // the link, or a service that is not there
		return ""
	default:
		return "with an error that has no berth.driver.v1.ErrorInfo: " + c.String() + ": " + status.Convert(err).Message()
	}
}
