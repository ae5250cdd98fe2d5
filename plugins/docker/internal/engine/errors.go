// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/berth-dev/berth/sdk/errs"
)

// Error types what the engine answered: by what it means where that is known, else with code.
func Error(code errs.Code, op string, err error) error {
	var typed *errs.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &typed):
		return err
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &errs.Error{Code: errs.Canceled, Op: op, Err: err}
	case client.IsErrConnectionFailed(err):
		return (&errs.Error{Code: errs.ExecTransport, Op: op, Message: "the container engine does not answer", Err: err}).
			WithHint("see whether it runs: `docker info`")
	}
	text := Text(err)
	switch {
	case errdefs.IsUnauthorized(err):
		code = errs.AuthFailed
	case errdefs.IsPermissionDenied(err):
		code = errs.PermissionDenied
	case strings.Contains(text, "no space left on device"):
		code = errs.NoSpace
	}
	return &errs.Error{Code: code, Op: op, Message: text}
}

// Text is what the engine said, without the client's words around it.
func Text(err error) string {
	text := err.Error()
	if _, after, ok := strings.Cut(text, "Error response from daemon: "); ok {
		text = after
	}
	return strings.TrimSpace(text)
}

// NotFound says whether the engine does not have what was asked for.
func NotFound(err error) bool { return err != nil && errdefs.IsNotFound(err) }

// Conflict says whether the name is taken, or the container is in another state. Podman says so in words only.
func Conflict(err error) bool {
	return err != nil && (errdefs.IsConflict(err) || strings.Contains(err.Error(), "already in use"))
}

// Lost says whether the answer got lost on its way: what was asked for may have been done.
func Lost(err error) bool {
	var op *net.OpError
	return client.IsErrConnectionFailed(err) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &op)
}
