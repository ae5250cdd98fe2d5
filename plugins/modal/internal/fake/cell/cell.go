// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package cell runs real processes over real files, apart from this machine's own: what stands behind a sandbox of the
// fake vendor. A cell has a root directory, and PID, mount, IPC, UTS and network namespaces of its own; when its first
// process ends, the kernel ends all others. It needs root, util-linux and busybox.
//
// It keeps nothing in: it is for tests that trust what they run.
package cell

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Options describe a cell.
type Options struct {
	Root string            // a directory of this machine that becomes /
	Argv []string          // the first process
	Env  map[string]string // its environment
	Dir  string            // its directory, which is made; empty = /
	// Binds are files and directories of this machine that appear inside, by path; Source:ro is read-only.
	Binds map[string]Bind
	// Alone leaves only a loopback device, which all cells have; the others get one more.
	Alone bool
}

// Bind is a file or directory of this machine.
type Bind struct {
	Source   string
	ReadOnly bool
}

// Cell is one cell.
type Cell struct {
	init *exec.Cmd
	root string
	net  *os.File // its network namespace
	done chan struct{}

	mu   sync.Mutex
	exit int // read after done: 128+n when signal n ended it
}

// readyLine is what the first process prints when its root is the cell's: whoever entered earlier would be outside.
const readyLine = "inside\n"

// prepare builds the inside and becomes the first process. $1 is the root; the other arguments its command.
const prepare = `set -e
mount --make-rprivate /
R=$1; shift
mount -t proc proc "$R/proc"
mount -t tmpfs -o mode=755 dev "$R/dev"
for n in null zero full random urandom tty; do : > "$R/dev/$n"; mount --bind "/dev/$n" "$R/dev/$n"; done
mkdir "$R/dev/pts" "$R/dev/shm"
mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts "$R/dev/pts"
mount -t tmpfs -o mode=1777 shm "$R/dev/shm"
ln -s pts/ptmx "$R/dev/ptmx"; ln -s /proc/self/fd "$R/dev/fd"
ln -s fd/0 "$R/dev/stdin"; ln -s fd/1 "$R/dev/stdout"; ln -s fd/2 "$R/dev/stderr"
busybox ip link set lo up
if [ "$1" = open ]; then busybox ip link add eth0 type veth peer name peer0; fi
shift
while [ "$1" != -- ]; do
  mount --bind "$1" "$R$2"
  if [ "$3" = ro ]; then mount -o remount,bind,ro "$R$2"; fi
  shift 3
done
shift
D=$1; shift
exec chroot "$R" /bin/sh -c 'cd "$1" || exit; shift; echo inside; exec "$@" </dev/null >/dev/null' sh "$D" "$@"
`

// Start starts a cell. ctx bounds the start alone.
func Start(ctx context.Context, opts Options) (*Cell, error) {
	for _, dir := range []string{"proc", "dev", "tmp", opts.Dir} {
		if err := os.MkdirAll(filepath.Join(opts.Root, dir), 0o755); err != nil {
			return nil, fmt.Errorf("prepare a cell: %w", err)
		}
	}
	args := []string{"-c", prepare, "sh", opts.Root, "open"}
	if opts.Alone {
		args[len(args)-1] = "alone"
	}
	for inside, b := range opts.Binds {
		if err := mountPoint(filepath.Join(opts.Root, inside), b.Source); err != nil {
			return nil, fmt.Errorf("prepare a cell: %w", err)
		}
		how := "rw"
		if b.ReadOnly {
			how = "ro"
		}
		args = append(args, b.Source, inside, how)
	}
	dir := opts.Dir
	if dir == "" {
		dir = "/"
	}
	args = append(append(args, "--", dir), opts.Argv...)
	c := &Cell{root: opts.Root, done: make(chan struct{})}
	c.init = exec.Command("/bin/sh", args...) //nolint:noctx // it ends with Close
	c.init.Env = environ(opts.Env, os.Getenv("PATH"))
	var said bytes.Buffer
	c.init.Stderr = &said
	out, err := c.init.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("prepare a cell: %w", err)
	}
	c.init.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET,
		Pdeathsig:  syscall.SIGKILL, Setsid: true,
	}
	// Pdeathsig is the death of the thread: it must be one that stays.
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread goes with the goroutine, after the process has ended
		started <- c.init.Start()
		<-c.done
	}()
	if err := <-started; err != nil {
		close(c.done)
		return nil, fmt.Errorf("start a cell: %w", err)
	}
	line := make([]byte, len(readyLine))
	stop := context.AfterFunc(ctx, func() { _ = c.init.Process.Kill() }) // it may have ended
	_, err = io.ReadFull(out, line)
	stop()
	if err == nil {
		if err = c.look(); errors.Is(err, fs.ErrNotExist) {
			err = nil // it has ended already
		}
	}
	go c.wait()
	if err != nil {
		c.Kill()
		<-c.done
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("start a cell: %w: %s", err, said.String())
	}
	return c, nil
}

// look keeps what is needed of the first process, and makes sure that whoever enters it is inside.
func (c *Cell) look() error {
	proc := fmt.Sprintf("/proc/%d", c.init.Process.Pid)
	root, err := os.Readlink(proc + "/root")
	if err == nil && root == "/" {
		err = errors.New("its root is this machine's")
	}
	if err != nil {
		return err
	}
	c.net, err = os.Open(proc + "/ns/net")
	return err
}

func mountPoint(at, source string) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.MkdirAll(at, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(at, os.O_CREATE|os.O_RDONLY, 0o755)
	if err != nil {
		return err
	}
	return f.Close()
}

func environ(env map[string]string, path string) []string {
	var list []string
	for k, v := range env {
		list = append(list, k+"="+v)
	}
	if _, ok := env["PATH"]; !ok {
		list = append(list, "PATH="+path)
	}
	slices.Sort(list)
	return list
}

func (c *Cell) wait() {
	err := c.init.Wait()
	code := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if code = exit.ExitCode(); code < 0 {
			code = 128 + int(exit.Sys().(syscall.WaitStatus).Signal()) //nolint:errcheck // it is one on Linux
		}
	}
	if c.net != nil {
		_ = c.net.Close() // it was only kept open
	}
	c.exit = code
	close(c.done)
}

// Done is closed when the first process has ended, and with it all others.
func (c *Cell) Done() <-chan struct{} { return c.done }

// ExitCode is how the first process ended. Preconditions: Done is closed.
func (c *Cell) ExitCode() int { return c.exit }

// Kill ends everything inside.
func (c *Cell) Kill() { _ = c.init.Process.Kill() } // it may have ended

// Close ends everything inside and waits for it.
func (c *Cell) Close() {
	c.Kill()
	<-c.done
}

// Command is a program inside, in a session and process group of its own, yet to be started.
func (c *Cell) Command(argv []string, env map[string]string, dir string) *exec.Cmd {
	pid := strconv.Itoa(c.init.Process.Pid)
	args := append([]string{"-t", pid, "-m", "-u", "-i", "-n", "-p", "-r", "--wd=/proc/" + pid + "/root" + dir, "--"}, argv...)
	cmd := exec.Command("nsenter", args...) //nolint:noctx // the caller ends it, or the cell does
	cmd.Env = environ(env, "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// Dial connects to a TCP port inside.
func (c *Cell) Dial(ctx context.Context, port int) (net.Conn, error) {
	var conn net.Conn
	failed := make(chan error)
	go func() {
		// The thread changes its network namespace and goes with the goroutine.
		runtime.LockOSThread()
		err := unix.Setns(int(c.net.Fd()), unix.CLONE_NEWNET)
		if err == nil {
			conn, err = dialHere(ctx, port)
		}
		failed <- err
	}()
	err := <-failed
	return conn, err
}

// dialHere connects on the thread that calls it: package net would use another.
func dialHere(ctx context.Context, port int) (net.Conn, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "tunnel")
	defer f.Close() // FileConn has its own
	limit := 10 * time.Second
	if d, ok := ctx.Deadline(); ok {
		limit = time.Until(d)
	}
	tv := unix.NsecToTimeval(limit.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &tv); err != nil {
		return nil, err
	}
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return nil, fmt.Errorf("port %d inside: %w", port, err)
	}
	return net.FileConn(f)
}

// Copy copies a tree with everything that its files have.
func Copy(from, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	out, err := exec.Command("cp", "-a", "--reflink=auto", from+"/.", to).CombinedOutput() //nolint:noctx // it ends by itself
	if err != nil {
		return fmt.Errorf("copy a tree: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
