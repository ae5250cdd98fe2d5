// SPDX-License-Identifier: Apache-2.0

// Package vfork starts a program in namespaces of its own without copying the calling process.
//
// Package os/exec copies it whenever there is a new user namespace, so that it can write the maps before the program
// begins: the page tables of a driver with hundreds of sandboxes, and then each page that the driver touches next. Our
// programs get their maps while they wait for their configuration.
package vfork

import (
	"os"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/guest/confine/internal/step"
)

// Program is what to start, in the directory / and a session of its own.
type Program struct {
	File       *os.File
	Args       []string // with the program's name
	Env        []string
	Files      []*os.File // its descriptors, from 0 on
	Namespaces uintptr    // CLONE_NEW* flags
	Caps       []uintptr  // capabilities of the new user namespace that the program has; needs CLONE_NEWUSER
	Cgroup     *os.File   // directory of a cgroup v2 to begin in; nil = this process's own. ENOSYS where it cannot be done
}

// call is one system call of the child and what came of it.
type call struct {
	nr  uintptr
	arg [5]uintptr
	ret uintptr
}

// spawn is the system call nr with two arguments, a clone or clone3; the child makes the calls until one fails, and ends.
func spawn(nr, a, b uintptr, calls *call, n uintptr) (pid uintptr)

// cloneArgs is struct clone_args, as far as Linux 5.7 knows it.
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

// script is what the child does. Everything that it points to is on the heap, and kept.
type script struct {
	calls   []call
	names   []string
	keep    []any
	program string
}

func (s *script) add(name string, nr uintptr, args ...uintptr) {
	c := call{nr: nr}
	copy(c.arg[:], args)
	s.calls, s.names = append(s.calls, c), append(s.names, name)
}

// Start starts a program. The error names the step that was refused.
//
// Preconditions: no file of p is closed meanwhile.
func Start(p *Program) (*os.Process, error) {
	s, done, err := p.script()
	defer done()
	if err != nil {
		return nil, err
	}
	mask := new(unix.Sigset_t)
	s.keep = append(s.keep, mask)
	// Until the child's handlers are the default ones, and the mask is the old one, it must get no signal: a handler
	// would run in the memory of both.
	for sig := 1; sig <= maxSignal; sig++ {
		if sig != int(unix.SIGKILL) && sig != int(unix.SIGSTOP) {
			s.add("sigaction", unix.SYS_RT_SIGACTION, uintptr(sig), s.zero(), 0, sigsetSize)
		}
	}
	s.add("sigprocmask", unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(mask)), 0, sigsetSize)
	if err := s.exec(p); err != nil {
		return nil, err
	}

	all := &unix.Sigset_t{}
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	flags := unix.CLONE_VM | unix.CLONE_VFORK | p.Namespaces
	nr, a, b := uintptr(unix.SYS_CLONE), flags|uintptr(unix.SIGCHLD), uintptr(0)
	if p.Cgroup != nil {
		args := &cloneArgs{flags: uint64(flags) | unix.CLONE_INTO_CGROUP, exitSignal: uint64(unix.SIGCHLD), cgroup: uint64(p.Cgroup.Fd())}
		s.keep = append(s.keep, args)
		nr, a, b = unix.SYS_CLONE3, uintptr(unsafe.Pointer(args)), unsafe.Sizeof(*args)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	syscall.ForkLock.Lock() // whoever is about to mark a new descriptor as not inherited does so first
	err = unix.PthreadSigmask(unix.SIG_SETMASK, all, mask)
	if err == nil {
		ret := spawn(nr, a, b, &s.calls[0], uintptr(len(s.calls)))
		_ = unix.PthreadSigmask(unix.SIG_SETMASK, mask, nil) // it was the mask a moment ago
		syscall.ForkLock.Unlock()
		return s.outcome(ret)
	}
	syscall.ForkLock.Unlock()
	return nil, step.At("block signals", err)
}

const (
	maxSignal  = 64
	sigsetSize = 8
)

// outcome says what became of the child. It has ended or has become the program by now.
func (s *script) outcome(ret uintptr) (*os.Process, error) {
	defer runtime.KeepAlive(s)
	if e := failure(ret); e != 0 {
		return nil, step.At("clone", e)
	}
	for i, c := range s.calls {
		if e := failure(c.ret); e != 0 {
			_, _ = syscall.Wait4(int(ret), nil, 0, nil) // it is ending
			return nil, step.At(s.names[i], e)
		}
	}
	p, err := os.FindProcess(int(ret))
	return p, step.At("find the child", err)
}

// failure is the error that a system call returned.
func failure(ret uintptr) syscall.Errno {
	if ret > ^uintptr(4095) {
		return syscall.Errno(-ret)
	}
	return 0
}

// zero is the address of zeros.
func (s *script) zero() uintptr {
	z := new([64]byte)
	s.keep = append(s.keep, z)
	return uintptr(unsafe.Pointer(z))
}

// script puts together what the child does before it takes signals. done closes what only the child needs.
func (p *Program) script() (s *script, done func(), err error) {
	s = &script{}
	var copies []int
	done = func() {
		for _, fd := range copies {
			_ = unix.Close(fd) // the child has its own
		}
	}
	s.add("setsid", unix.SYS_SETSID)
	s.add("chdir", unix.SYS_CHDIR, s.text("/"))
	// All of them above where they go to, so that none is overwritten before its turn.
	for _, f := range append([]*os.File{p.File}, p.Files...) {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, len(p.Files))
		if err != nil {
			return nil, done, step.At("keep a descriptor", err)
		}
		copies = append(copies, fd)
	}
	for i, fd := range copies[1:] {
		s.add("dup3", unix.SYS_DUP3, uintptr(fd), uintptr(i), 0)
	}
	// By descriptor: whoever the program is to be might not reach its path.
	s.program = "/proc/self/fd/" + strconv.Itoa(copies[0])
	if len(p.Caps) > 0 {
		head := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		data := new([2]unix.CapUserData)
		for _, c := range p.Caps {
			data[c/32].Permitted |= 1 << (c % 32)
		}
		for i := range data {
			data[i].Effective, data[i].Inheritable = data[i].Permitted, data[i].Permitted
		}
		s.keep = append(s.keep, head, data)
		s.add("capset", unix.SYS_CAPSET, uintptr(unsafe.Pointer(head)), uintptr(unsafe.Pointer(data)))
		for _, c := range p.Caps {
			s.add("ambient capabilities", unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, c)
		}
	}
	return s, done, nil
}

// exec makes the last call, which ends the lending.
func (s *script) exec(p *Program) error {
	argv, err := syscall.SlicePtrFromStrings(p.Args)
	if err != nil {
		return step.At("execve", err)
	}
	env, err := syscall.SlicePtrFromStrings(p.Env)
	if err != nil {
		return step.At("execve", err)
	}
	s.keep = append(s.keep, argv, env)
	s.add("execve", unix.SYS_EXECVE, s.text(s.program),
		uintptr(unsafe.Pointer(&argv[0])), uintptr(unsafe.Pointer(&env[0])))
	return nil
}

// text is the address of a C string.
func (s *script) text(t string) uintptr {
	b := append([]byte(t), 0)
	s.keep = append(s.keep, b)
	return uintptr(unsafe.Pointer(&b[0]))
}
