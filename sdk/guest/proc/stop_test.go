// SPDX-License-Identifier: Apache-2.0

//go:build linux

package proc

import (
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/guest/proc/tree"
)

// Stopping everything to kill one command leaves the others as they were: running, or stopped by their own wish. It is
// tested as the init of a namespace, where the whole namespace is stopped; nothing of this machine is.
func TestKillStopped(t *testing.T) {
	if os.Getpid() != 1 {
		if os.Getuid() != 0 {
			t.Skip("needs root to make a PID namespace")
		}
		cmd := exec.Command("unshare", "--mount", "--mount-proc", os.Args[0], "-test.run=^TestKillStopped$", "-test.v", "-test.timeout=60s")
		cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("as init: %v\n%s", err, out)
		}
		return
	}
	tb, err := New(Config{Root: "/"})
	if err != nil {
		t.Fatal(err)
	}
	if tb.KillMeans() != "namespace" {
		t.Error(tb.KillMeans())
	}
	start := func(script string) *Process {
		p, out, err := tb.Start(&driver.Command{Argv: []string{"/bin/sh", "-c", script}})
		if err != nil {
			t.Fatal(err)
		}
		out.Close()
		return p
	}
	state := func(p *Process) (stopped bool) {
		all, _ := tree.Scan(true)
		for _, q := range all {
			if q.PID == p.pid {
				return q.Stopped
			}
		}
		t.Fatal("it is gone")
		return false
	}
	victim, runs, stopped := start("sleep 100 & setsid sleep 100 & wait"), start("while :; do sleep 0.01; done"), start("kill -STOP $$; sleep 100")
	living := func() int {
		now, _ := tb.members(victim)
		return len(now)
	}
	until(t, func() bool { return living() == 3 && state(stopped) })

	if killed, stopped := tb.killStopped(victim); killed != 3 || !stopped {
		t.Errorf("%d killed, everything stopped: %v", killed, stopped)
	}
	until(t, func() bool { return living() == 0 })
	<-victim.Done()
	until(t, func() bool { return !state(runs) })
	if !state(stopped) {
		t.Error("a process that was stopped before goes on")
	}
	if err := tb.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if exit := runs.Exit(); exit.Signal != "KILL" {
		t.Errorf("%+v", exit)
	}
}

func until(t *testing.T, is func() bool) {
	t.Helper()
	late := time.After(20 * time.Second)
	for !is() {
		select {
		case <-time.After(time.Millisecond):
		case <-late:
			t.Fatal("not in time")
		}
	}
}

// The helper refuses to signal everything where that would reach the guest, or be anybody's processes.
func TestHelperRefuses(t *testing.T) {
	for _, args := range [][]string{nil, {"9"}, {"x", "1"}, {"9", "x"}} {
		if HelperMain(args) == 0 {
			t.Errorf("%q was accepted", args)
		}
	}
	// Signal 0 harms nobody, should it be sent after all. This program may signal itself: it is in no scope.
	if code := HelperMain([]string{"0", "1"}); os.Getuid() == 0 && code != 2 {
		t.Errorf("root: %d", code)
	}
	tb := &Table{cfg: Config{}}
	if err := tb.signalEverything(0); err == nil || errors.Is(err, unix.EPERM) {
		t.Errorf("without a helper: %v", err)
	}
}
