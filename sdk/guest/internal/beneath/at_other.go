// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package beneath

import (
	"os"

	"golang.org/x/sys/unix"
)

const openPath = unix.O_RDONLY

func haveOpenat2(int) bool { return false }

func openBeneath(int, string) (int, error) { return -1, unix.EXDEV }

// OpenDir opens the directory name in dir for reading. It follows no link, and with stay no other file system: EXDEV.
func OpenDir(dir int, name string, stay bool) (int, error) { return openDirSlow(dir, name, stay) }

// OpenHostFile opens a regular file by its absolute path for reading. No component may be a link.
func OpenHostFile(path string) (int, error) { return openHostFileSlow(path) }

// ChmodAt changes the mode of name in dir, which must not be a link.
func ChmodAt(dir int, name string, mode uint32) error {
	if name == "" {
		return unix.Fchmod(dir, mode)
	}
	return unix.Fchmodat(dir, name, mode, unix.AT_SYMLINK_NOFOLLOW)
}

// SetTimes sets the modification time of name in dir, itself when it is a link.
func SetTimes(_, dir int, name string, mtime unix.Timespec) error {
	if name == "" {
		name = "."
	}
	return unix.UtimesNanoAt(dir, name, []unix.Timespec{mtime, mtime}, unix.AT_SYMLINK_NOFOLLOW)
}

// RenameNew moves a file and fails with EEXIST when the new name is taken.
func RenameNew(fromDir int, from string, toDir int, to string) error {
	return renameNewSlow(fromDir, from, toDir, to)
}

// Clone makes dst share the content of src.
func Clone(int, int) error { return unix.EOPNOTSUPP }

// CopyRange lets the kernel copy.
func CopyRange(int, int, int) (int, error) { return 0, unix.ENOSYS }

// DataAfter finds the next extent; here everything is data.
func DataAfter(fd int, off int64) (start, end int64, err error) {
	var st Stat
	if err := StatAt(fd, "", &st); err != nil {
		return 0, 0, err
	}
	if off >= int64(st.Size) {
		return 0, 0, unix.ENXIO
	}
	return off, int64(st.Size), nil
}

// ReadDir appends the entries of the opened directory fd, which is read from its start.
func ReadDir(fd int, _ []byte, out []Entry) ([]Entry, error) {
	own, err := openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return out, err
	}
	f := os.NewFile(uintptr(own), ".")
	names, err := f.Readdirnames(-1)
	if e := f.Close(); err == nil {
		err = e
	}
	for _, n := range names {
		out = append(out, Entry{Name: n})
	}
	return out, err
}

func modeOfKind(byte) uint32 { return 0 }
