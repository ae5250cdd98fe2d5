// SPDX-License-Identifier: Apache-2.0

package beneath

import (
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// walker resolves one path component by component.
type walker struct {
	set   *Set
	root  *Root
	fd    int // the directory reached so far
	owned bool
	names []string // from root to fd; none of them is a link
	links int
	steps int
}

func (s *Set) walk(root *Root, todo []string, follow bool) (*Loc, error) {
	w := &walker{set: s, root: root, fd: root.fd}
	name, err := w.run(slices.Clone(todo), follow)
	if err != nil {
		w.drop()
		return nil, err
	}
	loc := &Loc{Dir: w.fd, Name: name, Root: w.root, owned: w.owned, IsRoot: name == "" || w.root.IsFile()}
	if err := loc.stat(); err != nil {
		loc.Close()
		return nil, err
	}
	return loc, nil
}

// run goes through todo and gives the name in the last directory; empty for a root.
func (w *walker) run(todo []string, follow bool) (string, error) {
	for len(todo) > 0 {
		c := todo[0]
		todo = todo[1:]
		if c == ".." {
			rest, err := w.up(todo)
			if err != nil {
				return "", err
			}
			todo = rest
			continue
		}
		if r := w.rootAt(c); r != nil {
			w.jump(r)
			continue
		}
		if w.root.IsFile() {
			return "", unix.ENOTDIR
		}
		if len(todo) == 0 && !follow {
			return c, nil
		}
		if len(todo) > 0 {
			fd, err := w.open(c)
			if err == nil {
				w.drop()
				w.fd, w.owned = fd, true
				w.names = append(w.names, c)
				if r := w.rootIs(fd); r != nil {
					w.jump(r)
				}
				continue
			}
			if !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ELOOP) {
				return "", err
			}
		}
		target, err := ReadLink(w.fd, c)
		switch {
		case err == nil:
		case len(todo) == 0 && (errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT)):
			return c, nil
		case errors.Is(err, unix.EINVAL):
			return "", unix.ENOTDIR
		default:
			return "", err
		}
		if todo, err = w.follow(target, todo); err != nil {
			return "", err
		}
	}
	if w.root.IsFile() {
		return w.root.name, nil
	}
	if len(w.names) == 0 {
		return "", nil
	}
	// The path ended in "..": name the directory in its parent.
	last := w.names[len(w.names)-1]
	return last, w.again(w.names[:len(w.names)-1])
}

// open opens the directory c and never a link.
func (w *walker) open(c string) (int, error) {
	if w.steps++; w.steps > maxSteps {
		return -1, unix.ENAMETOOLONG
	}
	return openat(w.fd, c, openPath|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

func (w *walker) drop() {
	if w.owned {
		_ = unix.Close(w.fd)
	}
	w.owned = false
}

// jump starts again at a root.
func (w *walker) jump(r *Root) {
	w.drop()
	w.root, w.fd, w.names = r, r.fd, nil
}

// again walks from the root to names, which were seen to be directories.
func (w *walker) again(names []string) error {
	w.jump(w.root)
	for _, c := range names {
		fd, err := w.open(c)
		if err != nil {
			return err
		}
		w.drop()
		w.fd, w.owned = fd, true
	}
	w.names = slices.Clone(names)
	return nil
}

// up does "..": the directory above is found from the root again and not by its name "..", which a racing rename could
// make lead elsewhere. Above a root only another root is left.
func (w *walker) up(todo []string) ([]string, error) {
	if n := len(w.names); n > 0 {
		return todo, w.again(w.names[:n-1])
	}
	above := w.root.visible
	todo = append([]string{".."}, todo...)
	for len(todo) > 0 && todo[0] == ".." {
		above = above[:max(len(above)-1, 0)]
		todo = todo[1:]
	}
	return w.absolute(slices.Concat(above, todo))
}

// absolute starts at the root that comps leads to.
func (w *walker) absolute(comps []string) ([]string, error) {
	r, rest := w.set.locate(comps)
	if r == nil {
		return nil, errEscapes
	}
	w.jump(r)
	return rest, nil
}

func (w *walker) follow(target string, todo []string) ([]string, error) {
	if w.links++; w.links > maxLinks {
		return nil, errTooManyLinks
	}
	if target == "" {
		return nil, unix.ENOENT
	}
	comps := append(split(target), todo...)
	if strings.HasPrefix(target, "/") {
		return w.absolute(comps)
	}
	return comps, nil
}

// rootAt finds a nested root by where it is seen.
func (w *walker) rootAt(c string) *Root {
	if !w.set.nested {
		return nil
	}
	here := slices.Concat(w.root.visible, w.names, []string{c})
	for _, r := range w.set.roots {
		if r != w.root && slices.Equal(r.visible, here) {
			return r
		}
	}
	return nil
}

// rootIs finds a nested root by what it is, should it have been reached by another name.
func (w *walker) rootIs(fd int) *Root {
	if !w.set.nested {
		return nil
	}
	var st Stat
	if StatAt(fd, "", &st) != nil {
		return nil
	}
	for _, r := range w.set.roots {
		if r != w.root && !r.IsFile() && r.dev == st.Dev && r.ino == st.Ino {
			return r
		}
	}
	return nil
}
