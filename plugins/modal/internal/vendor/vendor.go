// SPDX-License-Identifier: Apache-2.0

// Package vendor says in berth's words what went wrong at Modal.
package vendor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/modal-labs/modal-client/go"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/plugins/modal/client"
	"github.com/berth-dev/berth/sdk/errs"
)

// Error gives an error of the SDK a code; fallback is that of a failure of the vendor's or the network's. A context that
// ended by itself is Canceled, whatever the SDK made of it: a time limit of the caller's is not one of the sandbox's.
func Error(ctx context.Context, fallback errs.Code, op string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*errs.Error](err); ok {
		return err
	}
	e := &errs.Error{Code: fallback, Op: op, Message: text(err), Vendor: &errs.Vendor{Code: client.CodeOf(err), Message: text(err)}}
	if ctx.Err() != nil {
		e.Code, e.Err = errs.Canceled, context.Cause(ctx)
		return e
	}
	switch client.KindOf(err) {
	case client.Unauthenticated:
		e.Code, e.Hint = errs.AuthFailed, "check token_id and token_secret in the driver block; a token that was replaced or deleted is not taken any more"
	case client.Forbidden:
		e.Code, e.Hint = errs.PermissionDenied, "give the token's owner the right to do this, or use another token"
	case client.NotFound, client.Finished:
	case client.Exists:
		e.Code = errs.CreateFailed
	case client.Invalid:
		e.Code = errs.ConfigInvalid
	case client.Unbuildable:
		e.Code, e.Hint = errs.ConfigInvalid, "check image, registry_secret and dockerfile_commands"
	case client.Exhausted:
		// Nothing was done: it may be tried again.
		e.Code, e.Retry, e.Hint = errs.QuotaExceeded, errs.RetrySafe, "Modal has no room for it now, or a limit of the workspace is reached"
	case client.Throttled:
		e.Code, e.RetryAfter = errs.RateLimited, client.RetryAfter(err)
	case client.TimeLimit, client.ExecTimedOut:
		e.MaybeApplied = true
	case client.Unavailable, client.Other, client.Canceled:
		e.MaybeApplied = true
	case client.Unimplemented:
		e.Code, e.Hint = errs.Unsupported, "the server does not know this call: is server_url right?"
	}
	return e
}

// text is the vendor's own words.
func text(err error) string {
	var g interface{ GRPCStatus() *status.Status }
	if errors.As(err, &g) {
		return g.GRPCStatus().Message()
	}
	return err.Error()
}

// exitSnapshotTime bounds the wait for the snapshot of a sandbox that has ended by itself.
const exitSnapshotTime = 15 * time.Second

// Gone says that a sandbox has ended and why, with the snapshot that was made of its files, if there is one.
func Gone(ctx context.Context, sb *modal.Sandbox, id string, st client.Status, snapshot bool, kept string) error {
	e := errs.New(errs.SandboxGone, "sandbox %s has ended: %s", id, Why(st)).With("reason", string(st.Reason)).With("sandbox", id)
	switch st.Reason {
	case client.TimedOut:
		e = e.WithHint("Modal cannot prolong a sandbox's life: set a longer timeout, or lifetime, for the next one")
	case client.IdleTimedOut:
		e = e.WithHint("set a longer idle_timeout")
	case client.Evicted:
		e = e.WithHint("reserve more memory")
	default:
	}
	if snapshot && st.Reason != client.Terminated {
		img, err := sb.ExperimentalGetExitSnapshot(ctx, &modal.SandboxExperimentalGetExitSnapshotParams{Timeout: new(exitSnapshotTime)})
		if err == nil {
			kept = img.ImageID
		}
	}
	if kept != "" {
		e = e.With("snapshot", kept)
	}
	return e
}

// Why says why a sandbox ended.
func Why(st client.Status) string {
	why := map[client.Reason]string{
		client.Exited: fmt.Sprintf("its first process ended with %d", st.ExitCode), client.Terminated: "it was terminated through Modal's API",
		client.TimedOut: "its lifetime is over", client.IdleTimedOut: "it was idle for longer than its idle timeout",
		client.NotStarted: "it could not be started", client.VendorFailed: "Modal failed", client.Evicted: "Modal's machine ran out of memory",
		client.Running: "it does not answer",
	}[st.Reason]
	if st.Exception != "" {
		why += " (" + st.Exception + ")"
	}
	return why
}

// Check gives errs.SandboxGone when a sandbox has ended, and nil when it runs.
func Check(ctx context.Context, sb *modal.Sandbox, id string, snapshot bool, kept string) error {
	st, err := client.StatusOf(ctx, sb)
	switch {
	case client.KindOf(err) == client.NotFound && err != nil && ctx.Err() == nil:
		e := errs.New(errs.SandboxGone, "sandbox %s no longer exists at Modal", id).With("sandbox", id)
		if kept != "" {
			e = e.With("snapshot", kept)
		}
		return e
	case err != nil:
		return Error(ctx, errs.SandboxNotReady, "look at the sandbox", err)
	case st.Reason != client.Running:
		return Gone(ctx, sb, id, st, snapshot, kept)
	}
	return nil
}
