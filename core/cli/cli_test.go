// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/internal/testbin"
)

// programs builds berth with its driver beside it, as make build does, and gives their directory.
func programs(t *testing.T) string {
	t.Helper()
	berth, driver := testbin.Berth(t), testbin.Driver(t, "unixlocal")
	if filepath.Dir(berth) != filepath.Dir(driver) {
		t.Fatalf("%s and %s are not in one directory", berth, driver)
	}
	return filepath.Dir(berth)
}

// ramDir is a directory for what a test keeps, in memory where there is room: berth has its log on disk before each effect,
// and what these tests kill are processes, for which memory is as good.
func ramDir(t testing.TB) string {
	t.Helper()
	const ram, room = "/dev/shm", 2 << 30
	var fs unix.Statfs_t
	if err := unix.Statfs(ram, &fs); err != nil || fs.Bavail*uint64(fs.Bsize) < room {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(ram, "berth-cli-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("the directory of a test cannot be removed: %v", err)
		}
	})
	return dir
}

func TestScripts(t *testing.T) {
	bin := programs(t)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := strings.TrimSpace(string(out))
	cache := warmCache(t, root, bin)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", bin+string(filepath.ListSeparator)+env.Getenv("PATH"))
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			env.Setenv("BERTH_GUEST", os.Getenv("BERTH_GUEST"))
			env.Setenv("BIN", bin)
			env.Setenv("GOMODCACHE", modules)
			env.Setenv("BUILD_CACHE", cache)
			env.Setenv("EXAMPLES", filepath.Join(root, "examples"))
			return os.Mkdir(filepath.Join(env.WorkDir, "home"), 0o700)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "runid": runID, "events": events,
		},
	})
}

// warmCache is a build cache for the checkout example that holds the standard library already: to compile it takes as
// long as the machine is busy, and a command in a sandbox is only waited for so long.
func warmCache(t *testing.T, root, bin string) string {
	t.Helper()
	dir := filepath.Join(bin, "checkout-go-cache")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "vet", "./internal/version")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOCACHE="+dir, "CGO_ENABLED=0", "GOFLAGS=-mod=mod -buildvcs=false", "GOTOOLCHAIN=local")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go vet: %v\n%s", err, out)
	}
	return dir
}

// exits runs a program and wants an exit code: exits CODE PROGRAM [ARG...].
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM [ARG...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var ee *exec.ExitError
		if !errors.As(err, &ee) {
			ts.Fatalf("%v", err)
		}
		got = ee.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

var runLine = regexp.MustCompile(`(?m)^run (\S+): `)

// runID puts the identity of the run that just ended into a variable: runid VARIABLE.
func runID(ts *testscript.TestScript, _ bool, args []string) {
	m := runLine.FindStringSubmatch(ts.ReadFile("stderr"))
	if len(args) != 1 || m == nil {
		ts.Fatalf("usage: runid VARIABLE, after a run")
	}
	ts.Setenv(args[0], m[1])
}

// events checks the event stream on standard output and writes the kinds of its events to a file, one a line: events
// STATUS FILE.
func events(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: events STATUS FILE")
	}
	type line struct {
		event.Event
		Data map[string]any `json:"data"`
	}
	var kinds []string
	var first, last line
	sc := bufio.NewScanner(strings.NewReader(ts.ReadFile("stdout")))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var l line
		if err := json.Unmarshal(sc.Bytes(), &l); err != nil {
			ts.Fatalf("%q: %v", sc.Text(), err)
		}
		if l.Seq <= last.Seq || l.RunID == "" || l.Time.IsZero() || l.Time.Before(last.Time) || l.Data == nil {
			ts.Fatalf("%s: after number %d of %s", sc.Text(), last.Seq, last.Time)
		}
		if kinds = append(kinds, string(l.Kind)); len(kinds) == 1 {
			first = l
		}
		last = l
	}
	ts.Check(sc.Err())
	if first.Kind != event.KindRunStarted || last.Kind != event.KindRunFinished || last.Data["status"] != args[0] {
		ts.Fatalf("the events begin with %s and end with %s %v", first.Kind, last.Kind, last.Data)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(strings.Join(kinds, "\n")+"\n"), 0o600))
}
