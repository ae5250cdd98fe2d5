// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package seccomp

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data. Both architectures are little-endian: the low word of an argument comes first.
const (
	offNumber = 0
	offArch   = 4
	offArgs   = 16
)

// newNamespaces are the flags of clone and unshare that make namespaces, but for CLONE_NEWTIME, which in clone is part
// of the exit signal.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

const setIDBits = unix.S_ISUID | unix.S_ISGID

// refused are calls that get EPERM on every architecture.
var refused = []uint32{
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_FANOTIFY_INIT,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
	unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF,
	unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_SYSLOG,
	unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_ADJTIMEX, unix.SYS_CLOCK_ADJTIME, unix.SYS_VHANGUP,
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_LOOKUP_DCOOKIE,
	unix.SYS_MOVE_PAGES, unix.SYS_MIGRATE_PAGES, unix.SYS_MBIND,
	unix.SYS_PIDFD_GETFD, unix.SYS_PROCESS_MADVISE, unix.SYS_KCMP,
	unix.SYS_SETNS,
}

// mounts are calls that only the maker of a namespace needs.
var mounts = []uint32{
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT,
	unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK,
	unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_MOUNT_SETATTR, sysOpenTreeAttr,
}

// sysOpenTreeAttr has the same number everywhere.
const sysOpenTreeAttr = 467

// absent are calls that do not exist, so that callers fall back.
var absent = []uint32{unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER}

func stmt(code uint16, k uint32) unix.SockFilter { return unix.SockFilter{Code: code, K: k} }

func jump(code uint16, k uint32, yes, no uint8) unix.SockFilter {
	return unix.SockFilter{Code: code, Jt: yes, Jf: no, K: k}
}

func load(offset uint32) unix.SockFilter { return stmt(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, offset) }

func loadArg(n uint32) unix.SockFilter { return load(offArgs + 8*n) }

func ret(action uint32) unix.SockFilter { return stmt(unix.BPF_RET|unix.BPF_K, action) }

func fail(errno unix.Errno) unix.SockFilter { return ret(unix.SECCOMP_RET_ERRNO | uint32(errno)) }

// Filter assembles the program.
func Filter(o Options) []unix.SockFilter {
	const (
		equal = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		atLst = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		bits  = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
	)
	p := []unix.SockFilter{
		load(offArch),
		jump(equal, nativeArch, 1, 0),
		ret(unix.SECCOMP_RET_KILL_PROCESS),
		load(offNumber),
		jump(atLst, 0x40000000, 0, 1), // x32, and numbers that cannot be
		fail(unix.ENOSYS),
	}
	deny := func(errno unix.Errno, numbers ...uint32) {
		for _, n := range numbers {
			p = append(p, jump(equal, n, 0, 1), fail(errno))
		}
	}
	// test runs body for one call; body must end every path by returning.
	test := func(number uint32, body ...unix.SockFilter) {
		p = append(p, jump(equal, number, 0, uint8(len(body))))
		p = append(p, body...)
	}
	denyBits := func(number, arg, mask uint32) {
		test(number, loadArg(arg), jump(bits, mask, 0, 1), fail(unix.EPERM), ret(unix.SECCOMP_RET_ALLOW))
	}

	deny(unix.EPERM, refused...)
	deny(unix.EPERM, refusedHere...)
	deny(unix.ENOSYS, absent...)
	if !o.Nested {
		deny(unix.EPERM, mounts...)
		deny(unix.ENOSYS, unix.SYS_CLONE3) // its flags lie in memory
		denyBits(unix.SYS_CLONE, 0, newNamespaces)
		denyBits(unix.SYS_UNSHARE, 0, newNamespaces|unix.CLONE_NEWTIME)
	}
	test(unix.SYS_IOCTL,
		loadArg(1),
		jump(equal, unix.TIOCSTI, 1, 0),
		jump(equal, unix.TIOCLINUX, 0, 1),
		fail(unix.EPERM),
		ret(unix.SECCOMP_RET_ALLOW))

	// Only families that are asked for exist: VSOCK would reach the host of a virtual machine, whatever the network
	// namespace.
	families := []unix.SockFilter{loadArg(0)}
	family := func(domain uint32, denied bool) {
		verdict := ret(unix.SECCOMP_RET_ALLOW)
		if denied {
			verdict = fail(unix.EACCES)
		}
		families = append(families, jump(equal, domain, 0, 1), verdict)
	}
	family(unix.AF_UNIX, o.DenyUnix)
	family(unix.AF_INET, o.DenyInet)
	family(unix.AF_INET6, o.DenyInet)
	family(unix.AF_NETLINK, false)
	test(unix.SYS_SOCKET, append(families, fail(unix.EAFNOSUPPORT))...)
	test(unix.SYS_SOCKETPAIR, loadArg(0), jump(equal, unix.AF_UNIX, 0, 1), ret(unix.SECCOMP_RET_ALLOW),
		fail(unix.EAFNOSUPPORT))

	if o.DenySetID {
		deny(unix.ENOSYS, unix.SYS_OPENAT2) // its mode lies in memory
		for _, c := range setIDCalls {
			denyBits(c.number, c.arg, setIDBits)
		}
		for _, c := range createCalls {
			// The mode means something only where a file is made.
			test(c.number,
				loadArg(c.arg-1), jump(bits, unix.O_CREAT|unix.O_TMPFILE&^unix.O_DIRECTORY, 1, 0),
				ret(unix.SECCOMP_RET_ALLOW),
				loadArg(c.arg), jump(bits, setIDBits, 0, 1), fail(unix.EPERM), ret(unix.SECCOMP_RET_ALLOW))
		}
	}
	return append(p, ret(unix.SECCOMP_RET_ALLOW))
}

// call is a system call with the argument that holds a mode.
type call struct{ number, arg uint32 }

// Install puts the calling thread under the filter. The thread needs no_new_privs.
func Install(o Options) error {
	p := Filter(o)
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return fmt.Errorf("install the system call filter: %w", errno)
	}
	return nil
}

// Available says whether the kernel knows the actions that the filter uses.
func Available() error {
	for _, action := range []uint32{unix.SECCOMP_RET_KILL_PROCESS, unix.SECCOMP_RET_ERRNO} {
		_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0,
			uintptr(unsafe.Pointer(&action)))
		if errno != 0 {
			return fmt.Errorf("ask for system call filters: %w", errno)
		}
	}
	return nil
}
