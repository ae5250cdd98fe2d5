// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"connectrpc.com/connect"

	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/vendorhttp"
)

// answer is the body of the control plane's errors.
type answer struct {
	Code      int    `json:"code"`
	Message   string `json:"message"`
	ErrorCode string `json:"error_code"`
}

// The words of error_code that say that nothing was made.
const (
	noCapacity = "sandbox_capacity_unavailable"
	noNode     = "sandbox_no_compatible_node"
)

// classify says what the control plane's errors mean.
func classify(a vendorhttp.Answer) *errs.Error {
	var said answer
	_ = json.Unmarshal(a.Body, &said) // what is no JSON says nothing
	e := &errs.Error{Vendor: &errs.Vendor{Code: said.ErrorCode}}
	switch a.Status {
	case http.StatusNotFound:
		e.Code = errs.SandboxGone
		if strings.HasPrefix(said.Message, "template") {
			e.Code, e.Hint = errs.ConfigInvalid, "name a template of the team that the API key belongs to, or a snapshot that exists"
		}
	case http.StatusForbidden:
		e.Code, e.Hint = errs.PermissionDenied, "the key's team may not use it: look at the template's owner, the plan and the team's state"
	case http.StatusConflict:
		e.Code, e.Retry = errs.SandboxNotReady, errs.RetrySafe
	case http.StatusTooManyRequests:
		if !strings.Contains(said.Message, "concurrent") {
			return nil
		}
		e.Code, e.Retry, e.Hint = errs.QuotaExceeded, errs.RetryNever, "end sandboxes that nobody needs, or raise the team's limit"
	case http.StatusServiceUnavailable:
		e.Code = errs.VendorFailed
		if said.ErrorCode == noCapacity || said.ErrorCode == noNode {
			e.Retry = errs.RetrySafe
		}
	default:
		return nil
	}
	return e
}

// edge says what an answer means that comes not from the sandbox's daemon but from what lies before it; nil = it says
// nothing of its own.
func edge(status int, body []byte) *errs.Error {
	var said struct {
		SandboxID string          `json:"sandboxId"`
		Message   string          `json:"message"`
		Port      int             `json:"port"`
		Code      json.RawMessage `json:"code"`
	}
	if json.Unmarshal(body, &said) != nil {
		said.Message = vendorhttp.Message(body)
	} else if len(said.Code) > 0 && said.Code[0] == '"' {
		return nil // the daemon's own
	}
	e := vendorhttp.FromStatus(status)
	e.Vendor = &errs.Vendor{HTTPStatus: status, Message: said.Message}
	e.Message = fmt.Sprintf("the sandbox's address answered %d %s", status, http.StatusText(status))
	if said.Message != "" {
		e.Message += ": " + said.Message
	}
	switch {
	case status == http.StatusBadGateway && said.Port != 0:
		e.Code, e.Retry = errs.PortUnavailable, errs.RetrySafe
	case status == http.StatusBadGateway && strings.Contains(said.Message, "not found"):
		e.Code, e.Retry = errs.SandboxGone, errs.RetryNever
	case status == http.StatusConflict:
		e.Code, e.Retry = errs.SandboxNotReady, errs.RetrySafe
	}
	return e
}

// codes are what the daemon's codes mean.
var codes = map[connect.Code]errs.Code{
	connect.CodeInvalidArgument: errs.InvalidArgument, connect.CodeUnauthenticated: errs.AuthFailed, connect.CodePermissionDenied: errs.PermissionDenied,
	connect.CodeAlreadyExists: errs.FileExists, connect.CodeUnimplemented: errs.Unsupported, connect.CodeUnavailable: errs.VendorFailed,
	connect.CodeResourceExhausted: errs.NoSpace,
}

// failed types the failure of a call inside a sandbox. missing is what not_found means there.
func (s *Sandbox) failed(ctx context.Context, op string, missing errs.Code, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return &errs.Error{Code: errs.Canceled, Op: op, Err: cause}
	}
	if e, ok := errors.AsType[*errs.Error](err); ok {
		own := *e
		own.Op = op
		return &own
	}
	e := &errs.Error{Code: errs.ExecTransport, Op: op, MaybeApplied: true, Message: s.files.Redacted(err.Error())}
	ce, ok := errors.AsType[*connect.Error](err)
	if !ok || !connect.IsWireError(err) {
		return e // the connection broke
	}
	e.Message = s.files.Redacted(ce.Message())
	e.Vendor = &errs.Vendor{Code: ce.Code().String(), Message: e.Message}
	switch code, known := codes[ce.Code()]; {
	case ce.Code() == connect.CodeNotFound:
		e.Code, e.MaybeApplied = missing, false
	case known:
		e.Code, e.MaybeApplied = code, code == errs.VendorFailed
	}
	return e
}
