// SPDX-License-Identifier: Apache-2.0

//go:build linux

package shell_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-dev/berth/core/capability/shell"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/sandbox"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/tool"
	"github.com/berth-dev/berth/internal/localtest"
)

// fixture is the capability in a real sandbox.
type fixture struct {
	*shell.Shell
	host    *localtest.Host
	session *sandbox.Session
	calls   *atomic.Int64
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	f := &fixture{host: localtest.New(t, nil), calls: &atomic.Int64{}}
	f.session = f.host.Open(t, sandbox.Config{})
	f.configure(t, shell.Config{})
	return f
}

// configure gives the sandbox a capability with another configuration.
func (f *fixture) configure(t testing.TB, cfg shell.Config) {
	t.Helper()
	s := shell.New(f.session, cfg)
	f.Shell = s
	t.Cleanup(func() {
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

type args map[string]any

// call calls a tool as the executor does.
func (f *fixture) call(t testing.TB, name string, a args) tool.Result {
	t.Helper()
	b, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	res, err := f.raw(t.Context(), name, string(b), nil)
	if err != nil {
		t.Fatalf("%s %s: %v", name, b, err)
	}
	return res
}

func (f *fixture) raw(ctx context.Context, name, arguments string, progress func(tool.Progress)) (tool.Result, error) {
	if progress == nil {
		progress = func(tool.Progress) {}
	}
	for _, tl := range f.Tools(model.Support{}) {
		if tl.Spec().Name == name {
			return tl.Call(ctx, tool.Call{ID: fmt.Sprintf("call_%d", f.calls.Add(1)), Arguments: arguments, Progress: progress})
		}
	}
	return tool.Result{}, fmt.Errorf("no tool %q", name)
}

// reply is a result's text, taken apart.
type reply struct {
	code, session int // -1 = not said
	ended         string
	tokens        int
	dropped       uint64
	output        string
}

var replyForm = regexp.MustCompile(`^Chunk ID: [0-9a-f]{6}
Wall time: \d+\.\d{4} seconds
(?:Process exited with code (\d+)
((?:The command [^\n]*
)?)|Process running with session ID (\d+)
)(?:Original token count: (\d+)
)?(?:Dropped bytes: (\d+)
)?Output:
(?s:(.*))$`)

func parse(t testing.TB, res tool.Result) reply {
	t.Helper()
	if res.Error != nil {
		t.Fatalf("%+v", res.Error)
	}
	m := replyForm.FindStringSubmatch(res.Text)
	if m == nil {
		t.Fatalf("the text has another form:\n%s", res.Text)
	}
	number := func(s string) int {
		if s == "" {
			return -1
		}
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return reply{
		code: number(m[1]), ended: strings.TrimSuffix(m[2], "\n"), session: number(m[3]), tokens: max(number(m[4]), 0),
		dropped: uint64(max(number(m[5]), 0)), output: m[6],
	}
}

func (f *fixture) exec(t testing.TB, a args) reply {
	t.Helper()
	return parse(t, f.call(t, "exec_command", a))
}

func (f *fixture) stdin(t testing.TB, a args) reply {
	t.Helper()
	return parse(t, f.call(t, "write_stdin", a))
}

// sh runs a command that must succeed, and gives its output.
func (f *fixture) sh(t testing.TB, cmd string) string {
	t.Helper()
	r := f.exec(t, args{"cmd": cmd})
	if r.code != 0 {
		t.Fatalf("%s: %+v", cmd, r)
	}
	return r.output
}

func TestCommands(t *testing.T) {
	f := newFixture(t)

	t.Run("text", func(t *testing.T) {
		for cmd, want := range map[string]reply{
			"printf hi": {code: 0, output: "hi"},
			"true":      {code: 0},
			"echo out; sleep 0.2; echo err >&2; exit 3": {code: 3, output: "out\nerr\n"},
			"kill -TERM $$":                    {code: 143, ended: "The command was ended by signal TERM"},
			"kill -KILL $$":                    {code: 137, ended: "The command was ended by signal KILL"},
			"no-such-program-here 2>/dev/null": {code: 127},
			"printf 'a\\377\\376b\\000c'":      {code: 0, output: "a\uFFFDb\x00c"},
			"printf 'h\\303\\251llo'":          {code: 0, output: "héllo"},
			"read x; echo got=$x":              {code: 0, output: "got=\n"},
		} {
			want.session = -1
			if got := f.exec(t, args{"cmd": cmd}); got != want {
				t.Errorf("%s: got %+v, want %+v", cmd, got, want)
			}
		}
		res := f.call(t, "exec_command", args{"cmd": "exit 3"})
		if res.Detail["exit_code"] != 3 || !strings.HasPrefix(res.Summary, "exit 3 in ") {
			t.Errorf("%+v", res)
		}
	})

	t.Run("directories", func(t *testing.T) {
		f.sh(t, "mkdir -p a/b")
		for dir, want := range map[string]string{"": "/workspace", "a/b": "/workspace/a/b", "/workspace/a": "/workspace/a", "/tmp": "/tmp"} {
			if got := f.exec(t, args{"cmd": "pwd", "workdir": dir}); got.output != want+"\n" {
				t.Errorf("%q: %+v", dir, got)
			}
		}
		for _, dir := range []string{"missing", "/workspace/missing"} {
			res := f.call(t, "exec_command", args{"cmd": "pwd", "workdir": dir})
			if res.Error == nil || !strings.Contains(res.Error.Message, "missing") {
				t.Errorf("%q: %+v", dir, res)
			}
		}
		own := *f
		own.configure(t, shell.Config{Dir: "a"})
		for dir, want := range map[string]string{"": "/workspace/a", "b": "/workspace/a/b", "/tmp": "/tmp"} {
			if got := own.exec(t, args{"cmd": "pwd", "workdir": dir}); got.output != want+"\n" {
				t.Errorf("in a, %q: %+v", dir, got)
			}
		}
	})

	t.Run("shells", func(t *testing.T) {
		if got := f.sh(t, `echo "$0" ${BASH_VERSION:+bash}; shopt -q login_shell && echo login`); got != "bash bash\nlogin\n" {
			t.Errorf("default: %q", got)
		}
		if got := f.exec(t, args{"cmd": `shopt -q login_shell || echo no login`, "login": false}); got.output != "no login\n" {
			t.Errorf("%+v", got)
		}
		if got := f.exec(t, args{"cmd": `echo "$0${BASH_VERSION}"`, "shell": "/bin/sh"}); got.output != "/bin/sh\n" {
			t.Errorf("%+v", got)
		}
		res := f.call(t, "exec_command", args{"cmd": "true", "shell": "/no/such/shell"})
		if res.Error == nil || res.Error.Code != "exec_not_found" {
			t.Errorf("%+v", res)
		}
		own := *f
		own.configure(t, shell.Config{Spec: &spec.ShellCapability{DefaultShell: []string{"sh", "-euc"}, Env: map[string]string{"OWN": "yes"}}})
		if got := own.exec(t, args{"cmd": `echo $0 $OWN; false; echo not here`}); got.output != "sh yes\n" || got.code != 1 {
			t.Errorf("%+v", got)
		}
	})

	t.Run("arguments", func(t *testing.T) {
		for _, c := range []struct{ tool, arguments, want string }{
			{"exec_command", `{}`, `"cmd" is empty`},
			{"exec_command", `{"cmd":" "}`, `"cmd" is empty`},
			{"exec_command", `{"cmd":1}`, `a string is needed`},
			{"exec_command", `{"cmd":"true","yield_time_ms":-1}`, `"yield_time_ms" is -1`},
			{"exec_command", `{"cmd":"true","timeout_ms":0}`, `"timeout_ms" is 0`},
			{"exec_command", `{"cmd":"true","max_output_tokens":0}`, `"max_output_tokens" is 0`},
			{"exec_command", `{"cmd":"true","tty":"yes"}`, `a boolean is needed`},
			{"exec_command", `["true"]`, `a JSON object is needed`},
			{"exec_command", `{"cmd":`, `not valid JSON`},
			{"exec_command", "{\"cmd\":\"a\\u0000b\"}", `"cmd" holds a NUL`},
			{"exec_command", "{\"cmd\":\"true\",\"workdir\":\"a\\u0000b\"}", `"workdir" holds a NUL byte`},
			{"exec_command", "{\"cmd\":\"true\",\"shell\":\"a\\u0000b\"}", `"shell" holds a NUL byte`},
			{"write_stdin", `{}`, `"session_id" is missing`},
			{"write_stdin", `{"session_id":"1"}`, `a whole number is needed`},
			{"write_stdin", `{"session_id":1,"yield_time_ms":-5}`, `"yield_time_ms" is -5`},
			{"write_stdin", `{"session_id":99999}`, `no command is running as session 99999`},
			{"write_stdin", `{"session_id":18446744073709551615}`, `session_id`},
			{"write_stdin", `{"session_id":1,"chars":["x"]}`, `a string is needed`},
		} {
			res, err := f.raw(t.Context(), c.tool, c.arguments, nil)
			switch {
			case err != nil:
				t.Errorf("%s %s: an error that is no result: %v", c.tool, c.arguments, err)
			case res.Error == nil || !strings.Contains(res.Error.Message, c.want):
				t.Errorf("%s %s: %+v, want %q", c.tool, c.arguments, res.Error, c.want)
			}
		}
	})

	t.Run("budget", func(t *testing.T) {
		got := f.exec(t, args{"cmd": "seq 1 20000", "max_output_tokens": 100})
		if got.code != 0 || len(got.output) > 400 || !strings.HasPrefix(got.output, "Total output lines: 20000\n\n1\n2\n") ||
			!strings.HasSuffix(got.output, "\n19999\n20000\n") || got.tokens < 27000 || got.dropped > 0 {
			t.Errorf("%+v", got)
		}
		// The configured bound holds whatever the model asks for.
		own := *f
		own.configure(t, shell.Config{Spec: &spec.ShellCapability{MaxOutputTokens: 50}})
		if got := own.exec(t, args{"cmd": "seq 1 20000", "max_output_tokens": 1 << 40}); len(got.output) > 200 {
			t.Errorf("%+v", got)
		}
		// So does the bound of what is kept, and what is lost there is said.
		own.configure(t, shell.Config{OutputBytes: 100})
		got = own.exec(t, args{"cmd": "seq 1 20000"})
		if got.dropped != 108894-200 || !strings.HasPrefix(got.output, "Total output lines: 20000\n\n1\n") || !strings.HasSuffix(got.output, "\n20000\n") {
			t.Errorf("%+v", got)
		}
	})

	t.Run("live", func(t *testing.T) {
		var shown strings.Builder
		res, err := f.raw(t.Context(), "exec_command", `{"cmd":"for i in 1 2 3; do echo line $i; sleep 0.15; done"}`,
			func(p tool.Progress) { shown.Write(p.Output) })
		if err != nil || parse(t, res).output != "line 1\nline 2\nline 3\n" || shown.String() != "line 1\nline 2\nline 3\n" {
			t.Errorf("%v; shown: %q", err, shown.String())
		}
	})
}

func TestLongCommands(t *testing.T) {
	f := newFixture(t)

	t.Run("poll", func(t *testing.T) {
		r := f.exec(t, args{"cmd": "echo begin; until [ -e go ]; do sleep 0.02; done; echo end; exit 4", "yield_time_ms": 250})
		if r.session < 0 || r.output != "begin\n" {
			t.Fatalf("%+v", r)
		}
		id := r.session
		res := f.call(t, "write_stdin", args{"session_id": id, "chars": "hello\n"})
		if res.Error == nil || res.Error.Code != "no_terminal" {
			t.Errorf("%+v", res)
		}
		f.sh(t, "touch go")
		began := time.Now()
		if r = f.stdin(t, args{"session_id": id, "yield_time_ms": 30000}); r.code != 4 || r.output != "end\n" {
			t.Fatalf("%+v", r)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("the poll returned %s after it could", took)
		}
		res = f.call(t, "write_stdin", args{"session_id": id})
		if res.Error == nil || res.Error.Code != "process_unknown" {
			t.Errorf("a session that has ended: %+v", res)
		}
	})

	t.Run("timeout ends the tree", func(t *testing.T) {
		mark := localtest.Mark()
		script := fmt.Sprintf(`setsid sh -c 'while :; do sleep 0.1; done; : %[1]s' & (setsid sh -c 'while :; do sleep 0.1; done; : %[1]s' &) &
			trap '' TERM; echo up; while :; do sleep 0.1; done; : %[1]s`, mark)
		own := *f
		r := own.exec(t, args{"cmd": script, "timeout_ms": 300})
		if !strings.HasPrefix(r.ended, "The command timed out after ") || r.output != "up\n" || r.code < 128 {
			t.Errorf("%+v", r)
		}
		localtest.Eventually(t, "nothing is left", func() bool { return len(localtest.Marked(t, mark)) == 0 })
	})

	t.Run("interrupt without a terminal", func(t *testing.T) {
		r := f.exec(t, args{"cmd": "echo up; sleep 1000", "yield_time_ms": 250})
		if r = f.stdin(t, args{"session_id": r.session, "chars": "\u0003", "yield_time_ms": 10000}); r.code != 130 || r.ended != "The command was ended by signal INT" {
			t.Errorf("%+v", r)
		}
	})

	t.Run("limit", func(t *testing.T) {
		own := *f
		own.configure(t, shell.Config{MaxProcesses: 2})
		a := own.exec(t, args{"cmd": "sleep 1000", "yield_time_ms": 250})
		own.exec(t, args{"cmd": "sleep 1000", "yield_time_ms": 250})
		res := own.call(t, "exec_command", args{"cmd": "true"})
		if res.Error == nil || res.Error.Code != "quota_exceeded" || res.Error.Hint == "" {
			t.Errorf("%+v", res)
		}
		if r := own.stdin(t, args{"session_id": a.session, "chars": "\u0003", "yield_time_ms": 10000}); r.code != 130 {
			t.Errorf("%+v", r)
		}
		own.sh(t, "true")
	})

	t.Run("cancel ends the tree", func(t *testing.T) {
		mark := localtest.Mark()
		ctx, cancel := context.WithCancelCause(t.Context())
		up := make(chan struct{}, 1)
		go func() {
			<-up
			cancel(errors.New("no longer wanted"))
		}()
		arguments, err := json.Marshal(args{"cmd": fmt.Sprintf("setsid sleep 1000 %[1]s 2>/dev/null & setsid sh -c 'sleep 1000; : %[1]s' & echo up; wait", mark)})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_, err = f.raw(ctx, "exec_command", string(arguments), func(tool.Progress) {
			select {
			case up <- struct{}{}:
			default:
			}
		})
		if err == nil || time.Since(began) > 8*time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		localtest.Eventually(t, "nothing is left", func() bool { return len(localtest.Marked(t, mark)) == 0 })
	})

	t.Run("close ends everything", func(t *testing.T) {
		own := *f
		own.configure(t, shell.Config{})
		mark := localtest.Mark()
		for _, script := range []string{
			"sh -c 'sleep 1000; : %[1]s'", "setsid -w sh -c 'sleep 1000; : %[1]s'",
			"trap '' INT TERM HUP; (setsid sh -c 'trap \"\" TERM; sleep 1000; : %[1]s' &) ; sleep 1000; : %[1]s",
		} {
			if r := own.exec(t, args{"cmd": fmt.Sprintf(script, mark), "yield_time_ms": 250}); r.session < 0 {
				t.Errorf("%+v", r)
			}
		}
		tty := own.exec(t, args{"cmd": fmt.Sprintf("sh -c 'sleep 1000; : %s'", mark), "yield_time_ms": 250, "tty": true})
		if tty.session < 0 || len(localtest.Marked(t, mark)) < 4 {
			t.Fatalf("%+v, %v", tty, localtest.Marked(t, mark))
		}
		if err := own.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		localtest.Eventually(t, "nothing is left on this machine", func() bool { return len(localtest.Marked(t, mark)) == 0 })
		ps, err := f.session.Processes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range ps {
			if p.Exit == nil {
				t.Errorf("%+v still runs", p)
			}
		}
		if res := own.call(t, "exec_command", args{"cmd": "true"}); res.Error == nil {
			t.Errorf("a command ran after the close: %+v", res)
		}
	})
}

// A command goes on while its driver is killed, also after it has outlived its yield, and no byte of its output is lost or
// comes twice.
func TestDriverKilledUnderCommand(t *testing.T) {
	f := newFixture(t)
	f.configure(t, shell.Config{OutputBytes: 1 << 20, Spec: &spec.ShellCapability{MaxOutputTokens: 1 << 20}})
	const lines = 12_000
	var got strings.Builder
	r := f.exec(t, args{"yield_time_ms": 250, "cmd": fmt.Sprintf(
		`i=0; while [ $i -lt %d ]; do echo "line $i"; i=$((i+1)); if [ $((i %% 400)) = 0 ]; then sleep 0.02; fi; done; echo done`, lines)})
	if r.session < 0 {
		t.Fatalf("the command was too quick: exit %d", r.code)
	}
	got.WriteString(r.output)
	kills := 0
	for r.session >= 0 {
		if kills < 2 && f.host.DriverPID() != 0 {
			f.host.KillDriver(t)
			kills++
		}
		r = f.stdin(t, args{"session_id": r.session})
		got.WriteString(r.output)
	}
	if r.code != 0 || kills == 0 {
		t.Fatalf("exit %d after %d kills", r.code, kills)
	}
	var want strings.Builder
	for i := range lines {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	want.WriteString("done\n")
	if got.String() != want.String() {
		t.Errorf("%d bytes of output, want %d", got.Len(), want.Len())
	}
}

func TestMuchOutput(t *testing.T) {
	f := newFixture(t)
	f.sh(t, "true") // the driver and its sandbox are up
	const gib = 1 << 30
	before := selfPeak(t)
	began := time.Now()
	r := f.exec(t, args{"cmd": "echo first; head -c 1073741824 /dev/zero; echo last", "yield_time_ms": 30000})
	for r.session >= 0 {
		r = f.stdin(t, args{"session_id": r.session, "yield_time_ms": 30000})
	}
	took := time.Since(began)
	const all = gib + len("first\nlast\n")
	if r.code != 0 || !strings.Contains(r.output[:100], "first\n") || !strings.HasSuffix(r.output, "last\n") || r.tokens != (all+3)/4 ||
		r.dropped != uint64(all-2*shell.DefaultOutputBytes) {
		t.Errorf("exit %d, %d dropped, %d tokens, %q … %q", r.code, r.dropped, r.tokens, r.output[:100], r.output[len(r.output)-10:])
	}
	core, driver := selfPeak(t), localtest.PeakKiB(t, f.host.DriverPID())
	t.Logf("1 GiB in %s; core %d → %d KiB, driver %d KiB", took.Round(time.Millisecond), before, core, driver)
	if core-before > 32<<10 || driver > 40<<10 {
		t.Errorf("memory grows with the output: core %d → %d KiB, driver %d KiB", before, core, driver)
	}
	for _, pid := range guests(t) {
		t.Logf("guest %d: %d KiB", pid, localtest.PeakKiB(t, pid))
	}
}

func selfPeak(t testing.TB) int { return localtest.PeakKiB(t, os.Getpid()) }

// guests are the processes whose program is a guest.
func guests(t testing.TB) []int {
	t.Helper()
	var pids []int
	for _, pid := range localtest.Marked(t, "berth-guest") {
		if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && strings.Contains(filepath.Base(exe), "guest") {
			pids = append(pids, pid)
		}
	}
	return pids
}
