// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/berth-dev/berth/core/snapshot/chunks"
	"github.com/berth-dev/berth/core/snapshot/tarball"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// RestoreOptions are for [Repo.Restore].
type RestoreOptions struct {
	Path   string            // of the workspace
	Limits driver.TreeLimits // zero = as much as the snapshot says that it holds
	// Template is a key under which the driver may keep the result for other sandboxes; empty = it must not.
	Template string
}

// Restore puts the snapshot in the place of what the workspace holds. The index is checked before anything is sent, the
// content as it is sent; when it fails, the workspace is what it was, unless the error is marked as maybe applied.
func (r *Repo) Restore(ctx context.Context, rec *Record, dst Target, o RestoreOptions) (driver.ImportResult, error) {
	res, err := r.restore(ctx, rec, dst, o)
	if err != nil {
		return res, restoreError(rec, err)
	}
	return res, nil
}

// Fits refuses a snapshot that holds more than may be unpacked.
func (rec *Record) Fits(limits driver.TreeLimits) error {
	for _, l := range []struct {
		have uint64
		most uint64
		what string
	}{{uint64(rec.Entries), limits.MaxMembers, "entries"}, {uint64(rec.Bytes), limits.MaxExtractedBytes, "bytes"}} {
		if l.most > 0 && l.have > l.most {
			return errs.New(errs.ArchiveLimit, "it has %d %s, more than the %d that are allowed", l.have, l.what, l.most).
				WithHint("raise archive_limits in the sandbox block")
		}
	}
	return nil
}

// Contents is the same for snapshots that hold the same.
func (rec *Record) Contents() string {
	h := sha256.New()
	for i := range rec.Root {
		h.Write(rec.Root[i][:])
	}
	return "snapshot:" + hex.EncodeToString(h.Sum(nil))
}

func restoreError(rec *Record, err error) error {
	e := &errs.Error{Code: errs.SnapshotRestore, Message: fmt.Sprintf("snapshot %s could not be restored", Short(rec.ID)), Err: err}
	if inner, ok := errors.AsType[*errs.Error](err); ok {
		e.MaybeApplied, e.Hint = inner.MaybeApplied, inner.Hint
	}
	switch {
	case e.Hint != "":
	case errors.Is(err, errs.NoSpace):
		e.Hint = fmt.Sprintf("the workspace is what it was; %d bytes have to fit beside it where the sandbox's files are", rec.Bytes)
	case isDamage(err):
		e.Hint = damageHint
	}
	return e.With("snapshot", rec.ID)
}

const damageHint = "berth snapshot verify says what else is damaged; snapshots that do not need it are whole, see berth snapshot list"

func isDamage(err error) bool {
	if _, ok := errors.AsType[*chunks.Corrupt](err); ok {
		return true
	}
	_, ok := errors.AsType[*chunks.Missing](err)
	return ok
}

func (r *Repo) restore(ctx context.Context, rec *Record, dst Target, o RestoreOptions) (driver.ImportResult, error) {
	unlock, err := r.share(ctx)
	if err != nil {
		return driver.ImportResult{}, err
	}
	defer unlock()
	x, err := r.load(ctx, rec)
	if err != nil {
		return driver.ImportResult{}, err
	}
	limits := driver.TreeLimits{MaxInputBytes: math.MaxUint64, MaxExtractedBytes: math.MaxUint64, MaxMembers: math.MaxUint64}
	if err := rec.Fits(o.Limits); err != nil {
		return driver.ImportResult{}, err
	}
	pr, pw := io.Pipe()
	sent := make(chan error, 1)
	sending, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		err := tarball.Write(sending, r.chunks, x, pw)
		sent <- err
		_ = pw.CloseWithError(err) // nil is the end of the archive
	}()
	res, err := dst.Import(ctx, driver.ImportOptions{Path: o.Path, Replace: true, Limits: limits, Template: o.Template}, pr)
	cancel(errStopped)
	_ = pr.CloseWithError(errStopped)
	if serr := <-sent; serr != nil && !errors.Is(serr, errStopped) {
		return res, serr // the driver only saw that something had failed
	}
	return res, err
}
