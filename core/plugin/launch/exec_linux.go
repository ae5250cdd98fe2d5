// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"errors"
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// execFrom makes cmd execute the open file itself, whatever its path names by then.
func execFrom(cmd *exec.Cmd, binary *os.File, spec Spec) error {
	cmd.Args = []string{spec.Path}
	var head [2]byte
	if _, err := binary.ReadAt(head[:], 0); err != nil {
		return fmt.Errorf("%s is not a program: %w", spec.Path, err)
	}
	if string(head[:]) == "#!" {
		// The interpreter opens the file again, after exec has closed what is to be closed.
		cmd.ExtraFiles = []*os.File{binary}
		cmd.Path = "/proc/self/fd/3"
		return nil
	}
	cmd.Path = fmt.Sprintf("/proc/self/fd/%d", binary.Fd())
	return nil
}

// waitGroup waits for the process and ends what it left in its group, before the process is reaped and its id can be
// another's.
func waitGroup(cmd *exec.Cmd) error {
	for {
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	signalGroup(cmd.Process.Pid, unix.SIGKILL)
	return cmd.Wait()
}

// noCoreDumps keeps secrets in memory out of core files.
func noCoreDumps(pid int) {
	unix.Prlimit(pid, unix.RLIMIT_CORE, &unix.Rlimit{}, nil) //nolint:errcheck // the process may be gone already
}
