// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	"github.com/berth-dev/berth/sdk/errs"
	pb "github.com/berth-dev/berth/sdk/proto/berth/driver/v1"
)

// The bounds of an error on the wire: a status travels in HTTP/2 headers.
const (
	maxTextBytes = 8 << 10
	maxCauses    = 16
)

// GRPCCode is the status code that goes with an error's code, for clients that know nothing else.
func GRPCCode(c errs.Code) codes.Code {
	switch c {
	case errs.ConfigInvalid, errs.ManifestPathInvalid, errs.MountConfigInvalid, errs.InvalidArgument, errs.PathEscapes,
		errs.ArchiveInvalid:
		return codes.InvalidArgument
	case errs.Unsupported:
		return codes.Unimplemented
	case errs.AuthFailed:
		return codes.Unauthenticated
	case errs.PermissionDenied, errs.ReadOnly:
		return codes.PermissionDenied
	case errs.QuotaExceeded, errs.RateLimited, errs.NoSpace, errs.ArchiveLimit:
		return codes.ResourceExhausted
	case errs.SandboxUnknown, errs.SandboxGone, errs.ProcessUnknown, errs.FileNotFound, errs.ExecNotFound,
		errs.DriverUnknown:
		return codes.NotFound
	case errs.SandboxNotReady, errs.IsDirectory, errs.NotDirectory, errs.NotRegular, errs.DirectoryNotEmpty,
		errs.SnapshotUnusable, errs.PortNotConfigured, errs.MountToolMissing, errs.IsolationMissing,
		errs.DriverIncompatible, errs.DriverChecksum:
		return codes.FailedPrecondition
	case errs.ExecTimeout:
		return codes.DeadlineExceeded
	case errs.ExecTransport, errs.PortUnavailable, errs.VendorFailed, errs.DriverCrashed, errs.DriverStartFailed:
		return codes.Unavailable
	case errs.OutputGap:
		return codes.DataLoss
	case errs.FileExists:
		return codes.AlreadyExists
	case errs.VersionMismatch:
		return codes.Aborted
	case errs.Canceled:
		return codes.Canceled
	default:
		return codes.Internal
	}
}

// StatusError turns an error into the one that a gRPC handler returns. Redact, if not nil, is applied to every text.
// An error that nobody typed becomes errs.Internal, and the end of a context errs.Canceled.
func StatusError(err error, redact func(string) string) error {
	if err == nil {
		return nil
	}
	return Status(err, redact).Err()
}

// Status is the status of [StatusError].
func Status(err error, redact func(string) string) *status.Status {
	clean := func(s string) string {
		if redact != nil {
			s = redact(s)
		}
		return cut(strings.ToValidUTF8(s, "\uFFFD"))
	}
	e := typed(err)
	info := &pb.ErrorInfo{
		Code: string(e.Code), Retry: pb.Retry(e.RetryClass()), RetryAfter: duration(e.RetryAfter), Op: clean(e.Op),
		MaybeApplied: e.MaybeApplied, Path: PathProto(e.Path), Hint: clean(e.Hint),
	}
	for k, v := range e.Context {
		if info.Context == nil {
			info.Context = make(map[string]string, len(e.Context))
		}
		info.Context[clean(k)] = clean(v)
	}
	if v := e.Vendor; v != nil {
		info.Vendor = &pb.VendorError{
			HttpStatus: int32(v.HTTPStatus), Code: clean(v.Code), RequestId: clean(v.RequestID), Message: clean(v.Message),
		}
	}
	for c := e.Err; c != nil && len(info.Causes) < maxCauses; c = errors.Unwrap(c) {
		info.Causes = append(info.Causes, clean(c.Error()))
	}
	// An error without a message is named by its cause: see rebuild.
	message := clean(e.Message)
	if message == "" && len(info.Causes) > 0 {
		message = info.Causes[0]
	}
	st := status.New(GRPCCode(e.Code), message)
	if with, err := st.WithDetails(protoadapt.MessageV1Of(info)); err == nil {
		return with
	}
	return st
}

// typed finds the outermost *errs.Error and puts what was wrapped around it into its text.
func typed(err error) *errs.Error {
	var e *errs.Error
	switch {
	case !errors.As(err, &e):
		code := errs.Internal
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			code = errs.Canceled
		}
		return &errs.Error{Code: code, Err: err}
	case error(e) == err: //nolint:errorlint // this very error, nothing that it wraps
		return e
	default:
		outer := *e
		outer.Op, outer.Message, outer.Err = "", "", err
		return &outer
	}
}

func cut(s string) string {
	if len(s) <= maxTextBytes {
		return s
	}
	return strings.ToValidUTF8(s[:maxTextBytes], "") + "…"
}

// Error rebuilds the *errs.Error of a status error that came over the wire. Nil stays nil; ok is false when the status
// does not come from berth's error table, that is, from gRPC itself or from a driver that does not know the table.
func Error(err error) (e *errs.Error, ok bool) {
	st, isStatus := status.FromError(err)
	if !isStatus {
		return &errs.Error{Code: errs.Internal, Err: err}, false
	}
	for _, d := range st.Details() {
		if info, isInfo := d.(*pb.ErrorInfo); isInfo && info.GetCode() != "" {
			return rebuild(st.Message(), info), true
		}
	}
	return &errs.Error{Code: codeOf(st.Code()), Message: st.Message()}, false
}

func rebuild(message string, info *pb.ErrorInfo) *errs.Error {
	e := &errs.Error{
		Code: errs.Code(info.GetCode()), Op: info.GetOp(), Message: message, Hint: info.GetHint(),
		Retry: known(info.GetRetry(), errs.RetryAfterResume), RetryAfter: info.GetRetryAfter().AsDuration(),
		Context: info.GetContext(), MaybeApplied: info.GetMaybeApplied(), Path: Path(info.GetPath()),
	}
	if v := info.GetVendor(); v != nil {
		e.Vendor = &errs.Vendor{
			HTTPStatus: int(v.GetHttpStatus()), Code: v.GetCode(), RequestID: v.GetRequestId(), Message: v.GetMessage(),
		}
	}
	causes := info.GetCauses()
	for _, text := range slices.Backward(causes) {
		e.Err = &cause{text, e.Err}
	}
	if len(causes) > 0 && causes[0] == message {
		e.Message = ""
	}
	return e
}

// cause is a wrapped error of the other side: its text, which holds that of the next one too.
type cause struct {
	text string
	next error
}

func (c *cause) Error() string { return c.text }
func (c *cause) Unwrap() error { return c.next }

func codeOf(c codes.Code) errs.Code {
	switch c {
	case codes.OK:
		return ""
	case codes.Canceled, codes.DeadlineExceeded:
		return errs.Canceled
	case codes.InvalidArgument, codes.OutOfRange:
		return errs.InvalidArgument
	case codes.Unimplemented:
		return errs.Unsupported
	case codes.Unauthenticated:
		return errs.AuthFailed
	case codes.PermissionDenied:
		return errs.PermissionDenied
	case codes.ResourceExhausted:
		return errs.QuotaExceeded
	case codes.Unavailable:
		return errs.ExecTransport
	case codes.Unknown, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.Aborted, codes.Internal,
		codes.DataLoss:
		return errs.Internal
	default:
		return errs.Internal
	}
}
