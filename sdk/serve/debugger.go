// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bytes"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// waitForDebugger returns when a debugger has attached, where that can be seen, or when SIGUSR1 arrives.
func waitForDebugger() {
	woken := make(chan os.Signal, 1)
	// It stays taken: a second one, sent by an impatient person, would end the process.
	signal.Notify(woken, syscall.SIGUSR1)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-woken:
			return
		case <-tick.C:
			if runtime.GOOS == "linux" && traced() {
				return
			}
		}
	}
}

func traced() bool {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false
	}
	_, rest, found := bytes.Cut(status, []byte("TracerPid:\t"))
	return found && len(rest) > 0 && rest[0] != '0'
}
