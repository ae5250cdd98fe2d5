// SPDX-License-Identifier: Apache-2.0

package inside

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// short is a name of an open directory.
func short(d *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", d.Fd()) }

// callerOf is the process that has connected, as this machine counts; 0 = not known.
func callerOf(c *net.UnixConn) int {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	_ = raw.Control(func(fd uintptr) { // then it is not known
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid
}
