// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

const (
	maxLinks = 40
	maxName  = 255 // bytes
)

// tree is a file system in memory.
type tree struct {
	mu      sync.Mutex
	root    *node                // guarded by mu
	gen     uint64               // guarded by mu; counts changes
	watch   map[int]chan<- event // guarded by mu
	watched int                  // guarded by mu
}

type event struct {
	kind driver.FileEventKind
	path string
}

type node struct {
	Kind     driver.FileType
	Mode     uint32
	User     string
	Group    string
	Time     time.Time
	Data     []byte           `json:",omitempty"`
	Target   string           `json:",omitempty"`
	Children map[string]*node `json:",omitempty"`
	Gen      uint64           // of the last change
}

func newTree() *tree { return &tree{root: directory()} }

func directory() *node {
	return &node{Kind: driver.TypeDirectory, Mode: 0o755, User: "root", Group: "root", Time: time.Now(), Children: map[string]*node{}}
}

func (n *node) clone() *node {
	c := *n
	c.Children = nil
	if n.Children != nil {
		c.Children = make(map[string]*node, len(n.Children))
		for name, child := range n.Children {
			c.Children[name] = child.clone()
		}
	}
	return &c
}

func (t *tree) clone() *tree {
	t.mu.Lock()
	defer t.mu.Unlock()
	return &tree{root: t.root.clone(), gen: t.gen}
}

func (t *tree) bytes() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	var sum func(*node) uint64
	sum = func(n *node) uint64 {
		total := uint64(len(n.Data))
		for _, c := range n.Children {
			total += sum(c)
		}
		return total
	}
	return sum(t.root)
}

// place is where a path leads: the directory that holds it, and the node, nil when it does not exist.
type place struct {
	path string // absolute, without links but perhaps the last
	dir  *node
	name string
	node *node
}

// findLocked walks an absolute path. The last link is followed if follow is set.
func (t *tree) findLocked(p string, follow bool) (place, error) {
	return t.walkLocked(p, follow, 0)
}

func (t *tree) walkLocked(p string, follow bool, links int) (place, error) {
	p = path.Clean(p)
	at := place{path: "/", node: t.root}
	if p == "/" {
		return at, nil
	}
	parts := strings.Split(p[1:], "/")
	for i, name := range parts {
		if at.node == nil {
			return at, fileError(errs.FileNotFound, at.path, "no such directory")
		}
		if at.node.Kind != driver.TypeDirectory {
			return at, fileError(errs.NotDirectory, at.path, "not a directory")
		}
		last := i == len(parts)-1
		next := place{path: path.Join(at.path, name), dir: at.node, name: name, node: at.node.Children[name]}
		if next.node != nil && next.node.Kind == driver.TypeSymlink && (!last || follow) {
			if links >= maxLinks {
				return next, fileError(errs.InvalidArgument, next.path, "too many symbolic links")
			}
			to := next.node.Target
			if !path.IsAbs(to) {
				to = path.Join(at.path, to)
			}
			return t.walkLocked(path.Join(append([]string{to}, parts[i+1:]...)...), follow, links+1)
		}
		at = next
	}
	return at, nil
}

// touchLocked counts a change and tells the watchers. A watcher that is behind gets an overflow instead.
func (t *tree) touchLocked(n *node, kind driver.FileEventKind, p string) {
	t.gen++
	if n != nil {
		n.Gen = t.gen
	}
	for _, c := range t.watch {
		select {
		case c <- event{kind, p}:
		default:
		}
	}
}

// put makes a node at a path, in place of what is there. Directories on the way are made if parents is set.
func (t *tree) putLocked(p string, n *node, parents bool) error {
	at, err := t.findLocked(p, false)
	if err != nil && parents && at.node == nil && at.dir != nil {
		if err := t.putLocked(at.path, directory(), true); err != nil {
			return err
		}
		return t.putLocked(p, n, parents)
	}
	if err != nil {
		return err
	}
	if at.dir == nil {
		return fileError(errs.IsDirectory, p, "the root cannot be replaced")
	}
	kind := driver.FileCreated
	if at.node != nil {
		kind = driver.FileChanged
	}
	at.dir.Children[at.name] = n
	t.touchLocked(n, kind, at.path)
	return nil
}

// append adds to a file, for the shell.
func (t *tree) write(p string, data []byte, appendTo bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, err := t.findLocked(p, true)
	if err != nil {
		return err
	}
	if at.node != nil && at.node.Kind == driver.TypeDirectory {
		return fileError(errs.IsDirectory, p, "is a directory")
	}
	n := &node{Kind: driver.TypeRegular, Mode: 0o644, User: "root", Group: "root", Time: time.Now()}
	if at.node != nil {
		n.Mode = at.node.Mode
		if appendTo {
			n.Data = at.node.Data
		}
	}
	n.Data = append(slices.Clip(n.Data), data...)
	return t.putLocked(at.path, n, false)
}

func (t *tree) read(p string) ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, err := t.findLocked(p, true)
	switch {
	case err != nil:
		return nil, err
	case at.node == nil:
		return nil, fileError(errs.FileNotFound, p, "no such file")
	case at.node.Kind == driver.TypeDirectory:
		return nil, fileError(errs.IsDirectory, p, "is a directory")
	}
	return at.node.Data, nil
}

// names are the sorted names in a directory.
func (n *node) names() []string { return slices.Sorted(maps.Keys(n.Children)) }

func (t *tree) subscribe(c chan<- event) (cancel func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.watch == nil {
		t.watch = map[int]chan<- event{}
	}
	t.watched++
	id := t.watched
	t.watch[id] = c
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.watch, id)
	}
}

func fileError(code errs.Code, p, what string) error {
	return errs.New(code, "%s", what).With("path", p)
}
