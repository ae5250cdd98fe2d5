// SPDX-License-Identifier: Apache-2.0

package index

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Index is what is in a snapshot.
type Index struct {
	Entries []Entry
	Left    []Left
}

// Order brings entries into the order of an index: directories that were only implied are added, and the first name of
// a file in that order is the one that holds it.
func (x *Index) Order() error {
	have := make(map[string]bool, len(x.Entries))
	for i := range x.Entries {
		have[x.Entries[i].Path] = x.Entries[i].Kind == Dir
	}
	for i := range x.Entries {
		for p := x.Entries[i].Path; p != ""; {
			p = p[:max(strings.LastIndexByte(p, '/'), 0)]
			if _, ok := have[p]; ok {
				break
			}
			have[p] = true
			x.Entries = append(x.Entries, Entry{Path: p, Kind: Dir, Mode: 0o755})
		}
	}
	slices.SortFunc(x.Entries, func(a, b Entry) int { return Compare(a.Path, b.Path) })
	slices.SortFunc(x.Left, func(a, b Left) int {
		return cmp.Or(Compare(a.Path, b.Path), cmp.Compare(a.Reason, b.Reason))
	})
	x.Left = slices.Compact(x.Left)
	return x.regroup()
}

// regroup makes the first of each group of hard links the one that holds the file.
func (x *Index) regroup() error {
	first := map[string]string{} // by the path that holds it now
	files := map[string]int{}
	for i := range x.Entries {
		switch e := &x.Entries[i]; {
		case e.Linked:
			files[e.Path] = i
			if _, ok := first[e.Path]; !ok {
				first[e.Path] = e.Path
			}
		case e.Kind == HardLink:
			if _, ok := first[e.Target]; !ok {
				first[e.Target] = e.Path
			}
		}
	}
	for i := range x.Entries {
		e := &x.Entries[i]
		if e.Kind != HardLink || e.Path != first[e.Target] {
			continue
		}
		at, ok := files[e.Target]
		if !ok {
			return fmt.Errorf("the target of the hard link %q is not there", e.Path)
		}
		old := x.Entries[at]
		x.Entries[at] = Entry{
			Path: old.Path, Kind: HardLink, Mode: old.Mode, UID: old.UID, GID: old.GID, User: old.User, Group: old.Group, ModTime: old.ModTime,
			Target: old.Path, // names its group until the next loop
		}
		path := e.Path
		*e = old
		e.Path = path
	}
	for i := range x.Entries {
		if e := &x.Entries[i]; e.Kind == HardLink {
			e.Target = first[e.Target]
		}
	}
	return nil
}

// Implied reports whether no archive or sandbox said anything of a directory but that something is in it.
func (e *Entry) Implied() bool { return e.Kind == Dir && e.ModTime.IsZero() }
