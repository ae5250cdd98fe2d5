// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"bytes"
	"strings"
)

var byteOrderMark = []byte{0xEF, 0xBB, 0xBF}

// text is a file as lines. Lines end at LF; a CR before it belongs to the ending.
type text struct {
	bom    bool
	source string
	lines  []string // without endings
	starts []int    // offset of each line in source, and the length of source
}

func split(content []byte) *text {
	t := &text{}
	if bytes.HasPrefix(content, byteOrderMark) {
		t.bom = true
		content = content[len(byteOrderMark):]
	}
	t.source = string(content) // one copy that all lines share
	n := strings.Count(t.source, "\n") + 1
	t.lines = make([]string, 0, n)
	t.starts = make([]int, 1, n+1)
	for at := 0; at < len(t.source); {
		next := len(t.source)
		line := t.source[at:]
		if i := strings.IndexByte(line, '\n'); i >= 0 {
			next = at + i + 1
			line = strings.TrimSuffix(line[:i], "\r")
		}
		t.lines = append(t.lines, line)
		t.starts = append(t.starts, next)
		at = next
	}
	return t
}

// end gives the ending of line i: "\n", "\r\n", or "" for a last line without one.
func (t *text) end(i int) string {
	return t.source[t.starts[i]+len(t.lines[i]) : t.starts[i+1]]
}

// ending is the ending for a line that is put at index i: its neighbours', the one before first.
func (t *text) ending(i int) string {
	for _, near := range []int{i - 1, i, 0} {
		if near >= 0 && near < len(t.lines) && t.end(near) != "" {
			return t.end(near)
		}
	}
	return "\n"
}

// endsOpen reports whether the last line has no newline.
func (t *text) endsOpen() bool {
	return len(t.lines) > 0 && t.end(len(t.lines)-1) == ""
}

// edit replaces lines [start, start+old) by others.
type edit struct {
	start, old int
	insert     []string
	keep       []int // for each inserted line the file's line that it repeats, or -1
}

// apply makes the new content. Edits are in order and do not overlap.
func (t *text) apply(edits []edit, sizeHint int) []byte {
	out := make([]byte, 0, sizeHint)
	if t.bom {
		out = append(out, byteOrderMark...)
	}
	body := len(out)
	copyLines := func(from, to int) {
		out = append(out, t.source[t.starts[from]:t.starts[to]]...)
		if to > from && t.end(to-1) == "" {
			out = append(out, t.ending(to-1)...) // more may follow; the last one is taken back below
		}
	}
	next := 0
	for _, e := range edits {
		copyLines(next, e.start)
		replaced := e.start // the line that the next inserted one stands for
		for j, line := range e.insert {
			if k := e.keep[j]; k >= 0 {
				copyLines(k, k+1)
				replaced = k + 1
				continue
			}
			end := t.ending(replaced)
			if replaced < e.start+e.old {
				if own := t.end(replaced); own != "" {
					end = own
				}
				replaced++
			}
			out = append(append(out, line...), end...)
		}
		next = e.start + e.old
	}
	copyLines(next, len(t.lines))
	if t.endsOpen() {
		rest := bytes.TrimSuffix(bytes.TrimSuffix(out[body:], []byte("\n")), []byte("\r"))
		out = out[:body+len(rest)]
	}
	return out
}
