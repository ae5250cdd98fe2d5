// SPDX-License-Identifier: Apache-2.0

package run

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden output in testdata")

// A script in testdata is a list of blocks: a command, a line of four dashes, the effects and the change of the state.
// Commands name calls by their call id; the world finds the effect.
//
//	start [input=N] [LIMITS] [sandbox] [check] [guard-first] [guard-beside] [guard-output] [retries=N] [stop-first] [stop-at=A,B] [reset] [raise]
//	sandbox ok|fail
//	model [text] [compaction] [call=ID:TOOL[:ARGS]]... [ask=ID] [handoff=ID[:own]] [problem=ID:CODE] [refusal=R] [cut=R] [tokens=N] [cost=N]
//	model-error CODE
//	tool ID ok|error|fatal|unsure|suspended|used
//	passed-on [replace] | pass-on-failed
//	guard ok|trip
//	decide ID allow|deny [always]
//	checked ok|bad
//	after DURATION      time goes by; the next command sees it
//	tick | pause | cancel [now]
//	stale EFFECT        a tool result for any effect id
//	crash               the state is read back from the log
//	resume [LIMITS] [sandbox] …, or resume note
//
// LIMITS are turns=N tokens=N cost=N tool-calls=N wall=DURATION.
func TestScripts(t *testing.T) {
	for _, file := range scripts(t) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			blocks := readScript(t, file)
			w := newWorld()
			var out strings.Builder
			for _, b := range blocks {
				out.WriteString(b.comment)
				fmt.Fprintf(&out, "%s\n----\n%s\n", b.command, w.show(b.command))
			}
			got := strings.TrimRight(out.String(), "\n") + "\n"
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("output changed; look at it and run with -update (-want +got):\n%s", diff)
			}
		})
	}
}

// A crash after any step, followed by a resume, must not change what the run comes to.
func TestCrashAfterEveryStep(t *testing.T) {
	for _, file := range scripts(t) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			var commands []string
			for _, b := range readScript(t, file) {
				commands = append(commands, b.command)
			}
			calm := newWorld()
			for _, c := range commands {
				calm.do(c)
			}
			for k := 1; k < len(commands); k++ {
				w := newWorld()
				for _, c := range commands[:k] {
					w.do(c)
				}
				if w.state.Status != Running {
					continue
				}
				before, stopping := w.state, w.state.Stop != nil
				w.do("crash")
				w.resume(w.state.Config)
				if w.err != nil {
					t.Fatalf("resume after %q: %v", commands[k-1], w.err)
				}
				if before.Sandbox.Ready && w.state.Sandbox.InFlight {
					w.do("sandbox ok")
				}
				if stopping {
					if w.state.Status == Running && w.state.Stop != nil {
						t.Errorf("after %q the resumed run is still stopping", commands[k-1])
					}
					continue // a crash forgets the wish to stop; the rest of the script does not fit
				}
				if slices.ContainsFunc(before.Calls, func(c Call) bool { return c.Suspended }) {
					continue // a resume takes it up; the rest of the script does not fit
				}
				if got, want := w.state.InFlight(), before.InFlight(); !slices.Equal(got, want) {
					t.Errorf("after %q effects %v were in flight, the resume issued %v", commands[k-1], want, got)
				}
				for _, c := range commands[k:] {
					w.do(c)
				}
				if diff := cmp.Diff(calm.outcome(), w.outcome()); diff != "" {
					t.Errorf("a crash after %q changed the outcome (-calm +crashed):\n%s", commands[k-1], diff)
				}
			}
		})
	}
}

func scripts(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	return files
}

type block struct{ comment, command string }

func readScript(t *testing.T, file string) []block {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var blocks []block
	var comment strings.Builder
	output := false
	for line := range strings.Lines(string(raw)) {
		text := strings.TrimRight(line, "\n")
		switch {
		case text == "----":
			output = true
		case text == "":
			if !output && comment.Len() > 0 {
				comment.WriteString("\n")
			}
			output = false
		case output:
		case strings.HasPrefix(text, "#"):
			comment.WriteString(line)
		default:
			blocks = append(blocks, block{comment.String(), text})
			comment.Reset()
		}
	}
	return blocks
}
