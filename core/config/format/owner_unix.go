// SPDX-License-Identifier: Apache-2.0

//go:build unix

package format

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// keepOwner gives a new file the owner of the one it will replace, where that is allowed.
func keepOwner(f *os.File, path string) error {
	was, err := os.Stat(path)
	if err != nil {
		return err
	}
	now, err := f.Stat()
	if err != nil {
		return err
	}
	old, ok := was.Sys().(*syscall.Stat_t)
	fresh, ok2 := now.Sys().(*syscall.Stat_t)
	if !ok || !ok2 || old.Uid == fresh.Uid && old.Gid == fresh.Gid {
		return nil
	}
	if err := f.Chown(int(old.Uid), int(old.Gid)); err != nil && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}
