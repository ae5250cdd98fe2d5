// SPDX-License-Identifier: Apache-2.0

package patch

import "strings"

// tolerance says what a comparison ignores.
type tolerance int

const (
	exact      tolerance = iota
	trailing             // white space at the end of lines
	indented             // white space at both ends
	typography           // and typographic quotes, dashes and spaces
	tolerances
)

func (t tolerance) String() string {
	return [...]string{
		"exactly", "when trailing white space is ignored", "when indentation is ignored",
		"when indentation and typographic characters are ignored",
	}[t]
}

// fold gives the text that is compared under a tolerance.
func (t tolerance) fold(s string) string {
	switch t {
	case exact:
		return s
	case trailing:
		return strings.TrimRight(s, " \t\r\f\v")
	case indented:
		return strings.Trim(s, " \t\r\f\v")
	default:
		return strings.TrimSpace(asciiTypography.Replace(s))
	}
}

var asciiTypography = strings.NewReplacer(
	"‘", "'", "’", "'", "‚", "'", "‛", "'", "“", `"`, "”", `"`, "„", `"`,
	"‐", "-", "‑", "-", "‒", "-", "–", "-", "—", "-", "−", "-",
	"\u00a0", " ", "\u2002", " ", "\u2003", " ", "\u2009", " ", "\u202f", " ", "\u3000", " ", "…", "...",
)

// block is the lines that a hunk wants to find: its context and its removals. Hunks with the same lines share one.
type block struct {
	lines []string
	key   int // the line that is looked up: the longest, so the rarest
	found [tolerances][]int
}

func (b *block) foundBelow(t tolerance) bool {
	for l := range t {
		if len(b.found[l]) > 0 {
			return true
		}
	}
	return false
}

// index finds all blocks and anchors of an update in one pass over the file for each tolerance that is needed.
type index struct {
	file    *text
	blocks  []*block // of hunk i
	shared  map[string]*block
	scanned [tolerances]bool
	anchors [tolerances]map[string][]int
	wanted  map[string]bool // anchors that hunks name
}

func newIndex(file *text, hunks []Hunk) *index {
	x := &index{file: file, shared: map[string]*block{}, wanted: map[string]bool{}}
	for _, h := range hunks {
		var old []string
		for _, l := range h.Lines {
			if l.Kind != Insert {
				old = append(old, l.Text)
			}
		}
		id := strings.Join(old, "\n")
		b := x.shared[id]
		if b == nil {
			b = &block{lines: old}
			for i, l := range old {
				if len(strings.TrimSpace(l)) > len(strings.TrimSpace(old[b.key])) {
					b.key = i
				}
			}
			x.shared[id] = b
		}
		x.blocks = append(x.blocks, b)
		for _, a := range h.Anchors {
			x.wanted[a] = true
		}
	}
	return x
}

// scan fills the places of all blocks that have none at a lower tolerance.
func (x *index) scan(t tolerance) {
	if x.scanned[t] {
		return
	}
	x.scanned[t] = true
	byKey := map[uint64][]*block{}
	for _, b := range x.shared {
		if len(b.lines) > 0 && !b.foundBelow(t) {
			k := digest(t.fold(b.lines[b.key]))
			byKey[k] = append(byKey[k], b)
		}
	}
	for i, l := range x.file.lines {
		for _, b := range byKey[digest(t.fold(l))] {
			if start := i - b.key; x.fits(b.lines, start, t) {
				b.found[t] = append(b.found[t], start)
			}
		}
	}
}

// digest is a cheap fingerprint of a line: lines that differ are mostly told apart by it; what it finds is compared.
func digest(s string) uint64 {
	n := len(s)
	h := uint64(n) * 0x9E3779B97F4A7C15
	if n < 8 {
		for i := range n {
			h = h*31 + uint64(s[i])
		}
		return h
	}
	word := func(at int) uint64 {
		w := s[at : at+8]
		return uint64(w[0]) | uint64(w[1])<<8 | uint64(w[2])<<16 | uint64(w[3])<<24 |
			uint64(w[4])<<32 | uint64(w[5])<<40 | uint64(w[6])<<48 | uint64(w[7])<<56
	}
	for at := 0; at+8 <= n; at += 8 {
		h = (h ^ word(at)) * 0x9E3779B97F4A7C15
		h ^= h >> 29
	}
	return (h ^ word(n-8)) * 0x9E3779B97F4A7C15
}

func (x *index) fits(lines []string, start int, t tolerance) bool {
	if start < 0 || start+len(lines) > len(x.file.lines) {
		return false
	}
	for i, l := range lines {
		if f := x.file.lines[start+i]; f != l && t.fold(f) != t.fold(l) {
			return false
		}
	}
	return true
}

// places gives all places of hunk i at the lowest tolerance that has any.
func (x *index) places(i int) ([]int, tolerance) {
	for t := range tolerances {
		x.scan(t)
		if f := x.blocks[i].found[t]; len(f) > 0 {
			return f, t
		}
	}
	return nil, exact
}

// anchored gives the lines that equal an anchor: exactly, else with white space ignored.
func (x *index) anchored(a string) []int {
	for _, t := range []tolerance{exact, indented} {
		if x.anchors[t] == nil {
			want := make(map[string]string, len(x.wanted))
			for w := range x.wanted {
				want[t.fold(w)] = w
			}
			m := map[string][]int{}
			for i, l := range x.file.lines {
				if w, ok := want[t.fold(l)]; ok {
					f := t.fold(w)
					m[f] = append(m[f], i)
				}
			}
			x.anchors[t] = m
		}
		if f := x.anchors[t][t.fold(a)]; len(f) > 0 {
			return f
		}
	}
	return nil
}

// nearest finds the place where most lines of a block agree, for the error text.
func (x *index) nearest(b *block) (start, agree, differs int) {
	start, differs = -1, -1
	for i := range x.file.lines {
		n, first := 0, -1
		for j, l := range b.lines {
			if i+j < len(x.file.lines) && indented.fold(x.file.lines[i+j]) == indented.fold(l) {
				if strings.TrimSpace(l) != "" {
					n++
				}
			} else if first < 0 {
				first = j
			}
		}
		if n > agree {
			start, agree, differs = i, n, first
		}
	}
	return start, agree, differs
}
