// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/core/catalog/digest"
	"github.com/berth-dev/berth/core/plugin"
	"github.com/berth-dev/berth/core/plugin/launch"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/value"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// world is a manager whose drivers are processes.
type world struct {
	*plugin.Manager
	log syncBuffer

	mu     sync.Mutex
	events []plugin.Event
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{}
	w.Manager = plugin.NewManager(plugin.Config{
		Resolve: resolve, RunDir: shortDir(t), LogLevel: "debug",
		Environ: []string{"PATH=" + os.Getenv("PATH"), "OPENAI_API_KEY=sk-host-secret"},
		Log:     hclog.New(&hclog.LoggerOptions{Name: "berth", Output: &w.log, Level: hclog.Debug}),
		Notify: func(e plugin.Event) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.events = append(w.events, e)
		},
	})
	t.Cleanup(func() {
		if err := w.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(w.log.String())
		}
	})
	return w
}

// handle gives a driver process whose sandboxes are recorded in a directory.
func (w *world) handle(t testing.TB, env map[string]string) *plugin.Handle {
	t.Helper()
	d := &spec.DriverProcess{Label: "fake", Env: map[string]value.Secret{"FAKE_DIR": value.PlainSecret(t.TempDir())}}
	for k, v := range env {
		d.Env[k] = value.PlainSecret(v)
	}
	h, err := w.Acquire(t.Context(), plugin.Request{Name: "fake", Process: d})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Release)
	return h
}

// kill kills the driver, which runs.
func kill(t *testing.T, h *plugin.Handle) {
	t.Helper()
	pid := h.Status().PID
	if pid <= 0 {
		t.Fatalf("the driver does not run: %+v", h.Status())
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func TestProcessLife(t *testing.T) {
	w := newWorld(t)
	h := w.handle(t, map[string]string{"FAKE_TOKEN": "tok-canary-1"})
	if d := h.Description(); d.Name != "fake" || !slices.Contains(d.Features, driver.ProcAttach) || d.SandboxConfig == nil {
		t.Errorf("%+v", d)
	}
	pid := h.Status().PID
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if runtime.GOOS == "linux" && (err != nil || bytes.Contains(env, []byte("sk-host-secret")) || !bytes.Contains(env, []byte("tok-canary-1"))) {
		t.Errorf("the driver's environment: %q, %v", env, err)
	}
	s := create(t, h, "a")
	if _, err := s.Write(t.Context(), "f", driver.WriteOptions{}, strings.NewReader("content")); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	exit, err := s.Run(t.Context(), &driver.Command{Argv: []string{"sh", "-c", "cat f; echo $A; exit 7"}, Env: map[string]string{"A": "b"}}, driver.Streams{Stdout: &out})
	if err != nil || exit.Code != 7 || out.String() != "contentb\n" {
		t.Errorf("%q, %+v, %v", out.String(), exit, err)
	}
	if info, err := s.Inspect(t.Context()); err != nil || info.Root != "/workspace" {
		t.Errorf("%+v, %v", info, err)
	}
	if err := w.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if alive(pid) {
		t.Error("the driver outlived its manager")
	}
	log := w.log.String()
	if !strings.Contains(log, "fake driver begins") || strings.Contains(log, "canary") || !strings.Contains(log, "berth.driver.fake") {
		t.Errorf("log:\n%s", log)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.events); n == 0 || w.events[n-1].Kind != plugin.Parked || w.events[n-1].SandboxID != "a" {
		t.Errorf("events: %+v", w.events)
	}
}

// A driver that is killed again and again under a long command costs no byte of its output.
func TestKilledDriverCostsNoOutput(t *testing.T) {
	w := newWorld(t)
	h := w.handle(t, nil)
	s := create(t, h, "a")
	const n, size = 20000, 100
	stop := make(chan struct{})
	var killer sync.WaitGroup
	kills := 0
	killer.Go(func() {
		tick := time.NewTicker(150 * time.Millisecond)
		defer tick.Stop()
		for kills < 3 {
			select {
			case <-tick.C:
			case <-stop:
				return
			}
			if pid := h.Status().PID; pid != 0 && h.Status().Phase == plugin.PhaseReady {
				syscall.Kill(pid, syscall.SIGKILL)
				kills++
			}
		}
	})
	var out, errOut bytes.Buffer
	exit, err := s.Run(t.Context(), &driver.Command{Argv: []string{"both", fmt.Sprint(n), fmt.Sprint(size), "100us"}, ReplayBytes: 8 << 20}, driver.Streams{
		Stdout: &out, Stderr: &errOut, OnGap: func(g driver.Gap) { t.Errorf("gap %+v", g) },
	})
	close(stop)
	killer.Wait()
	if err != nil || exit.OutputBytes != n*size {
		t.Fatalf("%+v, %v after %d kills", exit, err, kills)
	}
	var want, wantErr []byte
	for line := range slices.Chunk(counted(n, size), 2*size) {
		want, wantErr = append(want, line[:size]...), append(wantErr, line[size:]...)
	}
	if !bytes.Equal(out.Bytes(), want) || !bytes.Equal(errOut.Bytes(), wantErr) {
		t.Errorf("output differs after %d kills: %d and %d bytes", kills, out.Len(), errOut.Len())
	}
	if kills == 0 {
		t.Error("the driver was never killed")
	}
}

func TestCrashErrorSaysWhy(t *testing.T) {
	w := newWorld(t)
	h := w.handle(t, map[string]string{"FAKE_FAULT": "files.move:1"})
	s := create(t, h, "a")
	err := s.Move(t.Context(), "a", "b", false, "")
	var e *errs.Error
	var c *launch.Crash
	if !errors.As(err, &e) || e.Code != errs.DriverCrashed || !e.MaybeApplied || !errors.As(err, &c) {
		t.Fatalf("got %v", err)
	}
	if c.Status != "signal: killed" || c.PID == 0 || !strings.Contains(strings.Join(c.Log, "\n"), "fake driver begins") {
		t.Errorf("%+v", c)
	}
}

func TestFiftySandboxes(t *testing.T) {
	w := newWorld(t)
	h := w.handle(t, nil)
	var wg sync.WaitGroup
	want := string(counted(50, 64))
	for i := range 50 {
		wg.Go(func() {
			s, err := h.Create(t.Context(), &driver.CreateRequest{SandboxID: fmt.Sprintf("s%d", i)})
			if err != nil {
				t.Error(err)
				return
			}
			for range 3 {
				var out bytes.Buffer
				if _, err := s.Run(t.Context(), &driver.Command{Argv: []string{"count", "50", "64", "2ms"}}, driver.Streams{Stdout: &out}); err != nil || out.String() != want {
					t.Errorf("sandbox %d: %d bytes, %v", i, out.Len(), err)
				}
			}
			if err := s.Destroy(t.Context()); err != nil {
				t.Error(err)
			}
		})
		if i == 30 {
			kill(t, h)
		}
	}
	wg.Wait()
	if st := h.Status(); st.Sandboxes != 0 || st.Crashes != 1 {
		t.Errorf("%+v", st)
	}
}

func TestKilledCoreLeavesNoDriver(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	core := exec.CommandContext(t.Context(), self)
	core.Env = append(os.Environ(), "TEST_CORE="+shortDir(t))
	core.Stderr = os.Stderr
	out, err := core.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := core.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscan(out, &pid); err != nil || !alive(pid) {
		t.Fatalf("driver %d, %v", pid, err)
	}
	if err := core.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	eventually(t, "the driver is gone", func() bool { return !alive(pid) })
	t.Logf("gone %s after the core", time.Since(begun))
	core.Wait()
}

// Starting, using and ending drivers leaves no goroutine and no descriptor.
func TestNoLeaks(t *testing.T) {
	once := func() {
		w := newWorld(t)
		h := w.handle(t, nil)
		s := create(t, h, "a")
		if _, err := s.Run(t.Context(), &driver.Command{Argv: []string{"true"}}, driver.Streams{}); err != nil {
			t.Fatal(err)
		}
		kill(t, h)
		if _, err := s.Inspect(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	once() // what is made once stays
	goroutines, fds := runtime.NumGoroutine(), openFiles(t)
	for range 3 {
		once()
	}
	eventually(t, "goroutines and descriptors are as before", func() bool {
		return runtime.NumGoroutine() <= goroutines && openFiles(t) <= fds
	})
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("descriptors cannot be counted here: %v", err)
	}
	return len(entries)
}

func TestStoppedDriverIsReplaced(t *testing.T) {
	w := newWorld(t)
	h := w.handle(t, nil)
	s := create(t, h, "a")
	pid := h.Status().PID
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it has stopped", func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(b), ") T ")
	})
	ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, errors.New("no longer wanted"))
	defer cancel()
	if _, err := s.Inspect(ctx); !errors.Is(err, errs.Canceled) {
		t.Errorf("got %v", err)
	}
	begun := time.Now()
	hurry, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, errors.New("in a hurry"))
	defer cancel()
	if err := w.Close(hurry); err != nil {
		t.Error(err)
	}
	if d := time.Since(begun); alive(pid) || d > 10*time.Second {
		t.Errorf("the stopped driver lives (%v), %s later", alive(pid), d)
	}
}

func BenchmarkStart(b *testing.B) {
	digests := &digest.Cache{}
	for b.Loop() {
		w := &world{Manager: plugin.NewManager(plugin.Config{Resolve: resolve, RunDir: shortDir(b), Digests: digests})}
		h, err := w.Acquire(b.Context(), plugin.Request{Name: "fake"})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		h.Release()
		w.Close(b.Context())
		b.StartTimer()
	}
}

func BenchmarkRun(b *testing.B) {
	w := newWorld(b)
	h, err := w.Acquire(b.Context(), plugin.Request{Name: "fake"})
	if err != nil {
		b.Fatal(err)
	}
	s, err := h.Create(b.Context(), &driver.CreateRequest{SandboxID: "a"})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("true", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Run(b.Context(), &driver.Command{Argv: []string{"true"}}, driver.Streams{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("stat", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Stat(b.Context(), []string{"."}, driver.StatOptions{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	if _, err := s.Write(b.Context(), "f", driver.WriteOptions{}, bytes.NewReader(make([]byte, 64<<20))); err != nil {
		b.Fatal(err)
	}
	b.Run("output", func(b *testing.B) {
		b.SetBytes(64 << 20)
		for b.Loop() {
			if _, err := s.Run(b.Context(), &driver.Command{Argv: []string{"cat", "f"}}, driver.Streams{Stdout: io.Discard}); err != nil {
				b.Fatal(err)
			}
		}
	})
	if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", h.Status().PID)); err == nil {
		for l := range strings.Lines(string(status)) {
			if strings.HasPrefix(l, "VmRSS") || strings.HasPrefix(l, "RssAnon") {
				b.Log(strings.TrimSpace(l))
			}
		}
	}
}
