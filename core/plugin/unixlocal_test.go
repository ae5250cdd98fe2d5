// SPDX-License-Identifier: Apache-2.0

//go:build linux

package plugin_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/core/catalog"
	"github.com/berth-dev/berth/core/plugin"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/internal/testbin"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// local gives the real driver, with real sandboxes.
func local(t testing.TB) (*plugin.Handle, *syncBuffer) {
	t.Helper()
	path := testbin.Driver(t, "unixlocal")
	log := &syncBuffer{}
	m := plugin.NewManager(plugin.Config{
		Resolve: func(context.Context, string, spec.DriverRequirement) (catalog.Binary, error) {
			return catalog.Binary{Name: "unixlocal", Path: path}, nil
		},
		RunDir: shortDir(t), StateDir: filepath.Join(shortDir(t), "state"), CacheDir: filepath.Join(shortDir(t), "cache"),
		Log: hclog.New(&hclog.LoggerOptions{Output: log, Level: hclog.Debug}), LogLevel: "debug",
	})
	t.Cleanup(func() {
		if err := m.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(log.String())
		}
	})
	h, err := m.Acquire(t.Context(), plugin.Request{Name: "unixlocal"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Release)
	return h, log
}

func localSandbox(t testing.TB, h *plugin.Handle) *plugin.Sandbox {
	t.Helper()
	s, err := h.Create(t.Context(), &driver.CreateRequest{SandboxID: fmt.Sprintf("T%d", time.Now().UnixNano()), Workspace: driver.Workspace{Root: "/workspace"}})
	if errors.Is(err, errs.Unsupported) || errors.Is(err, errs.IsolationMissing) {
		t.Skipf("this machine cannot make sandboxes: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Destroy(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return s
}

// The process goes on in its sandbox while its driver is killed and started again, and no byte is lost.
func TestRealDriverKilledUnderLongCommand(t *testing.T) {
	h, _ := local(t)
	s := localSandbox(t, h)
	// It waits for the file that the test makes after the last kill, so that every kill comes while it runs.
	const script = `i=0; while [ ! -e done ]; do echo "out $i"; echo "err $i" >&2; i=$((i+1)); sleep 0.005; done; echo "$i" > count; exit 3`
	var out, errOut bytes.Buffer
	var kills atomic.Int32
	go func() {
		for range 3 {
			<-time.After(400 * time.Millisecond)
			if pid := h.Status().PID; pid != 0 && h.Status().Phase == plugin.PhaseReady {
				if syscall.Kill(pid, syscall.SIGKILL) == nil {
					kills.Add(1)
				}
			}
		}
		<-time.After(300 * time.Millisecond)
		if _, err := s.Write(t.Context(), "done", driver.WriteOptions{}, strings.NewReader("")); err != nil {
			t.Error(err)
		}
	}()
	exit, err := s.Run(t.Context(), &driver.Command{Argv: []string{"sh", "-c", script}}, driver.Streams{
		Stdout: &out, Stderr: &errOut, OnGap: func(g driver.Gap) { t.Errorf("gap %+v", g) },
	})
	if err != nil || exit.Code != 3 {
		t.Fatalf("%+v, %v after %d kills", exit, err, kills.Load())
	}
	_, rc, err := s.Open(t.Context(), "count", driver.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(rc)
	if err != nil {
		t.Fatal(err)
	}
	rc.Close()
	var n int
	if _, err := fmt.Sscan(string(text), &n); err != nil {
		t.Fatal(err)
	}
	var want, wantErr strings.Builder
	for i := range n {
		fmt.Fprintf(&want, "out %d\n", i)
		fmt.Fprintf(&wantErr, "err %d\n", i)
	}
	if out.String() != want.String() || errOut.String() != wantErr.String() {
		t.Errorf("output differs: %d and %d bytes, want %d and %d", out.Len(), errOut.Len(), want.Len(), wantErr.Len())
	}
	if kills.Load() < 2 || n < 20 {
		t.Errorf("only %d kills and %d lines", kills.Load(), n)
	}
}

// A fast command, killed under way, comes through with every byte as well.
func TestRealDriverKilledUnderBulkOutput(t *testing.T) {
	h, _ := local(t)
	s := localSandbox(t, h)
	sum := sha256.New()
	var n atomic.Int64
	killed := false
	w := writerFunc(func(p []byte) (int, error) {
		sum.Write(p)
		if n.Add(int64(len(p))) > 8<<20 && !killed {
			if pid := h.Status().PID; pid > 0 {
				killed = syscall.Kill(pid, syscall.SIGKILL) == nil
			}
		}
		return len(p), nil
	})
	const script = `i=0; while [ $i -lt 32 ]; do head -c 1048576 /dev/zero | tr '\0' a; i=$((i+1)); done`
	var gap uint64
	exit, err := s.Run(t.Context(), &driver.Command{Argv: []string{"sh", "-c", script}, ReplayBytes: 4 << 20}, driver.Streams{
		Stdout: w, OnGap: func(g driver.Gap) { gap += g.To - g.From },
	})
	if err != nil || exit.Code != 0 || exit.OutputBytes != 32<<20 {
		t.Fatalf("%+v, %v", exit, err)
	}
	if got := uint64(n.Load()) + gap; got != 32<<20 || !killed {
		t.Errorf("%d bytes and a gap of %d, killed: %v", n.Load(), gap, killed)
	}
	if gap == 0 {
		want := sha256.New()
		want.Write(bytes.Repeat([]byte("a"), 32<<20))
		if !bytes.Equal(sum.Sum(nil), want.Sum(nil)) {
			t.Error("the output differs")
		}
	} else {
		t.Logf("a gap of %d bytes was told", gap)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func BenchmarkRealDriver(b *testing.B) {
	h, _ := local(b)
	s := localSandbox(b, h)
	b.Run("true", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Run(b.Context(), &driver.Command{Argv: []string{"true"}}, driver.Streams{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("output", func(b *testing.B) {
		b.SetBytes(64 << 20)
		for b.Loop() {
			if _, err := s.Run(b.Context(), &driver.Command{Argv: []string{"head", "-c", "67108864", "/dev/zero"}}, driver.Streams{Stdout: io.Discard}); err != nil {
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
