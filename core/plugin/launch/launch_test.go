// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/berth-dev/berth/core/catalog/digest"
	"github.com/berth-dev/berth/core/value/redact"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/handshake"
)

// The test binary is its own driver: TEST_DRIVER says how it behaves.
func TestMain(m *testing.M) {
	switch mode := os.Getenv("TEST_DRIVER"); mode {
	case "":
		os.Exit(m.Run())
	case "core":
		coreMain()
	default:
		driverMain(mode)
	}
}

type emptyPlugin struct{ plugin.NetRPCUnsupportedPlugin }

func (emptyPlugin) GRPCServer(*plugin.GRPCBroker, *grpc.Server) error { return nil }
func (emptyPlugin) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("not the core")
}

func driverMain(mode string) {
	key, err := handshake.KeyFromEnvironment()
	if err != nil {
		os.Exit(3)
	}
	switch mode {
	case "exit":
		fmt.Fprintln(os.Stderr, "no such image")
		os.Exit(7)
	case "silent":
		io.Copy(io.Discard, os.Stdin)
		return
	case "garbage":
		fmt.Println("Usage: driver [flags]")
		os.Exit(0)
	case "babble":
		fmt.Println(strings.Repeat("word ", 5000))
		os.Exit(0)
	case "future":
		fmt.Println("1|99|unix|/nowhere|grpc")
		io.Copy(io.Discard, os.Stdin)
		return
	case "wrongkey":
		key = handshake.NewKey()
	}
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	log := hclog.New(&hclog.LoggerOptions{Output: os.Stderr, JSONFormat: true, Level: hclog.Trace})
	log.Warn("hello", "token", os.Getenv("TOKEN"), "n", 3)
	fmt.Fprintln(os.Stderr, "[ERROR] plain", os.Getenv("TOKEN"))
	if mode == "children" {
		c := exec.Command("sleep", "60")
		if err := c.Start(); err != nil {
			panic(err)
		}
		fmt.Fprintln(os.Stderr, "child", c.Process.Pid)
	}
	var options []grpc.ServerOption
	if mode == "chatty" {
		chat := sync.OnceFunc(func() {
			// The descriptor itself, behind go-plugin's back.
			out := os.NewFile(1, "stdout")
			for range 100 {
				out.WriteString(strings.Repeat("x", 200<<10) + "\n")
			}
			fmt.Fprintln(os.Stderr, "chatted")
		})
		// The first call comes after the handshake.
		options = append(options, grpc.StreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			go chat()
			return next(srv, ss)
		}))
	}
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: handshake.Config(),
		Plugins:         plugin.PluginSet{handshake.PluginName: emptyPlugin{}},
		GRPCServer: func(o []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(append(o, options...), grpc.Creds(handshake.Driver(key)))...)
		},
		Logger: hclog.NewNullLogger(),
	})
}

// coreMain is a core that starts one driver, says its process id and waits.
func coreMain() {
	dir, err := OpenRunDir(os.Getenv("RUN_BASE"))
	if err != nil {
		panic(err)
	}
	d, err := dir.New()
	if err != nil {
		panic(err)
	}
	p, err := Start(context.Background(), Spec{Name: "t", Path: self(), Dir: d, Digests: &digest.Cache{}, Environ: []string{"TEST_DRIVER=children", "PATH=" + os.Getenv("PATH")}})
	if err != nil {
		panic(err)
	}
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	fmt.Println(p.PID())
	for range interrupts {
		fmt.Println("interrupted")
	}
}

func self() string {
	p, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return p
}

func runDir(t *testing.T) *RunDir {
	t.Helper()
	base, err := os.MkdirTemp("/tmp", "bt") //nolint:usetesting // sockets need short names
	if err != nil {
		t.Fatal(err)
	}
	r, err := OpenRunDir(filepath.Join(base, "r"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		os.RemoveAll(base)
	})
	return r
}

func spec(t *testing.T, mode string) Spec {
	t.Helper()
	dir, err := runDir(t).New()
	if err != nil {
		t.Fatal(err)
	}
	return Spec{
		Name: "t", Path: self(), Dir: dir, Digests: &digest.Cache{}, StartTimeout: 10 * time.Second,
		Environ: Environ([]string{"PATH=" + os.Getenv("PATH"), "AWS_SECRET_ACCESS_KEY=hunter2"}, nil, map[string]string{"TEST_DRIVER": mode}),
	}
}

func start(t *testing.T, s Spec) *Process {
	t.Helper()
	p, err := Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

func ping(t *testing.T, p *Process) error {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Second, errors.New("no answer"))
	defer cancel()
	_, err := healthv1.NewHealthClient(p.Conn()).Check(ctx, &healthv1.HealthCheckRequest{Service: "plugin"})
	return err
}

// eventually waits until f holds.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		if time.Now().After(deadline) {
			t.Fatalf("still not: %s", what)
		}
		<-tick.C
	}
}

func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

func TestStartAndKill(t *testing.T) {
	s := spec(t, "plain")
	p := start(t, s)
	if err := ping(t, p); err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS == "linux" {
		checkProcess(t, p)
	}
	p.Kill()
	select {
	case <-p.Exited():
	default:
		t.Fatal("it is still there after Kill")
	}
	if got := p.Crash().Status; got != "exit status 0" {
		t.Errorf("asked to end, it ended with %q", got)
	}
	if _, err := os.Stat(s.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory is still there: %v", err)
	}
	p.Kill()
}

func checkProcess(t *testing.T, p *Process) {
	proc := fmt.Sprintf("/proc/%d/", p.PID())
	env, err := os.ReadFile(proc + "environ")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(env), "hunter2") {
		t.Error("a secret of the host is in the driver's environment")
	}
	for kv := range strings.SplitSeq(strings.TrimRight(string(env), "\x00"), "\x00") {
		name, _, _ := strings.Cut(kv, "=")
		if !slices.Contains([]string{"PATH", "TEST_DRIVER", handshake.EnvCookie, handshake.EnvKey}, name) && !strings.HasPrefix(name, "PLUGIN_") {
			t.Errorf("%s is in the driver's environment", name)
		}
	}
	if pg, err := syscall.Getpgid(p.PID()); err != nil || pg != p.PID() {
		t.Errorf("process group %d, %v", pg, err)
	}
	if in, err := os.Readlink(proc + "fd/0"); err != nil || !strings.HasPrefix(in, "pipe:") {
		t.Errorf("standard input is %s, %v", in, err)
	}
	limits, err := os.ReadFile(proc + "limits")
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(string(limits)) {
		if strings.HasPrefix(l, "Max core file size") && strings.Fields(l)[4] != "0" {
			t.Errorf("%s", l)
		}
	}
	// The executed file must not stay open, nor anything of the core.
	fds, err := os.ReadDir(proc + "fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink(proc + "fd/" + fd.Name()); err == nil && strings.HasPrefix(to, filepath.Dir(self())) {
			t.Errorf("descriptor %s is %s", fd.Name(), to)
		}
	}
}

func TestCrashReport(t *testing.T) {
	p := start(t, spec(t, "plain"))
	if err := syscall.Kill(p.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-p.Exited()
	c := p.Crash()
	if c.Status != "signal: killed" || len(c.Log) == 0 || !strings.Contains(strings.Join(c.Log, "\n"), "hello") {
		t.Errorf("report: %+v", c)
	}
}

func TestLogsAreRelogged(t *testing.T) {
	s := spec(t, "plain")
	s.Environ = append(s.Environ, "TOKEN=s3cr3t-canary")
	s.Redact = &redact.Set{}
	s.Redact.Add("s3cr3t-canary")
	var out strings.Builder
	s.Log = hclog.New(&hclog.LoggerOptions{Name: "driver.t", Output: &out, Level: hclog.Debug})
	p := start(t, s)
	p.Kill()
	p.Crash()
	log := out.String()
	for _, want := range []string{"[WARN]  driver.t: hello: n=3 token=\"(sensitive value)\"", "[ERROR] driver.t: [ERROR] plain (sensitive value)"} {
		if !strings.Contains(log, want) {
			t.Errorf("no %q in:\n%s", want, log)
		}
	}
	if strings.Contains(log, "canary") {
		t.Error("the secret is in the log")
	}
}

func TestChattyDriverDoesNotBlock(t *testing.T) {
	p := start(t, spec(t, "chatty"))
	eventually(t, "20 MB written to standard output", func() bool { return slices.Contains(p.run.log.tail.all(), "chatted") })
	if err := ping(t, p); err != nil {
		t.Error(err)
	}
}

func TestStartErrors(t *testing.T) {
	for mode, want := range map[string]struct {
		code errs.Code
		text string
	}{
		"exit":    {errs.DriverStartFailed, "exit status 7; it said: no such image"},
		"garbage": {errs.DriverStartFailed, `"Usage: driver [flags]" is not a handshake`},
		"babble":  {errs.DriverStartFailed, `word …" is not a handshake`},
		"future":  {errs.DriverIncompatible, "speaks protocol 99, this berth speaks 1"},
		"silent":  {errs.DriverStartFailed, "no handshake within 300ms"},
	} {
		t.Run(mode, func(t *testing.T) {
			s := spec(t, mode)
			if mode == "silent" {
				s.StartTimeout = 300 * time.Millisecond
			}
			_, err := Start(t.Context(), s)
			if !errors.Is(err, want.code) || !strings.Contains(err.Error(), want.text) || len(err.Error()) > 2000 {
				t.Errorf("got %v", err)
			}
			if _, err := os.Stat(s.Dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the directory is still there: %v", err)
			}
		})
	}
}

func TestWrongKeyIsRefused(t *testing.T) {
	p := start(t, spec(t, "wrongkey"))
	if err := ping(t, p); err == nil || !strings.Contains(err.Error(), "does not hold") {
		t.Errorf("got %v", err)
	}
}

func TestCancelledStartLeavesNothing(t *testing.T) {
	for name, after := range map[string]time.Duration{"before it is up": 0, "while it says nothing": 100 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			why := errors.New("no longer wanted")
			ctx, cancel := context.WithCancelCause(t.Context())
			if after == 0 {
				cancel(why)
			} else {
				time.AfterFunc(after, func() { cancel(why) })
			}
			s := spec(t, "silent")
			s.StartTimeout = time.Hour // the cancel ends it
			if _, err := Start(ctx, s); !errors.Is(err, why) || !errors.Is(err, errs.Canceled) {
				t.Errorf("got %v", err)
			}
			if _, err := os.Stat(s.Dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the directory is still there: %v", err)
			}
		})
	}
}

func TestChecksum(t *testing.T) {
	s := spec(t, "plain")
	s.SHA256 = strings.Repeat("0", 64)
	if _, err := Start(t.Context(), s); !errors.Is(err, errs.DriverChecksum) {
		t.Errorf("got %v", err)
	}
}

// What is executed is the open file, even when the path names another by then; here: even when it is a script.
func TestScript(t *testing.T) {
	s := spec(t, "plain")
	s.Path = filepath.Join(t.TempDir(), "berth-driver-x")
	if err := os.WriteFile(s.Path, []byte("#!/bin/sh\nexec "+self()+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := ping(t, start(t, s)); err != nil {
		t.Error(err)
	}
}

func TestChildrenEndWithTheDriver(t *testing.T) {
	s := spec(t, "children")
	p := start(t, s)
	child := childPID(t, p)
	if err := syscall.Kill(p.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-p.Exited()
	eventually(t, "the child is gone", func() bool { return !alive(child) })
}

func childPID(t *testing.T, p *Process) int {
	t.Helper()
	pid := 0
	eventually(t, "the driver names its child", func() bool {
		for _, l := range p.run.log.tail.all() {
			if n, ok := strings.CutPrefix(l, "child "); ok {
				pid, _ = strconv.Atoi(n)
			}
		}
		return pid > 0
	})
	return pid
}

// A core that is killed leaves no driver, and the next core removes its directory.
func TestKilledCoreLeavesNothing(t *testing.T) {
	base, err := os.MkdirTemp("/tmp", "bt") //nolint:usetesting // sockets need short names
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	core := exec.CommandContext(t.Context(), self())
	core.Env = append(os.Environ(), "TEST_DRIVER=core", "RUN_BASE="+base)
	core.Stderr = os.Stderr
	out, err := core.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(base, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := core.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscan(out, &pid); err != nil {
		t.Fatal(err)
	}
	if !alive(pid) {
		t.Fatal("no driver")
	}
	if err := core.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	eventually(t, "the driver is gone", func() bool { return !alive(pid) })
	t.Logf("gone %s after the core", time.Since(begun))
	core.Wait()
	if n := dirs(t, base); n != 1 {
		t.Fatalf("%d directories left by the killed core, want 1", n)
	}
	r, err := OpenRunDir(base)
	if err != nil {
		t.Fatal(err)
	}
	if n := dirs(t, base); n != 1 {
		t.Errorf("%d directories after the sweep, want only the new one", n)
	}
	if err := errors.Join(r.Close(), r.Close()); err != nil {
		t.Error(err)
	}
}

// Ctrl-C goes to the terminal's process group, which the core is in: neither the driver nor its children get it.
func TestInterruptStaysWithTheCore(t *testing.T) {
	base, err := os.MkdirTemp("/tmp", "bt") //nolint:usetesting // sockets need short names
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	core := exec.CommandContext(t.Context(), self())
	core.Env = append(os.Environ(), "TEST_DRIVER=core", "RUN_BASE="+filepath.Join(base, "r"))
	core.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := core.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := core.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		core.Process.Kill()
		core.Wait()
	}()
	var pid int
	if _, err := fmt.Fscan(out, &pid); err != nil {
		t.Fatal(err)
	}
	child := 0
	eventually(t, "the driver has a child", func() bool {
		// Any thread may have made it.
		lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
		if err != nil || len(lists) == 0 {
			t.Skip("children cannot be listed here")
		}
		for _, list := range lists {
			if b, err := os.ReadFile(list); err == nil && len(b) > 0 {
				_, err := fmt.Sscan(string(b), &child)
				return err == nil
			}
		}
		return false
	})
	if err := syscall.Kill(-core.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	var word string
	if _, err := fmt.Fscan(out, &word); err != nil || word != "interrupted" {
		t.Fatalf("%q, %v", word, err)
	}
	if !alive(pid) || !alive(child) {
		t.Errorf("driver lives: %v, its child lives: %v", alive(pid), alive(child))
	}
}

func dirs(t *testing.T, base string) int {
	t.Helper()
	entries, err := os.ReadDir(base)
	if err != nil {
		t.Fatal(err)
	}
	return len(slices.DeleteFunc(entries, func(e os.DirEntry) bool { return !e.IsDir() }))
}

func TestSweepLeavesTheLiving(t *testing.T) {
	base := filepath.Join(t.TempDir(), "r")
	t.Setenv("XDG_RUNTIME_DIR", "")
	if len(base)+socketSuffix+30 > maxSocketPath {
		var err error
		if base, err = os.MkdirTemp("/tmp", "bt"); err != nil { //nolint:usetesting // sockets need short names
			t.Fatal(err)
		}
		defer os.RemoveAll(base)
		if err := os.Chmod(base, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	a, err := OpenRunDir(base)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := OpenRunDir(base)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, err := a.New(); err != nil {
		t.Errorf("the first one's directory was swept: %v", err)
	}
}

func TestRunDirRefuses(t *testing.T) {
	long := filepath.Join("/tmp", strings.Repeat("x", 80))
	defer os.RemoveAll(long)
	if _, err := OpenRunDir(long); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("long: %v", err)
	}
	open := filepath.Join(t.TempDir(), "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenRunDir(open); err == nil || !strings.Contains(err.Error(), "not a private directory") {
		t.Errorf("open: %v", err)
	}
}

func TestEnviron(t *testing.T) {
	got := Environ([]string{"PATH=/bin", "LC_ALL=C", "SECRET=x", "KUBECONFIG=/k", "HOME=/h"}, []string{"KUBECONFIG"}, map[string]string{"HOME": "/other"})
	want := []string{"HOME=/other", "KUBECONFIG=/k", "LC_ALL=C", "PATH=/bin"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

func BenchmarkStart(b *testing.B) {
	base, err := os.MkdirTemp("/tmp", "bt") //nolint:usetesting // sockets need short names
	if err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll(base)
	r, err := OpenRunDir(filepath.Join(base, "r"))
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	digests := &digest.Cache{}
	for b.Loop() {
		dir, err := r.New()
		if err != nil {
			b.Fatal(err)
		}
		p, err := Start(b.Context(), Spec{Name: "t", Path: self(), Dir: dir, Digests: digests, Environ: []string{"TEST_DRIVER=plain"}})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := healthv1.NewHealthClient(p.Conn()).Check(b.Context(), &healthv1.HealthCheckRequest{}); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		p.Kill()
		b.StartTimer()
	}
}
