// SPDX-License-Identifier: Apache-2.0

// Package ignore matches paths against patterns in the manner of gitignore.
//
// A pattern without a slash but at its end matches a name at any depth; with one it matches the path from the top.
// "*" and "?" stop at slashes, "**" does not, "[a-z]" and "\" are as in a shell, a slash at the end means directories
// only, and "!" takes back what an earlier pattern excluded. What lies below an excluded directory stays excluded. The
// time of a match is bounded by the product of both lengths.
package ignore

import (
	"strings"

	"github.com/berth-dev/berth/sdk/errs"
)

// Matcher holds patterns; the zero value matches nothing.
type Matcher struct{ patterns []pattern }

type pattern struct {
	segments []string
	negate   bool
	dirOnly  bool
	anchored bool
}

// New reads patterns. Empty ones and those that start with "#" say nothing.
func New(lines []string) (*Matcher, error) {
	m := &Matcher{}
	for _, line := range lines {
		var p pattern
		s := line
		if s == "" || s[0] == '#' {
			continue
		}
		if strings.HasPrefix(s, "!") {
			p.negate, s = true, s[1:]
		}
		if strings.HasSuffix(s, "/") {
			p.dirOnly, s = true, strings.TrimRight(s, "/")
		}
		p.anchored = strings.Contains(s, "/")
		s = strings.Trim(s, "/")
		if s == "" {
			return nil, errs.New(errs.InvalidArgument, "the exclude pattern %q names nothing", line)
		}
		p.segments = strings.Split(s, "/")
		m.patterns = append(m.patterns, p)
	}
	return m, nil
}

// Empty reports whether nothing can match.
func (m *Matcher) Empty() bool { return m == nil || len(m.patterns) == 0 }

// Match reports whether path, relative to the top and without a slash at its end, is excluded. The caller does not
// descend into excluded directories.
func (m *Matcher) Match(path string, dir bool) bool {
	if m.Empty() {
		return false
	}
	for i := len(m.patterns) - 1; i >= 0; i-- {
		p := &m.patterns[i]
		if p.dirOnly && !dir {
			continue
		}
		if p.match(path) {
			return !p.negate
		}
	}
	return false
}

func (p *pattern) match(path string) bool {
	if !p.anchored {
		return segment(p.segments[0], path[strings.LastIndexByte(path, '/')+1:])
	}
	// As with "*" in a segment, it is enough to go back to the last "**".
	names := strings.Split(path, "/")
	pi, ni, starP, starN := 0, 0, -1, 0
	for ni < len(names) {
		switch {
		case pi < len(p.segments) && p.segments[pi] == "**":
			starP, starN = pi, ni
			pi++
			if pi == len(p.segments) { // "a/**" is what lies below a
				return true
			}
			continue
		case pi < len(p.segments) && segment(p.segments[pi], names[ni]):
			pi++
			ni++
			continue
		case starP < 0:
			return false
		}
		starN++
		pi, ni = starP+1, starN
	}
	return pi == len(p.segments)
}

// segment matches one component.
func segment(pat, name string) bool {
	if pat == "**" {
		pat = "*"
	}
	pi, ni, starP, starN := 0, 0, -1, 0
	for ni < len(name) {
		if pi < len(pat) && pat[pi] == '*' {
			starP, starN = pi, ni
			pi++
			continue
		}
		if pi < len(pat) {
			if n, ok := one(pat[pi:], name[ni]); ok {
				pi += n
				ni++
				continue
			}
		}
		if starP < 0 {
			return false
		}
		starN++
		pi, ni = starP+1, starN
	}
	for pi < len(pat) && pat[pi] == '*' {
		pi++
	}
	return pi == len(pat)
}

// one matches the first element of pat against c and gives the element's length.
func one(pat string, c byte) (int, bool) {
	switch pat[0] {
	case '?':
		return 1, true
	case '\\':
		if len(pat) > 1 {
			return 2, pat[1] == c
		}
	case '[':
		if n, ok, valid := class(pat, c); valid {
			return n, ok
		}
	}
	return 1, pat[0] == c
}

// class matches "[…]"; valid is false when it has no end, and then the bracket is a bracket.
func class(pat string, c byte) (n int, ok, valid bool) {
	i := 1
	negate := i < len(pat) && (pat[i] == '!' || pat[i] == '^')
	if negate {
		i++
	}
	for first := true; i < len(pat); first = false {
		if pat[i] == ']' && !first {
			return i + 1, ok != negate, true
		}
		lo, n := char(pat[i:])
		i += n
		hi := lo
		if i+1 < len(pat) && pat[i] == '-' && pat[i+1] != ']' {
			hi, n = char(pat[i+1:])
			i += 1 + n
		}
		if lo <= c && c <= hi {
			ok = true
		}
	}
	return 0, false, false
}

func char(pat string) (byte, int) {
	if pat[0] == '\\' && len(pat) > 1 {
		return pat[1], 2
	}
	return pat[0], 1
}
