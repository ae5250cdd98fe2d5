// SPDX-License-Identifier: Apache-2.0

// Package semver reads versions and version constraints, such as "~> 0.1" and ">= 1.2, < 2".
package semver

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Version is a version as semver.org says. Build metadata is dropped.
type Version struct {
	Major, Minor, Patch uint64
	Pre                 string
}

// Parse reads a version; a leading v, a missing minor and a missing patch are accepted.
func Parse(s string) (Version, error) {
	v, _, err := parse(s)
	return v, err
}

func parse(s string) (v Version, parts int, err error) {
	text := strings.TrimPrefix(strings.TrimSpace(s), "v")
	text, _, _ = strings.Cut(text, "+")
	core, pre, hasPre := strings.Cut(text, "-")
	if hasPre && !validPre(pre) {
		return v, 0, fmt.Errorf("%q is not a version", s)
	}
	v.Pre = pre
	fields := strings.Split(core, ".")
	if len(fields) > 3 {
		return v, 0, fmt.Errorf("%q is not a version", s)
	}
	into := []*uint64{&v.Major, &v.Minor, &v.Patch}
	for i, f := range fields {
		n, err := strconv.ParseUint(f, 10, 63)
		if err != nil || f[0] == '+' {
			return v, 0, fmt.Errorf("%q is not a version", s)
		}
		*into[i] = n
	}
	return v, len(fields), nil
}

func validPre(s string) bool {
	for f := range strings.SplitSeq(s, ".") {
		if f == "" || strings.Trim(f, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-") != "" {
			return false
		}
	}
	return true
}

// String gives the version in full.
func (v Version) String() string {
	s := fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch)
	if v.Pre != "" {
		s += "-" + v.Pre
	}
	return s
}

// Core is the version without its pre-release part.
func (v Version) Core() Version {
	v.Pre = ""
	return v
}

// Compare is negative when v comes before o.
func (v Version) Compare(o Version) int {
	return cmp.Or(
		cmp.Compare(v.Major, o.Major),
		cmp.Compare(v.Minor, o.Minor),
		cmp.Compare(v.Patch, o.Patch),
		comparePre(v.Pre, o.Pre),
	)
}

func comparePre(a, b string) int {
	switch {
	case a == b:
		return 0
	case a == "":
		return 1
	case b == "":
		return -1
	}
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(x), len(y)) {
		n, errN := strconv.ParseUint(x[i], 10, 64)
		m, errM := strconv.ParseUint(y[i], 10, 64)
		var c int
		switch {
		case errN == nil && errM == nil:
			c = cmp.Compare(n, m)
		case errN == nil:
			c = -1
		case errM == nil:
			c = 1
		default:
			c = cmp.Compare(x[i], y[i])
		}
		if c != 0 {
			return c
		}
	}
	return cmp.Compare(len(x), len(y))
}

// Constraint says which versions are wanted. The zero Constraint wants any release.
type Constraint struct {
	text  string
	terms []term
}

type term struct {
	op    string
	v     Version
	parts int
}

// ParseConstraint reads terms with commas between them, all of which must hold. The operators are = != > >= < <= ~>;
// none means =.
func ParseConstraint(s string) (Constraint, error) {
	c := Constraint{text: strings.TrimSpace(s)}
	if c.text == "" {
		return c, nil
	}
	for part := range strings.SplitSeq(s, ",") {
		part = strings.TrimSpace(part)
		op := "="
		for _, o := range []string{"~>", ">=", "<=", "!=", ">", "<", "="} {
			if rest, ok := strings.CutPrefix(part, o); ok {
				op, part = o, strings.TrimSpace(rest)
				break
			}
		}
		v, n, err := parse(part)
		if err != nil {
			return Constraint{}, fmt.Errorf("%q is not a version constraint such as \">= 1.2, < 2\"", s)
		}
		c.terms = append(c.terms, term{op: op, v: v, parts: n})
	}
	return c, nil
}

// String gives the constraint as it was written.
func (c Constraint) String() string { return c.text }

// Allows reports whether every term holds. A pre-release is wanted only by a constraint that names a pre-release of the
// same version.
func (c Constraint) Allows(v Version) bool {
	named := false
	for _, t := range c.terms {
		if !t.allows(v) {
			return false
		}
		named = named || t.v.Pre != "" && t.v.Core() == v.Core()
	}
	return v.Pre == "" || named
}

func (t term) allows(v Version) bool {
	n := v.Compare(t.v)
	switch t.op {
	case "=":
		return n == 0
	case "!=":
		return n != 0
	case ">":
		return n > 0
	case ">=":
		return n >= 0
	case "<":
		return n < 0
	case "<=":
		return n <= 0
	}
	// ~> lets the last part that was written grow.
	return n >= 0 && v.Major == t.v.Major && (t.parts < 3 || v.Minor == t.v.Minor)
}
