// SPDX-License-Identifier: Apache-2.0

//go:build linux

package confine_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/guest/confine/report"
)

// fileAttempts go for what lies outside the workspace.
func fileAttempts(h *hostFacts) []try {
	secret := filepath.Join(h.Outside, "secret")
	beside := filepath.Join(h.Outside, "made-by-the-sandbox")
	return []try{
		{"14", "use an inherited descriptor", inherited, "none", "none", ""},
		{"1", "read /etc/shadow", func() error { return openErr("/etc/shadow", unix.O_RDONLY) }, "EACCES", "ENOENT", ""},
		{"2", "read a file of the same user", func() error { return openErr(secret, unix.O_RDONLY) }, "EACCES", "ENOENT", ""},
		{"2", "list its directory", func() error { _, err := os.ReadDir(h.Outside); return err }, "EACCES", "ENOENT", ""},
		{"2", "reopen it from O_PATH", func() error { return reopen(secret) }, "EACCES", "ENOENT", ""},
		{"2", "list /root", func() error { _, err := os.ReadDir("/root"); return notEmpty("/root", err) }, "EACCES", "empty", ""},
		{"2", "list /home", func() error { _, err := os.ReadDir("/home"); return notEmpty("/home", err) }, "EACCES", "empty", ""},
		{"3", "stat it", func() error { _, err := os.Lstat(secret); return err }, "gap", "ENOENT", report.AxisFilesystem},
		{"3", "read its attributes", func() error { _, err := unix.Getxattr(secret, "user.x", make([]byte, 9)); return err }, "gap ENODATA", "ENOENT", report.AxisFilesystem},
		{"3", "watch it", func() error { return watch(secret) }, "gap EACCES", "ENOENT", report.AxisFilesystem},
		{"4", "create beside it", func() error { return openErr(beside, unix.O_CREAT|unix.O_WRONLY) }, "EACCES", "ENOENT", ""},
		{"4", "truncate it", func() error { return unix.Truncate(secret, 0) }, "EACCES", "ENOENT", ""},
		{"4", "unlink it", func() error { return unix.Unlink(secret) }, "EACCES", "ENOENT", ""},
		{"5", "chmod it", func() error { return unix.Chmod(secret, 0o600) }, "gap", "ENOENT", report.AxisFilesystem},
		{"5", "chown it to itself", func() error { return unix.Lchown(secret, os.Getuid(), os.Getgid()) }, "gap", "ENOENT", report.AxisFilesystem},
		{"5", "set its times", func() error { return unix.Utimes(secret, make([]unix.Timeval, 2)) }, "gap", "ENOENT", report.AxisFilesystem},
		{"5", "set an attribute", func() error { return unix.Setxattr(secret, "user.x", []byte("1"), 0) }, "gap", "ENOENT", report.AxisFilesystem},
		{"6", "chdir there and open", func() error { return chdirOpen(h.Outside, "secret") }, "EACCES", "ENOENT", ""},
		{"6", "follow a link to it", func() error { return through(secret, "link-secret") }, "EACCES", "ENOENT", ""},
		{"6", "follow a link to /etc/shadow", func() error { return through("/etc/shadow", "link-shadow") }, "EACCES", "ENOENT", ""},
		{"7", "hard link it into the workspace", func() error { return unix.Link(secret, "hard") }, "EXDEV EACCES", "ENOENT", ""},
		{"7", "rename a file out", func() error { return renameOut(beside) }, "EACCES EXDEV", "ENOENT", ""},
		{"8", "append to /etc/hosts", func() error { return openErr("/etc/hosts", unix.O_WRONLY|unix.O_APPEND) }, "EACCES", "EACCES EROFS", ""},
		{"8", "create in /usr/local/bin", func() error { return openErr("/usr/local/bin/berth-x", unix.O_CREAT|unix.O_WRONLY) }, "EACCES", "EROFS EACCES", ""},
		{"9", "create in the host's /tmp", func() error { return private("/tmp/"+h.Token, h) }, "EACCES", "private", ""},
		{"9", "create in the host's /dev/shm", func() error { return private("/dev/shm/"+h.Token, h) }, "EACCES", "private", ""},
		{"10", "/proc/<victim>/root", func() error { return openErr(h.proc("root/etc/hostname"), unix.O_RDONLY) }, "EACCES", "ENOENT", ""},
		{"10", "/proc/<victim>/cwd", func() error { return openErr(h.proc("cwd/secret"), unix.O_RDONLY) }, "EACCES", "ENOENT", ""},
		{"10", "/proc/1/root of the host", func() error { return openErr("/proc/1/root"+secret, unix.O_RDONLY) }, "EACCES", "EACCES ENOENT", ""},
		{"11", "/proc/<victim>/environ", func() error { return readErr(h.proc("environ")) }, "EACCES", "ENOENT", ""},
		{"11", "/proc/<victim>/mem", func() error { return openErr(h.proc("mem"), unix.O_RDWR) }, "EACCES", "ENOENT", ""},
		{"12", "/proc/<victim>/cmdline", func() error { return readErr(h.proc("cmdline")) }, "gap", "ENOENT", report.AxisProcesses},
		{"13", "/proc/<guest>/mem", func() error { return openErr(guestProc("mem"), unix.O_RDWR) }, "EACCES", "EACCES", ""},
		{"13", "/proc/<guest>/mem read-only", func() error { return openErr(guestProc("mem"), unix.O_RDONLY) }, "EACCES", "EACCES", ""},
		{"13", "/proc/<guest>/environ", func() error { return readErr(guestProc("environ")) }, "EACCES", "EACCES", ""},
		{"13", "/proc/<guest>/fd", func() error { _, err := os.Readlink(guestProc("fd/0")); return err }, "EACCES", "EACCES", ""},
		{"13", "/proc/<guest>/maps", func() error { return readErr(guestProc("maps")) }, "EACCES", "EACCES", ""},
		{"21", "make a block device", func() error { return unix.Mknod("disk", unix.S_IFBLK|0o600, int(unix.Mkdev(254, 0))) }, "EPERM EACCES", "EPERM EACCES", ""},
		{"21", "make a character device", func() error { return unix.Mknod("mem", unix.S_IFCHR|0o600, int(unix.Mkdev(1, 1))) }, "EPERM EACCES", "EPERM EACCES", ""},
		{"22", "open the disk", func() error { return openErr(h.Disk, unix.O_RDONLY) }, "EACCES ENOENT", "ENOENT", ""},
		{"22", "open /dev/mem", func() error { return openErr("/dev/mem", unix.O_RDONLY) }, "EACCES ENOENT", "ENOENT", ""},
		{"22", "open /dev/kmsg", func() error { return openErr("/dev/kmsg", unix.O_RDONLY) }, "EACCES ENOENT", "ENOENT", ""},
		{"22", "open /dev/fuse", func() error { return openErr("/dev/fuse", unix.O_RDWR) }, "EACCES ENOENT", "ENOENT", ""},
		{"22", "open /dev/kvm", func() error { return openErr("/dev/kvm", unix.O_RDWR) }, "EACCES ENOENT", "ENOENT", ""},
		{"23", "write core_pattern", func() error { return openErr("/proc/sys/kernel/core_pattern", unix.O_WRONLY) }, "EACCES ENOENT", "EACCES EROFS", ""},
		{"23", "write sysrq-trigger", func() error { return openErr("/proc/sysrq-trigger", unix.O_WRONLY) }, "EACCES ENOENT", "EACCES EROFS ENOENT", ""},
		{"24", "read /proc/kcore", func() error { return openErr("/proc/kcore", unix.O_RDONLY) }, "ENOENT EACCES EPERM", "ENOENT EACCES EPERM", ""},
		{"24", "addresses in kallsyms", kallsyms, "zeroed ENOENT", "zeroed ENOENT", ""},
		{"25", "write uevent_helper", func() error { return openErr("/sys/kernel/uevent_helper", unix.O_WRONLY) }, "EACCES ENOENT", "ENOENT", ""},
		{"25", "list /sys/kernel", func() error { _, err := os.ReadDir("/sys/kernel"); return err }, "EACCES ENOENT", "ENOENT", ""},
		{"25", "make a cgroup", func() error { return unix.Mkdir("/sys/fs/cgroup/berth-x", 0o755) }, "EACCES ENOENT", "ENOENT", ""},
		{"50", "the driver's environment", func() error { return canaryEnv(h) }, "absent", "absent", ""},
		{"51", "the guest's control socket", func() error { return connectUnix(h.Control) }, "EACCES", "ENOENT", ""},
	}
}

// said is a refusal that is no errno.
type said string

func (s said) Error() string { return string(s) }

func openErr(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK, 0o600)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}

func readErr(path string) error {
	b, err := os.ReadFile(path)
	if err == nil && len(b) == 0 {
		return said("empty")
	}
	return err
}

func notEmpty(dir string, err error) error {
	if err != nil {
		return err
	}
	entries, _ := os.ReadDir(dir)
	if len(entries) == 0 {
		return said("empty")
	}
	return nil
}

func reopen(path string) error {
	fd, err := unix.Open(path, unix.O_PATH, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return openErr("/proc/self/fd/"+itoa(fd), unix.O_RDONLY)
}

func watch(path string) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.InotifyAddWatch(fd, path, unix.IN_MODIFY)
	return err
}

func chdirOpen(dir, name string) error {
	back, err := os.Getwd()
	if err != nil {
		return err
	}
	if err := unix.Chdir(dir); err != nil {
		return err
	}
	defer func() { _ = unix.Chdir(back) }()
	return openErr(name, unix.O_RDONLY)
}

func through(target, link string) error {
	if err := os.Symlink(target, link); err != nil {
		return nil //nolint:nilerr // the attempt itself must be possible
	}
	return openErr(link, unix.O_RDONLY)
}

func renameOut(to string) error {
	if err := os.WriteFile("inside", []byte("x"), 0o600); err != nil {
		return nil //nolint:nilerr // the attempt itself must be possible
	}
	return unix.Rename("inside", to)
}

// private succeeds in a place that the host does not see, which the test checks from outside.
func private(path string, h *hostFacts) error {
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		return err
	}
	if _, err := os.Lstat(filepath.Join(filepath.Dir(path), h.Token+"-host")); err == nil {
		return nil // the host's own
	}
	return said("private")
}

func guestProc(name string) string { return "/proc/" + itoa(os.Getppid()) + "/" + name }

func inherited() error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil {
			continue // the descriptor of the listing itself
		}
		switch {
		case len(e.Name()) == 1 && e.Name() <= "2":
		case strings.HasPrefix(target, "/proc/"), strings.HasPrefix(target, "anon_inode:"),
			strings.HasPrefix(target, "/sys/fs/cgroup/"): // opened by this program's own runtime
		default:
			return nil
		}
	}
	return said("none")
}

func kallsyms() error {
	b, err := os.ReadFile("/proc/kallsyms")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(b)) {
		if addr, _, _ := strings.Cut(line, " "); strings.Trim(addr, "0") != "" {
			return nil
		}
	}
	return said("zeroed")
}

func canaryEnv(h *hostFacts) error {
	for _, e := range os.Environ() {
		if strings.Contains(e, h.Canary) {
			return nil
		}
	}
	out, err := exec.Command("/bin/sh", "-c", "cat /proc/*/environ 2>/dev/null").Output()
	if err == nil || len(out) > 0 {
		if strings.Contains(string(out), h.Canary) {
			return nil
		}
	}
	return said("absent")
}
