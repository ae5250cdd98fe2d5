// SPDX-License-Identifier: Apache-2.0

package box

import (
	"cmp"
	"context"
	"time"

	"github.com/moby/moby/client"

	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/sdk/attach"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

var _ driver.Mounter = (*Guest)(nil)

// place is where storage is attached to a container that runs. Its processes have to be this machine's.
func (b *Box) place(ctx context.Context) (*attach.Place, error) {
	if !b.e.Local {
		return nil, errs.New(errs.Unsupported, "storage is mounted into containers of this machine only, and the engine is at %s", b.e.Where).
			With("feature", "mount."+attach.Strategy).WithHint("run berth where the engine runs")
	}
	got, err := b.e.ContainerInspect(ctx, b.st.Container, client.ContainerInspectOptions{})
	if err != nil {
		return nil, engine.Error(errs.SandboxNotReady, "inspect the container", err)
	}
	p := &attach.Place{Root: b.record.Root}
	if got.Container.State == nil || got.Container.State.Pid == 0 {
		return nil, errs.New(errs.SandboxNotReady, "the container of sandbox %s does not run", b.id)
	}
	p.PID = got.Container.State.Pid
	user := b.record.User
	if c := got.Container.Config; user == "" && c != nil {
		user = c.User // the container's own
	}
	p.UID, p.GID, err = attach.UserOf(p.PID, cmp.Or(user, "0"))
	return p, err
}

// at starts the container, unless it runs, and says where it is.
func (s *Guest) at(ctx context.Context) (*attach.Place, error) {
	if _, err := s.live(ctx); err != nil {
		return nil, err
	}
	return s.place(ctx)
}

// remount attaches what the container is to have. Preconditions: the gate is held.
func (s *Guest) remount(ctx context.Context) error {
	if s.mounts.Empty() {
		return nil
	}
	p, err := s.place(ctx)
	if err != nil {
		return err
	}
	return s.mounts.Restore(ctx, p)
}

// Mount attaches storage that a process of this machine serves.
func (s *Guest) Mount(ctx context.Context, spec driver.MountSpec) (driver.MountInfo, error) {
	p, err := s.at(ctx)
	if err != nil {
		return driver.MountInfo{}, err
	}
	return s.mounts.Mount(ctx, p, spec)
}

// Unmount detaches storage.
func (s *Guest) Unmount(ctx context.Context, id string) error {
	p, err := s.at(ctx)
	if err != nil {
		return err
	}
	return s.mounts.Unmount(ctx, p, id)
}

// RefreshCredentials is not for this driver, which has none.
func (*Guest) RefreshCredentials(context.Context, string, map[string]string) (time.Time, error) {
	return time.Time{}, errs.New(errs.Unsupported, "the process that serves the mount has its credentials, not this driver").With("feature", "mount")
}

// ProbeMount fails when a mount does not work.
func (s *Guest) ProbeMount(ctx context.Context, id string) error {
	p, err := s.at(ctx)
	if err != nil {
		return err
	}
	return s.mounts.Probe(ctx, p, id)
}
