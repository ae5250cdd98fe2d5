// SPDX-License-Identifier: Apache-2.0

package show

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/berth-dev/berth/core/trace"
)

// TraceOptions are for [Trace].
type TraceOptions struct {
	Color bool
	Width int       // columns; 0 = 100
	Live  time.Time // now, when the run goes on; zero = it does not
}

// The columns of a trace beside the names.
const (
	timeWidth   = 8
	tokenWidth  = 11
	fewestCells = 8  // a bar that is worth its room
	mostNames   = 56 // columns of the names, where there is room
)

// Trace draws the spans of a run: a tree, with a bar for when each was, how long it took, and its tokens.
func Trace(w io.Writer, spans []trace.Span, o TraceOptions) error {
	o.Width = cmp.Or(o.Width, 100)
	rows := arrange(spans, o.Live)
	names := 0
	for i := range rows {
		names = max(names, columns(rows[i].label))
	}
	rest := o.Width - timeWidth - tokenWidth - 2 // what names and bars share
	names = min(names, mostNames, max(rest-fewestCells-1, rest*3/5))
	cells := min(rest-names-1, 48)
	tokens := true
	if cells < fewestCells || o.Width < 50 { // too narrow for bars, or for tokens too
		cells = 0
		if tokens = o.Width >= 50; !tokens {
			rest += tokenWidth + 1
		}
		names = max(rest, 12)
	}
	clock := newAxis(rows, cells)
	var out bytes.Buffer
	for i := range rows {
		r := &rows[i]
		label := clip(r.label, names)
		label += strings.Repeat(" ", max(0, names-columns(label)))
		if r.bad {
			label = tint(o.Color, red, label)
		}
		out.WriteString(label)
		if cells > 0 {
			bar := clock.bar(r)
			if r.bad {
				bar = tint(o.Color, red, bar)
			}
			out.WriteString(" " + bar)
		}
		fmt.Fprintf(&out, " %*s", timeWidth, r.took())
		if tokens && r.tokens != "" {
			fmt.Fprintf(&out, " %*s", tokenWidth, r.tokens)
		}
		out.WriteByte('\n')
	}
	_, err := w.Write(out.Bytes())
	return err
}

func tint(on bool, color, text string) string {
	if !on {
		return text
	}
	return color + text + plain
}

func columns(s string) int {
	n := 0
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}

// row is a span in its place.
type row struct {
	label      string
	start, end time.Time
	open, live bool // it has no end; and the run goes on
	bad        bool
	tokens     string
}

func (r *row) took() string {
	switch {
	case r.live:
		return brief(r.end.Sub(r.start)) + "…"
	case r.open:
		return "cut off"
	}
	return brief(r.end.Sub(r.start))
}

// brief is a time in at most seven columns.
func brief(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%dµs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}

// arrange puts spans below those that they are in, in the order of their beginnings.
func arrange(spans []trace.Span, live time.Time) []row {
	known := map[string]bool{}
	for i := range spans {
		known[spans[i].SpanID] = true
	}
	below := map[string][]*trace.Span{}
	for i := range spans {
		s := &spans[i]
		in := s.ParentID
		if !known[in] || in == s.SpanID {
			in = ""
		}
		below[in] = append(below[in], s)
	}
	for _, all := range below {
		slices.SortStableFunc(all, func(a, b *trace.Span) int { return a.Start.Compare(b.Start) })
	}
	var rows []row
	var add func(s *trace.Span, lead, mark string) time.Time
	add = func(s *trace.Span, lead, mark string) time.Time {
		at := len(rows)
		rows = append(rows, row{label: lead + mark + title(s), start: s.Start, bad: s.Status == "error", tokens: tokensOf(s)})
		last := s.Start
		inner := lead
		switch mark {
		case "├ ":
			inner += "│ "
		case "└ ":
			inner += "  "
		}
		all := below[s.SpanID]
		delete(below, s.SpanID) // a file that was tampered with can have a ring
		for i, b := range all {
			m := "├ "
			if i == len(all)-1 {
				m = "└ "
			}
			if end := add(b, inner, m); end.After(last) {
				last = end
			}
		}
		r := &rows[at]
		switch {
		case s.End != nil:
			r.end = *s.End
		case !live.IsZero():
			r.open, r.live, r.end = true, true, live
		default:
			r.open, r.end = true, last
		}
		return r.end
	}
	for _, s := range below[""] {
		add(s, "", "")
	}
	return rows
}

// title is what a span is called: its name, and why it failed.
func title(s *trace.Span) string {
	name := oneLine(s.Name)
	if s.Status == "error" {
		code, _ := s.Attrs["error.type"].(string)
		name += " ✗ " + oneLine(cmp.Or(s.Message, code, "error"))
	}
	if tripped, _ := s.Attrs["berth.guardrail.tripped"].(bool); tripped {
		name += " tripped"
	}
	if utf8.RuneCountInString(name) > 200 {
		name = clip(name, 200)
	}
	return name
}

// tokensOf are the tokens that a span took and gave.
func tokensOf(s *trace.Span) string {
	in, ok := s.Attrs["gen_ai.usage.input_tokens"].(float64)
	out, too := s.Attrs["gen_ai.usage.output_tokens"].(float64)
	if !ok || !too {
		return ""
	}
	return few(in) + "→" + few(out)
}

// few is a number in at most five columns.
func few(n float64) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%.0f", n)
	case n < 99_950:
		return fmt.Sprintf("%.1fk", n/1e3)
	case n < 999_500:
		return fmt.Sprintf("%.0fk", n/1e3)
	}
	return fmt.Sprintf("%.1fM", n/1e6)
}

// axis maps times to cells. Where no span was, such as between a pause and a resume, there is nothing.
type axis struct {
	cells  int
	pieces []piece
	whole  time.Duration
}

// piece is a time in which there were spans.
type piece struct {
	start, end time.Time
	before     time.Duration // of the pieces before it
}

func newAxis(rows []row, cells int) *axis {
	a := &axis{cells: cells}
	sorted := slices.Clone(rows)
	slices.SortStableFunc(sorted, func(x, y row) int { return x.start.Compare(y.start) })
	for _, r := range sorted {
		n := len(a.pieces)
		switch {
		case n == 0 || r.start.After(a.pieces[n-1].end):
			a.pieces = append(a.pieces, piece{start: r.start, end: r.end})
		case r.end.After(a.pieces[n-1].end):
			a.pieces[n-1].end = r.end
		}
	}
	for i := range a.pieces {
		a.pieces[i].before = a.whole
		a.whole += max(0, a.pieces[i].end.Sub(a.pieces[i].start))
	}
	return a
}

// at is how far a time is, in eighths of a cell.
func (a *axis) at(t time.Time) int {
	if a.whole <= 0 {
		return 0
	}
	done := a.whole
	for _, p := range a.pieces {
		if t.Before(p.end) {
			done = p.before + max(0, t.Sub(p.start))
			break
		}
	}
	return int(float64(done) / float64(a.whole) * float64(a.cells*8))
}

var eighths = []string{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"}

// bar is a row's time as a bar. What is too short to be seen is a line.
func (a *axis) bar(r *row) string {
	from, to := a.at(r.start), a.at(r.end)
	first := min(from/8, a.cells-1)
	n := to - first*8 // eighths from the first cell on
	var b strings.Builder
	b.WriteString(strings.Repeat("·", first))
	width := first
	if n < 1 || to-from < 1 {
		b.WriteString("▏")
		width++
	} else {
		full := min(n/8, a.cells-first)
		b.WriteString(strings.Repeat("█", full))
		width += full
		if part := eighths[n%8]; part != "" && width < a.cells {
			b.WriteString(part)
			width++
		}
	}
	b.WriteString(strings.Repeat("·", a.cells-width))
	return b.String()
}
