// SPDX-License-Identifier: Apache-2.0

package confine

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/guest"
	"github.com/berth-dev/berth/sdk/guest/confine/internal/step"
)

// stageWarden is the process that ends what a guest without a PID namespace leaves behind.
const stageWarden = 2

// startWarden starts a process in the guest's domain that waits for the guest's end, however it comes, and then ends
// everything in the domain. Commands are in a nested domain and cannot touch it.
func (s *Spec) startWarden() error {
	r, w, err := os.Pipe()
	if err != nil {
		return step.At("make the warden's pipe", err)
	}
	defer r.Close()
	spec := Spec{Stage: stageWarden, Test: s.Test}
	raw, err := json.Marshal(spec)
	if err != nil {
		return step.At("write the warden's configuration", err)
	}
	b, err := json.Marshal(guest.Config{Confine: raw})
	if err != nil {
		return step.At("write the warden's configuration", err)
	}
	configR, configW, err := os.Pipe()
	if err != nil {
		return step.At("make the warden's pipe", err)
	}
	defer configR.Close()
	defer configW.Close()
	// The guest's program has no path here that has to exist.
	cmd := exec.Command("/proc/self/fd/"+strconv.Itoa(s.Program), guest.Args(3)...) //nolint:noctx // it lives as long as the sandbox
	cmd.Args[0] = "berth-guest"
	cmd.Env = []string{}
	cmd.ExtraFiles = []*os.File{configR, r}
	if err := cmd.Start(); err != nil {
		return step.At("start the warden", err)
	}
	if _, err := configW.Write(b); err != nil {
		return step.At("instruct the warden", err)
	}
	// The write end stays open, in no Go value that could be collected, until the guest ends.
	fd, err := unix.FcntlInt(w.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return step.At("keep the warden's pipe", err)
	}
	s.Keep = append(s.Keep, fd)
	return step.At("keep the warden's pipe", w.Close())
}

// ward waits and ends everything. It does not return.
func (s *Spec) ward() {
	const pipe = 4
	// A signal to everybody must end at the domain's border: whoever could reach the driver would reach more.
	if os.Getuid() == 0 || !errors.Is(unix.Kill(s.Test.PID, 0), unix.EPERM) {
		fmt.Fprintln(os.Stderr, "warden: this process is not confined")
		os.Exit(1)
	}
	b := make([]byte, 1)
	for {
		if _, err := unix.Read(pipe, b); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	// Each round is atomic for all that exist; what forked before its turn is in the next one.
	for range 1000 {
		if err := unix.Kill(-1, unix.SIGKILL); err != nil {
			break // nobody is left
		}
		runtime.Gosched()
	}
	os.Exit(0)
}

// warmThreads makes the runtime's threads before commands have used up what the user may have: a runtime that cannot
// make a thread ends the program.
func warmThreads() {
	const threads = 12
	var started, finish sync.WaitGroup
	finish.Add(1)
	for range threads {
		started.Add(1)
		go func() {
			runtime.LockOSThread()
			started.Done()
			finish.Wait()
			runtime.UnlockOSThread()
		}()
	}
	started.Wait()
	finish.Done()
}
