// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cli_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminal is a program on a terminal of its own, as the foreground process group, as a shell would start it.
type terminal struct {
	t    *testing.T
	ctrl *os.File
	cmd  *exec.Cmd

	mu     sync.Mutex
	out    bytes.Buffer  // guarded by mu
	change chan struct{} // guarded by mu; closed at the next output
	closed bool          // guarded by mu
}

func startOnTerminal(t *testing.T, dir string, cols uint16, argv ...string) *terminal {
	t.Helper()
	ctrl, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("there are no terminals here: %v", err)
	}
	t.Cleanup(func() { ctrl.Close() }) // the program has ended
	if err := unix.IoctlSetPointerInt(int(ctrl.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(ctrl.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close() // the program has its own
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: cols}); err != nil {
		t.Fatal(err)
	}
	p := &terminal{t: t, ctrl: ctrl, change: make(chan struct{})}
	p.cmd = exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	p.cmd.Dir, p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = dir, tty, tty, tty
	p.cmd.Env = append(os.Environ(), "HOME="+dir, "TERM=xterm-256color")
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go p.read()
	return p
}

func (p *terminal) read() {
	buf := make([]byte, 4096)
	for {
		n, err := p.ctrl.Read(buf)
		p.mu.Lock()
		p.out.Write(buf[:n])
		close(p.change)
		p.change = make(chan struct{})
		p.closed = err != nil
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// wait waits until the program has written something.
func (p *terminal) wait(pattern string) []string {
	p.t.Helper()
	re := regexp.MustCompile(pattern)
	late := time.NewTimer(time.Minute)
	defer late.Stop()
	for {
		p.mu.Lock()
		text, change, closed := p.out.String(), p.change, p.closed
		p.mu.Unlock()
		if m := re.FindStringSubmatch(text); m != nil {
			return m
		}
		if closed {
			p.t.Fatalf("the program ended without %q:\n%s", pattern, text)
		}
		select {
		case <-change:
		case <-late.C:
			p.t.Fatalf("no %q in\n%s", pattern, text)
		}
	}
}

func (p *terminal) press(keys string) {
	p.t.Helper()
	if _, err := p.ctrl.WriteString(keys); err != nil {
		p.t.Fatal(err)
	}
}

// end waits for the program's end and gives its exit code.
func (p *terminal) end() int {
	p.t.Helper()
	err := p.cmd.Wait()
	var ee *exec.ExitError
	if err != nil && !errors.As(err, &ee) {
		p.t.Fatal(err)
	}
	return p.cmd.ProcessState.ExitCode()
}

const project = `agent "helper" {
  instructions = "Help."
}

run "default" {
  agent = agent.helper
  input = "go"
}
`

// slow is a run whose command tells the signals that it gets.
const slow = `{"berth_transcript": 1}
{"calls": [{"tool": "exec_command", "args": {"cmd": "trap 'echo got I''NT' INT; echo wor''king; while :; do sleep 0.1; done", "login": false, "yield_time_ms": 30000}}]}
{"say": "done after all"}
`

func writeProject(t *testing.T, transcript string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"main.berth.hcl": project, "t.jsonl": transcript} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestCtrlCStopsARunCleanly(t *testing.T) {
	berth := filepath.Join(programs(t), "berth")
	dir := writeProject(t, slow)
	p := startOnTerminal(t, dir, 80, berth, "run", "--replay", "t.jsonl")
	p.wait(`working`)
	p.press("\x03")
	id := p.wait(`hint: .*berth resume (\w+)`)[1]
	if code := p.end(); code != 130 {
		t.Errorf("exit code %d, want 130", code)
	}
	text := p.out.String()
	if !strings.Contains(text, "run "+id+": cancelled") || strings.Contains(text, "got INT") {
		t.Errorf("the run ended with\n%s", text)
	}
}

func TestCtrlCTwiceEndsARunNow(t *testing.T) {
	berth := filepath.Join(programs(t), "berth")
	dir := writeProject(t, slow)
	p := startOnTerminal(t, dir, 80, berth, "run", "--replay", "t.jsonl")
	p.wait(`working`)
	p.press("\x03\x03")
	began := time.Now()
	if code := p.end(); code != 130 && code != -1 {
		t.Errorf("exit code %d", code)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %s", took)
	}
}

func TestExecOnATerminal(t *testing.T) {
	berth := filepath.Join(programs(t), "berth")
	p := startOnTerminal(t, t.TempDir(), 97, berth, "exec", "-q", "--", "sh", "-c",
		`trap 'echo "signals: INT"; exit 5' INT; stty size; echo rea""dy; while :; do sleep 0.1; done`)
	p.wait(`24 97\r\n`)
	p.wait(`ready`)
	p.press("\x03")
	p.wait(`signals: INT`)
	if code := p.end(); code != 5 {
		t.Errorf("exit code %d, want the command's 5", code)
	}
	if n := strings.Count(p.out.String(), "signals: INT"); n != 1 {
		t.Errorf("the command got %d interrupts", n)
	}
}

// A command that was left running in a session is followed on a terminal, left again by Docker's keys, and ended.
func TestSessionOnATerminal(t *testing.T) {
	berth := filepath.Join(programs(t), "berth")
	dir := writeProject(t, `{"berth_transcript": 1}
{"calls": [{"tool": "exec_command", "args": {"cmd": "echo kept > file"}}]}
{"say": "Done."}
`)
	p := startOnTerminal(t, dir, 80, berth, "run", "--keep", "--replay", "t.jsonl")
	id := p.wait(`run (\w+): completed`)[1]
	if code := p.end(); code != 0 {
		t.Fatalf("exit code %d", code)
	}

	p = startOnTerminal(t, dir, 91, berth, "session", "shell", id)
	p.press("cat file; stty size; exit 3\n")
	p.wait(`kept\r\n24 91\r\n`)
	if code := p.end(); code != 3 {
		t.Errorf("the shell's exit code is %d, want 3", code)
	}

	detach := func(argv ...string) string {
		t.Helper()
		p := startOnTerminal(t, dir, 80, append([]string{berth, "session", "exec", "--detach"}, argv...)...)
		command := p.wait(`(\w+)\r\n`)[1]
		if code := p.end(); code != 0 {
			t.Fatalf("exit code %d\n%s", code, p.out.String())
		}
		return command
	}
	command := detach("--tty", id, "--", "sh", "-c", `echo ready; read line; echo "got $line"; exit 4`)
	p = startOnTerminal(t, dir, 80, berth, "session", "attach", id)
	p.wait(`ready`)
	p.press("hel")
	p.wait(`hel`) // the terminal inside has it
	p.press("\x10\x11")
	p.wait(`left running`)
	if code := p.end(); code != 0 {
		t.Errorf("leaving a command gives exit code %d", code)
	}
	p = startOnTerminal(t, dir, 80, berth, "session", "attach", id, command)
	p.wait(`ready`)
	p.press("lo\n")
	p.wait(`got hello`)
	if code := p.end(); code != 4 {
		t.Errorf("exit code %d, want the command's 4\n%s", code, p.out.String())
	}

	command = detach(id, "--", "sh", "-c", "echo up; exec sleep 1000")
	p = startOnTerminal(t, dir, 80, berth, "session", "ps", id)
	p.wait(command + ` .*running +sh -c`)
	p.end()
	p = startOnTerminal(t, dir, 80, berth, "session", "attach", id)
	p.wait(`up`)
	p.press("\x03")
	p.wait(`left running`)
	if code := p.end(); code != 0 {
		t.Errorf("leaving a command gives exit code %d", code)
	}
	p = startOnTerminal(t, dir, 80, berth, "session", "kill", "-s", "kill", id, command)
	if code := p.end(); code != 0 {
		t.Fatalf("exit code %d\n%s", code, p.out.String())
	}
	p = startOnTerminal(t, dir, 80, berth, "session", "attach", id, command)
	if code := p.end(); code != 137 {
		t.Errorf("exit code %d of a command that was killed\n%s", code, p.out.String())
	}
}

// asking is a run that wants approvals: two commands of one kind, and a patch.
const asking = `{"berth_transcript": 1}
{"calls": [{"tool": "exec_command", "args": {"cmd": "touch one"}}, {"tool": "exec_command", "args": {"cmd": "git init \u001b[2Jx"}}]}
{"expect": ["exited with code 0", "approval_denied", "not that one"], "calls": [{"tool": "apply_patch", "input": "*** Begin Patch\n*** Add File: two\n+2\n*** End Patch\n"}]}
{"expect": ["A two"], "calls": [{"tool": "exec_command", "args": {"cmd": "ls"}}, {"tool": "apply_patch", "input": "*** Begin Patch\n*** Update File: two\n@@\n-2\n+3\n*** End Patch\n"}]}
{"expect": ["one\ntwo", "M two"], "say": "all done"}
`

const askingProject = `agent "helper" {
  instructions = "Help."

  approvals {
    default = "ask"

    rule "look" {
      match    = ["^ls$"]
      decision = "allow"
    }

    rule "files" {
      tools    = ["apply_patch"]
      decision = "ask"
      reason   = "It changes files."
    }
  }
}

run "default" {
  agent = agent.helper
  input = "go"
}
`

func TestApprovalAtATerminal(t *testing.T) {
	berth := filepath.Join(programs(t), "berth")
	dir := writeProject(t, asking)
	if err := os.WriteFile(filepath.Join(dir, "main.berth.hcl"), []byte(askingProject), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startOnTerminal(t, dir, 200, berth, "run", "--replay", "t.jsonl")
	answer := func(question, keys string) {
		t.Helper()
		p.wait(question)
		p.press(keys)
	}
	// The two calls of the first turn are asked about in either order.
	for range 2 {
		m := p.wait(`(?s)(touch one|git init \\x1b\[2Jx)\r\n[^?]*or why not: $`)
		if strings.HasPrefix(m[1], "touch") {
			p.press("\n") // is no answer
			p.wait(`or why not: \r\n\[y\]es.*or why not: $`)
			p.press("y\n")
			p.wait(`or why not: y`)
		} else {
			p.press("not that one\n")
			p.wait(`or why not: not`)
		}
	}
	answer(`(?s)\? apply_patch wants an approval: It changes files\.\r\n    \*\*\* Begin Patch\r\n.*\+2\r\n.*\[a\]lways in this run \(apply_patch on no other path than two\), or why not: $`, "a\n")
	p.wait(`all done`)
	if code := p.end(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	text := p.out.String()
	if strings.Contains(text, "\x1b[2J") {
		t.Errorf("a call steered the terminal:\n%q", text)
	}
	if n := strings.Count(text, "wants an approval"); n != 3 {
		t.Errorf("%d questions:\n%s", n, text)
	}
}
