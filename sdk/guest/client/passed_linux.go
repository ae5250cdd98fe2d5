// SPDX-License-Identifier: Apache-2.0

package client

import (
	"errors"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// The file systems whose files are programs: a read of them could wait for ever, or say something else each time.
var programs = [...]uint32{unix.FUSE_SUPER_MAGIC, unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC}

// plain are the file systems where whoever writes to a file changes the file and nothing else. Elsewhere a write can be a
// command, and it would be done with the rights of this process.
var plain = [...]uint32{
	unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.OVERLAYFS_SUPER_MAGIC,
	0x2fc12fc1, // ZFS
	0xca451a4e, // bcachefs
}

// checkPassed looks at a file that the guest chose. One for writing is new: empty, and nobody's program.
func checkPassed(f *os.File, use int) error {
	if f == nil {
		return errPassed
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return errPassed
	}
	good := false
	err = raw.Control(func(fd uintptr) {
		var st unix.Stat_t
		var fs unix.Statfs_t
		if unix.Fstat(int(fd), &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || unix.Fstatfs(int(fd), &fs) != nil {
			return
		}
		if use == forReading && slices.Contains(programs[:], uint32(fs.Type)) {
			return
		}
		if use == forWriting && (!slices.Contains(plain[:], uint32(fs.Type)) || st.Size != 0 || st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0) {
			return
		}
		flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0)
		good = err == nil && flags&(unix.O_PATH|unix.O_DIRECT|unix.O_APPEND|unix.O_SYNC|unix.O_ACCMODE) == use
	})
	if err != nil || !good {
		return errPassed
	}
	return nil
}

func pread(f *os.File, p []byte, at int64) (n int, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	e := raw.Control(func(fd uintptr) {
		for {
			n, err = unix.Pread(int(fd), p, at)
			if !errors.Is(err, unix.EINTR) {
				return
			}
		}
	})
	if e != nil {
		return 0, e
	}
	return max(n, 0), err
}

// pwrite writes all of p.
func pwrite(f *os.File, p []byte, at int64) (err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	e := raw.Control(func(fd uintptr) {
		for len(p) > 0 {
			var n int
			if n, err = unix.Pwrite(int(fd), p, at); err != nil && !errors.Is(err, unix.EINTR) {
				return
			}
			p, at, err = p[max(n, 0):], at+int64(max(n, 0)), nil
		}
	})
	if e != nil {
		return e
	}
	return err
}
