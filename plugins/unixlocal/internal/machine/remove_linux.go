// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"os"

	"github.com/berth-dev/berth/plugins/unixlocal/internal/store"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/confine"
)

// Remove removes a sandbox that nothing runs in any more, from inside its user map where that takes it.
func (m *Machine) Remove(ctx context.Context, x *store.Session) error {
	return x.Remove(func(dirs []string) error {
		// What the host mounted there is not the sandbox's: a removal would go through it.
		at, err := store.MountedBelow(x.Record.Files)
		if err != nil {
			return err
		}
		if at != "" {
			return errs.New(errs.StopFailed, "%s is still mounted", at).WithHint("unmount it, then destroy the sandbox again")
		}
		ids := x.Record.Setup.IDs
		if ids.Kind != confine.MapHelper {
			return store.RemoveAll(dirs)
		}
		var there []string
		for _, d := range dirs {
			if _, err := os.Lstat(d); err == nil {
				there = append(there, d)
			}
		}
		if err := confine.Remove(ctx, m.Program, ids, there...); err != nil {
			return errs.Wrap(errs.Internal, "remove files of mapped users", err)
		}
		return store.RemoveAll(dirs)
	})
}
