// SPDX-License-Identifier: Apache-2.0

package beneath

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// Stat is what is known of a file.
type Stat struct {
	Dev, Ino, Size  uint64
	Mode            uint32 // type and permissions, as in st_mode
	UID, GID, Nlink uint32
	Blocks          int64
	Mtime, Ctime    unix.Timespec
}

// IsDir reports whether it is a directory.
func (s *Stat) IsDir() bool { return s.Mode&unix.S_IFMT == unix.S_IFDIR }

// IsLink reports whether it is a symbolic link.
func (s *Stat) IsLink() bool { return s.Mode&unix.S_IFMT == unix.S_IFLNK }

// IsRegular reports whether it is a regular file.
func (s *Stat) IsRegular() bool { return s.Mode&unix.S_IFMT == unix.S_IFREG }

// Perm gives the mode without the type.
func (s *Stat) Perm() uint32 { return s.Mode & 0o7777 }

// ModTime gives the time of the last change of content.
func (s *Stat) ModTime() time.Time { return time.Unix(s.Mtime.Unix()) }

// Same reports whether both are the same file.
func (s *Stat) Same(o *Stat) bool { return s.Dev == o.Dev && s.Ino == o.Ino }

// Type gives the kind of the file.
func (s *Stat) Type() driver.FileType { return TypeOf(s.Mode) }

// TypeOf gives the kind that st_mode names.
func TypeOf(mode uint32) driver.FileType {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return driver.TypeRegular
	case unix.S_IFDIR:
		return driver.TypeDirectory
	case unix.S_IFLNK:
		return driver.TypeSymlink
	case unix.S_IFIFO:
		return driver.TypeFIFO
	case unix.S_IFSOCK:
		return driver.TypeSocket
	case unix.S_IFCHR, unix.S_IFBLK:
		return driver.TypeDevice
	}
	return driver.TypeUnknown
}

// Version changes whenever the content may have changed: it is made of the file's identity, its size and both times.
// The change time cannot be set back, so that an editor that restores the modification time is seen too.
func (s *Stat) Version() string {
	b := make([]byte, 0, 64)
	for i, v := range [...]uint64{s.Dev, s.Ino, s.Size, uint64(s.Mtime.Nano()), uint64(s.Ctime.Nano())} {
		if i > 0 {
			b = append(b, '-')
		}
		b = strconv.AppendUint(b, v, 36)
	}
	return string(b)
}

func (s *Stat) fill(st *unix.Stat_t) {
	s.Dev, s.Ino, s.Size = uint64(st.Dev), st.Ino, uint64(st.Size)                    //nolint:unconvert // narrower on macOS
	s.Mode, s.UID, s.GID, s.Nlink = uint32(st.Mode), st.Uid, st.Gid, uint32(st.Nlink) //nolint:unconvert // narrower on macOS
	s.Blocks = st.Blocks
	s.Mtime, s.Ctime = st.Mtim, st.Ctim
}

// StatAt describes name in dir without following a link; an empty name is dir itself.
func StatAt(dir int, name string, s *Stat) error {
	var st unix.Stat_t
	for {
		var err error
		if name == "" {
			err = unix.Fstat(dir, &st)
		} else {
			err = unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
		}
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err == nil {
			s.fill(&st)
		}
		return err
	}
}

// ReadLink gives the target of the link name in dir; EINVAL when it is no link.
func ReadLink(dir int, name string) (string, error) {
	for n := 256; ; n *= 4 {
		b := make([]byte, n)
		got, err := unix.Readlinkat(dir, name, b)
		if err != nil {
			return "", err
		}
		if got < n {
			return string(b[:got]), nil
		}
	}
}

func openat(dir int, name string, flags int, mode uint32) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags|unix.O_CLOEXEC, mode)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// OpenAt opens name in dir. It never follows a link, waits for the other end of a FIFO or becomes a terminal's owner.
func OpenAt(dir int, name string, flags int, mode uint32) (int, error) {
	if name == "" {
		name = "."
	}
	return openat(dir, name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, mode)
}

// WriteAll writes all of b.
func WriteAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		b = b[max(n, 0):]
	}
	return nil
}

const tempPrefix, tempDigits = ".berth-tmp-", 16

// TempName gives a name for a file that is on its way.
func TempName() string {
	var b [tempDigits / 2]byte
	_, _ = rand.Read(b[:])
	return tempPrefix + hex.EncodeToString(b[:])
}

// IsTempName recognises what [TempName] gives. Such files are no part of a tree.
func IsTempName(name string) bool {
	rest, ok := strings.CutPrefix(name, tempPrefix)
	return ok && len(rest) == tempDigits && strings.Trim(rest, "0123456789abcdef") == ""
}

// Fail types what the system said about path during op. Nil stays nil, and a typed error keeps its code.
func Fail(op, path string, err error) error {
	if err == nil {
		return nil
	}
	if typed, ok := errors.AsType[*errs.Error](err); ok {
		e := *typed
		if e.Op == "" {
			e.Op = op
		}
		if e.Context["path"] == "" && path != "" {
			e = *e.With("path", path)
			e.Message = quote(path) + ": " + e.Message
		}
		return &e
	}
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathErr.Err
	}
	e := &errs.Error{Code: CodeOf(err), Op: op, Message: quote(path), Err: err}
	if path != "" {
		e = e.With("path", path)
	}
	return e
}

// quote shows a path as it is when that is harmless to read.
func quote(path string) string {
	if q := strconv.Quote(path); q[1:len(q)-1] != path || path == "" || strings.ContainsRune(path, ' ') {
		return q
	}
	return path
}

// Done is nil until ctx ends, and then says so; a typed cause is given as it is.
func Done(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	var typed *errs.Error
	if cause := context.Cause(ctx); errors.As(cause, &typed) {
		return cause
	}
	return &errs.Error{Code: errs.Canceled, Message: "canceled", Err: context.Cause(ctx)}
}

// CodeOf gives the code of what the system said.
func CodeOf(err error) errs.Code {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return errs.Canceled
	}
	var no unix.Errno
	if !errors.As(err, &no) {
		return errs.CodeOf(err)
	}
	switch no { //nolint:exhaustive // the others are told by their name
	case unix.ENOENT:
		return errs.FileNotFound
	case unix.EEXIST:
		return errs.FileExists
	case unix.EISDIR:
		return errs.IsDirectory
	case unix.ENOTDIR:
		return errs.NotDirectory
	case unix.EACCES, unix.EPERM, unix.EBUSY, unix.ETXTBSY:
		return errs.PermissionDenied
	case unix.EROFS:
		return errs.ReadOnly
	case unix.ENOSPC, unix.EDQUOT:
		return errs.NoSpace
	case unix.ENOTEMPTY:
		return errs.DirectoryNotEmpty
	case unix.ENXIO, unix.ENODEV:
		return errs.NotRegular
	case unix.ENAMETOOLONG, unix.EINVAL, unix.ELOOP, unix.EFBIG:
		return errs.InvalidArgument
	case unix.ENOSYS, unix.EOPNOTSUPP, unix.EXDEV:
		return errs.Unsupported
	}
	return errs.Internal
}
