// SPDX-License-Identifier: Apache-2.0

package berth

import (
	"context"

	"github.com/berth-dev/berth/core/mount"
	"github.com/berth-dev/berth/core/sandbox"
	"github.com/berth-dev/berth/sdk/driver"
)

// native gives the mounts that the driver makes with the sandbox.
func (h *Harness) native(driverName, id string, o *SandboxOptions) func(context.Context, []driver.MountSupport) ([]driver.MountSpec, error) {
	return func(ctx context.Context, has []driver.MountSupport) ([]driver.MountSpec, error) {
		if o.Manifest == nil {
			return nil, nil
		}
		return h.cfg.Mounts.Native(ctx, mount.Session{ID: id, Driver: driverName, Mounts: has, Entries: mount.Of(o.Manifest.Entries)})
	}
}

// mounting brings a manifest's mounts into a sandbox; nil = there are none.
func (h *Harness) mounting(driverName, id string, o *SandboxOptions) func(context.Context, *sandbox.Session) (sandbox.Mounts, error) {
	if o.Manifest == nil {
		return nil
	}
	entries := mount.Of(o.Manifest.Entries)
	if len(entries) == 0 {
		return nil
	}
	return func(ctx context.Context, s *sandbox.Session) (sandbox.Mounts, error) {
		set, err := h.cfg.Mounts.Attach(ctx, mount.Session{
			ID: id, Driver: driverName, Sandbox: s.Sandbox, Mounts: s.Support(), Entries: entries, Emit: o.Emit,
		})
		if err != nil {
			return nil, err
		}
		return set, nil
	}
}
