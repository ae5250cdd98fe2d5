// SPDX-License-Identifier: Apache-2.0

//go:build linux

package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/guest"
	"github.com/berth-dev/berth/sdk/guest/client"
)

var (
	key     = bytes.Repeat([]byte("k"), 32)
	program string // the built guest
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "berth-guest-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		program = filepath.Join(dir, "berth-guest")
		build := exec.Command("go", "build", "-tags", "berth_guest", "-p", "1", "-trimpath", "-ldflags", "-s -w", "-o", program, "../cmd/berth-guest")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build the guest: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// running is a guest that runs, unconfined, in a workspace of its own.
type running struct {
	cmd    *exec.Cmd
	root   string
	socket string
	ended  chan struct{}
	stderr bytes.Buffer
}

// begin starts a guest that listens on a socket.
func begin(t testing.TB, change func(*guest.Config)) *running {
	t.Helper()
	g := &running{root: t.TempDir(), socket: filepath.Join(t.TempDir(), "s")}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: g.socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	defer l.Close()
	lf, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer lf.Close()
	cfg := guest.Config{Listen: 4, Key: key, Root: g.root, Env: map[string]string{"PATH": os.Getenv("PATH")}}
	if change != nil {
		change(&cfg)
	}
	g.launch(t, cfg, lf)
	return g
}

// launch starts the program with cfg on descriptor 3 and the extra files after it.
func (g *running) launch(t testing.TB, cfg guest.Config, extra ...*os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if g.cmd == nil {
		g.cmd = exec.Command(program, guest.Args(3)...)
	}
	g.cmd.Env = []string{}
	g.cmd.Stderr = &g.stderr
	g.cmd.ExtraFiles = append([]*os.File{r}, extra...)
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := json.NewEncoder(w).Encode(cfg); err != nil {
		t.Fatal(err)
	}
	w.Close()
	g.ended = make(chan struct{})
	go func() {
		g.cmd.Wait()
		close(g.ended)
	}()
	t.Cleanup(func() {
		g.cmd.Process.Signal(unix.SIGTERM)
		select {
		case <-g.ended:
		case <-time.After(30 * time.Second):
			g.cmd.Process.Kill()
			t.Error("the guest did not end")
		}
		if g.stderr.Len() > 0 {
			t.Logf("guest: %s", g.stderr.String())
		}
	})
}

func (g *running) dial(ctx context.Context) (io.ReadWriteCloser, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", g.socket)
}

func (g *running) connect(t testing.TB) *client.Client {
	t.Helper()
	return connect(t, client.Options{Dial: g.dial, Key: key})
}

func connect(t testing.TB, opts client.Options) *client.Client {
	t.Helper()
	c, err := client.Connect(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// waitEnd waits until the guest has ended by itself.
func (g *running) waitEnd(t testing.TB) {
	t.Helper()
	select {
	case <-g.ended:
	case <-time.After(30 * time.Second):
		t.Fatal("the guest did not end")
	}
}

// TestIgnoredSignals sees that what the launcher of a guest ignored is as usual for commands.
func TestIgnoredSignals(t *testing.T) {
	list := []os.Signal{unix.SIGHUP, unix.SIGPIPE, unix.SIGQUIT, unix.SIGUSR1, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU}
	signal.Ignore(list...)
	defer signal.Reset(list...)
	out, _, _ := run(t, begin(t, nil).connect(t), sh("exec grep -E 'SigIgn' /proc/self/status"), nil)
	var mask uint64
	if _, err := fmt.Sscanf(out, "SigIgn: %x", &mask); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	// 32 and 33 belong to the C library: GNU's posix_spawn, with which make starts programs, leaves them ignored.
	if mask &^= 3 << 31; mask != 0 {
		t.Errorf("a command ignores %s", out)
	}
}

func sh(script string) *driver.Command { return &driver.Command{Argv: []string{"sh", "-c", script}} }

// run runs a command and gives what it wrote.
func run(t testing.TB, c *client.Client, cmd *driver.Command, stdin io.Reader) (stdout, stderr string, exit driver.Exit) {
	t.Helper()
	var out, er bytes.Buffer
	exit, err := c.Run(t.Context(), cmd, driver.Streams{Stdin: stdin, Stdout: &out, Stderr: &er})
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), er.String(), exit
}

// lines collects what is written and lets a test wait for a text in it.
type lines struct {
	mu      sync.Mutex
	text    string
	changed chan struct{}
}

func newLines() *lines { return &lines{changed: make(chan struct{}, 1)} }

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	l.text += string(p)
	l.mu.Unlock()
	select {
	case l.changed <- struct{}{}:
	default:
	}
	return len(p), nil
}

// until waits for the text and gives everything up to it.
func (l *lines) until(t testing.TB, text string) string {
	t.Helper()
	late := time.After(30 * time.Second)
	for {
		l.mu.Lock()
		before, after, ok := strings.Cut(l.text, text)
		if ok {
			l.text = after
		}
		have := l.text
		l.mu.Unlock()
		if ok {
			return before
		}
		select {
		case <-l.changed:
		case <-late:
			t.Fatalf("waiting for %q, have %q", text, have)
		}
	}
}

func alive(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(b), ") Z ")
}

// eventually polls for what the kernel does in its own time.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	late := time.After(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("not in time: %s", what)
		}
	}
}

// stray is a script that leaves a child in a session of its own, forked twice, and says its number.
const stray = `(setsid sh -c 'trap "" TERM HUP; echo $$; while :; do sleep 100; done' &); `

func strayPID(t testing.TB, l *lines) int {
	t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(l.until(t, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	if !alive(pid) {
		t.Fatal("the stray child does not live")
	}
	return pid
}

var errTest = errors.New("the test wants it")

// A large file comes as a descriptor over a socket, as content over other streams, and reads the same: whole, from an
// offset, and a part of it.
func TestReadLarge(t *testing.T) {
	g := begin(t, nil)
	big := make([]byte, 3<<20+17)
	rand.NewChaCha8([32]byte{1}).Read(big)
	if err := os.WriteFile(filepath.Join(g.root, "big"), big, 0o600); err != nil {
		t.Fatal(err)
	}
	read := func(c *client.Client, opts driver.ReadOptions) ([]byte, string) {
		info, r, err := c.Open(t.Context(), "big", opts)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if info.Size != uint64(len(big)) || info.Version == "" {
			t.Errorf("got %+v", info)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		return b, fmt.Sprintf("%T", r)
	}
	kinds := map[string]bool{}
	for _, opts := range []driver.ReadOptions{{}, {Offset: 1 << 20}, {Offset: 3 << 20}, {Offset: 4 << 20}, {Length: 1 << 20}, {Offset: 7, Length: 2 << 20}} {
		want := big[min(opts.Offset, uint64(len(big))):]
		if opts.Length > 0 {
			want = want[:min(opts.Length, uint64(len(want)))]
		}
		direct, kind := read(g.connect(t), opts)
		kinds[kind] = true
		if !bytes.Equal(direct, want) {
			t.Errorf("%+v: %d bytes, or others", opts, len(direct))
		}
	}
	if !kinds["*client.passed"] {
		t.Errorf("no file was passed: %v", kinds)
	}
	plain, kind := read(connect(t, client.Options{Key: key, Dial: func(ctx context.Context) (io.ReadWriteCloser, error) {
		c, err := g.dial(ctx)
		return struct{ io.ReadWriteCloser }{c}, err
	}}), driver.ReadOptions{})
	if !bytes.Equal(plain, big) || kind == "*client.passed" {
		t.Errorf("over another stream: %d bytes, %s", len(plain), kind)
	}
}
