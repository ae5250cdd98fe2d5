// SPDX-License-Identifier: Apache-2.0

package show_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/core/cli/show"
	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/sdk/driver"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// script is a run with all that can happen in one.
func script() []event.Event {
	var out []event.Event
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	turn := 0
	add := func(after time.Duration, d event.Data) {
		at = at.Add(after)
		if d.Kind() == event.KindTurnStarted {
			turn++
		}
		out = append(out, event.Event{Seq: uint64(len(out) + 1), Time: at, RunID: "r1", Agent: "helper", Turn: turn, Kind: d.Kind(), Data: d})
	}
	const ms = time.Millisecond
	add(0, event.RunStarted{Input: "go", Model: "m", Driver: "unixlocal"})
	add(20*ms, event.SandboxProgress{Phase: "filling", Message: "2 files, 330 bytes"})
	add(20*ms, event.SandboxReady{SandboxID: "s1", Driver: "unixlocal", Root: "/workspace", Isolation: []driver.Isolation{
		{Axis: "filesystem", Statement: "private root"}, {Axis: "unix_sockets", Statement: "only inside", Gap: "no Landlock"},
	}})
	add(5*ms, event.TurnStarted{})
	add(900*ms, event.ModelDelta{Text: "I look at "})
	add(90*ms, event.ModelDelta{Text: "what is there.\n"})
	add(10*ms, event.ModelDone{Text: "I look at what is there.\n", ToolCalls: 2, Usage: model.Usage{TotalTokens: 12345}})
	add(ms, event.ToolStarted{CallID: "1", Tool: "exec_command", Arguments: `{"cmd":"find . -name '*.go' -print0 | xargs -0 grep -n 'a rather long pattern that fills the line' | sort"}`})
	add(ms, event.ToolStarted{CallID: "2", Tool: "exec_command", Arguments: `{"cmd":"make\n  test"}`})
	add(300*ms, event.ToolOutput{CallID: "1", Text: "one\ntwo\nthree\nfour\nfi"})
	add(ms, event.ToolOutput{CallID: "2", Text: " 10 %\r 50 %\r100 %\n\x1b[31mred\x1b[0m \x1b]0;title\a\x1b(Bplain\ta tab\n"})
	add(300*ms, event.ToolOutput{CallID: "1", Text: "ve\nsix\n漢字かな交じり文の長い行は、幅が二つ分の文字でできている。だから切る場所も違う。 é \u202ex\x00y\n"})
	add(61*time.Second, event.ToolFinished{CallID: "2", Tool: "exec_command", OK: true, Summary: "exit 0 in 1m1s", Duration: 61 * time.Second})
	add(ms, event.ToolFinished{CallID: "1", Tool: "exec_command", Code: "exec_timeout", Summary: "it took longer than 1m"})
	add(ms, event.TurnStarted{})
	add(ms, event.ModelRetry{Attempt: 1, After: 1500 * ms, Error: "429"})
	add(ms, event.ModelDone{ToolCalls: 1, Usage: model.Usage{TotalTokens: 1000}})
	patch := "*** Begin Patch\n*** Update File: a.go\n@@ func f\n-old\n+new\n*** Add File: b.txt\n" + strings.Repeat("+line\n", 14) + "*** End Patch\n"
	add(ms, event.ToolStarted{CallID: "3", Tool: "apply_patch", Arguments: patch})
	add(ms, event.ToolFinished{CallID: "3", Tool: "apply_patch", OK: true, Summary: "2 files changed, +15 -1"})
	add(ms, event.SandboxLost{SandboxID: "s1", Reason: "the driver died"})
	add(ms, event.Warning{Message: "something odd", Hint: "mend it"})
	add(ms, event.TurnStarted{})
	add(ms, event.ModelDone{Text: "The answer.", Usage: model.Usage{TotalTokens: 7}})
	add(ms, event.SandboxEnded{SandboxID: "s1", Outcome: "destroyed"})
	add(ms, event.RunFinished{Status: "completed", Output: "The answer.", Turns: 3})
	return out
}

func TestText(t *testing.T) {
	for _, tc := range []struct {
		name string
		o    show.TextOptions
	}{
		{"plain", show.TextOptions{}},
		{"narrow", show.TextOptions{Width: 30}},
		{"live", show.TextOptions{Live: true, Color: true, Width: 72}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var b bytes.Buffer
			s := show.Text(&b, tc.o)
			for _, ev := range script() {
				s.Event(ev)
			}
			s.Close()
			got := b.String()
			if !tc.o.Live && strings.ContainsAny(got, "\x1b\r\x00\u202e") {
				t.Errorf("it holds what steers a terminal: %q", got)
			}
			got = strings.NewReplacer("\x1b", "␛", "\r", "␍").Replace(got)
			golden := filepath.Join("testdata", tc.name+".txt")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("differs from %s (-want +got), see -update:\n%s", golden, diff)
			}
		})
	}
}

// screen is what a terminal of one line would keep of a text.
func screen(text string) (lines []string, last string) {
	for rest := text; rest != ""; {
		switch {
		case strings.HasPrefix(rest, "\x1b[K"):
			rest = rest[3:]
			continue
		case rest[0] == '\x1b':
			rest = rest[strings.IndexByte(rest, 'm')+1:]
			continue
		case rest[0] == '\r':
			last, rest = "", rest[1:]
			continue
		case rest[0] == '\n':
			lines, last, rest = append(lines, last), "", rest[1:]
			continue
		}
		_, n := utf8.DecodeRuneInString(rest)
		last, rest = last+rest[:n], rest[n:]
	}
	return lines, last
}

// The line of the moment never wraps, is written in one piece, and is gone at the end.
func TestLiveLine(t *testing.T) {
	for _, width := range []int{12, 40, 100} {
		w := &pieces{}
		s := show.Text(w, show.TextOptions{Live: true, Width: width})
		for _, ev := range script() {
			before := len(w.all)
			s.Event(ev)
			if n := len(w.all) - before; n > 1 {
				t.Errorf("width %d: %s was written in %d pieces", width, ev.Kind, n)
			}
			if _, last := screen(strings.Join(w.all, "")); utf8.RuneCountInString(last) >= width {
				t.Errorf("width %d: the line of the moment is %q", width, last)
			}
		}
		s.Close()
		if _, last := screen(strings.Join(w.all, "")); last != "" {
			t.Errorf("width %d: %q is left at the end", width, last)
		}
	}
}

type pieces struct{ all []string }

func (p *pieces) Write(b []byte) (int, error) {
	p.all = append(p.all, string(b))
	return len(b), nil
}

func TestTheClockGoesOn(t *testing.T) {
	ticks := make(chan time.Time)
	w := &pieces{}
	s := show.Text(w, show.TextOptions{Live: true, Width: 60, Ticks: ticks})
	evs := script()
	for _, ev := range evs[:8] {
		s.Event(ev)
	}
	for _, after := range []time.Duration{200 * time.Millisecond, 2 * time.Second, 3 * time.Second} {
		ticks <- evs[7].Time.Add(after)
	}
	s.Close()
	var seen []string
	for _, p := range w.all {
		if _, last := screen(p); last != "" {
			seen = append(seen, last[:2])
		}
	}
	if got, want := fmt.Sprint(seen[len(seen)-3:]), "[1s 3s 4s]"; got != want {
		t.Errorf("the clock showed %s, want %s", got, want)
	}
}
