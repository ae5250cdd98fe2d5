// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"archive/tar"
	"errors"

	"golang.org/x/sys/unix"
)

// attrs are what a file gets besides its content.
type attrs struct {
	mode     uint32
	uid, gid uint32
	chown    bool
	mtime    unix.Timespec
}

func (im *importer) attrs(h *tar.Header) attrs {
	a := im.plain()
	a.mode = uint32(h.Mode) & 0o777
	if h.Typeflag == tar.TypeDir {
		a.mode = uint32(h.Mode) & 0o3777
	}
	var err error
	if a.mtime, err = unix.TimeToTimespec(h.ModTime); err != nil {
		a.mtime = unix.Timespec{}
	}
	if !im.root {
		return a
	}
	if im.opts.Owner == nil {
		a.uid = im.id(h.Uname, h.Uid, im.own[0], IDs.UserID)
		a.chown = a.chown || a.uid != im.own[0]
	}
	if im.opts.Group == nil {
		a.gid = im.id(h.Gname, h.Gid, im.own[1], IDs.GroupID)
		a.chown = a.chown || a.gid != im.own[1]
	}
	return a
}

// plain are the attributes of a file that the archive says nothing about.
func (im *importer) plain() attrs {
	a := attrs{uid: im.own[0], gid: im.own[1]}
	if im.opts.Owner != nil {
		a.uid = *im.opts.Owner
		a.chown = a.chown || a.uid != im.own[0] || im.root
	}
	if im.opts.Group != nil {
		a.gid = *im.opts.Group
		a.chown = a.chown || a.gid != im.own[1] || im.root
	}
	return a
}

// id finds an owner: by name, by number when the archive has no name, and the process's own when the name is unknown
// here.
func (im *importer) id(name string, number int, own uint32, lookup func(IDs, string) (uint32, bool)) uint32 {
	if name != "" && im.opts.IDs != nil {
		if id, ok := lookup(im.opts.IDs, name); ok {
			return id
		}
		return own
	}
	if number < 0 || number >= 1<<32-1 {
		return own
	}
	return uint32(number)
}

// chown ignores an owner that this user namespace cannot express: the archive may come from elsewhere.
func chown(dir int, name string, a *attrs) error {
	if name == "" {
		name = "."
	}
	err := unix.Fchownat(dir, name, int(a.uid), int(a.gid), unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.EINVAL) {
		return nil
	}
	return err
}
