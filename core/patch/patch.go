// SPDX-License-Identifier: Apache-2.0

package patch

// Op is what a section does.
type Op string

// The operations.
const (
	OpAdd    Op = "add"
	OpDelete Op = "delete"
	OpUpdate Op = "update"
)

// Patch is a parsed patch.
type Patch struct{ Sections []Section }

// Section is about one file.
type Section struct {
	Op     Op
	Path   string
	MoveTo string   // update only; empty = stays
	Lines  []string // the lines of an added file
	Hunks  []Hunk   // of an update
	At     int      // line of the patch, from 1
}

// Hunk is one change at one place.
type Hunk struct {
	// Anchors are lines that stand before the place, outermost first.
	Anchors []string
	Lines   []Line
	EOF     bool // the place is the end of the file
	At      int  // line of the patch, from 1
}

// Line is a line of a hunk.
type Line struct {
	Kind LineKind
	Text string // without its ending
}

// LineKind tells what a hunk does with a line.
type LineKind byte

// The kinds.
const (
	Context LineKind = ' '
	Insert  LineKind = '+'
	Remove  LineKind = '-'
)

// Note is something that the author of a patch should know about a change that was made.
type Note struct {
	Hunk    int // from 1
	Line    int // of the file as it was, from 1
	Message string
}
