// SPDX-License-Identifier: Apache-2.0

// Package mark holds the marks that configuration values carry through expressions: which values are sensitive, which
// are ephemeral, and where that was said.
package mark

import (
	"sort"

	"github.com/zclconf/go-cty/cty"
)

// Sensitive marks a value that must not be shown.
type Sensitive struct {
	// Origin says why: the key of a secret ("secret.gh", "module.base.secret.gh") or of a variable ("var.token");
	// empty when a function said so.
	Origin string
}

// Public marks a value that was made from a sensitive one, and that somebody said may be shown. It still needs what it
// was made from.
type Public struct{ Origin string }

// Ephemeral marks a value that must not be stored.
type Ephemeral struct{}

// IsSensitive reports whether v, or something inside it, is sensitive.
func IsSensitive(v cty.Value) bool {
	_, marks := v.UnmarkDeep()
	for m := range marks {
		if _, ok := m.(Sensitive); ok {
			return true
		}
	}
	return false
}

// IsEphemeral reports whether v, or something inside it, is ephemeral.
func IsEphemeral(v cty.Value) bool {
	_, marks := v.UnmarkDeep()
	_, ok := marks[Ephemeral{}]
	return ok
}

// Origins gives the distinct origins of the sensitive marks in v, sorted.
func Origins(v cty.Value) []string {
	_, marks := v.UnmarkDeep()
	var out []string
	for m := range marks {
		if s, ok := m.(Sensitive); ok && s.Origin != "" {
			out = append(out, s.Origin)
		}
	}
	sort.Strings(out)
	return out
}

// Needs gives the distinct origins that v was made from, those said to be public, too, sorted.
func Needs(v cty.Value) []string {
	_, marks := v.UnmarkDeep()
	seen := map[string]bool{}
	for m := range marks {
		switch m := m.(type) {
		case Sensitive:
			seen[m.Origin] = true
		case Public:
			seen[m.Origin] = true
		}
	}
	delete(seen, "")
	out := make([]string, 0, len(seen))
	for o := range seen {
		out = append(out, o)
	}
	sort.Strings(out)
	return out
}

// Reveal says that v may be shown: sensitive marks, at its top and inside, become public ones.
func Reveal(v cty.Value) cty.Value {
	bare, paths := v.UnmarkDeepWithPaths()
	for i := range paths {
		paths[i].Marks = public(paths[i].Marks)
	}
	return bare.MarkWithPaths(paths)
}

func public(in cty.ValueMarks) cty.ValueMarks {
	out := make(cty.ValueMarks, len(in))
	for m := range in {
		if s, ok := m.(Sensitive); ok {
			if s.Origin == "" {
				continue
			}
			m = Public(s)
		}
		out[m] = struct{}{}
	}
	return out
}
