// SPDX-License-Identifier: Apache-2.0

//go:build linux

package confine_test

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/guest/confine/report"
)

func itoa(n int) string { return strconv.Itoa(n) }

func raw(number uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	_, _, e := unix.Syscall6(number, a[0], a[1], a[2], a[3], a[4], a[5])
	if e != 0 {
		return e
	}
	return nil
}

func text(s string) uintptr {
	p, err := unix.BytePtrFromString(s)
	if err != nil {
		panic(err)
	}
	return uintptr(unsafe.Pointer(p))
}

// processAttempts go for other processes.
func processAttempts(h *hostFacts) []try {
	parent := os.Getppid()
	return []try{
		{"15", "signal the guest", func() error { return unix.Kill(parent, 0) }, "EPERM", "EPERM", ""},
		{"15", "trace the guest", func() error { return raw(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(parent)) }, "EPERM", "EPERM", ""},
		{"16", "signal a process outside", func() error { return unix.Kill(h.Victim, 0) }, "EPERM", "ESRCH", ""},
		{"16", "signal the driver", func() error { return unix.Kill(h.Driver, 0) }, "EPERM", "ESRCH", ""},
		{"17", "pidfd_open", func() error { return raw(unix.SYS_PIDFD_OPEN, uintptr(h.Victim), 0) }, "gap", "ESRCH", report.AxisProcesses},
		{"17", "prlimit", func() error {
			var r unix.Rlimit
			return unix.Prlimit(h.Victim, unix.RLIMIT_NOFILE, nil, &r)
		}, "gap", "ESRCH", report.AxisProcesses},
		{"17", "setpriority", func() error { return unix.Setpriority(unix.PRIO_PROCESS, h.Victim, 19) }, "gap", "ESRCH", report.AxisProcesses},
		{"17", "sched_setaffinity", func() error {
			var set unix.CPUSet
			if err := unix.SchedGetaffinity(h.Victim, &set); err != nil {
				return err
			}
			return unix.SchedSetaffinity(h.Victim, &set)
		}, "gap", "ESRCH", report.AxisProcesses},
		{"18", "ptrace", func() error { return raw(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(h.Victim)) }, "EPERM", "ESRCH EPERM", ""},
		{"18", "process_vm_readv", func() error {
			b := make([]byte, 8)
			local := []unix.Iovec{{Base: &b[0], Len: 8}}
			_, err := unix.ProcessVMReadv(h.Victim, local, []unix.RemoteIovec{{Base: 0x400000, Len: 8}}, 0)
			return err
		}, "EPERM", "ESRCH EPERM", ""},
		{"18", "pidfd_getfd", func() error { return raw(unix.SYS_PIDFD_GETFD, 0, 0, 0) }, "EPERM", "EPERM", ""},
		{"34", "shared memory of the host", func() error {
			id, err := unix.SysvShmGet(h.SysV, 0, 0)
			if err != nil {
				return err
			}
			_, err = unix.SysvShmAttach(id, 0, unix.SHM_RDONLY)
			return err
		}, "gap", "ENOENT", report.AxisProcesses},
		{"34", "message queue of the host", func() error { return raw(unix.SYS_MSGGET, uintptr(h.SysV), 0) }, "gap", "ENOENT", report.AxisProcesses},
		{"41", "become user 0", func() error { return becomeRoot() }, "EPERM", "EPERM EINVAL", ""},
		{"41", "become another user", func() error { return becomeOther() }, "EPERM", "EPERM EINVAL", ""},
		{"42", "a program that is set-user-ID root", func() error { return setuidGain(h) }, "nothing", "nothing", ""},
		{"43", "push into the terminal", func() error { return terminal(unix.TIOCSTI) }, "EPERM", "EPERM", ""},
		{"43", "TIOCLINUX", func() error { return terminal(unix.TIOCLINUX) }, "EPERM", "EPERM", ""},
		{"43", "a terminal of the host", func() error { return openErr(h.PTY, unix.O_RDWR|unix.O_NOCTTY) }, "EACCES EIO ENOENT", "ENOENT EIO", ""},
	}
}

// kernelAttempts go for the kernel itself.
func kernelAttempts(h *hostFacts) []try {
	const eperm = "EPERM"
	deny := func(row, what string, number uintptr, args ...uintptr) try {
		return try{row, what, func() error { return raw(number, args...) }, eperm, eperm, ""}
	}
	none := ^uintptr(0)
	return []try{
		deny("19", "mount a tmpfs", unix.SYS_MOUNT, text("x"), text("."), text("tmpfs"), 0, 0),
		deny("19", "bind /", unix.SYS_MOUNT, text("/"), text("."), 0, unix.MS_BIND|unix.MS_REC, 0),
		deny("19", "remount / writable", unix.SYS_MOUNT, 0, text("/"), 0, unix.MS_REMOUNT|unix.MS_BIND, 0),
		deny("19", "unmount /proc", unix.SYS_UMOUNT2, text("/proc"), unix.MNT_DETACH),
		deny("20", "fsopen", unix.SYS_FSOPEN, text("tmpfs"), 0),
		deny("20", "open_tree", unix.SYS_OPEN_TREE, text("/"), text("/"), unix.OPEN_TREE_CLONE),
		deny("20", "move_mount", unix.SYS_MOVE_MOUNT, none, text("/"), none, text("/"), 0),
		deny("20", "mount_setattr", unix.SYS_MOUNT_SETATTR, none, text("/"), 0, 0, 0),
		deny("21", "chroot", unix.SYS_CHROOT, text(".")),
		deny("21", "pivot_root", unix.SYS_PIVOT_ROOT, text("."), text(".")),
		deny("21", "open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT, none, 0, 0),
		{"32", "a raw socket", func() error { return raw(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP) }, "EPERM EACCES", "EPERM", ""},
		{"32", "a packet socket", func() error { return raw(unix.SYS_SOCKET, unix.AF_PACKET, unix.SOCK_RAW, 0) }, "EPERM EAFNOSUPPORT", "EPERM EAFNOSUPPORT", ""},
		{"32", "AF_ALG", func() error { return raw(unix.SYS_SOCKET, unix.AF_ALG, unix.SOCK_SEQPACKET, 0) }, "EAFNOSUPPORT", "EAFNOSUPPORT", ""},
		{"32", "AF_KEY", func() error { return raw(unix.SYS_SOCKET, unix.AF_KEY, unix.SOCK_RAW, 2) }, "EAFNOSUPPORT", "EAFNOSUPPORT", ""},
		{"32", "AF_VSOCK", func() error { return raw(unix.SYS_SOCKET, unix.AF_VSOCK, unix.SOCK_STREAM, 0) }, "EAFNOSUPPORT", "EAFNOSUPPORT", ""},
		{"33", "change a route", changeRoute, "EPERM", "EPERM", ""},
		deny("35", "unshare a user namespace", unix.SYS_UNSHARE, unix.CLONE_NEWUSER),
		deny("35", "clone into a user namespace", unix.SYS_CLONE, unix.CLONE_NEWUSER|uintptr(unix.SIGCHLD), 0, 0, 0, 0),
		{"35", "clone3", func() error { return raw(unix.SYS_CLONE3, 0, 0) }, "ENOSYS", "ENOSYS", ""},
		{"36", "open a namespace of the host", func() error { return openErr(h.proc("ns/mnt"), unix.O_RDONLY) }, "EACCES", "ENOENT", ""},
		deny("36", "setns", unix.SYS_SETNS, none, 0),
		deny("37", "keyctl", unix.SYS_KEYCTL, 0, none-1, 0),
		deny("37", "add_key", unix.SYS_ADD_KEY, text("user"), text("x"), text("y"), 1, none-1),
		deny("37", "request_key", unix.SYS_REQUEST_KEY, text("user"), text("x"), 0, 0),
		deny("37", "bpf", unix.SYS_BPF, 0, 0, 0),
		deny("37", "perf_event_open", unix.SYS_PERF_EVENT_OPEN, 0, 0, none, none, 0),
		deny("37", "userfaultfd", unix.SYS_USERFAULTFD, 1),
		{"37", "io_uring_setup", func() error { return raw(unix.SYS_IO_URING_SETUP, 1, 0) }, "ENOSYS", "ENOSYS", ""},
		{"38", "a 32-bit system call", func() error { return part("int80") }, "SIGSYS impossible", "SIGSYS impossible", ""},
		{"38", "an x32 system call", func() error { return raw(unix.SYS_GETPID | 0x40000000) }, "ENOSYS", "ENOSYS", ""},
		deny("39", "init_module", unix.SYS_INIT_MODULE, 0, 0, 0),
		deny("39", "kexec_load", unix.SYS_KEXEC_LOAD, 0, 0, 0, 0),
		deny("39", "reboot with wrong magic", unix.SYS_REBOOT, 1, 2, 0, 0),
		deny("39", "swapon", unix.SYS_SWAPON, text("/nothing"), 0),
		deny("40", "clock_settime", unix.SYS_CLOCK_SETTIME, unix.CLOCK_REALTIME, 0),
		deny("40", "adjtimex", unix.SYS_ADJTIMEX, 0),
		deny("40", "syslog", unix.SYS_SYSLOG, 10, 0, 0),
		deny("40", "fanotify_init", unix.SYS_FANOTIFY_INIT, 0, 0),
		{"40", "sethostname with a bad length", func() error { return raw(unix.SYS_SETHOSTNAME, 0, none) }, "EPERM", "EPERM", ""},
		{"45", "more processes than allowed", forkMany, "EAGAIN", "EAGAIN", ""},
		{"47", "a file larger than allowed", bigFile, "EFBIG", "EFBIG", ""},
	}
}

// part runs one attempt in a program of its own and says which signal ended it.
func part(name string) error {
	err := exec.Command("/proc/self/exe", "part", name).Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return said(unix.SignalName(ws.Signal()))
		}
		switch code := exit.ExitCode(); {
		case code == 2 && name == "int80": // the kernel was built or started without such calls
			return said("impossible")
		case code >= 100:
			return unix.Errno(code - 100)
		}
	}
	return err
}

func partMain(name string) {
	exit := func(err error) {
		if errno, ok := errors.AsType[unix.Errno](err); ok {
			os.Exit(100 + int(errno))
		}
		os.Exit(0)
	}
	switch name {
	case "int80":
		int80()
	case "big":
		signal.Ignore(unix.SIGXFSZ)
		f, err := os.Create("big") //nolint:forbidigo // in a directory of the test
		if err != nil {
			exit(nil)
		}
		_, err = f.WriteAt([]byte("x"), 1<<30)
		exit(err)
	case "euid":
		if os.Geteuid() == 0 {
			os.Exit(0)
		}
		os.Exit(3)
	}
	os.Exit(0)
}

// int80 makes the 32-bit system call 288, keyctl: push 0x120; pop rax; int 0x80; ret.
func int80() {
	code := []byte{0x68, 0x20, 0x01, 0, 0, 0x58, 0xcd, 0x80, 0xc3}
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		os.Exit(4)
	}
	copy(page, code)
	p := uintptr(unsafe.Pointer(&page[0]))
	pp := unsafe.Pointer(&p)
	(*(*func())(unsafe.Pointer(&pp)))()
}

func terminal(request uintptr) error {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil // a terminal has to be there
	}
	defer unix.Close(fd)
	c := byte('x')
	return raw(unix.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(&c)))
}

func setuidGain(h *hostFacts) error {
	err := exec.Command(h.SetUID, "part", "euid").Run()
	if err == nil && os.Getuid() != 0 {
		return nil
	}
	return said("nothing")
}

// changeRoute asks for the loopback device to go down.
func changeRoute() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		// Without IP sockets, by netlink: a request to delete a link.
		return netlinkDelete()
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return nil
	}
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}

func netlinkDelete() error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// nlmsghdr{len 32, RTM_DELLINK, NLM_F_REQUEST|NLM_F_ACK}, ifinfomsg{index: none}
	msg := make([]byte, 32)
	msg[0], msg[4], msg[6], msg[20] = 32, unix.RTM_DELLINK, unix.NLM_F_REQUEST|unix.NLM_F_ACK, 0x7f
	if err := unix.Sendto(fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil || n < 20 {
		return err
	}
	code := -*(*int32)(unsafe.Pointer(&answer[16]))
	if code == 0 {
		return nil
	}
	return unix.Errno(code)
}

// forkMany starts sleepers up to a bound that lies above the limit, and ends them.
func forkMany() error {
	const bound = testProcesses + 10
	var started []*exec.Cmd
	defer func() {
		for _, c := range started {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}()
	for range bound {
		c := exec.Command("/bin/sleep", "20")
		if err := c.Start(); err != nil {
			return err
		}
		started = append(started, c)
	}
	return nil
}

func bigFile() error { return part("big") }

// becomeRoot is not tried by who is the root of its own user namespace, and of nothing else.
func becomeRoot() error {
	if os.Getuid() == 0 {
		return unix.EPERM
	}
	return raw(unix.SYS_SETUID, 0)
}

func becomeOther() error {
	if os.Getuid() == 0 { // it may become the users of its own range; the first beyond has to be out of reach
		return raw(unix.SYS_SETRESUID, 65536, 65536, 65536)
	}
	return raw(unix.SYS_SETRESUID, 12345, 12345, 12345)
}
