// SPDX-License-Identifier: Apache-2.0

package fsys

import (
	"context"
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/internal/beneath"
)

// parentOf gives the path of the directory that path is in.
func parentOf(path string) string {
	path = strings.TrimRight(path, "/")
	i := strings.LastIndexByte(path, '/')
	switch {
	case i < 0:
		return "."
	case i == 0:
		return "/"
	}
	return path[:i]
}

// Mkdir makes a directory. With parents a directory that exists is no error.
func (f *FS) Mkdir(ctx context.Context, path string, mode uint32, parents bool, user string) error {
	if mode == 0 {
		mode = 0o755
	}
	err := beneath.Done(ctx)
	if err == nil {
		err = f.as(user, func() error {
			if parents {
				return f.mkdirAll(path, mode, nil)
			}
			loc, err := f.set.Resolve(path, false)
			if err != nil {
				return err
			}
			defer loc.Close()
			if loc.Exists {
				return unix.EEXIST
			}
			return f.mkdir(loc, mode)
		})
	}
	return beneath.Fail("files.mkdir", path, err)
}

func (f *FS) mkdir(loc *beneath.Loc, mode uint32) error {
	if err := writable(loc); err != nil {
		return err
	}
	if err := unix.Mkdirat(loc.Dir, loc.Name, mode&0o777); err != nil {
		return err
	}
	// The process's umask has no say in a mode that was asked for.
	return beneath.ChmodAt(loc.Dir, loc.Name, mode&0o7777)
}

// mkdirAll makes path and what is missing above it; made is told of each directory that did not exist. Optional.
func (f *FS) mkdirAll(path string, mode uint32, made func(*beneath.Loc) error) error {
	// Upwards to what exists, then downwards.
	var missing []string
	for at := path; ; at = parentOf(at) {
		loc, err := f.set.Resolve(at, true)
		if err == nil {
			exists, dir := loc.Exists, loc.Stat.IsDir()
			loc.Close()
			if exists && !dir {
				return unix.ENOTDIR
			}
			if exists {
				break
			}
		} else if !is(err, errs.FileNotFound) {
			return err
		}
		if next := parentOf(at); next == at {
			return errNotFound
		}
		missing = append(missing, at)
	}
	for i, dir := range slices.Backward(missing) {
		loc, err := f.set.Resolve(dir, true)
		if err != nil {
			return err
		}
		m := uint32(0o755)
		if i == 0 {
			m = mode
		}
		if !loc.Exists {
			err = f.mkdir(loc, m)
			if err == nil && made != nil {
				err = made(loc)
			}
		}
		loc.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
	return nil
}

// change resolves a path whose name itself is to change.
func (f *FS) change(path, what string) (*beneath.Loc, error) {
	loc, err := f.set.Resolve(path, false)
	if err != nil {
		return nil, err
	}
	if loc.IsRoot {
		err = errs.New(errs.InvalidArgument, "the workspace itself and a granted path cannot be %s", what)
	} else {
		err = writable(loc)
	}
	if err != nil {
		loc.Close()
		return nil, err
	}
	return loc, nil
}

// Remove removes a file, a link or a directory; with recursive also what is in it, but for what is mounted there.
func (f *FS) Remove(ctx context.Context, path string, recursive bool, user string) error {
	err := beneath.Done(ctx)
	if err == nil {
		err = f.as(user, func() error { return f.remove(ctx, path, recursive) })
	}
	return beneath.Fail("files.remove", path, err)
}

func (f *FS) remove(ctx context.Context, path string, recursive bool) error {
	loc, err := f.change(path, "removed")
	if err != nil {
		if recursive && is(err, errs.FileNotFound) {
			return nil
		}
		return err
	}
	defer loc.Close()
	switch {
	case recursive:
		return beneath.RemoveAll(ctx, loc.Dir, loc.Name)
	case !loc.Exists:
		return errNotFound
	case loc.Stat.IsDir():
		return unix.Unlinkat(loc.Dir, loc.Name, unix.AT_REMOVEDIR)
	}
	return unix.Unlinkat(loc.Dir, loc.Name, 0)
}

// Move renames a file, a link or a directory. What is on another file system is copied and then removed.
func (f *FS) Move(ctx context.Context, from, to string, replace bool, user string) error {
	err := beneath.Done(ctx)
	if err == nil {
		err = f.as(user, func() error { return f.move(ctx, from, to, replace) })
	}
	return beneath.Fail("files.move", from, err)
}

func (f *FS) move(ctx context.Context, from, to string, replace bool) error {
	src, err := f.change(from, "moved")
	if err != nil {
		return err
	}
	defer src.Close()
	if !src.Exists {
		return errNotFound
	}
	dst, err := f.change(to, "replaced")
	if err != nil {
		return beneath.Fail("", to, err)
	}
	defer dst.Close()
	if dst.Exists && !replace {
		if dst.Stat.Same(&src.Stat) && src.Name == dst.Name {
			return nil
		}
		return beneath.Fail("", to, unix.EEXIST)
	}
	rename := func(dir int, name string) error {
		if replace {
			return unix.Renameat(dir, name, dst.Dir, dst.Name)
		}
		return beneath.RenameNew(dir, name, dst.Dir, dst.Name)
	}
	err = rename(src.Dir, src.Name)
	if !errors.Is(err, unix.EXDEV) {
		return err
	}
	return f.moveAcross(ctx, src, dst, rename)
}

// SetMeta changes mode, owner and time. With Recursive links below are not followed; they have no mode of their own.
func (f *FS) SetMeta(ctx context.Context, path string, change driver.MetaChange) error {
	return beneath.Fail("files.set_meta", path, retry(func() error { return f.setMeta(ctx, path, change) }))
}

// meta is a change with everything looked up.
type meta struct {
	uid, gid int // -1 = leave
	mode     *uint32
	mtime    *unix.Timespec
}

func (f *FS) setMeta(ctx context.Context, path string, change driver.MetaChange) error {
	m := meta{uid: -1, gid: -1, mode: change.Mode}
	if change.Owner != nil {
		u, err := f.accounts.User(*change.Owner)
		if err != nil {
			return err
		}
		m.uid = int(u.UID)
		if strings.Contains(*change.Owner, ":") {
			m.gid = int(u.GID)
		}
	}
	if change.Group != nil {
		g, err := f.accounts.Group(*change.Group)
		if err != nil {
			return err
		}
		m.gid = int(g)
	}
	if !change.ModTime.IsZero() {
		ts, err := unix.TimeToTimespec(change.ModTime)
		if err != nil {
			return errs.New(errs.InvalidArgument, "the modification time %v cannot be stored", change.ModTime)
		}
		m.mtime = &ts
	}
	loc, err := f.find(path, true)
	if err != nil {
		return err
	}
	defer loc.Close()
	if err := writable(loc); err != nil {
		return err
	}
	if change.Recursive && loc.Stat.IsDir() {
		if err := m.below(ctx, loc); err != nil {
			return err
		}
	}
	return m.apply(loc.Dir, loc.Name, loc.Stat.Mode&unix.S_IFMT)
}

// below changes what is below loc, a directory after its content: the new mode may close it.
func (m *meta) below(ctx context.Context, loc *beneath.Loc) error {
	dir, err := beneath.OpenDir(loc.Dir, loc.Name, true)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(dir) }()
	return beneath.Walk(ctx, dir, &beneath.Visitor{
		Stay: true,
		Visit: func(dir int, e beneath.Entry, path string) error {
			if e.Type() == unix.S_IFDIR {
				return nil
			}
			return beneath.Fail("", path, m.apply(dir, e.Name, e.Type()))
		},
		Leave: func(dir int, name, path string) error {
			return beneath.Fail("", path, m.apply(dir, name, unix.S_IFDIR))
		},
		Unreadable: func(_ int, _, path string, err error) error {
			if errors.Is(err, unix.EXDEV) {
				return nil // a mount is another tree
			}
			return beneath.Fail("", path, err)
		},
	})
}

func (m *meta) apply(dir int, name string, kind uint32) error {
	if m.uid >= 0 || m.gid >= 0 {
		at := name
		if at == "" {
			at = "."
		}
		if err := unix.Fchownat(dir, at, m.uid, m.gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
	}
	if m.mode != nil && kind != unix.S_IFLNK {
		if err := beneath.ChmodAt(dir, name, *m.mode&0o7777); err != nil {
			if errors.Is(err, unix.EOPNOTSUPP) {
				return unix.ELOOP // it has become a link
			}
			return err
		}
	}
	if m.mtime != nil {
		return beneath.SetTimes(-1, dir, name, *m.mtime)
	}
	return nil
}
