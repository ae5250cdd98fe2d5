// SPDX-License-Identifier: Apache-2.0

//go:build linux

package client_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest"
	"github.com/berth-dev/berth/sdk/guest/client"
)

func TestHello(t *testing.T) {
	report := []driver.Isolation{{Axis: "filesystem", Statement: "not isolated", Gap: "it is a test"}}
	g := begin(t, func(c *guest.Config) { c.Report = report })
	h := g.connect(t).Hello()
	if h.PID != int64(g.cmd.Process.Pid) || h.Root != g.root || h.OS != "linux" || h.Instance == "" || len(h.Isolation) != 1 || h.Isolation[0] != report[0] {
		t.Errorf("%+v", h)
	}
}

func TestRun(t *testing.T) {
	c := begin(t, func(c *guest.Config) { c.SecretEnv = map[string]string{"TOKEN": "t"} }).connect(t)
	cmd := sh(`printf '%s ' "$TOKEN" "$X"; cat; echo bad >&2; exit 9`)
	cmd.Env = map[string]string{"X": "\xfe"}
	out, er, exit := run(t, c, cmd, strings.NewReader("in"))
	if out != "t \xfe in" || er != "bad\n" || exit.Code != 9 {
		t.Errorf("%q %q %+v", out, er, exit)
	}
	_, err := c.Run(t.Context(), &driver.Command{Argv: []string{"no-such"}}, driver.Streams{})
	if !errors.Is(err, errs.ExecNotFound) {
		t.Errorf("got %v", err)
	}
	ps, err := c.Processes(t.Context())
	if err != nil || len(ps) != 1 || ps[0].Exit == nil || ps[0].Exit.Code != 9 {
		t.Errorf("%+v %v", ps, err)
	}
	if s := fmt.Sprint(ps); strings.Contains(s, "\xfe") {
		t.Error("the environment is listed")
	}
}

// Nothing of a command is left when its context, its timeout or the guest ends, and Run returns only then.
func TestNothingLeft(t *testing.T) {
	g := begin(t, nil)
	c := g.connect(t)
	for name, how := range map[string]func(*driver.Command, context.CancelCauseFunc){
		"cancel":  func(_ *driver.Command, cancel context.CancelCauseFunc) { cancel(errTest) },
		"timeout": nil,
	} {
		cmd := sh(stray + `sleep 100`)
		cmd.KillGrace = 50 * time.Millisecond
		if how == nil {
			cmd.Timeout = time.Second
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		out := newLines()
		type ended struct {
			exit driver.Exit
			err  error
		}
		over := make(chan ended)
		go func() {
			exit, err := c.Run(ctx, cmd, driver.Streams{Stdout: out})
			over <- ended{exit, err}
		}()
		pid := strayPID(t, out)
		if how != nil {
			how(cmd, cancel)
		}
		e := <-over
		if alive(pid) {
			t.Errorf("%s: a process is left", name)
		}
		if how == nil && (e.err != nil || !e.exit.TimedOut) {
			t.Errorf("%s: %+v %v", name, e.exit, e.err)
		}
		if how != nil && (!errors.Is(e.err, errs.Canceled) || !errors.Is(e.err, errTest)) {
			t.Errorf("%s: %v", name, e.err)
		}
		cancel(nil)
	}

	out := newLines()
	go c.Run(t.Context(), sh(stray+`sleep 100`), driver.Streams{Stdout: out})
	pid := strayPID(t, out)
	if err := c.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if alive(pid) {
		t.Error("shutdown: a process is left")
	}
	g.waitEnd(t)
	if g.cmd.ProcessState.ExitCode() != 0 {
		t.Errorf("the guest ended with %v", g.cmd.ProcessState)
	}
}

// The lease: when nobody is attached for that long, nothing is left.
func TestLease(t *testing.T) {
	ttl := 100 * time.Millisecond
	g := begin(t, func(c *guest.Config) { c.OrphanTTL = &ttl })
	first := g.connect(t)
	out := newLines()
	cmd := sh(stray + `sleep 100`)
	cmd.Detached = true
	ctx, cancel := context.WithCancelCause(t.Context())
	go first.Run(ctx, cmd, driver.Streams{Stdout: out})
	pid := strayPID(t, out)
	cancel(nil)
	run(t, first, sh("sleep 0.3"), nil) // longer than the lease, but somebody is attached
	first.Close()
	second := g.connect(t) // in time
	run(t, second, sh("sleep 0.3"), nil)
	if !alive(pid) {
		t.Fatal("the lease ran out with somebody attached")
	}
	second.Close()
	g.waitEnd(t)
	if alive(pid) {
		t.Error("a process is left")
	}
}

func TestWrongKey(t *testing.T) {
	g := begin(t, nil)
	_, err := client.Connect(t.Context(), client.Options{Dial: g.dial, Key: bytes.Repeat([]byte("x"), 32)})
	if !errors.Is(err, errs.AuthFailed) {
		t.Errorf("got %v", err)
	}
	run(t, g.connect(t), sh("true"), nil)
}

// A command cannot read the guest's key, memory or descriptors.
func TestGuestIsOpaque(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root looks into every process; the confined guest is tested in package confine")
	}
	c := begin(t, nil).connect(t)
	out, _, _ := run(t, c, sh(`cat /proc/$PPID/environ /proc/$PPID/mem 2>&1; ls /proc/$PPID/fd 2>&1`), nil)
	if strings.Count(out, "Permission denied") != 3 {
		t.Error(out)
	}
}

// A command gets three descriptors and no more.
func TestNoDescriptorLeaks(t *testing.T) {
	c := begin(t, nil).connect(t)
	out, _, _ := run(t, c, sh(`ls -l /proc/self/fd | grep -v 'proc/'`), nil)
	if n := strings.Count(out, "->"); n != 3 {
		t.Error(out)
	}
}

func TestTerminal(t *testing.T) {
	c := begin(t, nil).connect(t)
	in, typed := io.Pipe()
	sizes, signals := make(chan driver.Size, 1), make(chan driver.Signal, 1)
	out := newLines()
	cmd := sh(`stty -echo; trap 'stty size' WINCH; trap 'echo usr; exit 3' USR1; tty >/dev/null && stty size; while read x; do echo "<$x>"; done; echo end; while :; do sleep 0.05; done`)
	cmd.TTY, cmd.Size = true, driver.Size{Rows: 10, Cols: 33}
	type ended struct {
		exit driver.Exit
		err  error
	}
	over := make(chan ended, 1)
	go func() {
		exit, err := c.Run(t.Context(), cmd, driver.Streams{Stdin: in, Stdout: out, Resize: sizes, Signals: signals})
		over <- ended{exit, err}
	}()
	out.until(t, "10 33")
	io.WriteString(typed, "ü€\n")
	out.until(t, "<ü€>")
	typed.Close() // ^D
	out.until(t, "end")
	sizes <- driver.Size{Rows: 40, Cols: 100}
	out.until(t, "40 100")
	signals <- driver.Signal{Name: "USR1", LeaderOnly: true}
	out.until(t, "usr")
	if e := <-over; e.err != nil || e.exit.Code != 3 {
		t.Errorf("%+v", e)
	}
}

func TestLargeStdin(t *testing.T) {
	c := begin(t, nil).connect(t)
	data := make([]byte, 10<<20)
	rand.NewChaCha8([32]byte{1}).Read(data)
	out, _, _ := run(t, c, sh("sha256sum"), bytes.NewReader(data))
	if want := fmt.Sprintf("%x", sha256.Sum256(data)); !strings.HasPrefix(out, want) {
		t.Errorf("got %s, want %s", out, want)
	}
}

func TestConcurrent(t *testing.T) {
	c := begin(t, nil).connect(t)
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			var out bytes.Buffer
			exit, err := c.Run(t.Context(), sh(fmt.Sprintf("cat; echo %d; exit %d", i, i%7)), driver.Streams{Stdin: strings.NewReader("x"), Stdout: &out})
			if err != nil || exit.Code != i%7 || out.String() != fmt.Sprintf("x%d\n", i) {
				t.Errorf("%d: %q %+v %v", i, out.String(), exit, err)
			}
		})
	}
	all.Wait()
}

// cutter breaks connections after some bytes.
type cutter struct {
	net.Conn
	left *atomic.Int64
	cuts *atomic.Int64
}

func (c cutter) pass(n int) int {
	left := c.left.Add(-int64(n))
	if left >= 0 {
		return n
	}
	if left+int64(n) >= 0 {
		c.cuts.Add(1)
	}
	return max(0, n+int(left))
}

func (c cutter) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if m := c.pass(n); m < n {
		c.Close()
		return m, io.ErrUnexpectedEOF
	}
	return n, err
}

func (c cutter) Write(p []byte) (int, error) {
	m := c.pass(len(p))
	n, err := c.Conn.Write(p[:m])
	if err == nil && m < len(p) {
		c.Close()
		return n, io.ErrClosedPipe
	}
	return n, err
}

// cutting dials connections that break after at most limit bytes.
func (g *running) cutting(seed uint64, limit int, cuts *atomic.Int64) func(context.Context) (io.ReadWriteCloser, error) {
	r := rand.New(rand.NewPCG(seed, 1))
	return func(ctx context.Context) (io.ReadWriteCloser, error) {
		c, err := g.dial(ctx)
		if err != nil {
			return nil, err
		}
		left := new(atomic.Int64)
		left.Store(int64(1000 + r.IntN(limit)))
		return cutter{c.(net.Conn), left, cuts}, nil
	}
}

// Connections that break at random points lose and double nothing: not output, not input, not files, not starts.
func TestCuts(t *testing.T) {
	g := begin(t, nil)
	var cuts atomic.Int64
	c := connect(t, client.Options{Dial: g.cutting(5, 6<<20, &cuts), Key: key})
	data := make([]byte, 64<<20)
	rand.NewChaCha8([32]byte{2}).Read(data)
	if err := os.WriteFile(filepath.Join(g.root, "data"), data, 0o644); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		h := sha256.New()
		var n atomic.Int64
		exit, err := c.Run(t.Context(), sh("cat data; echo x >> runs"), driver.Streams{Stdout: io.MultiWriter(h, count{&n}), OnGap: func(g driver.Gap) { t.Errorf("gap %v", g) }})
		if err != nil || n.Load() != int64(len(data)) || exit.OutputBytes != uint64(len(data)) || [32]byte(h.Sum(nil)) != sha256.Sum256(data) {
			t.Errorf("output: %d bytes, %+v, %v", n.Load(), exit, err)
		}
	})
	all.Go(func() {
		var out bytes.Buffer
		if _, err := c.Run(t.Context(), sh("sha256sum"), driver.Streams{Stdin: bytes.NewReader(data[:20<<20]), Stdout: &out}); err != nil {
			t.Error(err)
		}
		if want := fmt.Sprintf("%x", sha256.Sum256(data[:20<<20])); !strings.HasPrefix(out.String(), want) {
			t.Errorf("input: %s", out.String())
		}
	})
	all.Go(func() {
		res, err := c.Write(t.Context(), "copy", driver.WriteOptions{}, bytes.NewReader(data))
		if err != nil || res.SHA256 != sha256.Sum256(data) {
			t.Errorf("write: %v", err)
			return
		}
		_, r, err := c.Open(t.Context(), "copy", driver.ReadOptions{})
		if err != nil {
			t.Error(err)
			return
		}
		defer r.Close()
		h := sha256.New()
		if _, err := io.Copy(h, r); err != nil || [32]byte(h.Sum(nil)) != sha256.Sum256(data) {
			t.Errorf("read: %v", err)
		}
	})
	all.Wait()
	if b, err := os.ReadFile(filepath.Join(g.root, "runs")); err != nil || string(b) != "x\n" {
		t.Errorf("the command ran %q, %v", b, err)
	}
	if cuts.Load() < 10 {
		t.Errorf("only %d cuts: this proved nothing", cuts.Load())
	}
	t.Logf("%d cuts", cuts.Load())
}

type count struct{ n *atomic.Int64 }

func (c count) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

// A host that dies without a word loses nothing: the next attaches by id and offset.
func TestReattach(t *testing.T) {
	g := begin(t, nil)
	first := g.connect(t)
	out := newLines()
	cmd := sh(`seq 0 999; echo wait; read x; seq 1000 299999; exit 4`)
	cmd.ID = "counter"
	in, typed := io.Pipe()
	go first.Run(t.Context(), cmd, driver.Streams{Stdin: in, Stdout: out})
	head := out.until(t, "wait\n")

	second := g.connect(t) // the first is taken over from
	<-first.Done()
	var rest bytes.Buffer
	started := make(chan driver.Started, 1)
	over := make(chan driver.Exit, 1)
	go func() {
		exit, err := second.Attach(t.Context(), "counter", uint64(len(head)), driver.Streams{
			Stdin: strings.NewReader("go\n"), Stdout: &rest, OnStart: func(s driver.Started) { started <- s },
			OnGap: func(g driver.Gap) { t.Errorf("gap %v", g) },
		})
		if err != nil {
			t.Error(err)
		}
		over <- exit
	}()
	if s := <-started; !s.Reattached || s.ProcessID != "counter" {
		t.Errorf("%+v", s)
	}
	exit := <-over
	typed.Close()
	var want strings.Builder
	for i := range 300000 {
		fmt.Fprintln(&want, i)
		if i == 999 {
			fmt.Fprintln(&want, "wait")
		}
	}
	if head+rest.String() != want.String() || exit.Code != 4 {
		t.Errorf("%d + %d bytes, want %d; %+v", len(head), rest.Len(), want.Len(), exit)
	}

	// After its end: the tail that was kept, with the gap before it, and the exit.
	rest.Reset()
	var gap driver.Gap
	again, err := second.Attach(t.Context(), "counter", 5, driver.Streams{Stdout: &rest, OnGap: func(g driver.Gap) { gap = g }})
	if err != nil || again != exit {
		t.Errorf("%+v %v", again, err)
	}
	if gap.From != 5 || gap.To != uint64(want.Len()-rest.Len()) || rest.String() != want.String()[gap.To:] || rest.Len() < driver.DefaultReplayBytes/2 {
		t.Errorf("gap %v, %d bytes", gap, rest.Len())
	}
	if _, err := second.Attach(t.Context(), "nobody", 0, driver.Streams{}); !errors.Is(err, errs.ProcessUnknown) {
		t.Errorf("got %v", err)
	}
}

// A detached command outlives the context of its caller.
func TestDetached(t *testing.T) {
	c := begin(t, nil).connect(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	out := newLines()
	cmd := sh("echo on; read x; echo $x")
	cmd.ID, cmd.Detached = "d", true
	over := make(chan error, 1)
	in, typed := io.Pipe()
	defer typed.Close()
	go func() {
		_, err := c.Run(ctx, cmd, driver.Streams{Stdin: in, Stdout: out})
		over <- err
	}()
	out.until(t, "on")
	cancel(errTest)
	if err := <-over; !errors.Is(err, errs.Canceled) {
		t.Errorf("got %v", err)
	}
	var rest bytes.Buffer
	exit, err := c.Attach(t.Context(), "d", 3, driver.Streams{Stdin: strings.NewReader("back\n"), Stdout: &rest})
	if err != nil || rest.String() != "back\n" || exit.Code != 0 {
		t.Errorf("%q %+v %v", rest.String(), exit, err)
	}
}

// Output that nobody attached reads does not stop the process.
func TestUnattended(t *testing.T) {
	c := begin(t, nil).connect(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cmd := sh("echo on; sleep 0.3; head -c 50000000 /dev/zero; echo tail")
	cmd.ID, cmd.Detached = "u", true
	out := newLines()
	go c.Run(ctx, cmd, driver.Streams{Stdout: out})
	out.until(t, "on")
	cancel(nil)
	eventually(t, "the end", func() bool {
		ps, err := c.Processes(t.Context())
		return err == nil && len(ps) == 1 && ps[0].Exit != nil
	})
	var rest bytes.Buffer
	var gaps []driver.Gap
	exit, err := c.Attach(t.Context(), "u", 0, driver.Streams{Stdout: &rest, OnGap: func(g driver.Gap) { gaps = append(gaps, g) }})
	if err != nil || exit.OutputBytes != uint64(50000000+len("on\ntail\n")) || !strings.HasSuffix(rest.String(), "\x00tail\n") {
		t.Errorf("%+v %v, %d bytes", exit, err, rest.Len())
	}
	if len(gaps) != 1 || gaps[0].From != 0 || int(exit.OutputBytes)-int(gaps[0].To) != rest.Len() {
		t.Errorf("gaps %v, %d bytes", gaps, rest.Len())
	}
}

// A guest as the first process of a container: frames on standard input and output.
func TestStandardStreams(t *testing.T) {
	g := &running{root: t.TempDir(), cmd: exec.Command(program, guest.Args(3)...)}
	in, err := g.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := g.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	g.launch(t, guest.Config{Key: key, Root: g.root, Env: map[string]string{"PATH": os.Getenv("PATH")}})
	used := false
	c := connect(t, client.Options{Key: key, Dial: func(context.Context) (io.ReadWriteCloser, error) {
		if used {
			return nil, errs.New(errs.SandboxGone, "gone")
		}
		used = true
		return pipes{out, in}, nil
	}})
	if o, _, _ := run(t, c, sh("cat; echo out; echo err >&2"), strings.NewReader("in ")); o != "in out\n" {
		t.Errorf("%q", o)
	}
	in.Close() // nobody can come back
	g.waitEnd(t)
}

type pipes struct {
	io.ReadCloser
	w io.WriteCloser
}

func (p pipes) Write(b []byte) (int, error) { return p.w.Write(b) }
func (p pipes) Close() error                { return errors.Join(p.ReadCloser.Close(), p.w.Close()) }

// As the init of a PID namespace the guest ends with everything in it, and stops a chain of forks exactly.
func TestInit(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to make a PID namespace")
	}
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3 for a chain of forks")
	}
	g := &running{root: t.TempDir(), socket: filepath.Join(t.TempDir(), "s")}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: g.socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	lf, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer lf.Close()
	// A /proc of the namespace's own, as a sandbox has.
	g.cmd = exec.Command("unshare", append([]string{"--mount", "--mount-proc", program}, guest.Args(3)...)...)
	g.cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}
	g.launch(t, guest.Config{Listen: 4, Key: key, Root: g.root, Env: map[string]string{"PATH": os.Getenv("PATH")}}, lf)
	c := g.connect(t)
	if c.Hello().PID != 1 {
		t.Fatalf("%+v", c.Hello())
	}
	bystander := newLines()
	go c.Run(t.Context(), sh("echo here; sleep 100"), driver.Streams{Stdout: bystander})
	bystander.until(t, "here")

	// Each step is a new process in a new session, and its parent ends at once. There is never more than one of them, and
	// after 30,000 they end by themselves.
	chain := `import os
for i in range(30000):
    if os.fork(): os._exit(0)
    os.setsid()
    f = os.open("steps", os.O_WRONLY|os.O_CREAT); os.pwrite(f, b"%6d" % i, 0); os.close(f)
open("finished", "w")`
	cmd := &driver.Command{ID: "chain", Argv: []string{"python3", "-c", chain}}
	if _, err := c.Run(t.Context(), cmd, driver.Streams{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the chain to run", func() bool {
		b, err := os.ReadFile(filepath.Join(g.root, "steps"))
		return err == nil && string(b) > "    50"
	})
	if err := c.Signal(t.Context(), "chain", driver.Signal{Name: "KILL"}); err != nil {
		t.Error(err)
	}
	before, _ := os.ReadFile(filepath.Join(g.root, "steps"))
	run(t, c, sh("sleep 0.2"), nil)
	after, _ := os.ReadFile(filepath.Join(g.root, "steps"))
	if string(after) != string(before) {
		t.Errorf("the chain went on after it was killed, from step %s to %s", before, after)
	}
	if _, err := os.Stat(filepath.Join(g.root, "finished")); err == nil {
		t.Error("the chain had ended by itself: this proved nothing")
	}
	t.Logf("killed at step %s", before)
	ps, err := c.Processes(t.Context())
	if err != nil || len(ps) != 3 || ps[0].Exit != nil {
		t.Errorf("the bystander: %+v %v", ps, err)
	}
	if err := c.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	g.waitEnd(t)
}

func TestPorts(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3 for a server")
	}
	g := begin(t, nil)
	c := g.connect(t)
	out := newLines()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	events := make(chan driver.Event, 100)
	go c.Watch(ctx, func(e driver.Event) { events <- e })
	server := `import socket,sys
s=socket.socket(); s.bind(("127.0.0.1",0)); s.listen(); print(s.getsockname()[1],flush=True)
c,_=s.accept()
n=0
while True:
    b=c.recv(65536)
    if not b: break
    c.sendall(b.upper()); n+=len(b)
c.sendall(b"total %d"%n); c.close()`
	go c.Run(ctx, &driver.Command{Argv: []string{"python3", "-c", server}}, driver.Streams{Stdout: out})
	var port uint16
	fmt.Sscan(out.until(t, "\n"), &port)
	if e := <-events; e.Kind != driver.EventPortOpened || e.Port != port {
		t.Errorf("%+v, want port %d", e, port)
	}
	conn, err := c.Dial(ctx, port)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	var ne net.Error
	if _, err := conn.Read(make([]byte, 1)); !errors.As(err, &ne) || !ne.Timeout() {
		t.Errorf("deadline: %v", err)
	}
	conn.SetReadDeadline(time.Time{})
	go func() {
		conn.Write(bytes.Repeat([]byte("abc"), 100_000))
		conn.(interface{ CloseWrite() error }).CloseWrite()
	}()
	got, err := io.ReadAll(conn)
	if err != nil || string(got) != strings.Repeat("ABC", 100_000)+"total 300000" {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if e := <-events; e.Kind != driver.EventPortClosed || e.Port != port {
		t.Errorf("%+v", e)
	}
	if _, err := c.Dial(ctx, 1); !errors.Is(err, errs.PortUnavailable) {
		t.Errorf("got %v", err)
	}
}

// The guest is in every sandbox: it stays small. The goals are 4 MiB on disk and 5 MiB in memory; a little room is for
// other compilers and kernels.
func TestSmall(t *testing.T) {
	g := begin(t, nil)
	run(t, g.connect(t), sh("true"), nil)
	st, err := os.Stat(program)
	if err != nil {
		t.Fatal(err)
	}
	rss := memory(t, g.cmd.Process.Pid)
	t.Logf("%.2f MiB on disk, %.2f MiB resident", float64(st.Size())/(1<<20), float64(rss)/(1<<10))
	if st.Size() > 9<<19 {
		t.Errorf("%d bytes on disk", st.Size())
	}
	if rss > 6<<10 {
		t.Errorf("%d KiB resident", rss)
	}
}
