// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/internal/beneath"
)

// maxOpenDirs bounds the directory descriptors of an import.
const maxOpenDirs = 64

// node is a directory of the destination. Its descriptor may be closed at any time while it is not pinned.
type node struct {
	parent *node
	name   string
	fd     int // -1 = closed
	pins   atomic.Int32
	attrs  *attrs // set at the end; nil = as it is
}

func (n *node) pin()   { n.pins.Add(1) }
func (n *node) unpin() { n.pins.Add(-1) }

// key is a name in a directory. Paths are not stored: below a deep directory they would add up to the square of its
// depth.
type key struct {
	parent *node
	name   string
}

// dirs are the directories that the archive has named, in the order of their first use. Only the reader calls it.
type dirs struct {
	top      *node
	known    map[key]*node
	order    []*node
	opened   []*node // oldest first, without top
	last     *node   // what lastPath leads to
	lastPath string
}

func (d *dirs) init(top int) {
	d.top = &node{fd: top}
	d.known = map[key]*node{}
}

// path is for messages.
func (n *node) path() string {
	var names []string
	for ; n.parent != nil; n = n.parent {
		names = append(names, n.name)
	}
	slices.Reverse(names)
	return strings.Join(names, "/")
}

// open makes sure that n has a descriptor: it is found again from the nearest ancestor that has one, and no step
// follows a link.
func (d *dirs) open(n *node) error {
	if n.fd >= 0 {
		return nil
	}
	var chain []*node
	m := n
	for ; m.fd < 0; m = m.parent {
		chain = append(chain, m)
	}
	for _, c := range slices.Backward(chain) {
		fd, err := openDir(c.parent.fd, c.name)
		if err != nil {
			return err
		}
		// The parent must stay open for this step only.
		d.keepOpen(c, fd)
	}
	return nil
}

func openDir(dir int, name string) (int, error) {
	return beneath.OpenAt(dir, name, openDirFlags, 0)
}

// keepOpen records the descriptor and closes the oldest ones that nobody needs.
func (d *dirs) keepOpen(n *node, fd int) {
	n.fd = fd
	d.opened = append(d.opened, n)
	for tries := len(d.opened); len(d.opened) > maxOpenDirs && tries > 0; tries-- {
		old := d.opened[0]
		d.opened = d.opened[1:]
		if old.pins.Load() > 0 || old == n || old == d.last {
			d.opened = append(d.opened, old)
			continue
		}
		_ = unix.Close(old.fd)
		old.fd = -1
	}
}

// find gives the directory path and makes what is missing.
func (d *dirs) find(im *importer, path string) (*node, error) {
	n := d.top
	if path == "" {
		return n, nil
	}
	if d.last != nil && d.lastPath == path {
		return d.last, nil
	}
	for name := range strings.SplitSeq(path, "/") {
		next := d.known[key{n, name}]
		if next == nil {
			if im.named(n, name) {
				return nil, invalid("the member is below %q, which is no directory", join(n.path(), name))
			}
			if err := d.open(n); err != nil {
				return nil, err
			}
			var err error
			if next, err = d.make(im, n, name, false); err != nil {
				return nil, err
			}
		}
		n = next
	}
	d.last, d.lastPath = n, path
	return n, nil
}

// make makes the directory name in parent, which is open, or takes the one that is there. A file or link in its place
// is replaced when the archive itself names the directory.
func (d *dirs) make(im *importer, parent *node, name string, named bool) (*node, error) {
	if uint64(len(d.order)) >= im.opts.Limits.MaxMembers {
		return nil, errs.New(errs.ArchiveLimit, "the archive holds more than %d directories", im.opts.Limits.MaxMembers).
			WithHint("raise the import's limit if the archive can be trusted")
	}
	mode := uint32(0o755)
	if named {
		mode = 0o700 // until it is complete
	}
	err := unix.Mkdirat(parent.fd, name, mode)
	made := err == nil
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, err
	}
	fd, err := openDir(parent.fd, name)
	if named && !made && (errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)) {
		if err := unix.Unlinkat(parent.fd, name, 0); err != nil {
			return nil, err
		}
		if err := unix.Mkdirat(parent.fd, name, mode); err != nil {
			return nil, err
		}
		made = true
		fd, err = openDir(parent.fd, name)
	}
	if errors.Is(err, unix.ELOOP) {
		err = unix.ENOTDIR
	}
	if err != nil {
		return nil, err
	}
	n := &node{parent: parent, name: name}
	if made && !named {
		if a := im.plain(); a.chown {
			if err := unix.Fchownat(parent.fd, name, int(a.uid), int(a.gid), unix.AT_SYMLINK_NOFOLLOW); err != nil {
				_ = unix.Close(fd)
				return nil, err
			}
		}
	}
	d.known[key{parent, name}] = n
	d.order = append(d.order, n)
	d.keepOpen(n, fd)
	return n, nil
}

// lookup gives the directory path, which must be there.
func (d *dirs) lookup(path string) (*node, error) {
	n := d.top
	if path == "" {
		return n, nil
	}
	for name := range strings.SplitSeq(path, "/") {
		next := d.known[key{n, name}]
		if next == nil {
			if err := d.open(n); err != nil {
				return nil, err
			}
			fd, err := openDir(n.fd, name)
			if err != nil {
				return nil, err
			}
			next = &node{parent: n, name: name}
			d.known[key{n, name}] = next
			d.keepOpen(next, fd)
		}
		n = next
	}
	return n, nil
}

// finish gives the directories their modes, owners and times, the deepest first: a directory may end up closed to us.
func (d *dirs) finish() error {
	for _, n := range slices.Backward(d.order) {
		if n.attrs == nil {
			continue
		}
		if err := d.open(n.parent); err != nil {
			return memberError(n.path(), err)
		}
		if err := setDir(n.parent.fd, n.name, n.attrs); err != nil {
			return memberError(n.path(), err)
		}
	}
	if d.top.attrs != nil {
		if err := setDir(d.top.fd, "", d.top.attrs); err != nil {
			return memberError("./", err)
		}
	}
	return nil
}

func setDir(dir int, name string, a *attrs) error {
	if a.chown {
		if err := chown(dir, name, a); err != nil {
			return err
		}
	}
	if err := beneath.ChmodAt(dir, name, a.mode); err != nil {
		return err
	}
	return beneath.SetTimes(-1, dir, name, a.mtime)
}

func (d *dirs) close() {
	for _, n := range d.opened {
		_ = unix.Close(n.fd)
		n.fd = -1
	}
	d.opened = nil
}
