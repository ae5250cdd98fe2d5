// SPDX-License-Identifier: Apache-2.0

package beneath

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// openDirSlow is OpenDir where the kernel cannot tell mounts of one file system apart.
func openDirSlow(dir int, name string, stay bool) (int, error) {
	fd, err := OpenAt(dir, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil || !stay || name == "" {
		return fd, err
	}
	var above, here Stat
	if err = StatAt(dir, "", &above); err == nil {
		err = StatAt(fd, "", &here)
	}
	if err == nil && above.Dev != here.Dev {
		err = unix.EXDEV
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func openHostFileSlow(path string) (int, error) {
	comps := split(path)
	if len(comps) == 0 || !strings.HasPrefix(path, "/") {
		return -1, unix.EINVAL
	}
	dir, err := openat(unix.AT_FDCWD, "/", openPath|unix.O_DIRECTORY, 0)
	if err != nil {
		return -1, err
	}
	for _, c := range comps[:len(comps)-1] {
		next, err := openat(dir, c, openPath|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		_ = unix.Close(dir)
		if err != nil {
			return -1, err
		}
		dir = next
	}
	defer func() { _ = unix.Close(dir) }()
	return OpenAt(dir, comps[len(comps)-1], unix.O_RDONLY, 0)
}

// renameNewSlow makes a second name first: link fails when the name is taken. Directories cannot be linked; for them
// the look before the rename is all that can be had.
func renameNewSlow(fromDir int, from string, toDir int, to string) error {
	var st Stat
	if err := StatAt(fromDir, from, &st); err != nil {
		return err
	}
	if !st.IsDir() {
		err := unix.Linkat(fromDir, from, toDir, to, 0)
		if err == nil {
			return unix.Unlinkat(fromDir, from, 0)
		}
		if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EOPNOTSUPP) {
			return err
		}
	}
	switch err := StatAt(toDir, to, &st); {
	case err == nil:
		return unix.EEXIST
	case !errors.Is(err, unix.ENOENT):
		return err
	}
	return unix.Renameat(fromDir, from, toDir, to)
}
