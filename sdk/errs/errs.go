// SPDX-License-Identifier: Apache-2.0

// Package errs is the error type that driver, SDK and core share.
//
// An [Error] has a stable [Code], says whether repeating can help ([Retry]) and what the reader can do ([Error.Hint]).
// It survives the wire: the SDK sends it as one gRPC status detail and the core rebuilds it, so that
//
//	errors.Is(err, errs.SandboxGone)
//
// holds on both sides. Codes are only ever added.
package errs

import (
	"errors"
	"fmt"
	"maps"
	"time"
)

// Code names a kind of failure. A Code is itself an error, to be used as the target of [errors.Is].
type Code string

// Error makes a Code a target for [errors.Is].
func (c Code) Error() string { return string(c) }

// The codes. The comment gives the meaning where the name does not.
const (
	ConfigInvalid       Code = "config_invalid"
	ManifestPathInvalid Code = "manifest_path_invalid"
	MountConfigInvalid  Code = "mount_config_invalid"
	InvalidArgument     Code = "invalid_argument"
	Unsupported         Code = "unsupported" // the driver does not offer it; context "feature"
	AuthFailed          Code = "auth_failed"
	PermissionDenied    Code = "permission_denied"
	QuotaExceeded       Code = "quota_exceeded"
	RateLimited         Code = "rate_limited"
	SandboxUnknown      Code = "sandbox_unknown" // this driver process does not know the id: resume, then repeat
	SandboxGone         Code = "sandbox_gone"    // it no longer exists; context "snapshot" if one does
	SandboxNotReady     Code = "sandbox_not_ready"
	CreateFailed        Code = "create_failed"
	StartFailed         Code = "start_failed"
	StopFailed          Code = "stop_failed"
	IsolationMissing    Code = "isolation_missing" // a required axis is not enforced; context names axis, probe, errno
	ExecNotFound        Code = "exec_not_found"    // no such executable, or not executable
	ExecTimeout         Code = "exec_timeout"
	ExecTransport       Code = "exec_transport" // the link to the process broke
	ProcessUnknown      Code = "process_unknown"
	OutputGap           Code = "output_gap"
	FileNotFound        Code = "file_not_found"
	FileExists          Code = "file_exists"
	IsDirectory         Code = "is_directory"
	NotDirectory        Code = "not_directory"
	NotRegular          Code = "not_regular" // FIFO, socket or device where a file is needed
	DirectoryNotEmpty   Code = "directory_not_empty"
	PathEscapes         Code = "path_escapes"
	ReadOnly            Code = "read_only"
	NoSpace             Code = "no_space"
	VersionMismatch     Code = "version_mismatch"
	ArchiveInvalid      Code = "archive_invalid"
	ArchiveLimit        Code = "archive_limit"
	SnapshotPersist     Code = "snapshot_persist_failed"
	SnapshotRestore     Code = "snapshot_restore_failed"
	SnapshotUnusable    Code = "snapshot_not_restorable"
	PortNotConfigured   Code = "port_not_configured"
	PortUnavailable     Code = "port_unavailable"
	MountToolMissing    Code = "mount_tool_missing"
	MountFailed         Code = "mount_failed"
	VendorFailed        Code = "vendor_failed" // the service behind the driver failed, or cannot be reached
	DriverCrashed       Code = "driver_crashed"
	DriverStartFailed   Code = "driver_start_failed"
	DriverChecksum      Code = "driver_checksum"
	DriverIncompatible  Code = "driver_incompatible"
	DriverUnknown       Code = "driver_unknown"
	Canceled            Code = "canceled"
	Internal            Code = "internal" // anything that nobody typed; a fault in the driver
)

// Retry says what may be done after a failure.
type Retry uint8

// The retry classes.
const (
	RetryUnknown     Retry = iota // only idempotent calls are repeated
	RetryNever                    // repeating cannot help
	RetrySafe                     // nothing was done
	RetryAfterResume              // resume the sandbox, then repeat
)

// Error is a failure with everything that its reader needs.
type Error struct {
	Code         Code
	Op           string            // what was being done: "create", "files.read"
	Message      string            // what went wrong, lower case, no full stop
	Hint         string            // what the reader can do; may be empty
	Retry        Retry             // zero means the class of Code, see [Error.RetryClass]
	RetryAfter   time.Duration     // wait at least this long; 0 = no wish
	Context      map[string]string // facts: path, port, feature; never a secret
	Vendor       *Vendor           // what a vendor's API said
	MaybeApplied bool              // the call may have had an effect
	Path         []PathStep        // where in a configuration body
	Err          error             // the cause
}

// Vendor is a vendor's answer.
type Vendor struct {
	HTTPStatus int
	Code       string
	RequestID  string
	Message    string
}

// PathStep is one step into a configuration body; exactly one field is meant.
type PathStep struct {
	Attribute string
	Key       string
	Index     *int64
}

// New makes an error of a code.
func New(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Wrap gives err a code and says what was being done. The code of an *Error inside err is kept. Nil stays nil.
func Wrap(code Code, op string, err error) error {
	if err == nil {
		return nil
	}
	if inner, ok := errors.AsType[*Error](err); ok {
		e := *inner
		e.Op = op
		e.Err = err
		e.Message = ""
		return &e
	}
	return &Error{Code: code, Op: op, Err: err}
}

// With returns a copy with one more fact.
func (e *Error) With(key, value string) *Error {
	c := *e
	c.Context = maps.Clone(e.Context)
	if c.Context == nil {
		c.Context = map[string]string{}
	}
	c.Context[key] = value
	return &c
}

// WithHint returns a copy that says what the reader can do.
func (e *Error) WithHint(format string, args ...any) *Error {
	c := *e
	c.Hint = fmt.Sprintf(format, args...)
	return &c
}

// Error gives operation, message and cause.
func (e *Error) Error() string {
	s := e.Message
	switch {
	case s == "" && e.Err != nil:
		s = e.Err.Error()
	case s == "":
		s = string(e.Code)
	case e.Err != nil:
		s += ": " + e.Err.Error()
	}
	if e.Op != "" {
		s = e.Op + ": " + s
	}
	return s
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is the error's [Code].
func (e *Error) Is(target error) bool {
	c, ok := target.(Code)
	return ok && c == e.Code
}

// CodeOf finds the code in err: [Internal] when there is none, "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return Internal
}

// RetryClass is the error's own class, else that of its code.
func (e *Error) RetryClass() Retry {
	if e.Retry != RetryUnknown {
		return e.Retry
	}
	switch e.Code {
	case RateLimited, SandboxNotReady, PortUnavailable:
		return RetrySafe
	case SandboxUnknown, DriverCrashed:
		return RetryAfterResume
	case ExecTransport, Internal, VendorFailed, CreateFailed, StartFailed, StopFailed, SnapshotPersist, SnapshotRestore, MountFailed,
		DriverStartFailed:
		return RetryUnknown
	default:
		return RetryNever
	}
}
