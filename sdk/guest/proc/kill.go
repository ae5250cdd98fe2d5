// SPDX-License-Identifier: Apache-2.0

//go:build linux

package proc

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/proc/output"
	"github.com/berth-dev/berth/sdk/guest/proc/tree"
)

const (
	// quietScans is how many scans in a row must find nothing.
	quietScans = 3
	// restless is how many scans may find new members, or know that they may have missed some, until everything is
	// stopped first.
	restless = 3
	// sweepTime bounds the killing of one tree, and stopTime a stop of everything.
	sweepTime = 10 * time.Second
	stopTime  = 2 * time.Second
)

// killTree kills a command's tree and returns when nothing of it is left.
func (t *Table) killTree(p *Process) error {
	if t.groups != nil && p.group != "" {
		return t.groups.Kill(p.group)
	}
	deadline := time.Now().Add(sweepTime)
	var before []int
	moves, quiet := 0, 0
	inexact := false // there is no means to stop everything
	for wait := 200 * time.Microsecond; quiet < quietScans; {
		now, whole := t.members(p)
		if len(now) == 0 && (whole || inexact) {
			quiet++
			continue
		}
		quiet = 0
		if !whole || before != nil && slices.ContainsFunc(now, func(pid int) bool { return !slices.Contains(before, pid) }) {
			moves++
		}
		before = now
		if moves >= restless && !inexact {
			left, stopped := t.killStopped(p)
			if stopped && left == 0 {
				return nil
			}
			moves, inexact = 0, !stopped
		} else {
			killAllOf(now)
		}
		if time.Now().After(deadline) {
			return errs.New(errs.StopFailed, "%d processes did not end when killed", len(now))
		}
		time.Sleep(wait)
		wait = min(2*wait, 20*time.Millisecond)
	}
	return nil
}

// killStopped stops everything in the sandbox at once, so that nothing can fork, kills what belongs to p and lets the rest
// go on. It gives how many it killed. When everything was stopped that is exact: of none, nothing is left. Without a means
// to stop everything it kills what a scan sees.
func (t *Table) killStopped(p *Process) (killed int, stopped bool) {
	resume, stopped := t.stopAll()
	defer resume()
	now, _ := t.members(p)
	killAllOf(now)
	return len(now), stopped
}

// stopAll stops everything but this program, and gives what lets it go on. Ok is false where that cannot be done.
func (t *Table) stopAll() (resume func(), ok bool) {
	switch {
	case t.cfg.Kill.Freezer != "":
		if err := t.freeze(true); err == nil {
			return func() { t.freeze(false) }, true //nolint:errcheck // nothing else can be done
		}
	case os.Getpid() == 1, t.cfg.Kill.SignalScope:
		var stopped []int // of their own accord
		all, _ := tree.Scan(t.marks)
		for _, q := range all {
			if q.Stopped {
				stopped = append(stopped, q.PID)
			}
		}
		if t.signalEverything(unix.SIGSTOP) != nil {
			break
		}
		return func() {
			// Also those that have not stopped yet: the signal may still be pending, and SIGCONT takes it back.
			all, _ := tree.Scan(t.marks)
			for _, q := range all {
				if !slices.Contains(stopped, q.PID) {
					unix.Kill(q.PID, unix.SIGCONT) //nolint:errcheck // it may have ended meanwhile
				}
			}
		}, true
	}
	return func() {}, false
}

// signalEverything is kill(-1): by the init of a namespace for all of it, else by a helper in the scope of the commands.
// The kernel signals all under one lock that fork takes too: nothing slips through.
func (t *Table) signalEverything(sig syscall.Signal) error {
	if os.Getpid() == 1 {
		if err := unix.Kill(-1, sig); err != nil && err != unix.ESRCH { // a bare number
			return err
		}
		return nil
	}
	if len(t.cfg.Helper) == 0 {
		return errs.New(errs.Unsupported, "no helper was configured")
	}
	argv := append(slices.Clone(t.cfg.Helper), strconv.Itoa(int(sig)), strconv.Itoa(os.Getpid()))
	helper := &Process{t: t, exited: make(chan struct{}), done: make(chan struct{}), out: output.New(0, t.cfg.Stall), pumped: make(chan struct{})}
	close(helper.pumped)
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(null)
	attr := &syscall.ProcAttr{Dir: "/", Files: []uintptr{uintptr(null), uintptr(null), uintptr(null)}, Sys: &syscall.SysProcAttr{Setsid: true}}
	helper.helper = true
	if err := t.fork(helper, argv[0], argv, attr); err != nil {
		return err
	}
	select {
	case <-helper.exited:
	case <-time.After(stopTime):
		t.signalLeader(helper, unix.SIGKILL)
		<-helper.exited
	}
	if code := helper.status.ExitStatus(); code != 0 {
		return errs.New(errs.StopFailed, "the helper that signals everything ended with %d", code)
	}
	return nil
}

// HelperMain is what the configured helper does: signal everything that it may, unless it may signal the guest, for then
// it is in no scope and would reach all of the user's processes. It gives the exit code.
func HelperMain(args []string) int {
	if len(args) != 2 {
		return 2
	}
	sig, err1 := strconv.Atoi(args[0])
	guest, err2 := strconv.Atoi(args[1])
	if err1 != nil || err2 != nil || os.Getuid() == 0 {
		return 2
	}
	if unix.Kill(guest, 0) != unix.EPERM { // a bare number
		return 3
	}
	if err := unix.Kill(-1, syscall.Signal(sig)); err != nil && err != unix.ESRCH { // a bare number
		return 4
	}
	return 0
}

// freeze stops or resumes the freezer group of cgroup v1.
func (t *Table) freeze(stop bool) error {
	state := "THAWED"
	if stop {
		state = "FROZEN"
	}
	file := filepath.Join(t.cfg.Kill.Freezer, "freezer.state")
	if err := os.WriteFile(file, []byte(state), 0); err != nil {
		return err
	}
	for deadline := time.Now().Add(stopTime); ; time.Sleep(200 * time.Microsecond) {
		b, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if strings.TrimSpace(string(b)) == state {
			return nil
		}
		if time.Now().After(deadline) {
			return errs.New(errs.StopFailed, "the freezer did not reach %s", state)
		}
	}
}

// killAll kills everything below this program, whatever command it belonged to.
func (t *Table) killAll(ctx context.Context) error {
	quiet := 0
	for wait := 200 * time.Microsecond; quiet < quietScans; {
		left := t.Descendants()
		if len(left) == 0 {
			quiet++
			continue
		}
		quiet = 0
		switch {
		case t.groups != nil && t.groups.KillEverything() == nil:
		case t.cfg.Kill.Freezer != "" && t.freeze(true) == nil:
			killAllOf(tree.PIDs(filepath.Join(t.cfg.Kill.Freezer, "cgroup.procs")))
			t.freeze(false) //nolint:errcheck // nothing else can be done
		case (os.Getpid() == 1 || t.cfg.Kill.SignalScope) && t.signalEverything(unix.SIGKILL) == nil:
		}
		killAllOf(t.Descendants())
		if ctx.Err() != nil {
			return errs.Wrap(errs.StopFailed, "guest.stop", fmt.Errorf("%d processes did not end: %w", len(left), context.Cause(ctx)))
		}
		time.Sleep(wait)
		wait = min(2*wait, 20*time.Millisecond)
	}
	return nil
}
