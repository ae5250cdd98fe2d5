// SPDX-License-Identifier: Apache-2.0

package confine

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/guest/confine/internal/step"
)

// selfTest tries what the confinement must refuse. A success is a start error: a layer that silently does nothing is
// worse than one that is missing.
func (s *Spec) selfTest() error {
	for _, t := range s.attempts() {
		err := t.try()
		if err == nil {
			return &step.Error{Step: "self-test", Err: fmt.Errorf("%s succeeded, so the confinement does not hold", t.what)}
		}
	}
	if s.Namespaces.PID && os.Getpid() != 1 {
		return &step.Error{Step: "self-test", Err: fmt.Errorf("the guest is process %d of its namespace and not 1", os.Getpid())}
	}
	return nil
}

type attempt struct {
	what string
	try  func() error
}

func (s *Spec) attempts() []attempt {
	var list []attempt
	add := func(what string, try func() error) { list = append(list, attempt{what, try}) }
	closed := func(fd int, err error) error {
		if err == nil {
			unix.Close(fd)
		}
		return err
	}
	confined := s.Landlock > 0 || s.Namespaces.Mount
	if s.Test.File != "" && confined {
		add("opening a file outside", func() error {
			return closed(unix.Open(s.Test.File, unix.O_RDONLY|unix.O_CLOEXEC, 0))
		})
	}
	if confined {
		add("opening core_pattern for writing", func() error {
			return closed(unix.Open("/proc/sys/kernel/core_pattern", unix.O_WRONLY|unix.O_CLOEXEC, 0))
		})
	}
	if s.Test.PID > 0 && !s.Namespaces.PID && s.Landlock >= 6 {
		add("signalling the driver", func() error { return unix.Kill(s.Test.PID, 0) })
	}
	if s.Test.TCP > 0 && s.Network == "none" {
		add("connecting to a port of the host", func() error {
			return connect(unix.AF_INET, &unix.SockaddrInet4{Port: s.Test.TCP, Addr: [4]byte{127, 0, 0, 1}})
		})
	}
	if s.Test.Unix != "" && (s.Namespaces.Mount || s.Seccomp != nil && s.Seccomp.DenyUnix) {
		add("connecting to a unix socket of the host", func() error {
			return connect(unix.AF_UNIX, &unix.SockaddrUnix{Name: s.Test.Unix})
		})
	}
	if s.Seccomp != nil {
		add("a socket of family vsock", func() error { return closed(unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)) })
		add("bpf", func() error {
			_, _, e := unix.Syscall(unix.SYS_BPF, 0, 0, 0)
			return onlyIf(e, unix.EPERM)
		})
		if !s.Seccomp.Nested {
			add("mount", func() error { return onlyIf(unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""), unix.EPERM) })
			add("unshare", func() error {
				// A null effect: the flags are refused before anything is done.
				return onlyIf(unix.Unshare(unix.CLONE_NEWUSER), unix.EPERM)
			})
		}
	}
	if confined && !s.Identity.RunAs {
		add("becoming user 0", func() error {
			_, _, e := unix.RawSyscall(unix.SYS_SETRESUID, 0, 0, 0)
			if e == 0 {
				return nil
			}
			return e
		})
	}
	return list
}

// onlyIf turns any refusal but the expected one into success: it was not the filter that refused.
func onlyIf(err error, want unix.Errno) error {
	if errors.Is(err, want) {
		return err
	}
	return nil
}

func connect(family int, to unix.Sockaddr) error {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: 1}); err != nil {
		return err
	}
	return unix.Connect(fd, to)
}
