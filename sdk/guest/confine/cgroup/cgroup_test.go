// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cgroup

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestLimits runs a command in a group: it is refused the process above the limit, the kernel ends it for memory and
// counts that, and Kill ends what left its session.
func TestLimits(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	tree, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []string{"pids", "memory"} {
		if tree.Can(c) == "" {
			t.Skipf("this machine offers no %s cgroup to this user", c)
		}
	}
	g, err := tree.New("test-"+strconv.Itoa(os.Getpid()), Limits{Processes: 8, MemoryBytes: 64 << 20, CPUs: 0.5}, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Kill(); err != nil {
			t.Error(err)
		}
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	})
	inside := func(script string) (string, error) {
		// The shell moves itself first, as the guest's thread does.
		var move strings.Builder
		for _, d := range g.work {
			move.WriteString("echo $$ > " + d + "/cgroup.procs; ")
		}
		if g.v2 != "" {
			move.WriteString("echo $$ > " + g.v2 + "/cgroup.procs; ")
		}
		out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", move.String()+script).CombinedOutput()
		return string(out), err
	}

	out, _ := inside("for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 0.2 & done; wait")
	if !strings.Contains(strings.ToLower(out), "fork") {
		t.Errorf("twelve processes ran where eight may: %q", out)
	}

	waitEmpty(t, g)
	before := count(t, g.OOMFile())
	out, err = inside("exec head -c 200m /dev/zero | tail -c 200m > /dev/null")
	if after := count(t, g.OOMFile()); after <= before {
		t.Errorf("the counter of ends for lack of memory stayed at %d (%v, %q)", after, err, out)
	}

	waitEmpty(t, g)
	if tree.CanKill() == "" {
		t.Skip("nothing to kill a group by")
	}
	if out, err := inside("setsid sleep 300 > /dev/null 2>&1 &"); err != nil {
		t.Fatal(err, out)
	}
	if len(g.processes()) == 0 {
		t.Fatal("the sleeper is not in the group")
	}
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	waitEmpty(t, g)
}

func waitEmpty(t *testing.T, g *Group) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); len(g.processes()) > 0 || g.charged(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%v are still there", g.processes())
		}
		_, _ = unix.Wait4(-1, nil, unix.WNOHANG, nil) // orphans come here
	}
}

func (g *Group) processes() []int {
	var list []int
	for _, d := range append([]string{g.v2}, g.work...) {
		if d != "" {
			list = append(list, pids(d)...)
		}
	}
	return list
}

// charged says whether the limit still counts processes: dead ones that nobody has waited for.
func (g *Group) charged() bool {
	for _, d := range g.work {
		b, err := os.ReadFile(filepath.Join(d, "pids.current"))
		if err == nil && strings.TrimSpace(string(b)) != "0" {
			return true
		}
	}
	return false
}

func count(t *testing.T, file string) int {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, err := strconv.Atoi(strings.TrimSpace(v))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no counter in %q", b)
	return 0
}
