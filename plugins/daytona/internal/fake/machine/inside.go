// SPDX-License-Identifier: Apache-2.0

//go:build linux

package machine

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/plugins/daytona/internal/fake/toolbox"
)

// Enter becomes what runs inside, when this program was started for that, and never returns then.
func Enter() {
	var err error
	switch os.Args[0] {
	case initName:
		if len(os.Args) > 1 {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		} else {
			runtime.LockOSThread()
			err = runInit()
		}
	case daemonName:
		err = runDaemon()
	default:
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, os.Args[0]+":", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// runInit is the first process: it builds the tree, starts the daemon and reaps what loses its parent.
func runInit() error {
	in := bufio.NewReader(os.NewFile(3, "lifeline"))
	line, err := in.ReadBytes('\n')
	if err != nil {
		return err
	}
	var c config
	if err := json.Unmarshal(line, &c); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, in) // its end is the end
		os.Exit(0)
	}()
	if err := mountAll(c.Root); err != nil {
		return err
	}
	for inside, dir := range c.Binds {
		to := path.Join(c.Root, inside)
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(dir, to, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind the volume at %s: %w", inside, err)
		}
	}
	if err := unix.Chroot(c.Root); err != nil {
		return fmt.Errorf("chroot: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	_ = unix.Sethostname([]byte(c.ID[:min(len(c.ID), 12)])) // for looks
	if err := loopback(); err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	env := append([]string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + c.Home, "USER=" + c.User,
		"LANG=C.UTF-8", "DAYTONA_SANDBOX_ID=" + c.ID, "DAYTONA_SANDBOX_USER=" + c.User, "IMAGE_SAYS=hello",
	}, c.Env...)
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	attr := &os.ProcAttr{
		Dir: c.Home, Env: env, Files: []*os.File{null, null, os.Stderr, os.NewFile(4, "listener")},
		Sys: &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(c.UID), Gid: uint32(c.UID)}},
	}
	if _, err := os.StartProcess("/proc/self/exe", []string{daemonName}, attr); err != nil {
		return fmt.Errorf("start the daemon: %w", err)
	}
	if err := attr.Files[3].Close(); err != nil { // so that nobody listens when the daemon has died
		return err
	}
	for {
		if _, err := unix.Wait4(-1, nil, 0, nil); errors.Is(err, unix.ECHILD) {
			time.Sleep(time.Hour) // nothing is left but a machine without a daemon
		}
	}
}

// shared are parts of this machine's tree that every fake sandbox sees, read-only.
var shared = []string{"/bin", "/sbin", "/lib", "/lib64", "/lib32", "/libx32", "/usr", "/opt", "/etc/alternatives", "/etc/ssl"}

func mountAll(root string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for _, dir := range shared {
		to := path.Join(root, dir)
		if info, err := os.Lstat(to); err != nil || !info.IsDir() {
			continue // see Prepare
		}
		if err := unix.Mount(dir, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("bind %s: %w", dir, err)
		}
		_ = unix.Mount("", to, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "") // it is only courtesy
	}
	for _, m := range []struct{ what, where, data string }{
		{"proc", "/proc", ""}, {"tmpfs", "/dev", "mode=0755"},
	} {
		if err := unix.Mount(m.what, path.Join(root, m.where), m.what, 0, m.data); err != nil {
			return fmt.Errorf("mount %s: %w", m.where, err)
		}
	}
	dev := path.Join(root, "dev")
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		to := path.Join(dev, name)
		if err := os.WriteFile(to, nil, 0o600); err != nil {
			return err
		}
		if err := unix.Mount("/dev/"+name, to, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind %s: %w", name, err)
		}
	}
	for _, d := range []struct{ name, what, data string }{{"pts", "devpts", "newinstance,ptmxmode=0666,mode=0620"}, {"shm", "tmpfs", "mode=1777"}} {
		to := path.Join(dev, d.name)
		if err := os.Mkdir(to, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(d.what, to, d.what, 0, d.data); err != nil {
			return fmt.Errorf("mount /dev/%s: %w", d.name, err)
		}
	}
	for name, to := range map[string]string{
		"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
	} {
		if err := os.Symlink(to, path.Join(dev, name)); err != nil {
			return err
		}
	}
	return nil
}

// loopback brings the only network device up.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
}

// runDaemon serves the toolbox.
func runDaemon() error {
	l, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return err
	}
	unix.CloseOnExec(3)
	t, err := toolbox.New()
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/", t.Handler())
	mux.HandleFunc("POST /inside/die", func(http.ResponseWriter, *http.Request) { os.Exit(137) })
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if port, ok := strings.CutPrefix(r.URL.Path, dialPath); ok && r.Method == http.MethodConnect {
			carry(w, port)
			return
		}
		mux.ServeHTTP(w, r)
	})}
	return server.Serve(l)
}

// carry connects whoever asks with a port of this network.
func carry(w http.ResponseWriter, port string) {
	in, err := net.Dial("tcp", "127.0.0.1:"+port) //nolint:noctx // it is this machine
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer in.Close()
	out, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer out.Close()
	if _, err := io.WriteString(out, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(in, buf) // either end may go
		if t, ok := in.(*net.TCPConn); ok {
			_ = t.CloseWrite() // it may be gone
		}
	}()
	_, _ = io.Copy(out, in) // the same
	_ = out.Close()         // ends the other way
	<-done
}
