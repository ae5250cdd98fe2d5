// SPDX-License-Identifier: Apache-2.0

package seccomp

import "golang.org/x/sys/unix"

const nativeArch = unix.AUDIT_ARCH_X86_64

// refusedHere are calls that only this architecture has.
var refusedHere = []uint32{
	unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_USELIB, unix.SYS_SYSFS, unix.SYS__SYSCTL, unix.SYS_CREATE_MODULE,
}

// setIDCalls set the mode of a file that exists, or make one whatever their flags say.
var setIDCalls = []call{
	{unix.SYS_CHMOD, 1},
	{unix.SYS_FCHMOD, 1},
	{unix.SYS_FCHMODAT, 2},
	{unix.SYS_FCHMODAT2, 2},
	{unix.SYS_CREAT, 1},
	{unix.SYS_MKNOD, 1},
	{unix.SYS_MKNODAT, 2},
}

// createCalls may make a file; the flags are the argument before the mode.
var createCalls = []call{{unix.SYS_OPEN, 2}, {unix.SYS_OPENAT, 3}}
