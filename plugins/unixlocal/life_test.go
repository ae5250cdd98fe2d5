// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/oklog/ulid/v2"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/schema"
)

func TestCreateRunDestroy(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "the-driver's-own")
	f := newFixture(t, driver.Host{})
	s := f.create(t, func(r *driver.CreateRequest) {
		r.Env = map[string]string{"GREETING": "hello"}
		r.SecretEnv = map[string]string{"TOKEN": "secret"}
	})
	info := inspect(t, s)
	if got, want := sh(t, s, "echo $GREETING $TOKEN; pwd; touch f; ls"), "hello secret\n"+info.Root+"\nf"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := sh(t, s, "env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'"); strings.Contains(got, "the-driver's-own") {
		t.Errorf("the driver's environment is in the sandbox: %s", got)
	}
	if got := sh(t, s, "echo x > $HOME/a && echo y > $TMPDIR/b && cat $HOME/a $TMPDIR/b && ls -A"); got != "x\ny\nf" {
		t.Errorf("home and temporary files: %q", got)
	}
	for _, i := range info.Isolation {
		t.Logf("%s: %s (gap: %s)", i.Axis, i.Statement, i.Gap)
	}
	sh(t, s, "mkdir -p shut/in && touch shut/in/f && chmod 0 shut/in shut") // keeps nobody from removing it
	dir := info.Display["directory"]
	if err := s.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there (%v)", dir, err)
	}
	if _, err := s.Run(t.Context(), &driver.Command{Argv: []string{"true"}}, driver.Streams{}); !errors.Is(err, errs.SandboxGone) {
		t.Errorf("a command in a destroyed sandbox: %v", err)
	}
	if err := s.Destroy(t.Context()); err != nil {
		t.Errorf("a second destroy: %v", err)
	}
}

func inspect(t testing.TB, s driver.Sandbox) driver.Info {
	t.Helper()
	info, err := s.(driver.Inspector).Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func TestSameIDGivesTheSameSandbox(t *testing.T) {
	f := newFixture(t, driver.Host{})
	id := ulid.Make().String()
	s := f.create(t, func(r *driver.CreateRequest) { r.SandboxID = id })
	sh(t, s, "echo 1 > f")
	again, err := f.Create(t.Context(), &driver.CreateRequest{SandboxID: id, Workspace: driver.Workspace{Root: "/workspace"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := sh(t, again, "cat f"); got != "1" {
		t.Errorf("got %q", got)
	}
	// Another process of the driver finds it too.
	other := newFixture(t, f.host)
	third, err := other.Create(t.Context(), &driver.CreateRequest{SandboxID: id, Workspace: driver.Workspace{Root: "/workspace"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := sh(t, third, "cat f"); got != "1" {
		t.Errorf("got %q", got)
	}
}

// TestNothingSurvives leaves processes behind in every way, for each end of a command and of the sandbox.
func TestNothingSurvives(t *testing.T) {
	f := newFixture(t, driver.Host{})
	const script = "exec >/dev/null 2>&1; nohup sleep $1 & setsid sleep $1 & (setsid sh -c \"sleep $1 & exec sleep $1\" &); sleep $1"
	for i, c := range []struct {
		name string
		end  func(s driver.Sandbox, run func(ctx context.Context, timeout time.Duration))
	}{
		{"timeout", func(_ driver.Sandbox, run func(context.Context, time.Duration)) {
			run(t.Context(), 300*time.Millisecond)
		}},
		{"cancel", func(_ driver.Sandbox, run func(context.Context, time.Duration)) {
			ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, errors.New("enough"))
			defer cancel()
			run(ctx, 0)
		}},
		{"destroy", func(s driver.Sandbox, run func(context.Context, time.Duration)) {
			done := make(chan struct{})
			go func() { defer close(done); run(t.Context(), 0) }()
			for len(sleepers(fmt.Sprintf("3%d.%d", 2, os.Getpid()))) < 4 {
				runtime.Gosched()
			}
			if err := s.Destroy(t.Context()); err != nil {
				t.Error(err)
			}
			<-done
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := f.create(t, nil)
			seconds := fmt.Sprintf("3%d.%d", i, os.Getpid())
			c.end(s, func(ctx context.Context, timeout time.Duration) {
				_, err := s.Run(ctx, &driver.Command{
					Argv: []string{"/bin/sh", "-c", script, "sh", seconds}, Timeout: timeout, KillGrace: 50 * time.Millisecond,
				}, driver.Streams{})
				t.Logf("the command ended with %v", err)
			})
			eventually(t, func() bool { return len(sleepers(seconds)) == 0 })
		})
	}
}

// sleepers finds processes of the host that sleep for some seconds.
func sleepers(seconds string) []string {
	var list []string
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err == nil && bytes.HasPrefix(b, []byte("sleep\x00"+seconds+"\x00")) {
			list = append(list, filepath.Base(filepath.Dir(f)))
		}
	}
	return list
}

func eventually(t testing.TB, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !cond(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen")
		}
	}
}

func TestResume(t *testing.T) {
	f := newFixture(t, driver.Host{})
	s := f.create(t, nil)
	started := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		_, err := s.Run(t.Context(), &driver.Command{
			ID: "counter", Argv: []string{"/bin/sh", "-c", "echo one; read line; echo two"}, Detached: true,
		}, driver.Streams{OnStart: func(driver.Started) { close(started) }, Stdin: blocked{}})
		ended <- err
	}()
	<-started
	sh(t, s, "echo kept > f")
	state := s.State()
	id := inspect(t, s).SandboxID
	if err := f.Drain(t.Context(), driver.OrphanPark, func(r driver.DrainResult) {
		if r.Outcome != "parked" {
			t.Errorf("%+v", r)
		}
	}); err != nil {
		t.Fatal(err)
	}
	<-ended

	// Another process of the driver takes over, with its processes.
	second := newFixture(t, f.host)
	got, err := second.Resume(t.Context(), &driver.ResumeRequest{SandboxID: id, State: state, Env: map[string]string{"LATER": "yes"}})
	if err != nil {
		t.Fatal(err)
	}
	if !got.(driver.Reattached).Reattached() || !got.(driver.Preserved).WorkspacePreserved() {
		t.Error("a guest that lives was not reattached")
	}
	if out := sh(t, got, "echo $LATER; cat f"); out != "yes\nkept" {
		t.Errorf("got %q", out)
	}
	procs, err := got.(driver.ProcessTable).Processes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, p := range procs {
		found = found || p.ID == "counter" && p.Exit == nil
	}
	if !found {
		t.Errorf("the process is gone: %+v", procs)
	}

	// A guest that died is started again on the same workspace.
	if err := second.known(id).x.Record.Guest.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool {
		_, err := got.Run(t.Context(), &driver.Command{Argv: []string{"true"}}, driver.Streams{})
		return errors.Is(err, errs.SandboxUnknown) || errors.Is(err, errs.SandboxGone)
	})
	again, err := second.Resume(t.Context(), &driver.ResumeRequest{SandboxID: id, State: state})
	if err != nil {
		t.Fatal(err)
	}
	if again.(driver.Reattached).Reattached() || !again.(driver.Preserved).WorkspacePreserved() {
		t.Error("a guest that was started again says that it was reattached")
	}
	if out := sh(t, again, "cat f"); out != "kept" {
		t.Errorf("got %q", out)
	}

	// Stopped, it comes back; destroyed, it is gone.
	if err := again.(driver.Stopper).Stop(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	third, err := second.Resume(t.Context(), &driver.ResumeRequest{SandboxID: id, State: state})
	if err != nil {
		t.Fatal(err)
	}
	if out := sh(t, third, "cat f"); out != "kept" {
		t.Errorf("got %q", out)
	}
	if err := third.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := second.Resume(t.Context(), &driver.ResumeRequest{SandboxID: id, State: state}); !errors.Is(err, errs.SandboxGone) {
		t.Errorf("resume of a destroyed sandbox: %v", err)
	}
}

// blocked is an input that never comes.
type blocked struct{}

func (blocked) Read([]byte) (int, error) { select {} }

func TestLeaseEndsTheGuest(t *testing.T) {
	for _, ttl := range []time.Duration{0, 200 * time.Millisecond} {
		t.Run(ttl.String(), func(t *testing.T) {
			f := newFixture(t, driver.Host{})
			s := f.create(t, func(r *driver.CreateRequest) { r.OrphanTTL = &ttl })
			seconds := fmt.Sprintf("35.%d", os.Getpid())
			sh(t, s, "setsid sleep "+seconds+" >/dev/null 2>&1 &")
			eventually(t, func() bool { return len(sleepers(seconds)) == 1 })
			id := inspect(t, s).SandboxID
			if err := f.Drain(t.Context(), driver.OrphanPark, func(driver.DrainResult) {}); err != nil {
				t.Fatal(err)
			}
			eventually(t, func() bool { return len(sleepers(seconds)) == 0 })
			x, err := f.store.Open(id, "")
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, func() bool { return !x.Alive() })
		})
	}
}

// TestInterruptedCreate resumes a sandbox that nothing was put into: the core has to do it again.
func TestInterruptedCreate(t *testing.T) {
	f := newFixture(t, driver.Host{})
	for _, key := range []string{"", "sha256:key"} {
		s := f.create(t, func(r *driver.CreateRequest) { r.Workspace.Template = key })
		id, state := inspect(t, s).SandboxID, s.State()
		resume := func() driver.Sandbox {
			got, err := newFixture(t, f.host).Resume(t.Context(), &driver.ResumeRequest{SandboxID: id, State: state})
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		got := resume()
		if got.(driver.Preserved).WorkspacePreserved() {
			t.Error("an empty workspace is called preserved")
		}
		importInto(t, got, driver.ImportOptions{Template: key}, tarOf(t, map[string]string{"f": "1"}))
		if got = resume(); !got.(driver.Preserved).WorkspacePreserved() {
			t.Error("a workspace that was filled is not called preserved")
		}
		if out := sh(t, got, "cat f"); out != "1" {
			t.Errorf("got %q", out)
		}
	}
}

func TestStateIsNotTrusted(t *testing.T) {
	f := newFixture(t, driver.Host{})
	s := f.create(t, nil)
	id := inspect(t, s).SandboxID
	for name, data := range map[string]string{
		"no state": "", "another proof": `{"id":"` + id + `","proof":"00"}`, "a path": `{"id":"../../etc","proof":"00"}`,
		"another id": `{"id":"01JZZZZZZZZZZZZZZZZZZZZZZZ","proof":"00"}`,
	} {
		if _, err := f.Resume(t.Context(), &driver.ResumeRequest{SandboxID: id, State: driver.State{Data: []byte(data)}}); err == nil {
			t.Errorf("%s: resumed", name)
		}
	}
	// A directory that became another sandbox's is left alone.
	x, err := f.store.Open(id, "")
	if err != nil {
		t.Fatal(err)
	}
	own := *x
	own.Record.Proof = "another"
	if err := own.Remove(func([]string) error { t.Error("it would have been removed"); return nil }); err != nil {
		t.Error(err)
	}
	sh(t, s, "true")
}

func TestList(t *testing.T) {
	f := newFixture(t, driver.Host{})
	want := inspect(t, f.create(t, func(r *driver.CreateRequest) { r.Labels = map[string]string{"run": "1", "x": "y"} })).SandboxID
	f.create(t, func(r *driver.CreateRequest) { r.Labels = map[string]string{"run": "2"} })
	var got []string
	for info, err := range newFixture(t, f.host).List(t.Context(), map[string]string{"run": "1"}) {
		if err != nil {
			t.Fatal(err)
		}
		if info.Status != driver.StatusRunning {
			t.Errorf("%+v", info)
		}
		got = append(got, info.SandboxID)
	}
	if len(got) != 1 || got[0] != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestNetworkNone(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0") // it does not wait
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, driver.Host{})
	reach := func(s driver.Sandbox) int {
		_, exit := try(t, s, &driver.Command{Argv: []string{"/bin/bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/" + port}})
		return exit.Code
	}
	if reach(f.create(t, nil)) != 0 {
		t.Error("the host's network is not there")
	}
	s := f.create(t, func(r *driver.CreateRequest) { r.Network.Mode = "none" })
	if reach(s) == 0 {
		t.Error("the host's network is there")
	}
	if testLevel(t) < 2 {
		return
	}
	// Its own servers work, and the driver reaches them.
	go func() {
		_, _ = s.Run(t.Context(), &driver.Command{Argv: []string{"python3", "-m", "http.server", "8123", "--bind", "127.0.0.1"}}, driver.Streams{})
	}()
	eventually(t, func() bool {
		c, err := s.(driver.PortForwarder).Dial(t.Context(), 8123)
		if err != nil {
			return false
		}
		defer c.Close()
		if _, err := c.Write([]byte("GET / HTTP/1.0\r\n\r\n")); err != nil {
			return false
		}
		b := make([]byte, 12)
		_, err = io.ReadFull(c, b)
		return err == nil && string(b) == "HTTP/1.0 200"
	})
}

func TestManyAtOnce(t *testing.T) {
	n := 20
	if v, err := strconv.Atoi(os.Getenv("BERTH_TEST_SANDBOXES")); err == nil {
		n = v
	}
	f := newFixture(t, driver.Host{})
	begin := time.Now()
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			s, err := f.Create(t.Context(), &driver.CreateRequest{
				SandboxID: ulid.Make().String(), Workspace: driver.Workspace{Root: "/workspace"},
			})
			if err != nil {
				t.Error(err)
				return
			}
			for range 5 {
				if exit, err := s.Run(t.Context(), &driver.Command{Argv: []string{"/bin/true"}}, driver.Streams{}); err != nil || exit.Code != 0 {
					t.Error(exit, err)
				}
			}
			if err := s.Destroy(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	t.Logf("%d sandboxes with 5 commands each in %s", n, time.Since(begin))
}

// TestDriverIsKilled kills a real driver process with its whole process group. The guest lives on, and another driver
// finds the process and all of its output.
func TestDriverIsKilled(t *testing.T) {
	f := newFixture(t, driver.Host{})
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "driver-process", f.host.StateDir, f.host.CacheDir, f.host.RunDir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var state driver.State
	if err := json.NewDecoder(out).Decode(&state); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed

	s, err := f.Resume(t.Context(), &driver.ResumeRequest{SandboxID: killedID, State: state})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Destroy(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	if !s.(driver.Reattached).Reattached() {
		t.Error("the guest died with its driver")
	}
	sh(t, s, "touch go-on")
	var got bytes.Buffer
	exit, err := s.(driver.ProcessTable).Attach(t.Context(), "writer", 0, driver.Streams{Stdout: &got})
	if err != nil || exit.Code != 7 || got.String() != "before\nafter\n" {
		t.Errorf("exit %+v (%v), output %q", exit, err, got.String())
	}
}

const killedID = "01KILLED"

// driverProcess is a driver that makes a sandbox, starts a process in it, says how to find it, and waits to be killed.
func driverProcess(args []string) error {
	d := New(hclog.NewNullLogger()).(*local)
	ctx := context.Background()
	if diags := d.Configure(ctx, driver.Host{StateDir: args[0], CacheDir: args[1], RunDir: args[2]}, schema.Value{}); len(diags) > 0 {
		return errors.New(diags[0].Summary)
	}
	s, err := d.Create(ctx, &driver.CreateRequest{SandboxID: killedID, Workspace: driver.Workspace{Root: "/workspace"}})
	if err != nil {
		return err
	}
	started := make(chan struct{})
	go func() {
		_, _ = s.Run(ctx, &driver.Command{
			ID: "writer", Argv: []string{"/bin/sh", "-c", "echo before; until [ -e go-on ]; do sleep 0.01; done; echo after; exit 7"}, Detached: true,
		}, driver.Streams{OnStart: func(driver.Started) { close(started) }})
	}()
	<-started
	if err := json.NewEncoder(os.Stdout).Encode(s.State()); err != nil {
		return err
	}
	select {}
}
