// SPDX-License-Identifier: Apache-2.0

// Package localtest gives tests real sandboxes: the local driver, built from these sources, in a process of its own, with
// directories of its own.
package localtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/oklog/ulid/v2"

	"github.com/berth-dev/berth/core/catalog"
	"github.com/berth-dev/berth/core/plugin"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/sandbox"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/internal/testbin"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// Driver is the name of the driver.
const Driver = "unixlocal"

// Host is a driver manager with its directories.
type Host struct {
	*plugin.Manager
	Dir string // private, with a short name
	Log *Log
}

// Config is what [New] gives its manager, for a core that the test starts itself.
func Config(dir, driverPath string) plugin.Config {
	return plugin.Config{
		Resolve: func(context.Context, string, spec.DriverRequirement) (catalog.Binary, error) {
			return catalog.Binary{Name: Driver, Path: driverPath}, nil
		},
		RunDir: filepath.Join(dir, "r"), StateDir: filepath.Join(dir, "state"), CacheDir: filepath.Join(dir, "cache"), LogLevel: "warn",
	}
}

// New makes a manager that ends with the test. Notify may be nil.
func New(t testing.TB, notify func(plugin.Event)) *Host {
	t.Helper()
	h := &Host{Dir: Dir(t), Log: &Log{}}
	cfg := Config(h.Dir, testbin.Driver(t, Driver))
	cfg.Notify = notify
	cfg.Log = hclog.New(&hclog.LoggerOptions{Output: h.Log, Level: hclog.Info})
	h.Manager = plugin.NewManager(cfg)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeoutCause(context.Background(), 20*time.Second, errors.New("the driver did not end")) //nolint:usetesting // the test's own context has ended in a cleanup
		defer cancel()
		if err := h.Close(ctx); err != nil {
			t.Error(err)
		}
		if t.Failed() && h.Log.String() != "" {
			t.Log(h.Log.String())
		}
	})
	return h
}

// Handle starts the driver, or skips the test where no sandbox can be made.
func (h *Host) Handle(t testing.TB) *plugin.Handle {
	t.Helper()
	handle, err := h.Acquire(t.Context(), plugin.Request{Name: Driver})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(handle.Release)
	return handle
}

// Open opens a session that the test destroys. What cfg leaves out is filled in.
func (h *Host) Open(t testing.TB, cfg sandbox.Config) *sandbox.Session {
	t.Helper()
	s, err := h.TryOpen(t, cfg)
	if errors.Is(err, errs.IsolationMissing) {
		t.Skipf("this machine cannot make such a sandbox: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Destroy(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("destroy: %v", err)
		}
	})
	return s
}

// TryOpen is Open for what may fail. The caller ends the session.
func (h *Host) TryOpen(t testing.TB, cfg sandbox.Config) (*sandbox.Session, error) {
	t.Helper()
	cfg.Driver, cfg.DriverName = h.Handle(t), Driver
	if cfg.ID == "" {
		cfg.ID = ulid.Make().String()
	}
	return sandbox.Open(t.Context(), cfg)
}

// DriverPID is the driver's process; 0 = there is none.
func (h *Host) DriverPID() int {
	for _, s := range h.Statuses() {
		if s.Phase == plugin.PhaseReady {
			return s.PID
		}
	}
	return 0
}

// KillDriver ends the driver's process as a crash would.
func (h *Host) KillDriver(t testing.TB) {
	t.Helper()
	pid := h.DriverPID()
	if pid == 0 {
		t.Fatal("there is no driver to kill")
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// Dir is a private directory with a name that is short enough for sockets.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "bl") //nolint:usetesting // sockets need short names
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("the directory of a test cannot be removed: %v", err)
		}
	})
	return dir
}

// Sh runs a script in a sandbox and gives what it printed, without space around it. It fails the test when the script
// fails.
func Sh(t testing.TB, s *sandbox.Session, script string) string {
	t.Helper()
	var out bytes.Buffer
	exit, err := s.Run(t.Context(), &driver.Command{Argv: []string{"sh", "-c", script}}, driver.Streams{Stdout: &out, Stderr: &out})
	if err != nil || exit.Code != 0 {
		t.Fatalf("%s: exit %d, %v: %s", script, exit.Code, err, out.String())
	}
	return strings.TrimSpace(out.String())
}

// Read gives a file of the workspace.
func Read(t testing.TB, s *sandbox.Session, path string) string {
	t.Helper()
	_, r, err := s.Open(t.Context(), path, driver.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Close ends a session as a run with this status would.
func Close(t testing.TB, s *sandbox.Session, status run.Status) {
	t.Helper()
	if err := s.Close(t.Context(), status); err != nil {
		t.Fatal(err)
	}
}

// Eventually waits until f holds.
func Eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		if time.Now().After(deadline) {
			t.Fatalf("still not: %s", what)
		}
		<-tick.C
	}
}

// Mark is a word that no other process of this machine has in its command line.
func Mark() string { return "mark-" + strings.ToLower(ulid.Make().String()) }

// Marked gives the processes of this machine, in whatever namespace, that have a word in their command line.
func Marked(t testing.TB, mark string) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if b, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline")); err == nil && bytes.Contains(b, []byte(mark)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Alive says whether a process runs.
func Alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// PeakKiB is the most memory that a process has had resident.
func PeakKiB(t testing.TB, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("the kernel does not tell the peak")
	return 0
}

// Log keeps what is written. It may be used from several goroutines.
type Log struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

// Write keeps p.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// String gives everything so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
