// SPDX-License-Identifier: Apache-2.0

package state

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// machine tells this boot of this machine, and this set of processes, from others.
func machine() []string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil
	}
	ns, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return nil
	}
	return []string{strings.TrimSpace(string(boot)), ns}
}

// started is when a process was started, in a text of the kernel's; empty = it is hidden, false = there is none, or its
// end is only not yet read.
func started(pid int) (string, bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		// Others' processes may be hidden in /proc, but not from kill.
		return "", errors.Is(unix.Kill(pid, 0), unix.EPERM)
	}
	// The name, in parentheses, may hold anything.
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	const state, start = 0, 19 // fields 3 and 22 of proc_pid_stat(5)
	if len(fields) <= start || fields[state] == "Z" || fields[state] == "X" {
		return "", false
	}
	return fields[start], true
}
