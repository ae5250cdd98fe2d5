// SPDX-License-Identifier: Apache-2.0

package seccomp

import "golang.org/x/sys/unix"

const nativeArch = unix.AUDIT_ARCH_AARCH64

// refusedHere are calls that only this architecture has.
var refusedHere []uint32

// setIDCalls set the mode of a file that exists, or make one whatever their flags say.
var setIDCalls = []call{
	{unix.SYS_FCHMOD, 1}, {unix.SYS_FCHMODAT, 2}, {unix.SYS_FCHMODAT2, 2}, {unix.SYS_MKNODAT, 2},
}

// createCalls may make a file; the flags are the argument before the mode.
var createCalls = []call{{unix.SYS_OPENAT, 3}}
