// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"time"

	"github.com/berth-dev/berth/core/spec"
	mounts "github.com/berth-dev/berth/mounts/spec"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// Mounts are the remote storages of a workspace.
type Mounts interface {
	// Turn tells that a turn is over.
	Turn()
	// Drain waits until every write has reached the storage; an error names those that have not.
	Drain(ctx context.Context) error
	// Close drains and gives everything up.
	Close(ctx context.Context) error
}

// closeTime bounds the last writes. Each mount has a bound of its own within it.
const closeTime = 10 * time.Minute

func (s *Session) mount(ctx context.Context) (err error) {
	if s.cfg.Mount != nil {
		s.mounts, err = s.cfg.Mount(ctx, s)
		return err
	}
	for i := range s.contents.Manifest.Entries {
		if e := &s.contents.Manifest.Entries[i]; e.Kind == spec.EntryMount {
			return errs.New(errs.Unsupported, "%s:%d: mount %q: the session was opened without a way to mount storage", e.Pos.File, e.Pos.Line, e.Path).
				WithHint("open it with berth, or leave the mount out")
		}
	}
	return nil
}

// unmount gives the mounts up, even when ctx has ended: what was written must not be lost for want of time.
func (s *Session) unmount(ctx context.Context) error {
	if s.mounts == nil {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), closeTime, errs.New(errs.MountFailed, "the last writes were not stored within %s", closeTime))
	defer cancel()
	return s.mounts.Close(ctx)
}

// Support is what can be mounted: what the driver says that it can by itself, and what this version brings into its
// sandboxes.
func (s *Session) Support() []driver.MountSupport { return s.cfg.support() }

func (cfg *Config) support() []driver.MountSupport {
	d := cfg.Driver.Description()
	return append(mounts.Describe(d.Name), d.Mounts...)
}
