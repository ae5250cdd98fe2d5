// SPDX-License-Identifier: Apache-2.0

package fsys

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/internal/beneath"
	"github.com/berth-dev/berth/sdk/guest/internal/content"
)

// Placer is content that whoever has it can write to a file without its coming through here.
type Placer interface {
	io.Reader
	// Place is called once, before the first Read, with an empty file that is open for writing, or -1 when there is none
	// that could be given away. When placed is true, the content was written and has that size, and nobody holds the file
	// open for writing any more: else it could not be executed. When it is false, the content is to be read.
	Place(fd int) (size int64, placed bool, err error)
}

// writing is a write under way.
type writing struct {
	f    *FS
	path string
	opts driver.WriteOptions
	loc  *beneath.Loc
	fd   int
	temp string // the name it has for now; empty = written in place
	made bool   // the file was made under its own name
	mode uint32 // 0 = leave
	own  *beneath.Stat
	size int64
	sum  [sha256.Size]byte
}

// Write writes a file from r. The result has no hash of what a [Placer] has placed.
func (f *FS) Write(ctx context.Context, path string, opts driver.WriteOptions, r io.Reader) (driver.WriteResult, error) {
	w := &writing{f: f, path: path, opts: opts, fd: -1}
	res, err := w.run(ctx, r)
	if err != nil {
		return driver.WriteResult{}, beneath.Fail("files.write", path, err)
	}
	return res, nil
}

func (w *writing) run(ctx context.Context, r io.Reader) (driver.WriteResult, error) {
	var res driver.WriteResult
	if w.opts.Append && w.opts.Exclusive {
		return res, errs.New(errs.InvalidArgument, "append and exclusive exclude each other")
	}
	if ctx.Err() != nil {
		return res, beneath.Done(ctx)
	}
	if err := w.f.as(w.opts.User, func() error { return retry(w.begin) }); err != nil {
		return res, err
	}
	defer w.loc.Close()
	err := w.copy(ctx, r)
	if err == nil && ctx.Err() != nil {
		err = beneath.Done(ctx)
	}
	end := func() error {
		if err != nil {
			w.abort()
			return err
		}
		var st beneath.Stat
		if err := w.finish(&st); err != nil {
			w.abort()
			return err
		}
		res.Info = w.f.names().info(w.path, -1, "", &st)
		res.SHA256 = w.sum
		e := unix.Close(w.fd)
		w.fd = -1
		return e
	}
	if err := w.f.as(w.opts.User, end); err != nil {
		return driver.WriteResult{}, err
	}
	return res, nil
}

// begin finds the place and opens a file to write to.
func (w *writing) begin() error {
	loc, err := w.f.set.Resolve(w.path, true)
	if w.opts.Parents && is(err, errs.FileNotFound) {
		if err := w.f.mkdirAll(parentOf(w.path), 0o755, nil); err != nil {
			return err
		}
		loc, err = w.f.set.Resolve(w.path, true)
	}
	if err != nil {
		return err
	}
	w.loc = loc
	if err := w.open(); err != nil {
		loc.Close()
		return err
	}
	return nil
}

func (w *writing) open() error {
	loc, st := w.loc, &w.loc.Stat
	if err := writable(loc); err != nil {
		return err
	}
	w.mode = w.opts.Mode & 0o7777
	if !loc.Exists {
		if w.opts.IfVersion != "" {
			return errs.New(errs.VersionMismatch, "the file is gone")
		}
		if w.mode == 0 {
			w.mode = 0o644
		}
		if w.opts.Append {
			return w.openNew()
		}
		return w.openTemp()
	}
	if w.opts.Exclusive {
		return errs.New(errs.FileExists, "the file exists already")
	}
	if err := regular(st); err != nil {
		return err
	}
	if err := sameVersion(st, w.opts.IfVersion); err != nil {
		return err
	}
	if w.opts.Append || w.opts.InPlace || loc.IsRoot {
		return w.openInPlace()
	}
	uid, gid := fileIDs()
	if st.UID != uid || st.GID != gid {
		if uid != 0 {
			return w.openInPlace() // a file of our own could not be given its owner
		}
		w.own = st
	}
	if w.mode == 0 {
		w.mode = st.Perm()
	}
	err := w.openTemp()
	if is(err, errs.PermissionDenied) {
		return w.openInPlace()
	}
	return err
}

func (w *writing) openTemp() (err error) {
	w.temp = beneath.TempName()
	w.fd, err = beneath.OpenAt(w.loc.Dir, w.temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		w.temp = ""
	}
	return err
}

// openNew makes the file under its own name, to be appended to.
func (w *writing) openNew() (err error) {
	w.fd, err = beneath.OpenAt(w.loc.Dir, w.loc.Name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_APPEND, 0o600)
	if errors.Is(err, unix.EEXIST) {
		return unix.ELOOP // somebody was quicker: look again
	}
	w.made = err == nil
	return err
}

func (w *writing) openInPlace() error {
	flags := unix.O_WRONLY
	if w.opts.Append {
		flags |= unix.O_APPEND
	}
	fd, st, err := openRegular(w.loc, flags)
	if err != nil {
		return err
	}
	if err := sameVersion(st, w.opts.IfVersion); err != nil {
		_ = unix.Close(fd)
		return err
	}
	w.fd, w.mode = fd, w.opts.Mode&0o7777
	return nil
}

// finish gives the file its attributes and its name.
func (w *writing) finish(st *beneath.Stat) error {
	if w.temp == "" && !w.made && !w.opts.Append {
		if err := unix.Ftruncate(w.fd, w.size); err != nil {
			return err
		}
	}
	if w.own != nil {
		if err := unix.Fchown(w.fd, int(w.own.UID), int(w.own.GID)); err != nil {
			return err
		}
	}
	if w.mode != 0 {
		if err := unix.Fchmod(w.fd, w.mode); err != nil {
			return err
		}
	}
	if !w.opts.ModTime.IsZero() {
		ts, err := unix.TimeToTimespec(w.opts.ModTime)
		if err != nil {
			return errs.New(errs.InvalidArgument, "the modification time %v cannot be stored", w.opts.ModTime)
		}
		name := w.temp
		if name == "" {
			name = w.loc.Name
		}
		if err := beneath.SetTimes(w.fd, w.loc.Dir, name, ts); err != nil {
			return err
		}
	}
	if w.temp != "" {
		if err := w.rename(); err != nil {
			return err
		}
	}
	return beneath.StatAt(w.fd, "", st)
}

func (w *writing) rename() error {
	w.f.commit.Lock()
	defer w.f.commit.Unlock()
	dir, name := w.loc.Dir, w.loc.Name
	if w.opts.IfVersion != "" {
		var now beneath.Stat
		if err := beneath.StatAt(dir, name, &now); err != nil {
			return err
		}
		if err := sameVersion(&now, w.opts.IfVersion); err != nil {
			return err
		}
	}
	var err error
	if w.opts.Exclusive {
		err = beneath.RenameNew(dir, w.temp, dir, name)
	} else {
		err = unix.Renameat(dir, w.temp, dir, name)
	}
	if err == nil {
		w.temp = ""
	}
	return err
}

// abort leaves nothing behind.
func (w *writing) abort() {
	if w.fd >= 0 {
		_ = unix.Close(w.fd)
		w.fd = -1
	}
	switch {
	case w.temp != "":
		_ = unix.Unlinkat(w.loc.Dir, w.temp, 0)
	case w.made:
		_ = unix.Unlinkat(w.loc.Dir, w.loc.Name, 0)
	}
}

// copy writes the content and hashes it, or has it written.
func (w *writing) copy(ctx context.Context, r io.Reader) (err error) {
	if p, ok := r.(Placer); ok {
		fd := -1
		if w.temp != "" {
			fd = w.fd
		}
		size, placed, err := p.Place(fd)
		if err != nil {
			return err
		}
		if placed {
			w.size = size
			return w.complete()
		}
	}
	w.size, w.sum, err = content.Copy(ctx, r, func(b []byte) error { return beneath.WriteAll(w.fd, b) })
	return err
}

// complete looks whether everything is in the file that somebody else says to have written.
func (w *writing) complete() error {
	var st beneath.Stat
	if err := beneath.StatAt(w.fd, "", &st); err != nil {
		return err
	}
	if st.Size != uint64(w.size) {
		return errs.New(errs.ExecTransport, "the file has %d bytes, not the %d that were written", st.Size, w.size)
	}
	return nil
}
