// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
)

// Update applies hunks to one file's content. All hunks that fail are in the joined error; then nothing is changed.
func Update(content []byte, hunks []Hunk) ([]byte, []Note, error) {
	u := &updater{file: split(content), hunks: hunks}
	u.index = newIndex(u.file, hunks)
	var errs []error
	for i := range hunks {
		if err := u.place(i); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return nil, nil, errors.Join(errs...)
	}
	sort.SliceStable(u.edits, func(i, j int) bool { return u.edits[i].start < u.edits[j].start })
	grow := 0
	for i, e := range u.edits {
		if i > 0 && u.edits[i-1].start+u.edits[i-1].old > e.start {
			return nil, nil, &Error{Kind: Conflict, Message: fmt.Sprintf("two hunks change line %d", e.start+1)}
		}
		for _, l := range e.insert {
			grow += len(l) + 2
		}
	}
	return u.file.apply(u.edits, len(content)+grow), u.notes, nil
}

type updater struct {
	file   *text
	hunks  []Hunk
	index  *index
	cursor int // first line behind the hunk before
	edits  []edit
	notes  []Note
}

func (u *updater) fail(i int, kind Kind, format string, args ...any) error {
	return &Error{Kind: kind, Hunk: i + 1, PatchLine: u.hunks[i].At, Message: fmt.Sprintf(format, args...)}
}

func (u *updater) note(i, line int, format string, args ...any) {
	u.notes = append(u.notes, Note{Hunk: i + 1, Line: line + 1, Message: fmt.Sprintf(format, args...)})
}

// place finds the place of hunk i and records its edit.
func (u *updater) place(i int) error {
	h := &u.hunks[i]
	b := u.index.blocks[i]
	from, anchored, missing := u.anchor(h)
	if len(b.lines) == 0 {
		return u.placeInsertion(i, from, anchored, missing)
	}
	all, tol := u.index.places(i)
	if len(all) == 0 {
		return u.noMatch(i)
	}
	start, err := u.choose(i, all, from, anchored, missing)
	if err != nil {
		return err
	}
	if tol > exact {
		u.note(i, start, "the context fits only %s", tol)
	}
	if missing != "" {
		u.note(i, start, "there is no line %q; the context fits one place only, so it was used", clip(missing))
	}
	return u.replace(i, start, tol)
}

// anchor follows the hunk's anchors. From is the first line where the hunk may start.
func (u *updater) anchor(h *Hunk) (from int, anchored bool, missing string) {
	from = u.cursor
	for n, a := range h.Anchors {
		lines := u.index.anchored(a)
		k, _ := slices.BinarySearch(lines, from)
		switch {
		case k < len(lines):
			from = lines[k]
		case n == 0 && len(lines) > 0 && lines[len(lines)-1] < u.cursor:
			from = lines[len(lines)-1] // a scope that an earlier hunk has entered already
		default:
			return u.cursor, false, a
		}
		anchored = true
	}
	return from, anchored, ""
}

// choose picks the one place that is meant, or says why there is none.
func (u *updater) choose(i int, all []int, from int, anchored bool, missing string) (int, error) {
	h, b := &u.hunks[i], u.index.blocks[i]
	if h.EOF {
		at := len(u.file.lines) - len(b.lines)
		for ; at >= 0; at-- {
			if slices.Contains(all, at) {
				return at, nil
			}
			if u.file.lines[at+len(b.lines)-1] != "" {
				break // only empty lines may follow
			}
		}
		return 0, u.fail(i, NoMatch, "the context is not at the end of the file, but at %s; leave out %q or give the last lines",
			lineList(all), eofMark)
	}
	k, _ := slices.BinarySearch(all, from)
	behind := all[k:]
	switch {
	case len(behind) == 1, anchored && len(behind) > 0, len(behind) > 1 && len(behind) == u.sameAhead(i):
		return behind[0], nil
	case len(behind) == 0 && len(all) == 1:
		return all[0], nil // out of order, but only one place fits
	case len(behind) == 0:
		behind = all
	}
	more := "add context lines, or an \"@@ \" line with a line that stands before the place, such as the function's first"
	if missing != "" {
		more = fmt.Sprintf("there is no line %q to tell them apart", clip(missing))
	}
	return 0, u.fail(i, Ambiguous, "the context fits %d places, at %s: %s", len(behind), lineList(behind), more)
}

// sameAhead counts the hunks from i on that look for the same lines. When they are as many as the places that fit,
// there is nothing to guess: they go to them in order.
func (u *updater) sameAhead(i int) int {
	n := 0
	for j := i; j < len(u.hunks); j++ {
		if u.index.blocks[j] == u.index.blocks[i] && !u.hunks[j].EOF && len(u.hunks[j].Anchors) == 0 {
			n++
		}
	}
	return n
}

func (u *updater) placeInsertion(i, from int, anchored bool, missing string) error {
	h := &u.hunks[i]
	var insert []string
	var keep []int
	for _, l := range h.Lines {
		insert, keep = append(insert, l.Text), append(keep, -1)
	}
	at := 0
	switch {
	case missing != "":
		return u.fail(i, NoMatch, "there is no line %q%s", clip(missing), u.similarLine(missing))
	case anchored:
		lines := u.index.anchored(h.Anchors[len(h.Anchors)-1])
		if len(h.Anchors) == 1 && len(lines) > 1 {
			return u.fail(i, Ambiguous, "the line %q stands at %s: add context lines to say which", clip(h.Anchors[0]), lineList(lines))
		}
		at = from + 1
	case h.EOF:
		at = len(u.file.lines)
	case len(u.file.lines) == 0:
	default:
		return u.fail(i, Ambiguous, "the hunk only adds lines and does not say where: add a context line, or %q to append", eofMark)
	}
	u.edits = append(u.edits, edit{start: at, insert: insert, keep: keep})
	u.cursor = max(u.cursor, at)
	return nil
}

// replace records the edit of hunk i at start, without the context around the change.
func (u *updater) replace(i, start int, tol tolerance) error {
	h := &u.hunks[i]
	indent, err := u.reindent(i, start, tol)
	if err != nil {
		return err
	}
	e := edit{start: start}
	line := start
	for _, l := range h.Lines {
		switch l.Kind {
		case Insert:
			e.insert, e.keep = append(e.insert, indent(l.Text)), append(e.keep, -1)
			continue
		case Context:
			e.insert, e.keep = append(e.insert, u.file.lines[line]), append(e.keep, line)
		case Remove:
		}
		line++
	}
	e.old = line - start
	for e.old > 0 && len(e.keep) > 0 && e.keep[0] == e.start {
		e.start, e.old, e.insert, e.keep = e.start+1, e.old-1, e.insert[1:], e.keep[1:]
	}
	for n := len(e.keep); e.old > 0 && n > 0 && e.keep[n-1] == e.start+e.old-1; n = len(e.keep) {
		e.old, e.insert, e.keep = e.old-1, e.insert[:n-1], e.keep[:n-1]
	}
	u.edits = append(u.edits, e)
	u.cursor = max(u.cursor, line)
	return nil
}

// reindent gives the function that moves inserted lines to the file's indentation, when the context fitted only with
// indentation ignored. All context lines must be moved in the same way.
func (u *updater) reindent(i, start int, tol tolerance) (func(string) string, error) {
	same := func(s string) string { return s }
	if tol < indented {
		return same, nil
	}
	var cut, add string
	known := false
	for j, l := range u.index.blocks[i].lines {
		f := u.file.lines[start+j]
		if strings.TrimSpace(l) == "" {
			continue
		}
		a, b := leading(l), leading(f)
		// The common tail of both indentations is the depth inside the block; what is before it is the move.
		n := 0
		for n < len(a) && n < len(b) && a[len(a)-1-n] == b[len(b)-1-n] {
			n++
		}
		c, d := a[:len(a)-n], b[:len(b)-n]
		if known && (c != cut || d != add) {
			return nil, u.fail(i, NoMatch, "the context fits at line %d only when indentation is ignored, and its lines are "+
				"indented in different ways, so the new lines cannot be placed: repeat the lines with the file's indentation, "+
				"line %d is %q", start+1, start+j+1, clip(f))
		}
		cut, add, known = c, d, true
	}
	if cut == "" && add == "" {
		return same, nil
	}
	u.note(i, start, "the new lines were re-indented as the file is")
	return func(s string) string {
		rest, ok := strings.CutPrefix(s, cut)
		if !ok || strings.TrimSpace(s) == "" {
			return s
		}
		return add + rest
	}, nil
}

func leading(s string) string { return s[:len(s)-len(strings.TrimLeft(s, " \t"))] }

// noMatch explains a hunk that fits nowhere.
func (u *updater) noMatch(i int) error {
	b := u.index.blocks[i]
	if len(u.file.lines) == 0 {
		return u.fail(i, NoMatch, "the file is empty, the hunk looks for %q", clip(b.lines[b.key]))
	}
	start, agree, differs := u.index.nearest(b)
	if agree == 0 {
		return u.fail(i, NoMatch, "none of its lines is in the file (%d lines), %q for example%s: read the file again",
			len(u.file.lines), clip(b.lines[b.key]), u.similarLine(b.lines[b.key]))
	}
	at := start + differs
	has := "the end of the file"
	if at < len(u.file.lines) {
		has = fmt.Sprintf("%q", clip(u.file.lines[at]))
	}
	return u.fail(i, NoMatch, "the context is not in the file. The nearest place is line %d, where %d of %d lines agree; "+
		"line %d differs: the patch has %q, the file has %s", start+1, agree, len(b.lines), at+1, clip(b.lines[differs]), has)
}

// similarLine names a line of the file that holds, or is held by, the text.
func (u *updater) similarLine(s string) string {
	s = strings.TrimSpace(s)
	if len(s) < 3 {
		return ""
	}
	for i, l := range u.file.lines {
		l = strings.TrimSpace(l)
		if strings.Contains(l, s) || (len(l) > 8 && strings.Contains(s, l)) {
			return fmt.Sprintf("; line %d is %q", i+1, clip(l))
		}
	}
	return ""
}

func lineList(at []int) string {
	var b strings.Builder
	b.WriteString("line ")
	for i, n := range at {
		switch {
		case i == 8:
			fmt.Fprintf(&b, " and %d more", len(at)-i)
			return b.String()
		case i > 0:
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%d", n+1)
	}
	return b.String()
}
