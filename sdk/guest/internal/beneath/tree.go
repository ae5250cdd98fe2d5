// SPDX-License-Identifier: Apache-2.0

package beneath

import (
	"context"
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Entry is a name in a directory.
type Entry struct {
	Name string
	kind byte // d_type, 0 = not known
}

// Type gives the type bits of st_mode, 0 when the directory does not tell.
func (e Entry) Type() uint32 { return modeOfKind(e.kind) }

// maxOpen bounds the descriptors of one walk.
const maxOpen = 32

// Skip is what [Visitor.Visit] returns to leave out what is below a directory.
var Skip = errors.New("skip") //nolint:revive,staticcheck // no error, as fs.SkipDir is none

// Stop ends a walk without an error.
var Stop = errors.New("stop") //nolint:revive,staticcheck // no error, as fs.SkipAll is none

// Visitor is told of everything in a tree.
type Visitor struct {
	// Visit gets an entry before what is below it. dir is its directory's descriptor, path relative to the top.
	Visit func(dir int, e Entry, path string) error
	// Leave gets a directory after all that is below it. Optional.
	Leave func(dir int, name, path string) error
	// Unreadable gets a directory that cannot be opened or read; EXDEV means that it is a mount point and Stay is set.
	Unreadable func(dir int, name, path string, err error) error
	// Keep leaves out entries before they take memory. Optional.
	Keep func(dir int, e Entry, path string) bool
	// Sorted gives each directory in byte order.
	Sorted bool
	// Stay leaves mounts alone.
	Stay bool
	// Left tells how many entries are still wanted, so that a huge directory need not be held whole. Optional.
	Left func() int
}

type frame struct {
	fd       int // -1 = closed for now
	dev, ino uint64
	name     string
	entries  []Entry
	pathLen  int // of the directory in the path, with its slash
}

type treeWalk struct {
	v      *Visitor
	top    int
	frames []*frame
	open   int
	buf    []byte
	path   []byte
}

// Walk goes through the tree below the opened directory top, depth first. Any depth needs a bounded number of
// descriptors: those of the upper directories are closed, and found again by ".." only when it is the same directory
// by number, else from the top.
func Walk(ctx context.Context, top int, v *Visitor) error {
	w := &treeWalk{v: v, top: top, buf: make([]byte, 32<<10)}
	defer func() {
		for _, f := range w.frames {
			w.close(f)
		}
	}()
	fd, err := OpenDir(top, "", false)
	if err != nil {
		return err
	}
	if err := w.push(fd, ""); err != nil {
		return err
	}
	err = w.run(ctx)
	if errors.Is(err, Stop) {
		return nil
	}
	return err
}

func (w *treeWalk) run(ctx context.Context) error {
	for n := 0; ; n++ {
		if n&63 == 0 && ctx.Err() != nil {
			return Done(ctx)
		}
		f := w.frames[len(w.frames)-1]
		w.path = w.path[:f.pathLen]
		if len(f.entries) == 0 {
			if len(w.frames) == 1 {
				return nil
			}
			if err := w.pop(); err != nil {
				return err
			}
			continue
		}
		e := f.entries[0]
		f.entries = f.entries[1:]
		w.path = append(w.path, e.Name...)
		path := string(w.path)
		mode := e.Type()
		if mode == 0 {
			var st Stat
			if err := StatAt(f.fd, e.Name, &st); errors.Is(err, unix.ENOENT) {
				continue
			} else if err == nil {
				mode = st.Mode & unix.S_IFMT
				e.kind = byte(mode >> 12)
			}
		}
		if err := w.v.Visit(f.fd, e, path); err != nil {
			if errors.Is(err, Skip) {
				continue
			}
			return err
		}
		if mode != unix.S_IFDIR {
			continue
		}
		fd, err := OpenDir(f.fd, e.Name, w.v.Stay)
		if err == nil {
			err = w.push(fd, e.Name)
		}
		if err != nil {
			if errors.Is(err, unix.ENOENT) {
				continue // gone meanwhile
			}
			if err := w.v.Unreadable(f.fd, e.Name, path, err); err != nil {
				return err
			}
		}
	}
}

// push takes fd over.
func (w *treeWalk) push(fd int, name string) error {
	f := &frame{fd: fd, name: name}
	if len(w.frames) > 0 {
		w.path = append(w.path, '/')
	}
	f.pathLen = len(w.path)
	var st Stat
	err := StatAt(fd, "", &st)
	if err == nil {
		f.dev, f.ino = st.Dev, st.Ino
		f.entries, err = ReadDir(fd, w.buf, nil)
	}
	if err != nil {
		_ = unix.Close(fd)
		w.path = w.path[:max(f.pathLen-1, 0)]
		return err
	}
	w.filter(f)
	w.frames = append(w.frames, f)
	if w.open++; w.open > maxOpen {
		w.close(w.frames[len(w.frames)-maxOpen-1])
	}
	return nil
}

func (w *treeWalk) filter(f *frame) {
	if w.v.Keep != nil {
		prefix := string(w.path)
		f.entries = slices.DeleteFunc(f.entries, func(e Entry) bool { return !w.v.Keep(f.fd, e, prefix+e.Name) })
	}
	if w.v.Sorted {
		slices.SortFunc(f.entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	}
	if w.v.Left != nil {
		if n := w.v.Left(); n < len(f.entries) {
			f.entries = slices.Clone(f.entries[:n])
		}
	}
}

func (w *treeWalk) close(f *frame) {
	if f.fd >= 0 {
		_ = unix.Close(f.fd)
		f.fd = -1
		w.open--
	}
}

// pop leaves the last directory.
func (w *treeWalk) pop() error {
	f := w.frames[len(w.frames)-1]
	up := w.frames[len(w.frames)-2]
	if up.fd < 0 {
		fd, err := w.reopen(f, up)
		if err != nil {
			return err
		}
		up.fd = fd
		w.open++
	}
	w.frames = w.frames[:len(w.frames)-1]
	w.close(f)
	if w.v.Leave == nil {
		return nil
	}
	return w.v.Leave(up.fd, f.name, string(w.path[:f.pathLen-1]))
}

func (w *treeWalk) reopen(f, up *frame) (int, error) {
	is := func(fd int) bool {
		var st Stat
		return StatAt(fd, "", &st) == nil && st.Dev == up.dev && st.Ino == up.ino
	}
	fd, err := openat(f.fd, "..", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err == nil {
		if is(fd) {
			return fd, nil
		}
		_ = unix.Close(fd)
	}
	// Moved while it was walked: take the way from the top.
	if fd, err = OpenDir(w.top, "", false); err != nil {
		return -1, err
	}
	for _, g := range w.frames[1 : len(w.frames)-1] {
		next, err := OpenDir(fd, g.name, w.v.Stay)
		_ = unix.Close(fd)
		if err != nil {
			return -1, err
		}
		fd = next
	}
	if !is(fd) {
		_ = unix.Close(fd)
		return -1, unix.ESTALE
	}
	return fd, nil
}

// RemoveTree removes what is below the opened directory dir. It never follows a link or enters a mount: the first
// mount point that is in the way is the error, EBUSY, after everything else is gone.
func RemoveTree(ctx context.Context, dir int) error {
	var first error
	keep := func(err error) {
		if err != nil && first == nil && !errors.Is(err, unix.ENOENT) {
			first = err
		}
	}
	err := Walk(ctx, dir, &Visitor{
		Stay: true,
		Visit: func(dir int, e Entry, _ string) error {
			if e.Type() != unix.S_IFDIR {
				keep(unix.Unlinkat(dir, e.Name, 0))
			}
			return nil
		},
		Leave: func(dir int, name, _ string) error {
			keep(unix.Unlinkat(dir, name, unix.AT_REMOVEDIR))
			return nil
		},
		Unreadable: func(dir int, name, _ string, err error) error {
			if errors.Is(err, unix.EXDEV) {
				keep(unix.EBUSY)
				return nil
			}
			// An empty directory that may not be read can still be removed.
			if e := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR); e != nil {
				keep(err)
			}
			return nil
		},
	})
	if err != nil {
		return err
	}
	return first
}

// RemoveAll removes name in dir and what is below it.
func RemoveAll(ctx context.Context, dir int, name string) error {
	err := unix.Unlinkat(dir, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	var st Stat
	if e := StatAt(dir, name, &st); e != nil || !st.IsDir() {
		return err
	}
	fd, err := OpenDir(dir, name, true)
	if errors.Is(err, unix.EXDEV) {
		return unix.EBUSY
	}
	if err != nil {
		if unix.Unlinkat(dir, name, unix.AT_REMOVEDIR) == nil {
			return nil
		}
		return err
	}
	err = RemoveTree(ctx, fd)
	_ = unix.Close(fd)
	// A process that goes on writing may have put something there meanwhile.
	if e := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR); err == nil && !errors.Is(e, unix.ENOENT) {
		err = e
	}
	return err
}
