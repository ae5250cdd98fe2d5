// SPDX-License-Identifier: Apache-2.0

//go:build linux

package proc

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/guest/proc/tree"
)

// fork starts the process and registers it before the reaper can meet it.
func (t *Table) fork(p *Process, file string, argv []string, attr *syscall.ProcAttr) error {
	var err error
	t.spawner.Do(func() {
		t.forkMu.Lock()
		defer t.forkMu.Unlock()
		if t.marks && !p.helper {
			tree.SetMark(p.mark)
		}
		var pid int
		t.victims.raise()
		pid, err = t.forkGrouped(p, file, argv, attr)
		t.victims.restore()
		if err != nil {
			return
		}
		p.pid = pid
		t.mu.Lock()
		t.byPID[pid] = p
		t.mu.Unlock()
	})
	if err == nil {
		select {
		case t.started <- struct{}{}:
		default:
		}
	}
	return err
}

// forkGrouped forks into a cgroup of its own where there are such.
func (t *Table) forkGrouped(p *Process, file string, argv []string, attr *syscall.ProcAttr) (int, error) {
	if t.groups != nil && !t.groups.Broken.Load() {
		name, fd, err := t.groups.Make(p.mark)
		if err == nil {
			defer unix.Close(fd)
			attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, fd
			pid, err := syscall.ForkExec(file, argv, attr)
			if err == nil {
				p.group = name
				return pid, nil
			}
			t.groups.Remove(name)
			if !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.EOPNOTSUPP) {
				return 0, err
			}
		}
		// A filter that knows no clone3, or a hierarchy that we may not use: other means have to do.
		t.groups.Broken.Store(true)
		attr.Sys.UseCgroupFD = false
	}
	return syscall.ForkExec(file, argv, attr)
}

// reap waits for every child, its own and those handed to it, until the table is closed and there are none.
func (t *Table) reap() {
	defer close(t.reaped)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGCHLD)
	defer signal.Stop(signals)
	for {
		pid, err := peek()
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil: // no children now
			select {
			case <-t.started:
			case <-signals: // an orphan that came from outside, as from another's setns
			case <-t.quit:
				return
			}
			continue
		}
		t.forkMu.Lock()
		t.mu.Lock()
		p := t.byPID[pid]
		delete(t.byPID, pid) // nobody signals it by number from here on
		t.mu.Unlock()
		var status syscall.WaitStatus
		for {
			_, err = syscall.Wait4(pid, &status, 0, nil)
			if !errors.Is(err, syscall.EINTR) {
				break
			}
		}
		t.forkMu.Unlock()
		if p != nil && err == nil {
			p.finish(status)
		}
	}
}

// peek waits until a child has ended, and leaves it to be reaped.
func peek() (int, error) {
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		return 0, err
	}
	// The kernel's layout on 64-bit machines: three numbers, padding, then the process id.
	return int(*(*int32)(unsafe.Add(unsafe.Pointer(&info), 16))), nil
}

// signalLeader signals the leader unless it has been reaped.
func (t *Table) signalLeader(p *Process, sig syscall.Signal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byPID[p.pid] == p {
		unix.Kill(p.pid, sig) //nolint:errcheck // it may have ended meanwhile
	}
}
