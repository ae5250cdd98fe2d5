// SPDX-License-Identifier: Apache-2.0

package show

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/core/trace"
)

func span(id, parent, name string, from, to int, attrs map[string]any) trace.Span {
	at := func(ms int) time.Time { return time.Unix(1_000_000, 0).Add(time.Duration(ms) * time.Millisecond) }
	s := trace.Span{SpanID: id, ParentID: parent, Name: name, Start: at(from), Attrs: attrs}
	if to >= 0 {
		end := at(to)
		s.End = &end
	}
	return s
}

func traced() []trace.Span {
	used := map[string]any{"gen_ai.usage.input_tokens": 1234.0, "gen_ai.usage.output_tokens": 56.0}
	bad := span("5", "3", "execute_tool exec\x1b[31m_command", 500, 1000, map[string]any{"error.type": "timeout"})
	bad.Status = "error"
	return []trace.Span{
		span("1", "", "run helper", 0, 1000, used), span("2", "1", "invoke_agent helper", 0, 1000, nil),
		span("3", "2", "turn 1", 0, 1000, used), span("4", "3", "chat m", 0, 500, used), bad,
		// It went on an hour later.
		span("6", "1", "run helper", 3_600_000, 3_601_000, nil), span("7", "6", "chat m", 3_600_500, -1, nil),
	}
}

func draw(t *testing.T, o TraceOptions) []string {
	t.Helper()
	var b bytes.Buffer
	if err := Trace(&b, traced(), o); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	for _, l := range lines {
		if columns(l) > max(o.Width, 30) {
			t.Errorf("%d columns in %d: %q", columns(l), o.Width, l)
		}
	}
	return lines
}

func TestTrace(t *testing.T) {
	got := draw(t, TraceOptions{Width: 100})
	if len(got) != 7 {
		t.Fatalf("%d lines", len(got))
	}
	text := strings.Join(got, "\n")
	for _, want := range []string{
		"├ invoke_agent helper", "│ └ turn 1", "│   ├ chat m", "│   └ execute_tool exec_command ✗ timeout", "└ run helper", "  └ chat m", "cut off", "500ms", "1.2k→56",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	bar := func(line string) string {
		var b strings.Builder
		for _, r := range line {
			if strings.ContainsRune("·█▏▎▍▌▋▊▉", r) {
				b.WriteRune(r)
			}
		}
		return b.String()
	}
	// The hour in which nothing was is not there: both processes have half of the width, and the first call half of that.
	width := columns(bar(got[0]))
	if n := strings.Count(bar(got[0]), "█"); n != width/2 {
		t.Errorf("the first run has %d of %d cells\n%s", n, width, text)
	}
	if n := strings.Count(bar(got[3]), "█"); n != width/4 {
		t.Errorf("the first call has %d of %d cells\n%s", n, width, text)
	}
	if b := bar(got[5]); !strings.HasPrefix(b, strings.Repeat("·", width/2)+"█") {
		t.Errorf("the second run begins elsewhere: %s", b)
	}
	if live := strings.Join(draw(t, TraceOptions{Width: 100, Live: time.Unix(1_000_000, 0).Add(3_601_500 * time.Millisecond)}), "\n"); !strings.Contains(live, "1.0s…") {
		t.Errorf("what goes on is not shown as such:\n%s", live)
	}
	if colored := strings.Join(draw(t, TraceOptions{Width: 4000, Color: true}), "\n"); !strings.Contains(colored, red+"│   └ execute_tool") {
		t.Errorf("%q", colored)
	}
}

func TestTraceInNarrowTerminals(t *testing.T) {
	for width := 1; width <= 120; width++ {
		draw(t, TraceOptions{Width: width})
	}
	if text := strings.Join(draw(t, TraceOptions{Width: 40}), "\n"); strings.ContainsAny(text, "█·") || strings.Contains(text, "→") || !strings.Contains(text, "run helper") {
		t.Errorf("in 40 columns:\n%s", text)
	}
	// Spans in a ring, or below one that is not there, are no reason to hang.
	ring := []trace.Span{span("1", "2", "a", 0, 1, nil), span("2", "1", "b", 0, 1, nil), span("3", "9", "c", 0, 1, nil)}
	var b bytes.Buffer
	if err := Trace(&b, ring, TraceOptions{}); err != nil || !strings.Contains(b.String(), "c") {
		t.Error(err, b.String())
	}
}
