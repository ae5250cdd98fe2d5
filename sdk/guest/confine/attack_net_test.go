// SPDX-License-Identifier: Apache-2.0

//go:build linux

package confine_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/guest/confine"
	"github.com/berth-dev/berth/sdk/guest/confine/report"
)

// netAttempts go for listeners of the host, with network "none" and unix sockets not allowed.
func netAttempts(h *hostFacts) []try {
	const refused = "ECONNREFUSED"
	return []try{
		{"26", "a unix socket of the host", func() error { return connectUnix(h.Unix) }, "EACCES", "ENOENT", ""},
		{"27", "an abstract unix socket of the host", func() error { return connectUnix("@" + h.Abstract) }, "EPERM EACCES", refused + " EPERM", ""},
		{"28", "TCP to 127.0.0.1", func() error { return connectIP(unix.SOCK_STREAM, 0, h.TCP, loopback) }, "EACCES", refused, ""},
		{"28", "TCP to an address of the host", func() error { return connectIP(unix.SOCK_STREAM, 0, h.TCP, h.Address) }, "EACCES", "ENETUNREACH", ""},
		{"29", "MPTCP to 127.0.0.1", func() error { return connectIP(unix.SOCK_STREAM, unix.IPPROTO_MPTCP, h.TCP, loopback) }, "EACCES", refused, ""},
		{"30", "UDP to 127.0.0.1", func() error { return udp(h.UDP, loopback) }, "EACCES", refused, ""},
		{"30", "DNS of the host", func() error { return connectIP(unix.SOCK_DGRAM, 0, 53, h.Address) }, "EACCES", "ENETUNREACH", ""},
		{"33", "see the host's links", hostLinks, "gap none", "none", report.AxisNetwork},
	}
}

// mustWork is what ordinary programs do.
func mustWork(h *hostFacts) []try {
	ok := func(what string, f func() error) try { return try{"49", what, f, "ok", "ok", ""} }
	sh := func(script string) try {
		return ok(script, func() error {
			out, err := exec.Command("/bin/sh", "-c", script).CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
	}
	list := []try{
		ok("rename and link across directories", func() error {
			return errors.Join(os.MkdirAll("a/b", 0o755), os.WriteFile("a/f", nil, 0o644), os.Rename("a/f", "a/b/f"), os.Link("a/b/f", "a/g"))
		}),
		ok("a file without a name gets one", func() error {
			fd, err := unix.Open(".", unix.O_TMPFILE|unix.O_RDWR, 0o600)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+itoa(fd), unix.AT_FDCWD, "named", unix.AT_SYMLINK_FOLLOW)
		}),
		ok("a FIFO", func() error { return unix.Mkfifo("fifo", 0o600) }),
		ok("inotify", func() error { return watch(".") }),
		ok("a program in memory", func() error {
			fd, err := unix.MemfdCreate("true", 0)
			if err != nil {
				return err
			}
			b, err := os.ReadFile("/bin/true")
			if err != nil {
				return err
			}
			if _, err := unix.Write(fd, b); err != nil {
				return err
			}
			return exec.Command("/proc/self/fd/" + itoa(fd)).Run()
		}),
		ok("a file in TMPDIR", func() error { return os.WriteFile(filepath.Join(os.Getenv("TMPDIR"), "t"), nil, 0o600) }),
		sh("echo x > /dev/null && head -c 8 /dev/urandom > r && test -s r"),
		sh("ps -e > /dev/null && df . > /dev/null && id > /dev/null"),
		sh("printf 'b\\na\\n' | sort | head -1 | grep -q a && tar cf t.tar r && tar tf t.tar > /dev/null"),
		sh("test \"$(script -qec tty /dev/null | tr -d '\\r')\" != 'not a tty'"),
	}
	if h.Level != confine.LevelLandlock {
		list = append(list,
			ok("a unix socket of its own", func() error {
				l, err := net.Listen("unix", "own.sock")
				if err != nil {
					return err
				}
				defer l.Close()
				return connectUnix("own.sock")
			}),
			ok("a server of its own", func() error {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					return err
				}
				defer l.Close()
				c, err := net.DialTimeout("tcp", l.Addr().String(), time.Second)
				if err == nil {
					_ = c.Close()
				}
				return err
			}),
		)
	}
	if !h.Tools {
		return list
	}
	for tool, script := range map[string]string{
		"git":     "git init -q repo && cd repo && git config user.email a@b && git config user.name a && echo 1 > f && git add f && git commit -qm x && git clone -q . ../copy",
		"python3": "python3 -c 'import ssl, subprocess; subprocess.run([\"true\"], check=True)'",
		"perl":    "perl -e 'print 1' > /dev/null",
		"gcc":     "echo 'int main(){return 0;}' > m.c && gcc m.c -o m && ./m",
		"make":    "printf 'all:\\n\\ttrue\\n' > Makefile && make -s",
		"openssl": "openssl version > /dev/null",
	} {
		if _, err := exec.LookPath(tool); err == nil {
			list = append(list, sh(script))
		}
	}
	return list
}

var loopback = []byte{127, 0, 0, 1}

func connectUnix(name string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Connect(fd, &unix.SockaddrUnix{Name: name})
}

func connectIP(kind, protocol, port int, address []byte) error {
	fd, err := unix.Socket(unix.AF_INET, kind, protocol)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: 2}); err != nil {
		return err
	}
	return connect(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte(address)})
}

// connect goes on after the signals that Go's scheduler sends to a thread that is long in a call.
func connect(fd int, to unix.Sockaddr) error {
	err := unix.Connect(fd, to)
	for errors.Is(err, unix.EINTR) {
		err = unix.Connect(fd, to)
	}
	return err
}

// udp sends twice: the refusal of the first comes with the second.
func udp(port int, address []byte) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := connect(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte(address)}); err != nil {
		return err
	}
	if _, err := unix.Write(fd, []byte("x")); err != nil {
		return err
	}
	_, err = unix.Write(fd, []byte("x"))
	return err
}

// hostLinks looks for any device but loopback.
func hostLinks() error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	msg := make([]byte, 32)
	msg[0], msg[4], msg[6], msg[7] = 32, unix.RTM_GETLINK, unix.NLM_F_REQUEST, unix.NLM_F_DUMP>>8
	if err := unix.Sendto(fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	links := 0
	for {
		b := make([]byte, 1<<16)
		n, _, err := unix.Recvfrom(fd, b, 0)
		if err != nil {
			return err
		}
		for n >= 16 {
			size := int(*(*uint32)(unsafe.Pointer(&b[0])))
			switch *(*uint16)(unsafe.Pointer(&b[4])) {
			case unix.RTM_NEWLINK:
				links++
			case unix.NLMSG_DONE, unix.NLMSG_ERROR:
				if links > 1 {
					return nil
				}
				return said("none")
			}
			size = (size + 3) &^ 3
			b, n = b[size:], n-size
		}
	}
}

// verdict compares what happened with what may happen.
func verdict(expected string, err error) (string, bool) {
	got := "ok"
	var errno unix.Errno
	var s said
	switch {
	case err == nil:
	case errors.As(err, &s):
		got = string(s)
	case errors.As(err, &errno):
		got = unix.ErrnoName(errno)
	default:
		got = err.Error()
	}
	if got == "ok" {
		return got, expected == "ok" || strings.Contains(expected, "gap")
	}
	for e := range strings.FieldsSeq(expected) {
		if got == e {
			return got, true
		}
	}
	return got, false
}
