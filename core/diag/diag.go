// SPDX-License-Identifier: Apache-2.0

// Package diag is what berth tells a user about files: what is wrong, where, and how to mend it.
//
// A [Diagnostic] has a code, a summary with the name in it, the place, a label behind the carets, related places, notes
// and help. [WriteText], [WriteJSON], [WriteShort] and [WriteSARIF] print them. [Converter] turns the HCL library's own
// diagnostics into these, with names nearby as suggestions and without the errors that only follow from another one.
//
// Size: the four writers and the conversion share the cutting of source lines, which nothing else should see.
package diag

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

// Severity says whether the project can be used.
type Severity uint8

// The severities.
const (
	Error Severity = iota + 1
	Warning
)

// String is the word that users see.
func (s Severity) String() string {
	if s == Warning {
		return "warning"
	}
	return "error"
}

// Diagnostic is one finding.
type Diagnostic struct {
	Severity Severity // zero = Error
	Code     Code
	Summary  string    // one line, without a full stop, with the name in it
	Label    string    // behind the carets
	Subject  hcl.Range // zero = no place
	Related  []Related
	Notes    []string
	Help     []string
	URL      string
	Values   []Value // of the names in the expression that failed
}

// Related is another place that has to do with the finding, such as a declaration.
type Related struct {
	Range hcl.Range
	Text  string
}

// Value is the value of one name; Text is safe to show.
type Value struct {
	Name string
	Text string
}

// Errorf makes an error diagnostic.
func Errorf(code Code, subject hcl.Range, format string, args ...any) *Diagnostic {
	return &Diagnostic{Severity: Error, Code: code, Subject: subject, Summary: fmt.Sprintf(format, args...)}
}

// Warnf makes a warning.
func Warnf(code Code, subject hcl.Range, format string, args ...any) *Diagnostic {
	return &Diagnostic{Severity: Warning, Code: code, Subject: subject, Summary: fmt.Sprintf(format, args...)}
}

// Labelf sets the text behind the carets.
func (d *Diagnostic) Labelf(format string, args ...any) *Diagnostic {
	d.Label = fmt.Sprintf(format, args...)
	return d
}

// Relate adds another place.
func (d *Diagnostic) Relate(r hcl.Range, format string, args ...any) *Diagnostic {
	d.Related = append(d.Related, Related{Range: r, Text: fmt.Sprintf(format, args...)})
	return d
}

// Notef adds a note.
func (d *Diagnostic) Notef(format string, args ...any) *Diagnostic {
	d.Notes = append(d.Notes, fmt.Sprintf(format, args...))
	return d
}

// Helpf adds a help line.
func (d *Diagnostic) Helpf(format string, args ...any) *Diagnostic {
	d.Help = append(d.Help, fmt.Sprintf(format, args...))
	return d
}

// Error is the short form.
func (d *Diagnostic) Error() string { return d.short() }

func (d *Diagnostic) short() string {
	var b strings.Builder
	if d.Subject.Filename != "" {
		fmt.Fprintf(&b, "%s:%d:%d: ", Printable(d.Subject.Filename), d.Subject.Start.Line, d.Subject.Start.Column)
	}
	b.WriteString(d.heading())
	if d.Label != "" {
		b.WriteString("; " + Printable(d.Label))
	} else if len(d.Notes) > 0 {
		b.WriteString("; " + Printable(d.Notes[0]))
	}
	return b.String()
}

func (d *Diagnostic) heading() string {
	code := ""
	if d.Code != 0 {
		code = "[" + d.Code.String() + "]"
	}
	return d.Severity.String() + code + ": " + Printable(d.Summary)
}

// Diagnostics are several findings.
type Diagnostics []*Diagnostic

// HasErrors reports whether one of them is an error.
func (ds Diagnostics) HasErrors() bool {
	errors, _ := ds.Count()
	return errors > 0
}

// Count gives the number of errors and of warnings.
func (ds Diagnostics) Count() (errors, warnings int) {
	for _, d := range ds {
		if d.Severity == Warning {
			warnings++
		} else {
			errors++
		}
	}
	return errors, warnings
}

// Err is nil without errors, otherwise the list as an error.
func (ds Diagnostics) Err() error {
	if !ds.HasErrors() {
		return nil
	}
	return ds
}

// Error gives the first errors, one a line.
func (ds Diagnostics) Error() string {
	const most = 3
	var lines []string
	errors, _ := ds.Count()
	for _, d := range ds {
		if d.Severity != Warning && len(lines) < most {
			lines = append(lines, d.short())
		}
	}
	if errors > most {
		lines = append(lines, fmt.Sprintf("and %d more errors", errors-most))
	}
	return strings.Join(lines, "\n")
}

// Sorted gives a copy in the order of file and line, without exact repetitions. What has no place comes first.
func (ds Diagnostics) Sorted() Diagnostics {
	out := slices.Clone(ds)
	slices.SortStableFunc(out, func(a, b *Diagnostic) int {
		return cmp.Or(
			cmp.Compare(a.Subject.Filename, b.Subject.Filename),
			cmp.Compare(a.Subject.Start.Line, b.Subject.Start.Line),
			cmp.Compare(a.Subject.Start.Byte, b.Subject.Start.Byte),
			cmp.Compare(a.Severity, b.Severity),
		)
	})
	return slices.CompactFunc(out, func(a, b *Diagnostic) bool {
		return a.Code == b.Code && a.Subject == b.Subject && a.Summary == b.Summary && a.Label == b.Label
	})
}
