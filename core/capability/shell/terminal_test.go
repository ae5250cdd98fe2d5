// SPDX-License-Identifier: Apache-2.0

//go:build linux

package shell_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/core/capability/shell"
	"github.com/berth-dev/berth/core/spec"
)

// typed types a line and polls until the terminal has shown what it must.
func (f *fixture) typed(t testing.TB, session int, line, want string) string {
	t.Helper()
	var all strings.Builder
	r := f.stdin(t, args{"session_id": session, "chars": line, "yield_time_ms": 20000})
	for deadline := time.Now().Add(20 * time.Second); ; {
		all.WriteString(r.output)
		if strings.Contains(all.String(), want) {
			return all.String()
		}
		if r.session < 0 || time.Now().After(deadline) {
			t.Fatalf("typed %q, want %q, got %q (%+v)", line, want, all.String(), r)
		}
		r = f.stdin(t, args{"session_id": session, "yield_time_ms": 5000})
	}
}

func TestTerminal(t *testing.T) {
	f := newFixture(t)

	t.Run("shell", func(t *testing.T) {
		r := f.exec(t, args{"cmd": "export PS1='> '; exec sh -i", "tty": true, "yield_time_ms": 20000})
		if r.session < 0 || !strings.Contains(r.output, "> ") {
			t.Fatalf("%+v", r)
		}
		id := r.session
		f.typed(t, id, "tty && stty size\n", "24 80")
		f.typed(t, id, "x=4; echo $((x*x*x))$x\n", "644\r\n")
		// A step comes back when the terminal is quiet, not when its time is over.
		var took []time.Duration
		for i := range 9 {
			began := time.Now()
			f.typed(t, id, fmt.Sprintf("echo a$((%d+1))b\n", i), fmt.Sprintf("\na%db\r\n", i+1))
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		t.Logf("a step takes %s (median of %d), at most %s", took[4].Round(time.Millisecond), len(took), took[8].Round(time.Millisecond))
		if took[4] > 3*time.Second {
			t.Errorf("a step takes %s, its yield is 20 s", took[4])
		}
		// Ctrl-C ends what runs in the terminal, not the shell.
		f.typed(t, id, "sleep 1000\n", "sleep 1000\r\n")
		f.typed(t, id, "\u0003", "> ")
		f.typed(t, id, "echo still here $((20+22))\n", "here 42")
		r = f.stdin(t, args{"session_id": id, "chars": "exit 7\n", "yield_time_ms": 20000})
		for r.session >= 0 {
			r = f.stdin(t, args{"session_id": id})
		}
		if r.code != 7 {
			t.Errorf("%+v", r)
		}
		res := f.call(t, "write_stdin", args{"session_id": id, "chars": "echo\n"})
		if res.Error == nil || res.Error.Code != "process_unknown" {
			t.Errorf("%+v", res)
		}
	})

	t.Run("end of input", func(t *testing.T) {
		r := f.exec(t, args{"cmd": "cat; echo over", "tty": true, "yield_time_ms": 250})
		f.typed(t, r.session, "some line\n", "some line\r\nsome line\r\n")
		r = f.stdin(t, args{"session_id": r.session, "chars": "\u0004", "yield_time_ms": 20000})
		for r.session >= 0 {
			r = f.stdin(t, args{"session_id": r.session})
		}
		if r.code != 0 || !strings.HasSuffix(r.output, "over\r\n") {
			t.Errorf("%+v", r)
		}
	})

	t.Run("more than it reads", func(t *testing.T) {
		// A program that reads nothing, and a terminal that is full: the call comes back all the same.
		r := f.exec(t, args{"cmd": "stty raw -echo; sleep 1000", "tty": true, "yield_time_ms": 500})
		began := time.Now()
		r = f.stdin(t, args{"session_id": r.session, "chars": strings.Repeat("x", 1<<20), "yield_time_ms": 250})
		if took := time.Since(began); took > 10*time.Second || r.session < 0 {
			t.Errorf("%+v after %s", r, took)
		}
		// What waits is bounded, here and on the way.
		for range 32 {
			res := f.call(t, "write_stdin", args{"session_id": r.session, "chars": strings.Repeat("x", 1<<20), "yield_time_ms": 250})
			if res.Error != nil {
				if res.Error.Code != "input_full" {
					t.Errorf("%+v", res.Error)
				}
				return
			}
		}
		t.Error("32 MiB wait for a program that does not read")
	})

	t.Run("python", func(t *testing.T) {
		if f.exec(t, args{"cmd": "command -v python3"}).code != 0 {
			t.Skip("there is no python3 in the sandbox")
		}
		own := *f
		own.configure(t, shell.Config{Spec: &spec.ShellCapability{Env: map[string]string{"PYTHON_BASIC_REPL": "1"}}})
		r := own.exec(t, args{"cmd": "python3 -q", "tty": true, "yield_time_ms": 250})
		own.typed(t, r.session, "print(sum(range(101)), 'é日本')\n", "5050 é日本\r\n")
		// It says that it computes: an interrupt between two lines of input may be lost on Python.
		own.typed(t, r.session, "print('for', 'ever') or next(x for x in iter(int, 1) if x)\n", "for ever\r\n")
		own.typed(t, r.session, "\u0003", "KeyboardInterrupt")
		r = own.stdin(t, args{"session_id": r.session, "chars": "exit(3)\n", "yield_time_ms": 20000})
		for r.session >= 0 {
			r = own.stdin(t, args{"session_id": r.session})
		}
		if r.code != 3 {
			t.Errorf("%+v", r)
		}
	})
}
