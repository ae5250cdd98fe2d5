// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package seccomp

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"
)

// run interprets the program as the kernel does, for one system call.
func run(t *testing.T, p []unix.SockFilter, arch, number uint32, args ...uint64) uint32 {
	t.Helper()
	data := make([]byte, 64)
	binary.LittleEndian.PutUint32(data[offNumber:], number)
	binary.LittleEndian.PutUint32(data[offArch:], arch)
	for i, a := range args {
		binary.LittleEndian.PutUint64(data[offArgs+8*i:], a)
	}
	var acc uint32
	for pc := 0; pc < len(p); pc++ {
		i := p[pc]
		branch := func(yes bool) {
			if yes {
				pc += int(i.Jt)
			} else {
				pc += int(i.Jf)
			}
		}
		switch i.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			acc = binary.LittleEndian.Uint32(data[i.K:])
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			branch(acc == i.K)
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			branch(acc >= i.K)
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			branch(acc&i.K != 0)
		case unix.BPF_RET | unix.BPF_K:
			return i.K
		default:
			t.Fatalf("instruction %d: unknown code %#x", pc, i.Code)
		}
	}
	t.Fatal("the program ran past its end")
	return 0
}

func TestFilter(t *testing.T) {
	const (
		allow   = unix.SECCOMP_RET_ALLOW
		kill    = unix.SECCOMP_RET_KILL_PROCESS
		foreign = unix.AUDIT_ARCH_I386
	)
	errno := func(e unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(e) }
	type row struct {
		name   string
		opts   Options
		arch   uint32
		number uint32
		args   []uint64
		want   uint32
	}
	high := uint64(0xffffffff) << 32 // the kernel reads the low word of these arguments
	rows := []row{
		{"a foreign architecture", Options{}, foreign, unix.SYS_READ, nil, kill},
		{"a foreign architecture, nested", Options{Nested: true}, foreign, 0, nil, kill},
		{"x32", Options{}, nativeArch, 0x40000000 | unix.SYS_READ, nil, errno(unix.ENOSYS)},
		{"no call at all", Options{}, nativeArch, 0xffffffff, nil, errno(unix.ENOSYS)},
		{"read", Options{}, nativeArch, unix.SYS_READ, nil, allow},
		{"keyctl", Options{}, nativeArch, unix.SYS_KEYCTL, nil, errno(unix.EPERM)},
		{"io_uring", Options{Nested: true}, nativeArch, unix.SYS_IO_URING_SETUP, nil, errno(unix.ENOSYS)},
		{"mount", Options{}, nativeArch, unix.SYS_MOUNT, nil, errno(unix.EPERM)},
		{"open_tree_attr", Options{}, nativeArch, sysOpenTreeAttr, nil, errno(unix.EPERM)},
		{"mount, nested", Options{Nested: true}, nativeArch, unix.SYS_MOUNT, nil, allow},
		{"setns, nested", Options{Nested: true}, nativeArch, unix.SYS_SETNS, nil, errno(unix.EPERM)},
		{"clone3", Options{}, nativeArch, unix.SYS_CLONE3, nil, errno(unix.ENOSYS)},
		{"clone of a process", Options{}, nativeArch, unix.SYS_CLONE, []uint64{uint64(unix.SIGCHLD)}, allow},
		{"clone of a thread", Options{}, nativeArch, unix.SYS_CLONE, []uint64{unix.CLONE_VM | unix.CLONE_THREAD}, allow},
		{"clone of a user namespace", Options{}, nativeArch, unix.SYS_CLONE, []uint64{high | unix.CLONE_NEWUSER}, errno(unix.EPERM)},
		{"unshare of files", Options{}, nativeArch, unix.SYS_UNSHARE, []uint64{unix.CLONE_FILES}, allow},
		{"unshare of time", Options{}, nativeArch, unix.SYS_UNSHARE, []uint64{unix.CLONE_NEWTIME}, errno(unix.EPERM)},
		{"TIOCSTI", Options{}, nativeArch, unix.SYS_IOCTL, []uint64{0, high | unix.TIOCSTI}, errno(unix.EPERM)},
		{"TIOCLINUX", Options{}, nativeArch, unix.SYS_IOCTL, []uint64{0, unix.TIOCLINUX}, errno(unix.EPERM)},
		{"TIOCGWINSZ", Options{}, nativeArch, unix.SYS_IOCTL, []uint64{0, unix.TIOCGWINSZ}, allow},
		{"unix socket", Options{}, nativeArch, unix.SYS_SOCKET, []uint64{unix.AF_UNIX}, allow},
		{"unix socket, denied", Options{DenyUnix: true}, nativeArch, unix.SYS_SOCKET, []uint64{unix.AF_UNIX}, errno(unix.EACCES)},
		{"socketpair", Options{DenyUnix: true}, nativeArch, unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX}, allow},
		{"IPv6, denied", Options{DenyInet: true}, nativeArch, unix.SYS_SOCKET, []uint64{unix.AF_INET6, 1, unix.IPPROTO_MPTCP}, errno(unix.EACCES)},
		{"IPv4", Options{}, nativeArch, unix.SYS_SOCKET, []uint64{unix.AF_INET}, allow},
		{"vsock", Options{}, nativeArch, unix.SYS_SOCKET, []uint64{high | unix.AF_VSOCK}, errno(unix.EAFNOSUPPORT)},
		{"set-user-ID", Options{}, nativeArch, unix.SYS_FCHMOD, []uint64{3, 0o4755}, allow},
		{"set-user-ID, denied", Options{DenySetID: true}, nativeArch, unix.SYS_FCHMOD, []uint64{3, 0o4755}, errno(unix.EPERM)},
		{"set-group-ID at, denied", Options{DenySetID: true}, nativeArch, unix.SYS_FCHMODAT, []uint64{3, 0, 0o2755}, errno(unix.EPERM)},
		{"mode, denied", Options{DenySetID: true}, nativeArch, unix.SYS_FCHMOD, []uint64{3, 0o755}, allow},
		{"open that makes a set-user-ID file", Options{DenySetID: true}, nativeArch, unix.SYS_OPENAT, []uint64{3, 0, unix.O_CREAT | unix.O_WRONLY, 0o4755}, errno(unix.EPERM)},
		{"temporary file that is set-user-ID", Options{DenySetID: true}, nativeArch, unix.SYS_OPENAT, []uint64{3, 0, unix.O_TMPFILE | unix.O_RDWR, 0o4755}, errno(unix.EPERM)},
		{"open with rubbish for a mode", Options{DenySetID: true}, nativeArch, unix.SYS_OPENAT, []uint64{3, 0, unix.O_DIRECTORY, 0o4755}, allow},
		{"openat2, denied", Options{DenySetID: true}, nativeArch, unix.SYS_OPENAT2, nil, errno(unix.ENOSYS)},
	}
	for _, r := range rows {
		if got := run(t, Filter(r.opts), r.arch, r.number, r.args...); got != r.want {
			t.Errorf("%s: %#x, want %#x", r.name, got, r.want)
		}
	}
	// Every number that is refused is refused, and the largest filter fits.
	all := Filter(Options{DenyUnix: true, DenyInet: true, DenySetID: true})
	if len(all) > unix.BPF_MAXINSNS {
		t.Errorf("%d instructions", len(all))
	}
	for _, n := range append(append(append([]uint32{}, refused...), refusedHere...), mounts...) {
		if got := run(t, all, nativeArch, n); got != errno(unix.EPERM) {
			t.Errorf("call %d: %#x", n, got)
		}
	}
}
