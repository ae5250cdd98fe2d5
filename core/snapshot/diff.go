// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"iter"

	"github.com/berth-dev/berth/core/snapshot/chunks"
	"github.com/berth-dev/berth/core/snapshot/index"
)

// Change is a difference between two indexes.
type Change struct {
	Path string     `json:"path"`
	Kind ChangeKind `json:"change"`
	Old  int64      `json:"old_size"`
	New  int64      `json:"new_size"`
}

// ChangeKind says what is different.
type ChangeKind string

// The kinds of change.
const (
	Added    ChangeKind = "added"
	Removed  ChangeKind = "removed"
	Modified ChangeKind = "modified" // content or kind
	Meta     ChangeKind = "meta"     // mode, owner or time alone
)

// Diff gives what is different from a to b, in the order of their paths. That the time of a directory changed is nothing
// to tell: it does with every change in it.
func Diff(a, b *Index) iter.Seq[Change] {
	return func(yield func(Change) bool) {
		i, j := 0, 0
		for i < len(a.Entries) || j < len(b.Entries) {
			switch {
			case j == len(b.Entries) || (i < len(a.Entries) && index.Compare(a.Entries[i].Path, b.Entries[j].Path) < 0):
				if !yield(Change{Path: a.Entries[i].Path, Kind: Removed, Old: a.Entries[i].Size}) {
					return
				}
				i++
			case i == len(a.Entries) || index.Compare(a.Entries[i].Path, b.Entries[j].Path) > 0:
				if !yield(Change{Path: b.Entries[j].Path, Kind: Added, New: b.Entries[j].Size}) {
					return
				}
				j++
			default:
				if c, differs := compare(&a.Entries[i], &b.Entries[j]); differs && !yield(c) {
					return
				}
				i++
				j++
			}
		}
	}
}

func compare(a, b *index.Entry) (Change, bool) {
	c := Change{Path: a.Path, Old: a.Size, New: b.Size}
	if !a.SameContent(b) {
		c.Kind = Modified
		return c, true
	}
	c.Kind = Meta
	if a.Kind == index.Dir {
		same := *b
		same.ModTime = a.ModTime
		return c, !a.Implied() && !b.Implied() && !a.SameMeta(&same)
	}
	return c, !a.SameMeta(b)
}

// Scan gives the index of a live workspace and stores nothing.
func (r *Repo) Scan(ctx context.Context, src Source, o TakeOptions) (*Index, error) {
	unlock, err := r.share(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	parent, err := r.parent(ctx, o)
	if err != nil {
		return nil, err
	}
	w := r.chunks.NewWriter(ctx, chunks.WriterOptions{HashOnly: true})
	x, err := r.scan(ctx, w, src, o, parent)
	if err != nil {
		w.Abort()
		return nil, err
	}
	_, err = w.Close()
	return x, err
}
