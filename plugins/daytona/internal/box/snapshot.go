// SPDX-License-Identifier: Apache-2.0

package box

import (
	"context"
	"errors"
	"math"
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/berth-dev/berth/plugins/daytona/client"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// snapshotPrefix begins the names of berth's snapshots; the sandbox's id and one of its own follow.
const snapshotPrefix = "berth-snapshot-"

// Snapshot saves the sandbox's disk at the vendor. What is in memory is not in it.
func (b *Box) Snapshot(ctx context.Context, _ string, memory bool, labels map[string]string) (driver.NativeSnapshot, error) {
	const op = "take a snapshot"
	if memory {
		return driver.NativeSnapshot{}, errs.New(errs.Unsupported, "Daytona's containers save files only").With("feature", string(driver.SnapMemory))
	}
	defer b.hold()()
	if b.destroyed {
		return driver.NativeSnapshot{}, errs.New(errs.SandboxGone, "sandbox %s was destroyed", b.id)
	}
	name := snapshotPrefix + strings.ToLower(b.id+"-"+ulid.Make().String())
	err := b.host.Client.Settled(ctx, func() error {
		_, err := b.host.Client.TakeSnapshot(ctx, b.st.ID, name, false)
		return err
	})
	if e, ok := errors.AsType[*errs.Error](err); ok && e.MaybeApplied {
		err = nil // what follows finds out
	}
	if err != nil {
		return driver.NativeSnapshot{}, errs.Wrap(errs.SnapshotPersist, op, err)
	}
	v, err := b.host.Client.Await(ctx, b.st.ID, nil)
	if err != nil {
		return driver.NativeSnapshot{}, errs.Wrap(errs.SnapshotPersist, op, err)
	}
	b.vendor = v
	snap, err := b.host.Client.Snapshot(ctx, name)
	if client.NotFound(err) {
		return driver.NativeSnapshot{}, errs.New(errs.SnapshotPersist, "the vendor did not make the snapshot: the sandbox is %s %s", v.State, v.ErrorReason)
	}
	if err == nil && snap.State != client.SnapshotActive {
		err = errs.New(errs.SnapshotPersist, "the snapshot is %s: %s", snap.State, snap.ErrorReason)
	}
	if err != nil {
		return driver.NativeSnapshot{}, errs.Wrap(errs.SnapshotPersist, op, err)
	}
	native := Native(snap, labels)
	return native, errs.Wrap(errs.SnapshotPersist, op, b.host.Snapshots.Put(native))
}

// IsSnapshot says whether a snapshot is one of berth's.
func IsSnapshot(s *client.Snapshot) bool { return strings.HasPrefix(s.Name, snapshotPrefix) }

// unusable says that a sandbox was not made because of the snapshot that it was to be made from, when that is so.
func (h *Host) unusable(ctx context.Context, id string, err error) error {
	if id == "" || !errors.Is(err, errs.ConfigInvalid) {
		return err
	}
	s, lookErr := h.Client.Snapshot(ctx, id)
	switch {
	case client.NotFound(lookErr):
		return errs.New(errs.SnapshotUnusable, "Daytona has no snapshot %s", id)
	case lookErr == nil && s.State != client.SnapshotActive:
		return errs.New(errs.SnapshotUnusable, "snapshot %s is %s %s", id, s.State, s.ErrorReason)
	}
	return err
}

// Native says what the core wants to know of a snapshot. Its id is the name: sandboxes are made from that.
func Native(s *client.Snapshot, labels map[string]string) driver.NativeSnapshot {
	id, _, _ := strings.Cut(strings.TrimPrefix(s.Name, snapshotPrefix), "-")
	return driver.NativeSnapshot{
		ID: s.Name, SandboxID: strings.ToUpper(id), Created: s.CreatedAt, Bytes: uint64(math.Max(0, s.Size) * (1 << 30)), Labels: labels,
	}
}
