// SPDX-License-Identifier: Apache-2.0

// Package index says what a snapshot holds: its entries in the order of a walk, and of each what a file system knows of
// it and which chunks its content is.
//
// The entries are cut into pages, which are chunks themselves; where a page ends is decided by the paths alone, so that a
// change in one file leaves the other pages what they were. A root lists the pages. What is read is taken as hostile:
// paths that lead elsewhere, entries out of order, below something that is no directory or given twice, links to nothing,
// and sizes that do not fit are errors. Nothing here reads or writes anything but bytes.
package index

import (
	"fmt"
	"strings"
	"time"

	"github.com/berth-dev/berth/core/snapshot/chunks"
)

// Kind is the kind of an entry.
type Kind uint8

// The kinds. Sockets, FIFOs and devices are left out of snapshots.
const (
	Dir Kind = iota + 1
	File
	Symlink
	HardLink // Target is the path of an entry before it
)

// Entry is one file, directory or link.
type Entry struct {
	Path        string // relative, of any bytes; empty = the top directory
	Kind        Kind
	Mode        uint32 // 07777
	UID, GID    uint32
	User, Group string // empty = the number has no name
	ModTime     time.Time
	Size        int64  // of a file
	Target      string // of a link
	// Linked says of a file or symbolic link that hard links to it follow.
	Linked bool
	// Sparse is where a file with holes has data; nil = everywhere.
	Sparse []Extent
	Chunks []chunks.Hash // see [Entry.Pieces]
	// Seen stands for the version that the file had in its sandbox when it was read; 0 = not known.
	Seen uint64
}

// Extent is a stretch of data. Extents are in order, do not touch, and lie within the file.
type Extent struct{ Off, Size int64 }

// Data is how many bytes the file has besides its holes.
func (e *Entry) Data() (n int64) {
	if e.Kind != File {
		return 0
	}
	if e.Sparse == nil {
		return e.Size
	}
	for _, x := range e.Sparse {
		n += x.Size
	}
	return n
}

// Pieces gives the sizes of the file's chunks: the data in each window of [chunks.MaxChunk] bytes of the file is one.
// Windows without data have none.
func (e *Entry) Pieces(yield func(size int) bool) {
	if e.Kind != File {
		return
	}
	if e.Sparse == nil {
		for left := e.Size; left > 0; left -= chunks.MaxChunk {
			if !yield(int(min(left, chunks.MaxChunk))) {
				return
			}
		}
		return
	}
	window, size := int64(-1), int64(0)
	for _, x := range e.Sparse {
		for off, left := x.Off, x.Size; left > 0; {
			if w := off / chunks.MaxChunk; w != window {
				if size > 0 && !yield(int(size)) {
					return
				}
				window, size = w, 0
			}
			n := min(left, (window+1)*chunks.MaxChunk-off)
			size, off, left = size+n, off+n, left-n
		}
	}
	if size > 0 {
		yield(int(size))
	}
}

// Same reports whether two entries are the same file in every way that a snapshot keeps; whether links follow counts not.
func (e *Entry) Same(o *Entry) bool { return e.SameContent(o) && e.SameMeta(o) }

// SameContent compares kind and content.
func (e *Entry) SameContent(o *Entry) bool {
	if e.Kind != o.Kind || e.Size != o.Size || e.Target != o.Target || len(e.Chunks) != len(o.Chunks) {
		return false
	}
	for i := range e.Chunks {
		if e.Chunks[i] != o.Chunks[i] {
			return false
		}
	}
	for i := range e.Sparse {
		if len(e.Sparse) != len(o.Sparse) || e.Sparse[i] != o.Sparse[i] {
			return false
		}
	}
	return len(e.Sparse) == len(o.Sparse)
}

// SameMeta compares mode, owner and time.
func (e *Entry) SameMeta(o *Entry) bool {
	return e.Mode == o.Mode && e.UID == o.UID && e.GID == o.GID && e.User == o.User && e.Group == o.Group && e.ModTime.Equal(o.ModTime)
}

// Compare orders paths as a walk meets them: a directory before what is in it, names by their bytes.
func Compare(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		x, y := a[i], b[i]
		if x == y {
			continue
		}
		switch {
		case x == '/':
			return -1
		case y == '/':
			return 1
		case x < y:
			return -1
		}
		return 1
	}
	return len(a) - len(b)
}

// Left is something that a snapshot does not hold, or not as it was.
type Left struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// maxExtents bounds the map of a sparse file.
const maxExtents = 1 << 17

// checker holds the rules for a sequence of entries.
type checker struct {
	any    bool
	last   string
	dirs   []string // directories above and at the last entry, without the top
	linked map[string]bool
}

// next checks an entry against those before it.
func (c *checker) next(e *Entry) error {
	if err := c.place(e); err != nil {
		return fmt.Errorf("entry %q: %w", e.Path, err)
	}
	if err := c.content(e); err != nil {
		return fmt.Errorf("entry %q: %w", e.Path, err)
	}
	c.any, c.last = true, e.Path
	if e.Kind == Dir && e.Path != "" {
		c.dirs = append(c.dirs, e.Path)
	}
	if e.Linked {
		if c.linked == nil {
			c.linked = map[string]bool{}
		}
		c.linked[e.Path] = true
	}
	return nil
}

func (c *checker) place(e *Entry) error {
	if !c.any {
		if e.Path != "" || e.Kind != Dir {
			return fmt.Errorf("the first entry is not the top directory")
		}
		return nil
	}
	if err := CheckPath(e.Path); err != nil {
		return err
	}
	if Compare(c.last, e.Path) >= 0 {
		return fmt.Errorf("it is out of order, or there twice, after %q", c.last)
	}
	parent := ""
	if i := strings.LastIndexByte(e.Path, '/'); i >= 0 {
		parent = e.Path[:i]
	}
	for len(c.dirs) > 0 && c.dirs[len(c.dirs)-1] != parent && !strings.HasPrefix(parent, c.dirs[len(c.dirs)-1]+"/") {
		c.dirs = c.dirs[:len(c.dirs)-1]
	}
	if parent != "" && (len(c.dirs) == 0 || c.dirs[len(c.dirs)-1] != parent) {
		return fmt.Errorf("it is below something that is no directory")
	}
	return nil
}

func (c *checker) content(e *Entry) error {
	switch {
	case e.Mode > 0o7777:
		return fmt.Errorf("its mode is %o", e.Mode)
	case e.Size < 0 || e.Size > 1<<62 || (e.Kind != File && e.Size != 0):
		return fmt.Errorf("its size is %d", e.Size)
	case e.Kind != File && (len(e.Chunks) > 0 || e.Sparse != nil):
		return fmt.Errorf("it has a content and is no file")
	case e.Linked && e.Kind != File && e.Kind != Symlink:
		return fmt.Errorf("there can be no hard links to it")
	case (e.Kind == Symlink || e.Kind == HardLink) && (e.Target == "" || strings.IndexByte(e.Target, 0) >= 0):
		return fmt.Errorf("its target is %q", e.Target)
	case e.Kind == HardLink && !c.linked[e.Target]:
		return fmt.Errorf("it is a hard link to %q, which is not before it", e.Target)
	}
	end := int64(0)
	for i, x := range e.Sparse {
		if x.Size <= 0 || x.Off < end || (i > 0 && x.Off == end) || x.Off > e.Size || x.Size > e.Size-x.Off {
			return fmt.Errorf("its data at byte %d with %d bytes does not fit", x.Off, x.Size)
		}
		end = x.Off + x.Size
	}
	n := 0
	for range e.Pieces {
		if n++; n > len(e.Chunks) {
			break
		}
	}
	if n != len(e.Chunks) {
		return fmt.Errorf("it has %d chunks, which does not fit its size", len(e.Chunks))
	}
	return nil
}

// CheckPath refuses what is not the clean, relative path of something below the top.
func CheckPath(p string) error {
	switch {
	case p == "":
		return fmt.Errorf("the path is empty")
	case strings.IndexByte(p, 0) >= 0:
		return fmt.Errorf("the path holds a NUL byte")
	case len(p) > 1<<16:
		return fmt.Errorf("the path has %d bytes", len(p))
	}
	for name := range strings.SplitSeq(p, "/") {
		if name == "" || name == "." || name == ".." {
			return fmt.Errorf("the path is not a clean, relative one")
		}
	}
	return nil
}
