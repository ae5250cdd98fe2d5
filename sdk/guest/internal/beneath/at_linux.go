// SPDX-License-Identifier: Apache-2.0

package beneath

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// openPath opens a directory for use in descriptor-relative calls; it needs no right to read it.
const openPath = unix.O_PATH

func openat2(dir int, path string, flags, resolve uint64) (int, error) {
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: resolve | unix.RESOLVE_NO_MAGICLINKS}
	for tries := 0; ; tries++ {
		fd, err := unix.Openat2(dir, path, &how)
		// EAGAIN: a rename raced with a ".." and the kernel cannot tell; it will be over soon.
		if errors.Is(err, unix.EINTR) || (errors.Is(err, unix.EAGAIN) && tries < 32) {
			continue
		}
		return fd, err
	}
}

// haveOpenat2 tries it: old kernels have none, and seccomp filters of containers may refuse it.
func haveOpenat2(dir int) bool {
	fd, err := openat2(dir, ".", unix.O_PATH|unix.O_DIRECTORY, unix.RESOLVE_BENEATH)
	if err != nil {
		return false
	}
	_ = unix.Close(fd)
	return true
}

// openBeneath opens the directory path below dir.
func openBeneath(dir int, path string) (int, error) {
	return openat2(dir, path, unix.O_PATH|unix.O_DIRECTORY, unix.RESOLVE_BENEATH)
}

// OpenDir opens the directory name in dir for reading. It follows no link, and with stay no mount: EXDEV then.
func OpenDir(dir int, name string, stay bool) (int, error) {
	if stay && name != "" {
		fd, err := openat2(dir, name, unix.O_RDONLY|unix.O_DIRECTORY, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_XDEV)
		if !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) {
			return fd, err
		}
	}
	return openDirSlow(dir, name, stay)
}

// OpenHostFile opens a regular file by its absolute path for reading. No component may be a link.
func OpenHostFile(path string) (int, error) {
	fd, err := openat2(unix.AT_FDCWD, path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, unix.RESOLVE_NO_SYMLINKS)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		return openHostFileSlow(path)
	}
	return fd, err
}

// ChmodAt changes the mode of name in dir, which must not be a link.
func ChmodAt(dir int, name string, mode uint32) error {
	if name == "" {
		return chmodFd(dir, mode)
	}
	err := unix.Fchmodat(dir, name, mode, unix.AT_SYMLINK_NOFOLLOW)
	if !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	fd, err := openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	var st Stat
	if err := StatAt(fd, "", &st); err != nil {
		return err
	}
	if st.IsLink() {
		return unix.EOPNOTSUPP
	}
	return chmodFd(fd, mode)
}

// chmodFd also takes descriptors that were opened with O_PATH.
func chmodFd(fd int, mode uint32) error {
	err := unix.Fchmod(fd, mode)
	if !errors.Is(err, unix.EBADF) {
		return err
	}
	if err = unix.Fchmodat(fd, "", mode, unix.AT_EMPTY_PATH); !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	// Before Linux 6.6 the descriptor's own link is the only name that cannot be swapped.
	return unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), mode)
}

// SetTimes sets the modification time of name in dir, itself when it is a link. With fd >= 0 the file is that one.
func SetTimes(fd, dir int, name string, mtime unix.Timespec) error {
	ts := [2]unix.Timespec{{Nsec: unix.UTIME_OMIT}, mtime}
	if fd >= 0 {
		_, _, no := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(&ts[0])), 0, 0, 0)
		if no != 0 {
			return no
		}
		return nil
	}
	if name == "" {
		name = "."
	}
	return unix.UtimesNanoAt(dir, name, ts[:], unix.AT_SYMLINK_NOFOLLOW)
}

// RenameNew moves a file and fails with EEXIST when the new name is taken.
func RenameNew(fromDir int, from string, toDir int, to string) error {
	err := unix.Renameat2(fromDir, from, toDir, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) {
		return renameNewSlow(fromDir, from, toDir, to)
	}
	return err
}

// Clone makes dst share the content of src.
func Clone(dst, src int) error { return unix.IoctlFileClone(dst, src) }

// CopyRange lets the kernel copy up to n bytes at the descriptors' positions.
func CopyRange(dst, src, n int) (int, error) { return unix.CopyFileRange(src, nil, dst, nil, n, 0) }

// DataAfter finds the next extent at or after off: where it starts and ends. ENXIO when there is none.
func DataAfter(fd int, off int64) (start, end int64, err error) {
	if start, err = unix.Seek(fd, off, unix.SEEK_DATA); err != nil {
		return 0, 0, err
	}
	end, err = unix.Seek(fd, start, unix.SEEK_HOLE)
	return start, end, err
}

// ReadDir appends the entries of the opened directory fd, which is read from its start.
func ReadDir(fd int, buf []byte, out []Entry) ([]Entry, error) {
	if _, err := unix.Seek(fd, 0, unix.SEEK_SET); err != nil {
		return out, err
	}
	for {
		n, err := unix.Getdents(fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			return out, err
		}
		const header = 19 // d_ino, d_off, d_reclen, d_type of struct linux_dirent64
		for b := buf[:n]; len(b) >= header; {
			size := int(binary.NativeEndian.Uint16(b[16:]))
			name, kind := b[header:size], b[18]
			if i := bytes.IndexByte(name, 0); i >= 0 {
				name = name[:i]
			}
			if s := string(name); s != "." && s != ".." {
				out = append(out, Entry{Name: s, kind: kind})
			}
			b = b[size:]
		}
	}
}

// modeOfKind turns d_type into the type bits of st_mode.
func modeOfKind(kind byte) uint32 { return uint32(kind) << 12 }
