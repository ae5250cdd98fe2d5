// SPDX-License-Identifier: Apache-2.0

package vfork_test

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/guest/confine/internal/step"
	"github.com/berth-dev/berth/sdk/guest/confine/internal/vfork"
)

func shell(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Open("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// output runs a script of the shell and gives what it printed and how it ended.
func output(t *testing.T, p *vfork.Program, script string) (string, *os.ProcessState) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	p.Args, p.Env = []string{"sh", "-c", script}, []string{"PATH=/usr/bin:/bin"}
	p.Files = append([]*os.File{null, w, w}, p.Files...)
	process, err := vfork.Start(p)
	_ = w.Close()
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	state, err := process.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return string(b), state
}

// TestStart starts a program with descriptors that are numbered as those of the child are, and sees that it has them in
// the order that was asked for, each once, a session of its own, and default signals.
func TestStart(t *testing.T) {
	signal.Ignore(unix.SIGUSR2) // whoever starts a driver may have ignored some
	defer signal.Reset(unix.SIGUSR2)
	var files []*os.File
	for range 4 {
		f, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files = append([]*os.File{f}, files...) // the order of their numbers turned round
	}
	got, state := output(t, &vfork.Program{File: shell(t), Files: files}, `
		for i in 3 4 5 6; do readlink /proc/$$/fd/$i; done
		echo end; ls -l /proc/$$/fd | grep -c TestStart; pwd
		set -- $(cut -d ')' -f 2 /proc/$$/stat); [ $4 = $$ ] && echo leader
		exec grep -E 'Sig(Ign|Blk)' /proc/self/status`)
	if !state.Success() {
		t.Errorf("it ended with %s", state)
	}
	var want strings.Builder
	for _, f := range files {
		want.WriteString(f.Name() + "\n")
	}
	want.WriteString("end\n")
	if !strings.HasPrefix(got, want.String()) {
		t.Errorf("it has\n%swant\n%s", got, want.String())
	}
	for _, want := range []string{"\n4\n", "\n/\n", "leader", "SigBlk:\t0000000000000000", "SigIgn:\t0000000000000000"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
}

// TestCgroup begins in a cgroup v2, next to namespaces.
func TestCgroup(t *testing.T) {
	var dir string
	for _, point := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		d := filepath.Join(point, "vfork-test-"+strconv.Itoa(os.Getpid()))
		if _, err := os.Stat(filepath.Join(point, "cgroup.procs")); err == nil && os.Mkdir(d, 0o755) == nil {
			dir = d
		}
	}
	if dir == "" {
		t.Skip("this user may make no cgroup v2 here")
	}
	defer os.Remove(dir)
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, state := output(t, &vfork.Program{File: shell(t), Cgroup: f, Namespaces: unix.CLONE_NEWUTS | unix.CLONE_NEWIPC}, "exec grep ^0:: /proc/self/cgroup")
	if !state.Success() || !strings.HasSuffix(strings.TrimSpace(got), "/"+filepath.Base(dir)) {
		t.Errorf("it began in %q, %s", got, state)
	}
}

// TestRefused sees that what cannot be started is an error that names the step, and leaves no process.
func TestRefused(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for name, p := range map[string]*vfork.Program{
		"execve":               {File: f, Args: []string{"x"}},
		"clone":                {File: shell(t), Args: []string{"x"}, Namespaces: unix.CLONE_NEWUSER | unix.CLONE_FS},
		"ambient capabilities": {File: shell(t), Args: []string{"x"}, Namespaces: unix.CLONE_NEWUSER, Caps: []uintptr{63}},
	} {
		_, err := vfork.Start(p)
		if at, ok := errors.AsType[*step.Error](err); !ok || at.Step != name {
			t.Errorf("got %v, want a refusal of %s", err, name)
		}
		if _, ok := errors.AsType[syscall.Errno](err); !ok {
			t.Errorf("%v has no errno", err)
		}
	}
	if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); !errors.Is(err, syscall.ECHILD) {
		t.Errorf("process %d is left (%v)", pid, err)
	}
}

// TestSignals starts programs on several threads while the process gets signals all the time: no handler may run in a
// child that still has this process's memory.
func TestSignals(t *testing.T) {
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, unix.SIGUSR1)
	defer signal.Stop(caught)
	stop := make(chan struct{})
	var storm, starts sync.WaitGroup
	storm.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-caught:
			default:
				_ = syscall.Kill(os.Getpid(), unix.SIGUSR1)
			}
		}
	})
	for range 4 {
		starts.Go(func() {
			for range 50 {
				if got, state := output(t, &vfork.Program{File: shell(t)}, "echo yes"); got != "yes\n" || !state.Success() {
					t.Errorf("%q, %s", got, state)
				}
			}
		})
	}
	starts.Wait()
	close(stop)
	storm.Wait()
}
