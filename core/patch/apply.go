// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// MaxFileBytes is the largest file that is patched. A larger one is refused: it is data, not text.
const MaxFileBytes = 32 << 20

// File is a file as it was read.
type File struct {
	Content []byte
	Version string // changes with the content
	// InPlace files are written into and not replaced: links, and files with several names.
	InPlace bool
	Mode    uint32 // 0 = unknown
}

// ErrNotExist is what [Tree.Read] and [Tree.Remove] answer for a path that is not there.
var ErrNotExist = errors.New("no such file")

// ErrChanged is what [Tree] answers when a file has another version than the one asked for.
var ErrChanged = errors.New("changed by somebody else meanwhile")

// Tree is where a patch is applied.
type Tree interface {
	// Read gives a regular file; [ErrNotExist] when the path is free.
	Read(ctx context.Context, path string) (*File, error)
	// Write replaces the file's content atomically and keeps its mode, or makes the file (old = nil) with its
	// directories, failing when the path is taken. It returns the new version. An old without a version is not checked,
	// and a file that is missing is made again with its mode.
	Write(ctx context.Context, path string, content []byte, old *File) (version string, err error)
	// Move renames a file, making directories, failing when the target is taken.
	Move(ctx context.Context, from, to string) error
	// Remove removes a file of that version.
	Remove(ctx context.Context, path string, version string) error
}

// Change is what was done to one file.
type Change struct {
	Op             Op
	Path           string
	MoveTo         string
	Added, Removed int // lines
	Notes          []Note
}

// Result lists the changes in the patch's order.
type Result struct{ Changes []Change }

// Apply applies a patch to a tree: everything or nothing. Every failure that can be known before the first write is in
// the joined error. When a write fails, the earlier ones are undone; if even that fails the error says which files are
// as the patch wants them.
func Apply(ctx context.Context, tree Tree, p *Patch) (*Result, error) {
	s := &stage{tree: tree, files: map[string]*staged{}}
	var errs []error
	for i := range p.Sections {
		if err := s.section(ctx, &p.Sections[i]); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if err := s.commit(ctx); err != nil {
		return nil, err
	}
	return &s.result, nil
}

// staged is a file as the patch leaves it.
type staged struct {
	path    string
	old     *File // nil = was not there
	content []byte
	gone    bool
	source  *staged // moved from there, content and mode
}

type stage struct {
	tree   Tree
	files  map[string]*staged
	order  []*staged
	result Result
}

func (s *stage) load(ctx context.Context, path string) (*staged, error) {
	if f, ok := s.files[path]; ok {
		return f, nil
	}
	old, err := s.tree.Read(ctx, path)
	f := &staged{path: path, old: old}
	switch {
	case errors.Is(err, ErrNotExist):
		f.old, f.gone = nil, true
	case err != nil:
		return nil, err
	default:
		f.content = old.Content
	}
	s.files[path] = f
	s.order = append(s.order, f)
	return f, nil
}

func (s *stage) section(ctx context.Context, sec *Section) error {
	fail := func(kind Kind, err error, format string, args ...any) error {
		return &Error{Kind: kind, Path: sec.Path, PatchLine: sec.At, Message: fmt.Sprintf(format, args...), Err: err}
	}
	f, err := s.load(ctx, sec.Path)
	if err != nil {
		return fail(Access, err, "read")
	}
	change := Change{Op: sec.Op, Path: sec.Path, MoveTo: sec.MoveTo}
	switch {
	case sec.Op == OpAdd && !f.gone:
		return fail(Conflict, nil, "the file exists already: update it, or delete it first in the same patch")
	case sec.Op == OpAdd:
		f.gone = false
		f.content = f.content[:0:0]
		for _, l := range sec.Lines {
			f.content = append(append(f.content, l...), '\n')
		}
		change.Added = len(sec.Lines)
	case f.gone:
		return fail(Conflict, nil, "there is no such file")
	case sec.Op == OpDelete:
		f.gone = true
		change.Removed = len(split(f.content).lines)
	default:
		content, notes, err := Update(f.content, sec.Hunks)
		if err != nil {
			return withPath(err, sec.Path)
		}
		change.Notes = notes
		for _, h := range sec.Hunks {
			for _, l := range h.Lines {
				switch l.Kind {
				case Insert:
					change.Added++
				case Remove:
					change.Removed++
				case Context:
				}
			}
		}
		f.content = content
		if sec.MoveTo != "" && sec.MoveTo != sec.Path {
			if err := s.move(ctx, f, sec.MoveTo); err != nil {
				return fail(Conflict, err, "move to %s", sec.MoveTo)
			}
		}
	}
	s.result.Changes = append(s.result.Changes, change)
	return nil
}

func (s *stage) move(ctx context.Context, f *staged, to string) error {
	target, err := s.load(ctx, to)
	if err != nil {
		return err
	}
	if !target.gone {
		return errors.New("that file exists already")
	}
	target.gone, target.content, target.source = false, f.content, f
	f.gone = true
	return nil
}

// commit writes. The order is: moves and contents first, removals last, so that a crash loses nothing.
func (s *stage) commit(ctx context.Context) error {
	var undo []func(context.Context) error
	back := func(cause error) error {
		// The caller's context may have ended; what was begun is undone all the same.
		clean := context.WithoutCancel(ctx)
		for _, u := range slices.Backward(undo) {
			if err := u(clean); err != nil {
				return errors.Join(cause, fmt.Errorf("the tree is half patched, undoing failed too: %w", err))
			}
		}
		return cause
	}
	step := func(f *staged) error {
		switch {
		case f.gone && f.old == nil, !f.gone && f.old != nil && string(f.content) == string(f.old.Content):
			return nil
		case f.gone:
			if s.movedAway(f) {
				return nil
			}
			if err := s.tree.Remove(ctx, f.path, f.old.Version); err != nil {
				return err
			}
			undo = append(undo, func(ctx context.Context) error {
				again := *f.old
				again.Version, again.InPlace = "", false
				_, err := s.tree.Write(ctx, f.path, f.old.Content, &again)
				return err
			})
			return nil
		case f.source != nil && f.source.old != nil && f.old == nil:
			return s.commitMove(ctx, f, &undo)
		default:
			version, err := s.tree.Write(ctx, f.path, f.content, f.old)
			if err != nil {
				return err
			}
			undo = append(undo, func(ctx context.Context) error {
				if f.old == nil {
					return s.tree.Remove(ctx, f.path, version)
				}
				now := *f.old
				now.Version = version
				_, err := s.tree.Write(ctx, f.path, f.old.Content, &now)
				return err
			})
			return nil
		}
	}
	for _, last := range []bool{false, true} {
		for _, f := range s.order {
			if f.gone != last {
				continue
			}
			if err := step(f); err != nil {
				kind := Access
				if errors.Is(err, ErrChanged) {
					kind = Changed
				}
				return back(&Error{Kind: kind, Path: f.path, Message: "nothing was changed: write", Err: err})
			}
		}
	}
	return nil
}

// commitMove renames, so that mode and owner go along, and then writes what the hunks changed.
func (s *stage) commitMove(ctx context.Context, f *staged, undo *[]func(context.Context) error) error {
	from := f.source
	if err := s.tree.Move(ctx, from.path, f.path); err != nil {
		return err
	}
	*undo = append(*undo, func(ctx context.Context) error { return s.tree.Move(ctx, f.path, from.path) })
	if string(f.content) == string(from.old.Content) {
		return nil
	}
	moved := *from.old
	moved.Version = "" // a rename may change it
	if _, err := s.tree.Write(ctx, f.path, f.content, &moved); err != nil {
		return err
	}
	*undo = append(*undo, func(ctx context.Context) error {
		_, err := s.tree.Write(ctx, f.path, from.old.Content, &moved)
		return err
	})
	return nil
}

// movedAway reports whether a rename has taken the file from its path already.
func (s *stage) movedAway(f *staged) bool {
	return slices.ContainsFunc(s.order, func(o *staged) bool { return o.source == f && !o.gone && o.old == nil })
}

// withPath puts the path on every failure in err.
func withPath(err error, path string) error {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		var out []error
		for _, e := range joined.Unwrap() {
			out = append(out, withPath(e, path))
		}
		return errors.Join(out...)
	}
	if e, ok := errors.AsType[*Error](err); ok {
		c := *e
		c.Path = path
		return &c
	}
	return err
}
