// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/wire"
)

// fail turns the error of a call into an *errs.Error: the driver's own, the caller's context, or a broken link.
func (d *Driver) fail(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	e, typed := wire.Error(err)
	if cause := context.Cause(ctx); cause != nil && (!typed || e.Code == errs.Canceled) {
		return canceled(ctx, op, cause)
	}
	if typed {
		if e.Op == "" {
			e.Op = op
		}
		return e
	}
	switch status.Code(err) {
	case codes.Unavailable, codes.Canceled, codes.Internal, codes.Unknown, codes.Aborted, codes.DataLoss:
		return d.broken(op, err)
	case codes.Unimplemented:
		return &errs.Error{Code: errs.Unsupported, Op: op, Message: "this driver does not offer it", Err: err}
	default:
		e.Op = op
		return e
	}
}

// canceled keeps both the context's own error and its cause recognisable.
func canceled(ctx context.Context, op string, cause error) error {
	inner := ctx.Err()
	if !errors.Is(cause, inner) {
		inner = fmt.Errorf("%w: %w", inner, cause)
	} else {
		inner = cause
	}
	return &errs.Error{Code: errs.Canceled, Op: op, MaybeApplied: true, Err: inner}
}

// broken is the error of a link that broke: the driver is gone, or only the stream.
func (d *Driver) broken(op string, err error) error {
	if gone := d.gone(); gone != nil {
		var e *errs.Error
		if !errors.As(gone, &e) {
			e = &errs.Error{Code: errs.DriverCrashed, Err: gone}
		}
		c := *e
		c.Op, c.MaybeApplied = op, true
		return &c
	}
	message := "the link to the driver broke"
	if errors.Is(err, io.EOF) || err == nil {
		err = nil
		message = "the driver ended the stream without a result"
	}
	return &errs.Error{Code: errs.ExecTransport, Op: op, Message: message, MaybeApplied: true, Err: err}
}
