// SPDX-License-Identifier: Apache-2.0

package beneath

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/errs"
)

const maxLinks = 40

// maxSteps bounds the directories that one resolution opens; it is far beyond what a real path needs.
const maxSteps = 200_000

// RootSpec says what to open.
type RootSpec struct {
	Dir      string // what is opened; a regular file is allowed for all roots but the first
	Visible  string // the absolute path that the sandbox sees; empty = Dir
	ReadOnly bool
}

// Root is an opened root. It holds a plain descriptor: an os.File would be closed by the garbage collector while the
// number is still in use.
type Root struct {
	fd       int
	name     string   // of a root that is a single file: its name in fd
	visible  []string // components
	dev, ino uint64
	readOnly bool
}

// ReadOnly reports whether nothing below may change.
func (r *Root) ReadOnly() bool { return r.readOnly }

// IsFile reports whether the root is a single file.
func (r *Root) IsFile() bool { return r.name != "" }

// Set is the workspace and the granted paths.
type Set struct {
	roots   []*Root
	nested  bool // a root lies below another one, so that each step must look for it
	openat2 atomic.Bool
}

// Open opens the roots. The first is the one that relative paths start at.
func Open(specs []RootSpec) (*Set, error) {
	s := &Set{}
	for _, spec := range specs {
		r, err := openRoot(spec, len(s.roots) > 0)
		if err != nil {
			_ = s.Close()
			return nil, err
		}
		s.roots = append(s.roots, r)
	}
	for i, a := range s.roots {
		for j, b := range s.roots {
			if i != j && len(b.visible) >= len(a.visible) && hasPrefix(b.visible, a.visible) {
				s.nested = true
			}
		}
	}
	s.openat2.Store(haveOpenat2(s.roots[0].fd))
	return s, nil
}

func openRoot(spec RootSpec, fileAllowed bool) (*Root, error) {
	visible := spec.Visible
	if visible == "" {
		visible = spec.Dir
	}
	if !strings.HasPrefix(visible, "/") {
		return nil, errs.New(errs.InvalidArgument, "root %q is not an absolute path", visible)
	}
	r := &Root{visible: split(visible), readOnly: spec.ReadOnly}
	dir, err := filepath.EvalSymlinks(spec.Dir)
	if err != nil {
		return nil, Fail("open root", spec.Dir, err)
	}
	if fi, err := os.Stat(dir); err != nil {
		return nil, Fail("open root", spec.Dir, err)
	} else if !fi.IsDir() {
		if !fileAllowed {
			return nil, Fail("open root", spec.Dir, unix.ENOTDIR)
		}
		r.name = filepath.Base(dir)
		dir = filepath.Dir(dir)
	}
	if r.fd, err = openat(unix.AT_FDCWD, dir, openPath|unix.O_DIRECTORY, 0); err != nil {
		return nil, Fail("open root", spec.Dir, err)
	}
	var st Stat
	if err := StatAt(r.fd, r.name, &st); err != nil {
		_ = unix.Close(r.fd)
		return nil, Fail("open root", spec.Dir, err)
	}
	r.dev, r.ino = st.Dev, st.Ino
	return r, nil
}

// Close closes the roots. No method may be running, and none may follow.
func (s *Set) Close() error {
	var all []error
	for _, r := range s.roots {
		all = append(all, unix.Close(r.fd))
	}
	s.roots = nil
	return errors.Join(all...)
}

// Loc is where a file is or could be. Close it.
type Loc struct {
	Dir    int    // the opened directory, for descriptor-relative calls only
	Name   string // one component; empty for a root that is a directory
	Root   *Root
	IsRoot bool
	Exists bool
	Stat   Stat // of Name itself, when it exists
	owned  bool
}

// Close closes the directory.
func (l *Loc) Close() {
	if l.owned {
		_ = unix.Close(l.Dir)
		l.owned = false
	}
}

// Resolve finds path: absolute as the sandbox sees it, or relative to the first root. All components but the last must
// be directories that exist. With follow a link in the last component is followed, so that the answer never is one
// (unless it was put there since). A path that does not exist is no error: see [Loc.Exists].
func (s *Set) Resolve(path string, follow bool) (*Loc, error) {
	comps, err := s.components(path)
	if err != nil {
		return nil, err
	}
	root, rest := s.locate(comps)
	if root == nil {
		return nil, errEscapes
	}
	if !s.openat2.Load() || s.nested || root.IsFile() || (len(rest) > 0 && rest[len(rest)-1] == "..") {
		return s.walk(root, rest, follow)
	}
	loc := &Loc{Dir: root.fd, Root: root}
	switch n := len(rest); {
	case n == 0:
		loc.IsRoot = true
	case n == 1:
		loc.Name = rest[0]
	default:
		loc.Name = rest[n-1]
		fd, err := openBeneath(root.fd, strings.Join(rest[:n-1], "/"))
		switch {
		case err == nil:
			loc.Dir, loc.owned = fd, true
		case errors.Is(err, unix.EXDEV), errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENAMETOOLONG),
			errors.Is(err, unix.ELOOP):
			return s.walk(root, rest, follow)
		default:
			return nil, err
		}
	}
	if err := loc.stat(); err != nil {
		loc.Close()
		return nil, err
	}
	if follow && loc.Exists && loc.Stat.IsLink() {
		loc.Close()
		return s.walk(root, rest, follow)
	}
	return loc, nil
}

// stat fills Exists and Stat.
func (l *Loc) stat() error {
	err := StatAt(l.Dir, l.Name, &l.Stat)
	l.Exists = err == nil
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

var errEscapes = errs.New(errs.PathEscapes, "the path leads outside the workspace and the granted paths").
	WithHint("use a path inside the workspace, or grant the other path in the configuration")

var errTooManyLinks = errs.New(errs.InvalidArgument, "more than %d symbolic links in the path", maxLinks)

// components splits path, absolute as the sandbox sees it.
func (s *Set) components(path string) ([]string, error) {
	switch {
	case path == "":
		return nil, errs.New(errs.InvalidArgument, "the path is empty").WithHint(`"." is the workspace`)
	case strings.IndexByte(path, 0) >= 0:
		return nil, errs.New(errs.InvalidArgument, "the path holds a NUL byte")
	case path[0] == '/':
		return split(path), nil
	}
	own := s.roots[0].visible
	comps := make([]string, len(own), len(own)+8)
	copy(comps, own)
	return appendSplit(comps, path), nil
}

// locate finds the root with the longest visible path that comps starts with. This only chooses a descriptor to start
// from; what is reached from there is for the walk to see.
func (s *Set) locate(comps []string) (*Root, []string) {
	var best *Root
	for _, r := range s.roots {
		if (best == nil || len(r.visible) > len(best.visible)) && hasPrefix(comps, r.visible) {
			best = r
		}
	}
	if best == nil {
		return nil, nil
	}
	return best, comps[len(best.visible):]
}

func split(path string) []string { return appendSplit(nil, path) }

// appendSplit drops empty components and ".", which mean nothing, and keeps "..", which does.
func appendSplit(comps []string, path string) []string {
	for c := range strings.SplitSeq(path, "/") {
		if c != "" && c != "." {
			comps = append(comps, c)
		}
	}
	return comps
}

func hasPrefix(comps, prefix []string) bool {
	if len(comps) < len(prefix) {
		return false
	}
	for i, c := range prefix {
		if comps[i] != c {
			return false
		}
	}
	return true
}
