// SPDX-License-Identifier: Apache-2.0

//go:build linux

package envd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Config is what a sandbox is started with.
type Config struct {
	ID    string            `json:"id"`
	Root  string            `json:"root"`
	Env   map[string]string `json:"env"`
	User  string            `json:"user"`
	Token string            `json:"token"`
	// Daemon is the vendor's own, inside; empty = the one here.
	Daemon string `json:"daemon,omitempty"`
}

// shared is what a sandbox sees of the machine, read-only.
var shared = []string{"usr", "bin", "sbin", "lib", "lib32", "lib64"}

// etc are the machine's files that programs want, and copied; the rest is below.
var etc = []string{"ld.so.cache", "ld.so.conf", "nsswitch.conf", "localtime", "services", "protocols", "mime.types", "os-release", "debian_version"}

const (
	//nolint:gosec // no password is in it
	passwd = "root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\nuser:x:1000:1000::/home/user:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
	group  = "root:x:0:\ndaemon:x:1:\nsudo:x:27:user\nuser:x:1000:\nnogroup:x:65534:\n"
)

// Fresh makes the files of a sandbox from the template.
func Fresh(dir string) error {
	for _, d := range append([]string{"dev", "proc", "etc", "root", "home/user", "tmp", "var/tmp", "run", "opt", "srv", "mnt"}, shared...) {
		host, err := os.Readlink("/" + d)
		if err == nil {
			if err := os.Symlink(host, filepath.Join(dir, d)); err != nil {
				return err
			}
			continue
		}
		if _, err := os.Stat("/" + d); err != nil && d != "home/user" {
			continue // this machine has none
		}
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	err := errors.Join(
		os.Chmod(filepath.Join(dir, "tmp"), 0o777|os.ModeSticky), os.Chmod(filepath.Join(dir, "var/tmp"), 0o777|os.ModeSticky),
		os.Chmod(filepath.Join(dir, "root"), 0o700), os.Chown(filepath.Join(dir, "home/user"), 1000, 1000),
	)
	for _, name := range etc {
		b, e := os.ReadFile("/etc/" + name)
		if e == nil {
			err = errors.Join(err, os.WriteFile(filepath.Join(dir, "etc", name), b, 0o644))
		}
	}
	if target, e := os.Stat("/etc/alternatives"); e == nil && target.IsDir() {
		err = errors.Join(err, os.Mkdir(filepath.Join(dir, "etc/alternatives"), 0o755))
	}
	for name, text := range map[string]string{"passwd": passwd, "group": group, "hosts": "127.0.0.1 localhost\n", "hostname": "e2b.local\n"} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, "etc", name), []byte(text), 0o644))
	}
	return err
}

// Init is the first process of a sandbox: it makes the root, starts the daemon and reaps what has no parent. stage is the
// variable that makes this program the daemon. It returns only with an error.
func Init(stage string) error {
	in, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	var cfg Config
	if err := json.Unmarshal(in, &cfg); err != nil {
		return err
	}
	if err := enter(cfg.Root); err != nil {
		return fmt.Errorf("make the sandbox's root: %w", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	if _, err := w.Write(in); err != nil { // it is smaller than a pipe
		return err
	}
	w.Close()
	daemon, err := os.StartProcess("/proc/self/exe", []string{"envd"}, &os.ProcAttr{
		Env: []string{stage + "=envd", "PATH=" + os.Getenv("PATH")}, Files: []*os.File{r, os.Stdout, os.Stderr, os.NewFile(3, "socket")},
	})
	if err != nil {
		return err
	}
	for {
		var st syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &st, 0, nil)
		if pid == daemon.Pid {
			return fmt.Errorf("the daemon ended: %d", st)
		}
		if err != nil && !errors.Is(err, syscall.EINTR) {
			time.Sleep(time.Millisecond)
		}
	}
}

// enter makes root the root of this process's mount namespace.
func enter(root string) error {
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return err
	}
	if err := unix.Mount(root, root, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	for _, d := range append([]string{"etc/alternatives"}, shared...) {
		st, err := os.Lstat("/" + d)
		if err != nil || !st.IsDir() {
			continue
		}
		to := filepath.Join(root, d)
		if err := unix.Mount("/"+d, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return err
		}
		if err := unix.Mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			return err
		}
	}
	if err := devices(filepath.Join(root, "dev")); err != nil {
		return err
	}
	if err := unix.Mount("proc", filepath.Join(root, "proc"), "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return err
	}
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return err
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return err
	}
	return errors.Join(os.Chdir("/"), unix.Sethostname([]byte("e2b.local")), loopback())
}

func devices(dev string) error {
	if err := unix.Mount("dev", dev, "tmpfs", unix.MS_NOSUID, "mode=755"); err != nil {
		return err
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		to := filepath.Join(dev, name)
		if err := os.WriteFile(to, nil, 0o666); err != nil {
			return err
		}
		if err := unix.Mount("/dev/"+name, to, "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	for _, d := range []string{"pts", "shm"} {
		if err := os.Mkdir(filepath.Join(dev, d), 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount("devpts", filepath.Join(dev, "pts"), "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620"); err != nil {
		return err
	}
	err := unix.Mount("shm", filepath.Join(dev, "shm"), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777")
	for name, target := range map[string]string{"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"} {
		err = errors.Join(err, os.Symlink(target, filepath.Join(dev, name)))
	}
	return err
}

// loopback brings the only device up.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r)
}

// terminal opens a pair.
func terminal(rows, cols uint32) (master, slave *os.File, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	}
	if err == nil {
		err = resize(master, rows, cols)
	}
	if err != nil {
		master.Close()
		return nil, nil, err
	}
	return master, slave, nil
}

func resize(master *os.File, rows, cols uint32) error {
	return unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(rows), Col: uint16(cols)})
}

// command is a program as the daemon starts it: through a shell, which is why one that is missing is exit 127.
func command(cmd string, args []string) *exec.Cmd {
	return exec.Command("/bin/sh", append([]string{"-c", `exec "$@"`, "sh", cmd}, args...)...) //nolint:noctx // it outlives the call
}
