// SPDX-License-Identifier: Apache-2.0

//go:build linux

package machine

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The names under which this program is started again inside.
const (
	initName   = "daytona-fake-init"
	daemonName = "daytona-fake-daemon"
)

// The numbers of the ordinary user inside.
const (
	userUID  = 1000
	rootUser = "root"
)

// Options make a machine.
type Options struct {
	Dir  string // holds its files, and outlives it; see [Prepare]
	ID   string // the sandbox's
	User string // of the daemon and everything in it: root or daytona
	Env  map[string]string
	// Binds are directories of this machine, by where they are inside: volumes.
	Binds map[string]string
}

// config is what the inside is told.
type config struct {
	Root  string
	ID    string
	User  string
	UID   int
	Home  string
	Env   []string
	Binds map[string]string
}

// Machine is one that runs. It ends with [Machine.Kill], or with the process that made it.
type Machine struct {
	socket   string
	lifeline *os.File // its other end is held inside: when it closes everything ends
	cmd      *exec.Cmd
	over     chan struct{}
	once     sync.Once
}

// Supported says why machines cannot be made here.
func Supported() error {
	if os.Geteuid() != 0 {
		return errors.New("fake sandboxes have namespaces and users of their own, which takes root")
	}
	cmd := exec.Command("/proc/self/exe") //nolint:noctx // it ends at once
	cmd.Args = []string{initName, "try"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("this machine lets nobody make namespaces: %w (%s)", err, strings.TrimSpace(string(out)))
	}
	return nil
}

const flags = syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS

// Start starts a machine on the files that [Prepare] made.
func Start(o Options) (*Machine, error) {
	c := config{Root: filepath.Join(o.Dir, "disk"), ID: o.ID, User: rootUser, Home: "/root", Binds: o.Binds}
	if o.User != rootUser {
		c.User, c.UID, c.Home = "daytona", userUID, "/home/daytona"
	}
	for k, v := range o.Env {
		c.Env = append(c.Env, k+"="+v)
	}
	m := &Machine{socket: filepath.Join(o.Dir, "daemon.sock"), over: make(chan struct{})}
	if err := os.Remove(m.socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: m.socket, Net: "unix"})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	l.SetUnlinkOnClose(false)
	listener, err := l.File()
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	inside, lifeline, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer inside.Close()
	b, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	m.lifeline = lifeline
	m.cmd = exec.Command("/proc/self/exe") //nolint:noctx // it ends with its lifeline
	m.cmd.Args = []string{initName}
	m.cmd.Stderr = os.Stderr
	m.cmd.ExtraFiles = []*os.File{inside, listener}
	m.cmd.Env = []string{"GODEBUG=" + os.Getenv("GODEBUG")}
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags, Setsid: true}
	if err := m.cmd.Start(); err != nil {
		return nil, errors.Join(err, lifeline.Close())
	}
	go func() {
		_ = m.cmd.Wait() // however it ended
		close(m.over)
	}()
	if _, err := lifeline.Write(append(b, '\n')); err != nil {
		m.Kill()
		return nil, err
	}
	return m, nil
}

// Kill ends every process in the machine. Its files stay.
func (m *Machine) Kill() {
	m.once.Do(func() {
		_ = m.cmd.Process.Kill() // it may have ended
		_ = m.lifeline.Close()
	})
	<-m.over
}

// Over is closed when the machine has ended.
func (m *Machine) Over() <-chan struct{} { return m.over }

// DialDaemon connects to the sandbox's daemon.
func (m *Machine) DialDaemon(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", m.socket)
}

// DialPort connects to a TCP port inside.
func (m *Machine) DialPort(ctx context.Context, port int) (net.Conn, error) {
	c, err := m.DialDaemon(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodConnect, "http://inside"+dialPath+strconv.Itoa(port), nil)
	if err == nil {
		err = req.Write(c)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, req)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("port %d inside: %s", port, resp.Status), resp.Body.Close(), c.Close())
	}
	return &buffered{Conn: c, r: r}, nil
}

type buffered struct {
	net.Conn
	r io.Reader
}

func (b *buffered) Read(p []byte) (int, error) { return b.r.Read(p) }

// dialPath is not the vendor's: it is how the fake's proxy gets into the network inside.
const dialPath = "/inside/dial/"

// KillDaemon ends the daemon and leaves the machine, as the kernel does for lack of memory.
func (m *Machine) KillDaemon(ctx context.Context) error {
	c, err := m.DialDaemon(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := io.WriteString(c, "POST /inside/die HTTP/1.0\r\n\r\n"); err != nil {
		return err
	}
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second)) // then the next line says so
	_, err = io.Copy(io.Discard, c)
	return err
}
