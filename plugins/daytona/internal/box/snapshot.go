// SPDX-License-Identifier: Apache-2.0

package box

import (
	"context"
	"errors"

	"github.com/berth-dev/berth/plugins/daytona/client"
	"github.com/berth-dev/berth/plugins/daytona/internal/settings"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

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
	name := settings.SnapshotName(b.id)
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
	native := settings.Native(snap, labels)
	return native, errs.Wrap(errs.SnapshotPersist, op, b.host.Snapshots.Put(native))
}

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
