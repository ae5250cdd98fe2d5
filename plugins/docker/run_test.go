// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/moby/moby/client"

	"github.com/berth-dev/berth/internal/testbin"
)

// command is berth as a user has it.
type command struct{ berth, driver, home, engine string }

func newCommand(t testing.TB) *command {
	t.Helper()
	e := needEngine(t)
	return &command{driver: testbin.Driver(t, "docker"), berth: testbin.Berth(t), home: t.TempDir(), engine: e.Where}
}

// What holds for the whole: the core with this driver.
func TestCommandLine(t *testing.T) {
	c := newCommand(t)
	for name, test := range map[string]func(*testing.T, *command){"examples": examples, "crashes": runThroughCrashes} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, c)
		})
	}
}

func (c *command) in(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.berth, append([]string{"--driver-binary", "docker=" + c.driver, "--chdir", dir}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+c.home, "XDG_STATE_HOME="+c.home, "XDG_CACHE_HOME="+c.home, "XDG_CONFIG_HOME="+c.home, "DOCKER_HOST="+c.engine)
	return cmd
}

// told is what a test looks at in an event.
type told struct {
	RunID string `json:"run_id"`
	Type  string `json:"type"`
	Data  struct {
		SandboxID string `json:"sandbox_id"`
		Text      string `json:"text"`
		Status    string `json:"status"`
	} `json:"data"`
}

// following is a command that prints events.
type following struct {
	cmd    *exec.Cmd
	events *bufio.Scanner
	last   string
	stderr bytes.Buffer
}

func (c *command) follow(t testing.TB, dir string, args ...string) *following {
	t.Helper()
	f := &following{cmd: c.in(t.Context(), dir, args...)}
	out, err := f.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	f.cmd.Stderr = &f.stderr
	f.events = bufio.NewScanner(out)
	f.events.Buffer(nil, 1<<20)
	if err := f.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return f
}

// until reads events up to one that a test waits for.
func (f *following) until(t testing.TB, what string, is func(*told) bool) *told {
	t.Helper()
	for f.events.Scan() {
		var ev told
		f.last = f.events.Text()
		if err := json.Unmarshal(f.events.Bytes(), &ev); err != nil {
			t.Fatal(err)
		}
		if is(&ev) {
			return &ev
		}
	}
	_ = f.cmd.Wait() // what it said counts
	t.Fatalf("no event: %s: %v\n%s\nthe last one: %s", what, f.events.Err(), f.stderr.String(), f.last)
	return nil
}

// prints says whether an event is output that holds a word.
func prints(word string) func(*told) bool {
	return func(ev *told) bool { return ev.Type == "tool.output" && strings.Contains(ev.Data.Text, word) }
}

// kill ends a process as a crash would.
func kill(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// childOf gives the only child of a process.
func childOf(t testing.TB, parent int) int {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, f := range all {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		fields := strings.Fields(rest)
		if len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			if found != 0 {
				t.Fatal("it has several children")
			}
			if found, err = strconv.Atoi(filepath.Base(filepath.Dir(f))); err != nil {
				t.Fatal(err)
			}
		}
	}
	return found
}

func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(b), ") ")
	return err == nil && !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// A run to which everything happens: its driver is killed in the middle of a command, its commands take too much of
// everything, the run itself is killed, and at last its container, which ends a run that can go on. Each ends as what it
// was, and no byte of output is lost or doubled.
func runThroughCrashes(t *testing.T, c *command) {
	f := newFixture(t)
	image := loaded(t, "run", runtime.GOARCH, busybox(t), map[string]any{"Env": []string{"PATH=/bin"}})
	t.Cleanup(func() { removeFrom(t, image) }) // what a run that failed keeps
	dir := t.TempDir()
	const lines = 100
	count := func(word string) (script, want string) {
		var b strings.Builder
		b.WriteString("Process exited with code 0\nOutput:\n" + word + "\n")
		for i := range lines {
			fmt.Fprintf(&b, "line %d\n", i)
		}
		return fmt.Sprintf("echo x >> runs; echo %s; i=0; while [ $i -lt %d ]; do echo line $i; i=$((i+1)); sleep 0.02; done; wc -l < runs", word, lines), b.String()
	}
	one, oneSaid := count("driver")
	two, twoSaid := count("core")
	var transcript bytes.Buffer
	transcript.WriteString("{\"berth_transcript\": 1}\n")
	say := func(expect []string, cmd string, more ...any) {
		args := map[string]any{"cmd": cmd, "yield_time_ms": 30_000}
		if len(more) > 0 {
			args[more[0].(string)] = more[1]
		}
		line := map[string]any{"calls": []any{map[string]any{"tool": "exec_command", "args": args}}}
		if cmd == "" {
			line = map[string]any{"say": "done"}
		}
		if expect != nil {
			line["expect"] = expect
		}
		b, err := json.Marshal(line)
		if err != nil {
			t.Fatal(err)
		}
		transcript.Write(append(b, '\n'))
	}
	say(nil, one)
	say([]string{oneSaid + "1\n"}, "tail -c 200000000 /dev/zero")
	say([]string{"ran out of memory"}, "f() { f | f; }; f & while :; do :; done", "timeout_ms", 10_000)
	say([]string{"timed out", "an't fork"}, "echo alive; cat runs")
	say([]string{"alive\nx\n"}, two)
	say([]string{twoSaid + "2\n"}, "echo container; sleep 3600")
	say([]string{"never"}, "")
	if err := errors.Join(
		os.WriteFile(filepath.Join(dir, "t.jsonl"), transcript.Bytes(), 0o600),
		os.WriteFile(filepath.Join(dir, "main.berth.hcl"), []byte(`
agent "a" {
  instructions = "Work."
}

sandbox "box" {
  driver = "docker"
  config {
    image     = "`+image+`"
    network   = "none"
    pull      = "never"
    guest     = "required"
    processes = 64
    memory    = "64MiB"
  }
}

run "default" {
  agent   = agent.a
  sandbox = sandbox.box
  input   = "go"
}
`), 0o600)); err != nil {
		t.Fatal(err)
	}

	run := c.follow(t, dir, "run", "--json", "--replay", "t.jsonl")
	box := run.until(t, "the sandbox is ready", func(ev *told) bool { return ev.Type == "sandbox.ready" })
	run.until(t, "the command runs", prints("driver"))
	kill(t, childOf(t, run.cmd.Process.Pid))

	run.until(t, "the second command runs", prints("core"))
	driver := childOf(t, run.cmd.Process.Pid)
	kill(t, run.cmd.Process.Pid)
	_ = run.cmd.Wait() // it was killed
	eventually(t, "the driver has ended", func() bool { return !alive(driver) })

	again := c.follow(t, dir, "resume", "--json", box.RunID)
	again.until(t, "the last command runs", prints("container"))
	if _, err := f.e.ContainerKill(t.Context(), containerName(t, f, box.Data.SandboxID), client.ContainerKillOptions{Signal: "KILL"}); err != nil {
		t.Fatal(err)
	}
	end := again.until(t, "the run has finished", func(ev *told) bool { return ev.Type == "run.finished" })
	if end.Data.Status != "failed" || !strings.Contains(again.last, "its first process ended with 137") || !strings.Contains(again.last, "berth resume") {
		t.Errorf("the run ended with %s", again.last)
	}
	_ = again.cmd.Wait() // its exit code says that the run has no answer
	if n := removeFrom(t, image); n != 1 {
		t.Errorf("%d containers are left, and the run can go on with one", n)
	}
}
