// SPDX-License-Identifier: Apache-2.0

package fsys

import (
	"errors"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/internal/accounts"
)

// asUser does fn on a thread of its own that has u's file system ids and groups. Leaving user 0 also takes the
// capabilities that override file modes. The thread is not reused: it ends with the goroutine, which never unlocks it.
func asUser(u accounts.User, fn func() error) error {
	own := uint32(unix.Geteuid())
	if u.UID == own && u.GID == uint32(unix.Getegid()) {
		return fn()
	}
	if own != 0 {
		return errs.New(errs.PermissionDenied, "this sandbox runs as user %d and cannot act as %q", own, u.Name)
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if err := become(u); err != nil {
			done <- err
			return
		}
		done <- fn()
	}()
	return <-done
}

// become changes this thread only.
func become(u accounts.User) error {
	groups := []int{int(u.GID)}
	for _, g := range u.Groups {
		groups = append(groups, int(g))
	}
	slices.Sort(groups)
	groups = slices.Compact(groups)
	if err := unix.Setgroups(groups); err != nil {
		// A user namespace may forbid it. Harmless only when the thread has no group that the user lacks.
		have, e := unix.Getgroups()
		if e != nil || slices.ContainsFunc(have, func(g int) bool { return !slices.Contains(groups, g) }) {
			return denied(u, errors.Join(err, e))
		}
	}
	_ = unix.Setfsgid(int(u.GID))
	_ = unix.Setfsuid(int(u.UID))
	// The calls report no failure; asking for an impossible id tells what holds.
	gid, _ := unix.SetfsgidRetGid(-1)
	uid, _ := unix.SetfsuidRetUid(-1)
	if uid != int(u.UID) || gid != int(u.GID) {
		return denied(u, unix.EPERM)
	}
	return nil
}

func denied(u accounts.User, err error) error {
	e := errs.New(errs.PermissionDenied, "cannot act as user %q (%d)", u.Name, u.UID)
	e.Err = err
	return e
}

// fileIDs are the ids that files made by this thread get.
func fileIDs() (uid, gid uint32) {
	u, _ := unix.SetfsuidRetUid(-1)
	g, _ := unix.SetfsgidRetGid(-1)
	return uint32(u), uint32(g)
}
