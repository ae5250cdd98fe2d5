// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"github.com/berth-dev/berth/plugins/unixlocal/internal/machine"
	"github.com/berth-dev/berth/sdk/attach"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

var _ driver.Mounter = (*sandbox)(nil)

// place is where storage is attached. Preconditions: the gate is held, and the guest runs.
func (s *sandbox) place() *attach.Place {
	p := &attach.Place{PID: s.x.Record.Guest.PID, Root: s.want.Inside().Root}
	p.UID, p.GID = machine.Owner(s.want.Setup, s.want.Off)
	return p
}

// at starts the guest, unless it runs, and says where it is.
func (s *sandbox) at(ctx context.Context) (*attach.Place, error) {
	if _, err := s.guest(ctx); err != nil {
		return nil, err
	}
	defer s.hold()()
	return s.place(), nil
}

// remount attaches what a guest that was found alive is to have.
func (s *sandbox) remount(ctx context.Context) error {
	if s.mounts.Empty() {
		return nil
	}
	defer s.hold()()
	return s.mounts.Restore(ctx, s.place())
}

// Mount attaches storage that a process of this machine serves.
func (s *sandbox) Mount(ctx context.Context, spec driver.MountSpec) (driver.MountInfo, error) {
	p, err := s.at(ctx)
	if err != nil {
		return driver.MountInfo{}, err
	}
	return s.mounts.Mount(ctx, p, spec)
}

// Unmount detaches storage.
func (s *sandbox) Unmount(ctx context.Context, id string) error {
	p, err := s.at(ctx)
	if err != nil {
		return err
	}
	return s.mounts.Unmount(ctx, p, id)
}

// RefreshCredentials is not for this driver, which has none.
func (*sandbox) RefreshCredentials(context.Context, string, map[string]string) (time.Time, error) {
	return time.Time{}, errs.New(errs.Unsupported, "the process that serves the mount has its credentials, not this driver").With("feature", "mount")
}

// ProbeMount fails when a mount does not work.
func (s *sandbox) ProbeMount(ctx context.Context, id string) error {
	p, err := s.at(ctx)
	if err != nil {
		return err
	}
	return s.mounts.Probe(ctx, p, id)
}
