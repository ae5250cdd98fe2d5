// SPDX-License-Identifier: Apache-2.0

//go:build linux

package proc

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/errs"
)

// signalNumber takes a name, with SIG before it or not, or a number.
func signalNumber(name string) (syscall.Signal, error) {
	bare := strings.TrimPrefix(strings.ToUpper(name), "SIG")
	if n := unix.SignalNum("SIG" + bare); n != 0 {
		return n, nil
	}
	if n, err := strconv.Atoi(bare); err == nil && n > 0 && n <= 64 {
		return syscall.Signal(n), nil
	}
	return 0, errs.New(errs.InvalidArgument, "no signal is called %q", name)
}

// signalName is the name without SIG, or the number where it has none.
func signalName(s syscall.Signal) string {
	if n := unix.SignalName(s); n != "" {
		return strings.TrimPrefix(n, "SIG")
	}
	return strconv.Itoa(int(s))
}

// OOMKills reads the counter of processes that were ended for lack of memory from a cgroup's file; 0 without one.
func OOMKills(file string) uint64 {
	if file == "" {
		return 0
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(b) {
		if n, ok := bytes.CutPrefix(line, []byte("oom_kill ")); ok {
			v, err := strconv.ParseUint(string(bytes.TrimSpace(n)), 10, 64)
			if err != nil {
				return 0
			}
			return v
		}
	}
	return 0
}
