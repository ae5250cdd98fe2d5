// SPDX-License-Identifier: Apache-2.0

package diag

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

// TextOptions say how the text form looks.
type TextOptions struct {
	Color bool
	Width int // columns; 0 = 100
	Most  int // findings to print before only their number is told; 0 = 30
}

const (
	defaultWidth = 100
	defaultMost  = 30
)

const (
	styleReset  = "\x1b[0m"
	styleBold   = "\x1b[1m"
	styleRed    = "\x1b[1;31m"
	styleYellow = "\x1b[1;33m"
	styleBlue   = "\x1b[1;34m"
	styleCyan   = "\x1b[1;36m"
)

// WriteText prints the findings for people, sorted, each with its lines and carets. Colour only adds to it.
func WriteText(w io.Writer, ds Diagnostics, files Files, opts TextOptions) error {
	if opts.Width <= 0 {
		opts.Width = defaultWidth
	}
	if opts.Most <= 0 {
		opts.Most = defaultMost
	}
	t := &textWriter{w: bufio.NewWriter(w), files: files, opts: opts}
	sorted := ds.Sorted()
	for i, d := range sorted {
		if i > 0 {
			t.print("\n")
		}
		if i == opts.Most {
			t.print(remainder(sorted[i:]) + "\n")
			break
		}
		t.diagnostic(d)
	}
	return t.w.Flush()
}

// remainder says what was not printed.
func remainder(rest Diagnostics) string {
	e, w := rest.Count()
	switch {
	case w == 0:
		return "and " + count(e, "more error")
	case e == 0:
		return "and " + count(w, "more warning")
	}
	return "and " + count(e, "more error") + " and " + count(w, "warning")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

type textWriter struct {
	w     *bufio.Writer
	files Files
	opts  TextOptions
}

func (t *textWriter) print(s string) { t.w.WriteString(s) } //nolint:errcheck // Flush gives the error.

func (t *textWriter) paint(style, s string) string {
	if !t.opts.Color || s == "" {
		return s
	}
	return style + s + styleReset
}

func (t *textWriter) diagnostic(d *Diagnostic) {
	style := styleRed
	if d.Severity == Warning {
		style = styleYellow
	}
	word, summary, _ := strings.Cut(d.heading(), ": ")
	t.print(t.paint(style, word) + t.paint(styleBold, ": "+summary) + "\n")

	gutter := t.gutter(d)
	if d.Subject.Filename != "" {
		t.place("-->", d.Subject, '^', style, d.Label, gutter)
	} else if d.Label != "" {
		t.remark("", d.Label, gutter)
	}
	for _, r := range d.Related {
		t.place(":::", r.Range, '-', styleBlue, r.Text, gutter)
	}
	for _, v := range d.Values {
		t.remark("", "with "+v.Name+" = "+v.Text, gutter)
	}
	for _, n := range d.Notes {
		t.remark("", n, gutter)
	}
	for _, h := range d.Help {
		t.remark("help: ", h, gutter)
	}
	if d.URL != "" {
		t.remark("see: ", d.URL, gutter)
	}
}

// gutter is the width of the widest line number.
func (t *textWriter) gutter(d *Diagnostic) int {
	widest := 1
	see := func(r hcl.Range) {
		if r.Filename != "" {
			widest = max(widest, len(fmt.Sprint(r.Start.Line)))
		}
	}
	see(d.Subject)
	for _, r := range d.Related {
		see(r.Range)
	}
	return widest
}

func (t *textWriter) place(arrow string, r hcl.Range, mark rune, style, label string, gutter int) {
	label = Printable(label)
	at := Printable(r.Filename)
	if r.Start.Line > 0 {
		at += fmt.Sprintf(":%d:%d", r.Start.Line, r.Start.Column)
	}
	pad := strings.Repeat(" ", gutter)
	t.print(pad + t.paint(styleBlue, arrow) + " " + at + "\n")

	e, ok := t.files.excerpt(r, max(20, t.opts.Width-gutter-3))
	if !ok {
		if label != "" {
			t.remark("", label, gutter)
		}
		return
	}
	bar := t.paint(styleBlue, pad+" |")
	t.print(bar + "\n")
	t.print(t.paint(styleBlue, fmt.Sprintf("%*d |", gutter, r.Start.Line)))
	if e.text != "" {
		t.print(" " + e.text)
	}
	t.print("\n")
	carets := strings.Repeat(string(mark), e.marks)
	if label != "" {
		carets += " " + label
	}
	t.print(bar + " " + strings.Repeat(" ", e.pad) + t.paint(style, carets) + "\n")
}

func (t *textWriter) remark(kind, text string, gutter int) {
	pad := strings.Repeat(" ", gutter+1)
	for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		line = Printable(line)
		if i == 0 {
			t.print(pad + t.paint(styleBlue, "=") + " " + t.paint(styleCyan, kind) + line + "\n")
			continue
		}
		t.print(strings.TrimRight(pad+"  "+line, " ") + "\n")
	}
}
