// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"errors"
	"fmt"
	"strings"
)

// Kind classifies a failure.
type Kind string

// The kinds.
const (
	Syntax    Kind = "patch_syntax"    // the patch itself is wrong
	NoMatch   Kind = "patch_no_match"  // the context is not in the file
	Ambiguous Kind = "patch_ambiguous" // the context is in the file more than once
	Conflict  Kind = "patch_conflict"  // sections or hunks contradict each other, or the tree
	Access    Kind = "patch_access"    // a file could not be read or written
	Changed   Kind = "patch_changed"   // a file was changed by somebody else meanwhile
)

// Error is one failure. Several failures of one patch are joined.
type Error struct {
	Kind      Kind
	Path      string
	Hunk      int // from 1; 0 = none
	PatchLine int // from 1; 0 = unknown
	Message   string
	Err       error
}

// Error says where and what.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Path != "" {
		b.WriteString(e.Path)
		if e.Hunk > 0 {
			fmt.Fprintf(&b, ", hunk %d", e.Hunk)
		}
	}
	if e.PatchLine > 0 {
		if b.Len() > 0 {
			b.WriteString(" ")
		}
		fmt.Fprintf(&b, "(patch line %d)", e.PatchLine)
	}
	if b.Len() > 0 {
		b.WriteString(": ")
	}
	b.WriteString(e.Message)
	if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(e.Err.Error())
	}
	return b.String()
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// KindOf finds the kind of the first failure in err.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return ""
}
