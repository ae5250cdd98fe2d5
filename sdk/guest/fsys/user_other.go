// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package fsys

import (
	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/internal/accounts"
)

func asUser(u accounts.User, fn func() error) error {
	if u.UID == uint32(unix.Geteuid()) {
		return fn()
	}
	return errs.New(errs.Unsupported, "file operations as another user need Linux").With("feature", "files.user")
}

func fileIDs() (uid, gid uint32) { return uint32(unix.Geteuid()), uint32(unix.Getegid()) }
