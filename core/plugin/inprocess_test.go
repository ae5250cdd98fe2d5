// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/core/plugin"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/fake"
)

// lives makes a fake driver for each life of the process; all share what is behind them.
type lives struct {
	mu      sync.Mutex
	backend fake.Backend
	opts    []fake.Options // of each life; the last one is used again
	all     []*fake.Driver
	events  []plugin.Event
}

func (l *lives) make(hclog.Logger) driver.Driver {
	l.mu.Lock()
	defer l.mu.Unlock()
	var o fake.Options
	if n := len(l.opts); n > 0 {
		o = l.opts[min(len(l.all), n-1)]
	}
	o.Shared = &l.backend
	d := fake.New(o)
	l.all = append(l.all, d)
	return d
}

func (l *lives) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all)
}

func (l *lives) kinds(sandbox string) []plugin.EventKind {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []plugin.EventKind
	for _, e := range l.events {
		if e.SandboxID == sandbox {
			out = append(out, e.Kind)
		}
	}
	return out
}

func (l *lives) manager(t *testing.T) *plugin.Manager {
	t.Helper()
	m := plugin.NewManager(plugin.Config{
		InProcess: map[string]func(hclog.Logger) driver.Driver{"fake": l.make},
		RunDir:    shortDir(t), Environ: []string{},
		Notify: func(e plugin.Event) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.events = append(l.events, e)
		},
	})
	t.Cleanup(func() {
		if err := m.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return m
}

func acquire(t *testing.T, m *plugin.Manager, req plugin.Request) *plugin.Handle {
	t.Helper()
	if req.Name == "" {
		req.Name = "fake"
	}
	h, err := m.Acquire(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Release)
	return h
}

func create(t *testing.T, h *plugin.Handle, id string) *plugin.Sandbox {
	t.Helper()
	s, err := h.Create(t.Context(), &driver.CreateRequest{SandboxID: id, Workspace: driver.Workspace{Root: "/workspace"}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func counted(n, size int) []byte {
	var b []byte
	for i := range n {
		b = append(b, fake.Line(i, size)...)
	}
	return b
}

func crashAt(op string, n int) fake.Options {
	return fake.Options{Faults: []fake.Fault{{Op: op, N: n, Crash: true}}}
}

func TestOutputIsExactOverCrashes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lives{opts: []fake.Options{crashAt("run.output", 3), crashAt("run.output", 5), {Faults: []fake.Fault{{Op: "run.output", N: 2, Crash: true, After: true}}}, {}}}
		s := create(t, acquire(t, l.manager(t), plugin.Request{}), "a")
		var out, errOut bytes.Buffer
		starts := 0
		exit, err := s.Run(t.Context(), &driver.Command{Argv: []string{"both", "2000", "100", "1ms"}}, driver.Streams{
			Stdout: &out, Stderr: &errOut, OnStart: func(driver.Started) { starts++ },
			OnGap: func(g driver.Gap) { t.Errorf("gap %+v", g) },
		})
		if err != nil || exit.Code != 0 || exit.OutputBytes != 200000 {
			t.Fatalf("%+v, %v", exit, err)
		}
		var want, wantErr []byte
		for i := range 2000 {
			if i%2 == 0 {
				want = append(want, fake.Line(i, 100)...)
			} else {
				wantErr = append(wantErr, fake.Line(i, 100)...)
			}
		}
		if !bytes.Equal(out.Bytes(), want) || !bytes.Equal(errOut.Bytes(), wantErr) {
			t.Errorf("output differs: %d and %d bytes", out.Len(), errOut.Len())
		}
		if l.count() != 4 || starts != 1 {
			t.Errorf("%d lives, OnStart was called %d times", l.count(), starts)
		}
		synctest.Wait()
		if got := l.kinds("a"); len(got) != 6 || got[0] != plugin.Lost || got[1] != plugin.Recovered {
			t.Errorf("events %v", got)
		}
	})
}

// A command whose start was lost with the driver is started by the next one, and never twice.
func TestStartLostWithTheDriver(t *testing.T) {
	for name, after := range map[string]bool{"before": false, "after": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &lives{opts: []fake.Options{{Faults: []fake.Fault{{Op: "run", N: 1, Crash: true, After: after}}}, {}}}
				s := create(t, acquire(t, l.manager(t), plugin.Request{}), "a")
				var out bytes.Buffer
				if _, err := s.Run(t.Context(), &driver.Command{Argv: []string{"sh", "-c", "echo x >> f; cat f"}}, driver.Streams{Stdout: &out}); err != nil || out.String() != "x\n" {
					t.Errorf("%q, %v", out.String(), err)
				}
			})
		})
	}
}

func TestIdempotentCallsAreRepeated(t *testing.T) {
	ops := map[string]func(ctx context.Context, s *plugin.Sandbox) error{
		"files.stat": func(ctx context.Context, s *plugin.Sandbox) error {
			_, err := s.Stat(ctx, []string{"."}, driver.StatOptions{})
			return err
		},
		"files.write": func(ctx context.Context, s *plugin.Sandbox) error {
			_, err := s.Write(ctx, "f", driver.WriteOptions{}, strings.NewReader("x"))
			return err
		},
		"files.list": func(ctx context.Context, s *plugin.Sandbox) error {
			for _, err := range s.List(ctx, ".", driver.ListOptions{}) {
				if err != nil {
					return err
				}
			}
			return nil
		},
		"files.set_meta": func(ctx context.Context, s *plugin.Sandbox) error {
			return s.SetMeta(ctx, ".", driver.MetaChange{Mode: new(uint32(0o700))})
		},
		"tree.export": func(ctx context.Context, s *plugin.Sandbox) error {
			return s.Export(ctx, driver.ExportOptions{Path: "."}, io.Discard)
		},
		"inspect": func(ctx context.Context, s *plugin.Sandbox) error {
			_, err := s.Inspect(ctx)
			return err
		},
		"stop":    func(ctx context.Context, s *plugin.Sandbox) error { return s.Stop(ctx, true) },
		"pause":   func(ctx context.Context, s *plugin.Sandbox) error { return s.Pause(ctx) },
		"destroy": func(ctx context.Context, s *plugin.Sandbox) error { return s.Destroy(ctx) },
		"expose": func(ctx context.Context, s *plugin.Sandbox) error {
			_, err := s.Expose(ctx, 80, "http", false)
			return errors.Join(err, s.Unexpose(ctx, 80)) // the address is a real one
		},
		"mount": func(ctx context.Context, s *plugin.Sandbox) error {
			_, err := s.Mount(ctx, driver.MountSpec{ID: "m", Kind: "host", Path: "/workspace/m"})
			return err
		},
	}
	for op, call := range ops {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &lives{opts: []fake.Options{crashAt(op, 1), {}}}
				s := create(t, acquire(t, l.manager(t), plugin.Request{}), "a")
				if err := call(t.Context(), s); err != nil {
					t.Errorf("after a crash: %v", err)
				}
				if l.count() != 2 {
					t.Errorf("%d lives", l.count())
				}
			})
			synctest.Test(t, func(t *testing.T) {
				l := &lives{opts: []fake.Options{crashAt(op, 1), crashAt(op, 1), {}}}
				s := create(t, acquire(t, l.manager(t), plugin.Request{}), "a")
				if err := call(t.Context(), s); !errors.Is(err, errs.DriverCrashed) {
					t.Errorf("after two crashes: %v", err)
				}
			})
		})
	}
}

func TestOtherCallsAreNotRepeated(t *testing.T) {
	for op, call := range map[string]func(ctx context.Context, s *plugin.Sandbox) error{
		"files.move":   func(ctx context.Context, s *plugin.Sandbox) error { return s.Move(ctx, "a", "b", true, "") },
		"files.remove": func(ctx context.Context, s *plugin.Sandbox) error { return s.Remove(ctx, "a", false, "") },
		"files.write": func(ctx context.Context, s *plugin.Sandbox) error {
			_, err := s.Write(ctx, "f", driver.WriteOptions{Append: true}, strings.NewReader("x"))
			return err
		},
		"snapshot": func(ctx context.Context, s *plugin.Sandbox) error {
			_, err := s.Snapshot(ctx, "n", false, nil)
			return err
		},
		"tree.import": func(ctx context.Context, s *plugin.Sandbox) error {
			_, err := s.Import(ctx, driver.ImportOptions{Path: "."}, io.MultiReader())
			return err
		},
	} {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &lives{opts: []fake.Options{crashAt(op, 1), {}}}
				s := create(t, acquire(t, l.manager(t), plugin.Request{}), "a")
				err := call(t.Context(), s)
				var e *errs.Error
				if !errors.As(err, &e) || e.Code != errs.DriverCrashed || !e.MaybeApplied {
					t.Errorf("got %v", err)
				}
				synctest.Wait()
				if _, err := s.Stat(t.Context(), []string{"."}, driver.StatOptions{}); err != nil {
					t.Errorf("the sandbox did not come back: %v", err)
				}
			})
		})
	}
}

func TestRetryClasses(t *testing.T) {
	busy := errs.New(errs.RateLimited, "slow down")
	busy.RetryAfter = 3 * time.Second
	for name, c := range map[string]struct {
		faults []fake.Fault
		want   errs.Code
		calls  int
		least  time.Duration
	}{
		"safe, then well":  {[]fake.Fault{{Op: "files.stat", N: 1, Err: busy}, {Op: "files.stat", N: 2, Err: busy}}, "", 3, 6 * time.Second},
		"safe, for ever":   {[]fake.Fault{{Op: "files.stat", Err: busy}}, errs.RateLimited, 4, 9 * time.Second},
		"never":            {[]fake.Fault{{Op: "files.stat", Err: errs.New(errs.NoSpace, "full")}}, errs.NoSpace, 1, 0},
		"after resume":     {[]fake.Fault{{Op: "files.stat", N: 1, Err: errs.New(errs.SandboxUnknown, "who?")}}, "", 2, 0},
		"unknown":          {[]fake.Fault{{Op: "files.stat", N: 1, Err: errs.New(errs.Internal, "oops")}}, "", 2, 0},
		"unknown for ever": {[]fake.Fault{{Op: "files.stat", Err: errs.New(errs.Internal, "oops")}}, errs.Internal, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &lives{opts: []fake.Options{{Faults: c.faults}}}
				s := create(t, acquire(t, l.manager(t), plugin.Request{}), "a")
				begun := time.Now()
				_, err := s.Stat(t.Context(), []string{"."}, driver.StatOptions{})
				if errs.CodeOf(err) != c.want || l.all[0].Calls("files.stat") != c.calls || time.Since(begun) < c.least {
					t.Errorf("%v after %d calls and %s", err, l.all[0].Calls("files.stat"), time.Since(begun))
				}
				if name == "after resume" && l.all[0].Calls("resume") != 1 {
					t.Errorf("%d resumes", l.all[0].Calls("resume"))
				}
			})
		})
	}
}

func TestReadGoesOnAfterCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lives{opts: []fake.Options{crashAt("files.read", 3), crashAt("files.read", 2), {}}}
		s := create(t, acquire(t, l.manager(t), plugin.Request{}), "a")
		want := counted(1000, 64)
		if _, err := s.Write(t.Context(), "f", driver.WriteOptions{}, bytes.NewReader(want)); err != nil {
			t.Fatal(err)
		}
		_, rc, err := s.Open(t.Context(), "f", driver.ReadOptions{Offset: 64, Length: 60000})
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(rc)
		if err != nil || !bytes.Equal(got, want[64:60064]) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		if err := rc.Close(); err != nil || l.count() != 3 {
			t.Errorf("%v, %d lives", err, l.count())
		}
	})
}

func TestReadOfChangedFileFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lives{opts: []fake.Options{crashAt("files.read", 2), {}}}
		s := create(t, acquire(t, l.manager(t), plugin.Request{}), "a")
		for range 2 {
			if _, err := s.Write(t.Context(), "f", driver.WriteOptions{}, bytes.NewReader(counted(1000, 64))); err != nil {
				t.Fatal(err)
			}
		}
		_, rc, err := s.Open(t.Context(), "f", driver.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := rc.Read(make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Write(t.Context(), "f", driver.WriteOptions{}, strings.NewReader("other")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(rc); !errors.Is(err, errs.VersionMismatch) {
			t.Errorf("got %v", err)
		}
	})
}

func TestBackoffAndQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lives{opts: []fake.Options{crashAt("inspect", 1)}} // every life
		h := acquire(t, l.manager(t), plugin.Request{})
		s := create(t, h, "a")
		begun := time.Now()
		var waits []time.Duration
		for range 6 {
			_, err := s.Inspect(t.Context())
			waits = append(waits, time.Since(begun))
			if !errors.Is(err, errs.DriverCrashed) {
				t.Fatalf("got %v", err)
			}
			if strings.Contains(err.Error(), "not started again") {
				break
			}
		}
		// Six crashes: at 0, 0, 250ms, 1.25s, 5.25s, 20.25s.
		if d := time.Since(begun); d != 20*time.Second+250*time.Millisecond {
			t.Errorf("given up after %s (%v)", d, waits)
		}
		synctest.Wait()
		if st := h.Status(); st.Phase != plugin.PhaseQuarantined || st.Crashes != 6 || l.count() != 6 {
			t.Errorf("%+v, %d lives", st, l.count())
		}
		_, err := s.Stat(t.Context(), []string{"."}, driver.StatOptions{})
		var e *errs.Error
		if !errors.As(err, &e) || e.Code != errs.DriverCrashed || e.RetryClass() != errs.RetryNever || e.Hint == "" {
			t.Errorf("got %v", err)
		}
		if !slices.Contains(l.kinds(""), plugin.Quarantined) {
			t.Error("nobody was told")
		}
	})
}

func TestIdleProcessIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lives{}
		m := l.manager(t)
		h := acquire(t, m, plugin.Request{})
		s := create(t, h, "a")
		h.Release()
		time.Sleep(time.Hour)
		if st := m.Statuses()[0]; st.Phase != plugin.PhaseReady || l.all[0].Calls("drain") != 0 {
			t.Fatalf("ended while a sandbox lives: %+v", st)
		}
		if err := s.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(plugin.DefaultIdleTimeout - time.Second)
		if st := m.Statuses()[0]; st.Phase != plugin.PhaseIdle {
			t.Fatalf("too early: %+v", st)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if st := m.Statuses()[0]; st.Phase != plugin.PhaseAbsent || l.all[0].Calls("drain") != 1 {
			t.Fatalf("still there: %+v", st)
		}
		create(t, acquire(t, m, plugin.Request{}), "b")
		if l.count() != 2 {
			t.Errorf("%d lives", l.count())
		}
	})
}

func TestIdentity(t *testing.T) {
	l := &lives{}
	m := l.manager(t)
	a := acquire(t, m, plugin.Request{})
	b := acquire(t, m, plugin.Request{Process: &spec.DriverProcess{}})
	c := acquire(t, m, plugin.Request{Process: &spec.DriverProcess{Config: config(`{"greeting":"x"}`)}})
	d := acquire(t, m, plugin.Request{Process: &spec.DriverProcess{Config: config(`{"greeting":"x"}`), Label: "other"}})
	if l.count() != 2 || len(m.Statuses()) != 2 {
		t.Errorf("%d processes for two configurations", l.count())
	}
	_, _, _, _ = a, b, c, d
	if _, got := l.all[1].Host(); got.Greeting != "x" {
		t.Errorf("configuration %+v", got)
	}
}

type config string

func (c config) Encode() (spec.DriverValue, error) { return spec.DriverValue{JSON: []byte(c)}, nil }
func (config) Pos() spec.Pos                       { return spec.Pos{} }

func TestRefusedConfiguration(t *testing.T) {
	l := &lives{}
	_, err := l.manager(t).Acquire(t.Context(), plugin.Request{Name: "fake", Process: &spec.DriverProcess{Config: config(`{"refuse":true}`)}})
	var e *errs.Error
	var ce *plugin.ConfigError
	if !errors.As(err, &e) || e.Code != errs.ConfigInvalid || len(e.Path) != 1 || e.Path[0].Attribute != "refuse" || !errors.As(err, &ce) {
		t.Errorf("got %v", err)
	}
	if _, err := l.manager(t).Acquire(t.Context(), plugin.Request{Name: "nope"}); !errors.Is(err, errs.DriverUnknown) {
		t.Errorf("got %v", err)
	}
}

func TestMaxSandboxes(t *testing.T) {
	l := &lives{}
	h := acquire(t, l.manager(t), plugin.Request{Process: &spec.DriverProcess{MaxSandboxes: 1}})
	s := create(t, h, "a")
	if _, err := h.Create(t.Context(), &driver.CreateRequest{SandboxID: "b"}); !errors.Is(err, errs.QuotaExceeded) {
		t.Errorf("got %v", err)
	}
	s.Close()
	create(t, h, "b")
	if _, err := s.Inspect(t.Context()); !errors.Is(err, errs.SandboxUnknown) {
		t.Errorf("a closed sandbox answers: %v", err)
	}
}

func TestGoneSandboxIsNotMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lives{opts: []fake.Options{{}, {}}}
		s := create(t, acquire(t, l.manager(t), plugin.Request{}), "a")
		other, err := l.all[0].Resume(t.Context(), &driver.ResumeRequest{SandboxID: "a", State: s.State()})
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.all[0].Inject(fake.Fault{Op: "inspect", N: 1, Crash: true})
		if _, err := s.Inspect(t.Context()); !errors.Is(err, errs.SandboxGone) {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		if got := l.kinds("a"); !slices.Equal(got, []plugin.EventKind{plugin.Lost, plugin.Gone}) {
			t.Errorf("events %v", got)
		}
	})
}

// A paused or stopped sandbox is not woken by a crash, an inspection or its end; a call wakes it.
func TestSleepersSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lives{}
		h := acquire(t, l.manager(t), plugin.Request{})
		s, awake := create(t, h, "a"), create(t, h, "b")
		if err := s.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		if info, err := s.Inspect(t.Context()); err != nil || info.Status != driver.StatusPaused {
			t.Errorf("%+v, %v", info, err)
		}
		l.all[0].Inject(fake.Fault{Op: "inspect", N: 1, Crash: true})
		if _, err := awake.Inspect(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := l.all[1].Calls("resume"); n != 1 {
			t.Errorf("%d resumes, want only that of the sandbox that was awake", n)
		}
		if info, err := s.Inspect(t.Context()); err != nil || info.Status != driver.StatusPaused {
			t.Errorf("%+v, %v", info, err)
		}
		if _, err := s.Stat(t.Context(), []string{"."}, driver.StatOptions{}); err != nil {
			t.Error(err)
		}
		if info, err := s.Inspect(t.Context()); err != nil || info.Status != driver.StatusRunning {
			t.Errorf("%+v, %v", info, err)
		}
	})
}

func TestInputOverACrash(t *testing.T) {
	// The crash comes when the third line of output is written.
	script := []string{"sh", "-c", "cat; count 10 16 1s"}
	for name, c := range map[string]struct {
		input string
		tty   bool
		want  error
	}{
		"settled":  {"small", false, nil},
		"doubtful": {strings.Repeat("x", 100<<10), false, errs.ExecTransport},
		"terminal": {strings.Repeat("x", 100<<10), true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &lives{}
				m := l.manager(t)
				s := create(t, acquire(t, m, plugin.Request{}), "a")
				time.AfterFunc(5*time.Second, func() {
					l.all[0].Inject(fake.Fault{Op: "run.output", N: 1, Crash: true})
				})
				var out bytes.Buffer
				_, err := s.Run(t.Context(), &driver.Command{ID: "p", Argv: script, TTY: c.tty}, driver.Streams{Stdin: strings.NewReader(c.input), Stdout: &out})
				if c.want == nil {
					if err != nil || out.String() != c.input+string(counted(10, 16)) {
						t.Errorf("%d bytes, %v", out.Len(), err)
					}
				} else {
					var e *errs.Error
					if !errors.Is(err, c.want) || !errors.As(err, &e) || !e.MaybeApplied {
						t.Errorf("got %v", err)
					}
					procs, perr := s.Processes(t.Context())
					if perr != nil || procs[0].Exit == nil || procs[0].Exit.Signal != "TERM" {
						t.Errorf("the process was not ended: %+v, %v", procs, perr)
					}
				}
				synctest.Wait()
				if warned := slices.Contains(l.kinds("a"), plugin.Warning); warned != c.tty {
					t.Errorf("warned: %v", warned)
				}
			})
		})
	}
}

// What a dead driver had not taken from the input goes to the next one.
func TestInputThatWasNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lives{}
		s := create(t, acquire(t, l.manager(t), plugin.Request{}), "a")
		r, w := io.Pipe()
		go func() {
			io.WriteString(w, "one\n")
			time.Sleep(5 * time.Second)
			l.all[0].Inject(fake.Fault{Op: "inspect", N: 1, Crash: true})
			s.Inspect(t.Context())
			time.Sleep(5 * time.Second)
			io.WriteString(w, "two\n")
			w.Close()
		}()
		var out bytes.Buffer
		if _, err := s.Run(t.Context(), &driver.Command{Argv: []string{"cat"}}, driver.Streams{Stdin: r, Stdout: &out}); err != nil || out.String() != "one\ntwo\n" {
			t.Errorf("%q, %v", out.String(), err)
		}
	})
}

func TestCancelAfterCrashEndsTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lives{opts: []fake.Options{crashAt("run.output", 2), {}}}
		s := create(t, acquire(t, l.manager(t), plugin.Request{}), "a")
		why := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Second, why)
		defer cancel()
		_, err := s.Run(ctx, &driver.Command{ID: "p", Argv: []string{"sh", "-c", "trap '' TERM; count 1000 16 1s"}}, driver.Streams{Stdout: io.Discard})
		if !errors.Is(err, why) {
			t.Errorf("got %v", err)
		}
		procs, err := s.Processes(t.Context())
		if err != nil || procs[0].Exit == nil || procs[0].Exit.Signal != "KILL" {
			t.Errorf("%+v, %v", procs, err)
		}
	})
}

func TestGapIsToldOverACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lives{opts: []fake.Options{{Faults: []fake.Fault{{Op: "run.output", N: 2, Crash: true}}}, {Faults: []fake.Fault{{Op: "attach", N: 1, Delay: time.Second}}}}}
		s := create(t, acquire(t, l.manager(t), plugin.Request{}), "a")
		var out bytes.Buffer
		var gaps []driver.Gap
		exit, err := s.Run(t.Context(), &driver.Command{Argv: []string{"count", "100000", "100", "10us"}, ReplayBytes: 4096}, driver.Streams{
			Stdout: &out, OnGap: func(g driver.Gap) { gaps = append(gaps, g) },
		})
		if err != nil || len(gaps) != 1 {
			t.Fatalf("%v, gaps %v", err, gaps)
		}
		all := counted(100000, 100)
		want := append(append([]byte(nil), all[:gaps[0].From]...), all[gaps[0].To:]...)
		if !bytes.Equal(out.Bytes(), want) || exit.OutputBytes != uint64(len(all)) {
			t.Errorf("%d bytes, gap %+v, want %d", out.Len(), gaps[0], len(want))
		}
	})
}

func TestWatchesAreMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lives{}
		h := acquire(t, l.manager(t), plugin.Request{})
		s := create(t, h, "a")
		ctx, cancel := context.WithCancelCause(t.Context())
		var mu sync.Mutex
		var seen []string
		note := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, fmt.Sprintf(format, args...))
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			s.Watch(ctx, func(e driver.Event) { note("event %d", e.Kind) })
		})
		wg.Go(func() {
			s.WatchFiles(ctx, ".", true, "", func(e driver.FileEvent) { note("file %d %s", e.Kind, e.Path) })
		})
		wg.Go(func() {
			h.WatchHealth(ctx, func(x driver.Health) { note("health %v", x.Healthy) })
		})
		synctest.Wait()
		for _, op := range []string{"watch", "watch_files", "watch_health"} {
			if l.all[0].Calls(op) != 1 {
				t.Errorf("%s: %d calls", op, l.all[0].Calls(op))
			}
		}
		l.all[0].Inject(fake.Fault{Op: "inspect", N: 1, Crash: true})
		if _, err := s.Inspect(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, op := range []string{"watch", "watch_files", "watch_health"} {
			if l.all[1].Calls(op) != 1 {
				t.Errorf("%s in the second life: %d calls", op, l.all[1].Calls(op))
			}
		}
		if _, err := s.Write(t.Context(), "f", driver.WriteOptions{}, strings.NewReader("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := s.ExtendDeadline(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		cancel(errors.New("over"))
		wg.Wait()
		slices.Sort(seen)
		want := []string{"event 4", "file 1 f", "file 4 .", "health false", "health true", "health true"}
		if !slices.Equal(seen, want) {
			t.Errorf("seen %q", seen)
		}
	})
}

func TestCloseEndsWaitingCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lives{opts: []fake.Options{{Faults: []fake.Fault{{Op: "inspect", Crash: true}}}}}
		m := l.manager(t)
		s := create(t, acquire(t, m, plugin.Request{}), "a")
		done := make(chan error, 1)
		go func() {
			for {
				if _, err := s.Inspect(t.Context()); err != nil && !errors.Is(err, errs.DriverCrashed) {
					done <- err
					return
				}
			}
		}()
		time.Sleep(2 * time.Second) // in the backoff of 4 s
		if err := m.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, errs.Canceled) {
			t.Errorf("got %v", err)
		}
		if _, err := m.Acquire(t.Context(), plugin.Request{Name: "fake"}); !errors.Is(err, errs.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

// bare is a driver with the six methods and nothing else.
type bare struct{ driver.Driver }

type bareBox struct {
	driver.Sandbox
	ran *[]string
}

func (b bare) Create(ctx context.Context, req *driver.CreateRequest) (driver.Sandbox, error) {
	s, err := b.Driver.Create(ctx, req)
	return bareBox{s, new([]string)}, err
}

func (b bareBox) Run(_ context.Context, cmd *driver.Command, s driver.Streams) (driver.Exit, error) {
	*b.ran = append(*b.ran, cmd.Argv[0])
	if len(*b.ran) == 1 {
		io.WriteString(s.Stdout, "root /workspace")
		return driver.Exit{}, nil
	}
	io.WriteString(s.Stdout, "81a4 5 1 1 0 0 1 9 root root 1970-01-01 00:00:01.000000000 +0000\x00\x00")
	return driver.Exit{}, nil
}

func TestBareDriver(t *testing.T) {
	m := plugin.NewManager(plugin.Config{RunDir: shortDir(t), InProcess: map[string]func(hclog.Logger) driver.Driver{
		"bare": func(hclog.Logger) driver.Driver { return bare{fake.New(fake.Options{})} },
	}})
	defer m.Close(t.Context())
	s := create(t, acquire(t, m, plugin.Request{Name: "bare"}), "a")
	got, err := s.Stat(t.Context(), []string{"f"}, driver.StatOptions{})
	if err != nil || len(got) != 1 || got[0].Err != nil || got[0].Info.Size != 5 {
		t.Errorf("emulated: %+v, %v", got, err)
	}
	for what, err := range map[string]error{
		"stop": s.Stop(t.Context(), true), "pause": s.Pause(t.Context()), "signal": s.Signal(t.Context(), "x", driver.Signal{Name: "TERM"}),
		"watch": s.Watch(t.Context(), func(driver.Event) {}),
	} {
		if !errors.Is(err, errs.Unsupported) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
