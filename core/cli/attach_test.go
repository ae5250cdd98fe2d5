// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cli_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-dev/berth/internal/testbin"
	"github.com/berth-dev/berth/sdk/handshake"
)

// served is a driver that was started by hand.
type served struct {
	cmd  *exec.Cmd
	line string // for the variable
	at   handshake.Reattach
}

func serveDriver(t *testing.T) *served {
	t.Helper()
	s := &served{cmd: exec.Command(testbin.Driver(t, "unixlocal"), "serve")}
	s.cmd.Stderr = os.Stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.cmd.Process.Kill() }) // it has ended when all went well
	if s.line, err = bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	var all map[string]handshake.Reattach
	if err := json.Unmarshal([]byte(s.line), &all); err != nil || len(all) != 1 {
		t.Fatalf("%s: %v", s.line, err)
	}
	s.at = all["berth/unixlocal"]
	return s
}

// attached runs berth with BERTH_REATTACH_DRIVERS set to value, away from the user's own files.
func attached(t *testing.T, home, value string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), testbin.Berth(t), args...)
	cmd.Dir = home
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME=", "XDG_CACHE_HOME=", "XDG_STATE_HOME=", handshake.EnvReattach+"="+value)
	var out, errOut strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		var ee *exec.ExitError
		if !errors.As(err, &ee) {
			t.Fatal(err)
		}
		code = ee.ExitCode()
	}
	return out.String(), errOut.String(), code
}

// A driver that a debugger started serves one berth after the other and outlives them all.
func TestAttachedDriver(t *testing.T) {
	d := serveDriver(t)
	home := t.TempDir()
	for range 2 {
		out, errOut, code := attached(t, home, d.line, "exec", "-q", "--", "sh", "-c", "echo hello; exit 7")
		if code != 7 || out != "hello\n" || !strings.Contains(errOut, "driver is not the installed one") {
			t.Fatalf("exit %d, output %q\n%s", code, out, errOut)
		}
	}
	out, errOut, code := attached(t, home, d.line, "driver", "list")
	if code != 0 || !strings.Contains(out, "attached: ") || !strings.Contains(out, d.at.Addr) {
		t.Errorf("driver list: exit %d\n%s%s", code, out, errOut)
	}
	if out, errOut, code = attached(t, home, d.line, "driver", "describe", "unixlocal"); code != 0 || !strings.Contains(out, "What it enforces") {
		t.Errorf("driver describe: exit %d\n%s%s", code, out, errOut)
	}
	// A lock is of files.
	if out, errOut, code = attached(t, home, d.line, "driver", "lock", "unixlocal"); code != 0 || !strings.Contains(out, "locked berth/unixlocal") {
		t.Errorf("driver lock: exit %d\n%s%s", code, out, errOut)
	}

	// A berth that is killed takes its driver with it, but for one that it did not start.
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	cmd := exec.CommandContext(ctx, testbin.Berth(t), "exec", "-q", "--", "sh", "-c", "echo up; sleep 1000")
	cmd.Env = append(os.Environ(), "HOME="+home, handshake.EnvReattach+"="+d.line)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "up\n" {
		t.Fatalf("%q, %v", line, err)
	}
	cancel(errors.New("killed by the test"))
	if err := cmd.Wait(); err == nil {
		t.Error("berth was not killed")
	}
	if out, errOut, code = attached(t, home, d.line, "exec", "-q", "--", "echo", "again"); code != 0 || out != "again\n" {
		t.Errorf("after a berth was killed: exit %d, output %q\n%s", code, out, errOut)
	}

	if err := d.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Wait(); err != nil {
		t.Errorf("the driver ended with %v", err)
	}
	if _, err := os.Stat(filepath.Dir(d.at.KeyFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the driver's directory: %v", err)
	}
	if _, errOut, code = attached(t, home, d.line, "exec", "-q", "--", "true"); code != 125 || !strings.Contains(errOut, "hint: start it again") {
		t.Errorf("the driver is gone: exit %d\n%s", code, errOut)
	}
}

// What is wrong with the variable is said, and nothing else is run in place of the driver that it names.
func TestAttachedDriverIsChecked(t *testing.T) {
	d := serveDriver(t)
	home := t.TempDir()
	value := func(source string, change func(*handshake.Reattach)) string {
		at := d.at
		change(&at)
		b, err := json.Marshal(map[string]handshake.Reattach{source: at})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(home, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key, err := os.ReadFile(d.at.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	const source = "berth/unixlocal"
	for name, c := range map[string]struct{ value, want string }{
		"not JSON":     {"unixlocal", handshake.EnvReattach + " cannot be read"},
		"unknown":      {`{"berth/unixlocal":{"adr":"/x"}}`, "adr"},
		"network":      {value(source, func(a *handshake.Reattach) { a.Network = "tcp" }), `network "tcp"`},
		"relative":     {value(source, func(a *handshake.Reattach) { a.Addr = "s" }), "absolute"},
		"name":         {value("unixlocal", func(*handshake.Reattach) {}), "namespace/name"},
		"protocol":     {value(source, func(a *handshake.Reattach) { a.Protocol = 2 }), "speaks protocol 2"},
		"no key":       {value(source, func(a *handshake.Reattach) { a.KeyFile = filepath.Join(home, "none") }), "no such file"},
		"open key":     {value(source, func(a *handshake.Reattach) { a.KeyFile = write("open", string(key), 0o644) }), "only he may read"},
		"other key":    {value(source, func(a *handshake.Reattach) { a.KeyFile = write("other", handshake.NewKey().Encode(), 0o600) }), "key"},
		"not a key":    {value(source, func(a *handshake.Reattach) { a.KeyFile = write("text", "hello", 0o600) }), "does not hold a driver's key"},
		"other socket": {value(source, func(a *handshake.Reattach) { a.Addr = filepath.Join(home, "none") }), "hint: start it again"},
	} {
		if out, errOut, code := attached(t, home, c.value, "exec", "-q", "--", "echo", "ran"); code != 125 || out != "" || !strings.Contains(errOut, c.want) {
			t.Errorf("%s: exit %d, output %q\n%s", name, code, out, errOut)
		}
	}
	if out, errOut, code := attached(t, home, value("berth/other", func(*handshake.Reattach) {}), "driver", "describe", "other"); code != 1 || !strings.Contains(errOut, `calls itself "unixlocal"`) {
		t.Errorf("another name: exit %d, output %q\n%s", code, out, errOut)
	}
}
