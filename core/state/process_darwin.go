// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// machine tells this boot of this machine from others.
func machine() []string {
	boot, err := unix.SysctlTimeval("kern.boottime")
	if err != nil {
		return nil
	}
	return []string{fmt.Sprint(boot.Sec)}
}

// started is when a process was started; false = there is none.
func started(pid int) (string, bool) {
	const zombie = 5 // SZOMB
	p, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || p.Proc.P_stat == zombie || int(p.Proc.P_pid) != pid {
		return "", false
	}
	return fmt.Sprintf("%d.%06d", p.Proc.P_starttime.Sec, p.Proc.P_starttime.Usec), true
}
