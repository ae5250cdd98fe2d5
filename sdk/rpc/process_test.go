// SPDX-License-Identifier: Apache-2.0

package rpc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/rpc"
	"github.com/berth-dev/berth/sdk/serve/servetest"
)

// result is everything that a command did.
type result struct {
	Out, Err string
	Started  []driver.Started
	Gaps     []driver.Gap
	Exit     driver.Exit
}

// record gives streams that record into r.
func (r *result) streams(out, errw *bytes.Buffer) driver.Streams {
	return driver.Streams{
		Stdout: out, Stderr: errw,
		OnStart: func(s driver.Started) {
			if out.Len()+errw.Len() > 0 {
				panic("output before started")
			}
			r.Started = append(r.Started, s)
		},
		OnGap: func(g driver.Gap) { r.Gaps = append(r.Gaps, g) },
	}
}

func run(t *testing.T, sb driver.Sandbox, cmd *driver.Command, change ...func(*driver.Streams)) (result, error) {
	t.Helper()
	var r result
	var out, errw bytes.Buffer
	s := r.streams(&out, &errw)
	for _, c := range change {
		c(&s)
	}
	var err error
	r.Exit, err = sb.Run(t.Context(), cmd, s)
	r.Out, r.Err = out.String(), errw.String()
	return r, err
}

func TestRun(t *testing.T) {
	_, sb := connect(t, newFake())
	got, err := run(t, sb, &driver.Command{ID: "p1", Argv: []string{"echo", "out", "err", "put"}})
	want := result{
		Out: "output", Err: "err", Started: []driver.Started{{ProcessID: "p1", PID: 42}}, Exit: driver.Exit{OutputBytes: 9},
	}
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v %s", err, d)
	}
	got, err = run(t, sb, &driver.Command{Argv: []string{"exit", "3"}})
	if err != nil || got.Exit.Code != 3 || got.Exit.Ran != time.Second || got.Started[0].ProcessID == "" {
		t.Errorf("%+v, %v", got, err)
	}
	got, err = run(t, sb, &driver.Command{Argv: []string{"gap"}})
	if d := cmp.Diff([]driver.Gap{{From: 2, To: 10}}, got.Gaps); err != nil || d != "" || got.Out != "abcd" {
		t.Errorf("%+v %v %s", got, err, d)
	}
}

func TestRunFailsBeforeStart(t *testing.T) {
	_, sb := connect(t, newFake())
	got, err := run(t, sb, &driver.Command{Argv: []string{"missing"}})
	var e *errs.Error
	if !errors.Is(err, errs.ExecNotFound) || len(got.Started) > 0 || !errors.As(err, &e) || e.Context["path"] != "missing" {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := run(t, sb, &driver.Command{}); !errors.Is(err, errs.InvalidArgument) {
		t.Errorf("without argv: %v", err)
	}
}

func TestStdin(t *testing.T) {
	_, sb := connect(t, newFake())
	data := string(pattern(0, 10<<20))
	got, err := run(t, sb, &driver.Command{Argv: []string{"cat"}}, func(s *driver.Streams) { s.Stdin = strings.NewReader(data) })
	if err != nil || got.Out != data {
		t.Errorf("%d bytes came back, %v", len(got.Out), err)
	}
	got, err = run(t, sb, &driver.Command{Argv: []string{"cat"}}, func(s *driver.Streams) { s.Stdin = strings.NewReader("") })
	if err != nil || got.Out != "" || got.Exit.Code != 0 {
		t.Errorf("empty input: %+v, %v", got, err)
	}
	got, err = run(t, sb, &driver.Command{Argv: []string{"cat"}})
	if err != nil || got.Exit.Code != 9 {
		t.Errorf("no input: %+v, %v", got, err)
	}
}

// A process that reads nothing makes the writer wait, and can still be signalled. gRPC lets a fast stream's window grow
// to 16 MiB.
func TestStdinBackPressure(t *testing.T) {
	_, sb := connect(t, newFake())
	r, w := io.Pipe()
	t.Cleanup(func() { r.Close() })
	var sent atomic.Int64
	go func() {
		for {
			k, err := w.Write(make([]byte, 64<<10))
			sent.Add(int64(k))
			if err != nil {
				return
			}
		}
	}()
	signals := make(chan driver.Signal, 1)
	go func() {
		last, same := int64(0), 0
		waitFor(t, func() bool { // the stream is full
			now := sent.Load()
			if same++; now != last || now == 0 {
				last, same = now, 0
			}
			return same > 20
		})
		signals <- driver.Signal{Name: "TERM"}
	}()
	got, err := run(t, sb, &driver.Command{Argv: []string{"trap"}}, func(s *driver.Streams) { s.Stdin, s.Signals = r, signals })
	if n := sent.Load(); err != nil || got.Exit.Signal != "TERM" || n > 20<<20 {
		t.Errorf("%+v, %v; %d bytes of input were taken", got.Exit, err, n)
	}
}

func TestResize(t *testing.T) {
	_, sb := connect(t, newFake())
	sizes := make(chan driver.Size, 1)
	sizes <- driver.Size{Rows: 50, Cols: 132}
	got, err := run(t, sb, &driver.Command{Argv: []string{"size"}, TTY: true}, func(s *driver.Streams) { s.Resize = sizes })
	if err != nil || got.Out != "50 132" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestSignalByID(t *testing.T) {
	_, sb := connect(t, newFake())
	started := make(chan struct{})
	go func() {
		<-started
		if err := sb.Signal(t.Context(), "p", driver.Signal{Name: "INT"}); err != nil {
			t.Error(err)
		}
	}()
	got, err := run(t, sb, &driver.Command{ID: "p", Argv: []string{"trap"}}, func(s *driver.Streams) {
		s.OnStart = func(driver.Started) { close(started) }
	})
	if err != nil || got.Exit.Signal != "INT" {
		t.Errorf("%+v, %v", got, err)
	}
	if err := sb.Signal(t.Context(), "other", driver.Signal{Name: "INT"}); !errors.Is(err, errs.ProcessUnknown) {
		t.Errorf("unknown process: %v", err)
	}
}

func TestCancelEndsTheProcess(t *testing.T) {
	f := newFake()
	_, sb := connect(t, f)
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err := sb.Run(ctx, &driver.Command{ID: "p", Argv: []string{"sleep"}}, driver.Streams{
		OnStart: func(driver.Started) { cancel(why) },
	})
	if !errors.Is(err, errs.Canceled) || !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
	// Run waited for the end.
	select {
	case id := <-f.boxes["sb"].ended:
		if id != "p" {
			t.Error(id)
		}
	default:
		t.Error("the process still runs")
	}
}

func TestDetachedSurvivesItsCaller(t *testing.T) {
	f := newFake()
	_, sb := connect(t, f)
	in, w := io.Pipe()
	ctx, cancel := context.WithCancelCause(t.Context())
	var got bytes.Buffer
	_, err := sb.Run(ctx, &driver.Command{ID: "p", Argv: []string{"step"}, Detached: true}, driver.Streams{
		Stdin: in, Stdout: writerFunc(func(p []byte) (int, error) {
			got.Write(p)
			cancel(errors.New("the connection is cut"))
			return len(p), nil
		}),
		OnStart: func(driver.Started) {
			go w.Write([]byte("a"))
		},
	})
	if !errors.Is(err, errs.Canceled) || got.String() != "a" {
		t.Fatalf("%q, %v", got.String(), err)
	}
	all, err := sb.Processes(t.Context())
	if err != nil || len(all) != 1 || all[0].ID != "p" || all[0].Exit != nil || all[0].PID != 42 {
		t.Errorf("%+v, %v", all, err)
	}
	// It goes on from where it was, with input.
	var r result
	var out, errw bytes.Buffer
	s := r.streams(&out, &errw)
	s.Stdin = strings.NewReader("bcd")
	exit, err := sb.Attach(t.Context(), "p", 1, s)
	if err != nil || out.String() != "bcd" || exit.OutputBytes != 4 {
		t.Errorf("%q, %+v, %v", out.String(), exit, err)
	}
	if len(r.Started) != 1 || !r.Started[0].Reattached {
		t.Errorf("%+v", r.Started)
	}
	// And after its end, from the beginning.
	out.Reset()
	exit, err = sb.Attach(t.Context(), "p", 0, driver.Streams{Stdout: &out})
	if err != nil || out.String() != "abcd" || exit.OutputBytes != 4 {
		t.Errorf("%q, %+v, %v", out.String(), exit, err)
	}
	// The same id again is the same process.
	again, err := run(t, sb, &driver.Command{ID: "p", Argv: []string{"exit", "1"}})
	if err != nil || again.Out != "abcd" || again.Exit.Code != 0 || !again.Started[0].Reattached {
		t.Errorf("%+v, %v", again, err)
	}
	if _, err := sb.Attach(t.Context(), "q", 0, driver.Streams{}); !errors.Is(err, errs.ProcessUnknown) {
		t.Errorf("unknown process: %v", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// Output that comes before the client's stream is ready is not lost: the process is followed before it is started.
func TestTheFirstByteArrives(t *testing.T) {
	_, sb := connect(t, newFake())
	want := pattern(0, 100_000)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 100 {
				var got bytes.Buffer
				_, err := sb.Run(t.Context(), &driver.Command{Argv: []string{"flood", "100000"}}, driver.Streams{
					Stdout: &got, OnGap: func(g driver.Gap) { t.Errorf("gap %+v", g) },
				})
				if err != nil || !bytes.Equal(got.Bytes(), want) {
					t.Errorf("%d bytes, %v", got.Len(), err)
					return
				}
			}
		})
	}
	all.Wait()
}

// A client that is cut off at any point gets exactly the rest, as long as that is retained.
func TestReattachReplaysExactly(t *testing.T) {
	_, sb := connect(t, newFake())
	const size = 3 << 20
	for i, cut := range []int{0, 1, 40_000, 1 << 20, size - 1} {
		id := fmt.Sprint("p", i)
		ctx, cancel := context.WithCancelCause(t.Context())
		var got bytes.Buffer
		_, err := sb.Run(ctx, &driver.Command{ID: id, Argv: []string{"flood", fmt.Sprint(size)}, Detached: true, ReplayBytes: size}, driver.Streams{
			Stdout: writerFunc(func(p []byte) (int, error) {
				got.Write(p)
				if got.Len() > cut {
					cancel(errors.New("cut"))
				}
				return len(p), nil
			}),
			OnGap: func(g driver.Gap) { t.Errorf("cut at %d: first a gap %+v", cut, g) },
		})
		if err != nil && !errors.Is(err, errs.Canceled) {
			t.Fatal(err)
		}
		exit, err := sb.Attach(t.Context(), id, uint64(got.Len()), driver.Streams{
			Stdout: &got, OnGap: func(g driver.Gap) { t.Errorf("cut at %d: gap %+v", cut, g) },
		})
		if err != nil || exit.OutputBytes != size || !bytes.Equal(got.Bytes(), pattern(0, size)) {
			t.Errorf("cut at %d: %d bytes, %+v, %v", cut, got.Len(), exit, err)
		}
	}
}

func TestReattachTellsTheGap(t *testing.T) {
	_, sb := connect(t, newFake())
	const size = 4 << 20
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err := sb.Run(ctx, &driver.Command{ID: "p", Argv: []string{"flood", fmt.Sprint(size)}, Detached: true, ReplayBytes: 64 << 10}, driver.Streams{
		OnStart: func(driver.Started) { cancel(errors.New("cut")) },
	})
	if !errors.Is(err, errs.Canceled) {
		t.Fatal(err)
	}
	waitFor(t, func() bool {
		all, err := sb.Processes(t.Context())
		return err == nil && len(all) == 1 && all[0].Exit != nil
	})
	var r result
	var out, errw bytes.Buffer
	if r.Exit, err = sb.Attach(t.Context(), "p", 0, r.streams(&out, &errw)); err != nil {
		t.Fatal(err)
	}
	if len(r.Gaps) != 1 || r.Gaps[0].From != 0 || !bytes.Equal(out.Bytes(), pattern(r.Gaps[0].To, size)) {
		t.Errorf("gaps %+v, then %d bytes", r.Gaps, out.Len())
	}
	if kept := uint64(size) - r.Gaps[0].To; kept < 64<<10 || kept > 1<<20 {
		t.Errorf("%d bytes were kept", kept)
	}
}

func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen within 10 s")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestManyAtOnce(t *testing.T) {
	_, sb := connect(t, newFake())
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			want := string(pattern(0, uint64(1000*i)))
			got, err := run(t, sb, &driver.Command{ID: fmt.Sprint(i), Argv: []string{"cat"}}, func(s *driver.Streams) {
				s.Stdin = strings.NewReader(want)
			})
			if err != nil || got.Out != want {
				t.Errorf("%d: %d bytes, %v", i, len(got.Out), err)
			}
		})
	}
	all.Wait()
	if left, err := sb.Processes(t.Context()); err != nil || len(left) != 0 {
		t.Errorf("%d processes are remembered, %v", len(left), err)
	}
}

// Output that nobody takes stays in the driver's bounds, and other calls go on.
func TestStalledReaders(t *testing.T) {
	_, sb := connect(t, newFake())
	ctx, cancel := context.WithCancelCause(t.Context())
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			_, err := sb.Run(ctx, &driver.Command{ID: fmt.Sprint(i), Argv: []string{"zeros", fmt.Sprint(1 << 30)}}, driver.Streams{
				Stdout: writerFunc(func(p []byte) (int, error) {
					<-ctx.Done()
					return len(p), nil
				}),
			})
			if !errors.Is(err, errs.Canceled) {
				t.Errorf("%d: %v", i, err)
			}
		})
	}
	for range 20 {
		if got, err := run(t, sb, &driver.Command{Argv: []string{"echo", "hi"}}); err != nil || got.Out != "hi" {
			t.Errorf("%+v, %v", got, err)
		}
	}
	cancel(errors.New("over"))
	all.Wait()
}

func TestPanicIsAnError(t *testing.T) {
	_, sb := connect(t, newFake())
	_, err := run(t, sb, &driver.Command{Argv: []string{"panic"}})
	if !errors.Is(err, errs.Internal) || !strings.Contains(err.Error(), "out of cheese") {
		t.Errorf("got %v", err)
	}
	if _, err := sb.Exec(t.Context(), &driver.Command{Argv: []string{"panic"}}, nil, 0, 0); !errors.Is(err, errs.Internal) {
		t.Errorf("exec: %v", err)
	}
	if got, err := run(t, sb, &driver.Command{Argv: []string{"echo", "alive"}}); err != nil || got.Out != "alive" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestSecretsStayOutOfErrors(t *testing.T) {
	_, sb := connect(t, newFake())
	const canary = "s3cr3t canary/+"
	_, err := run(t, sb, &driver.Command{Argv: []string{"leak"}, SecretEnv: map[string]string{"TOKEN": canary}})
	var e *errs.Error
	if !errors.As(err, &e) || !strings.Contains(e.Message, "(sensitive value)") || strings.Contains(e.Message+e.Hint, canary) {
		t.Errorf("got %v", err)
	}
	_, err = sb.Exec(t.Context(), &driver.Command{Argv: []string{"leak"}, SecretEnv: map[string]string{"TOKEN": canary}}, nil, 0, 0)
	if err == nil || strings.Contains(err.Error(), canary) {
		t.Errorf("exec: %v", err)
	}
}

func TestExec(t *testing.T) {
	_, sb := connect(t, newFake())
	got, err := sb.Exec(t.Context(), &driver.Command{Argv: []string{"cat"}}, []byte("hello"), 0, 0)
	if err != nil || string(got.Stdout.Head) != "hello" || got.Stdout.Dropped != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	got, err = sb.Exec(t.Context(), &driver.Command{Argv: []string{"flood", "1000000"}}, nil, 10, 20)
	if err != nil || !bytes.Equal(got.Stdout.Head, pattern(0, 10)) || !bytes.Equal(got.Stdout.Tail, pattern(999_980, 1_000_000)) ||
		got.Stdout.Dropped != 999_970 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestProcessTable(t *testing.T) {
	f := newFake()
	made := make(chan tableBox, 1)
	f.wrap = func(b *box) driver.Sandbox {
		tb := tableBox{b, make(chan uint64, 9), make(chan driver.Signal, 9)}
		made <- tb
		return tb
	}
	_, sb := connect(t, f)
	tb := <-made
	var r result
	var out, errw bytes.Buffer
	exit, err := sb.Attach(t.Context(), "known", 2, r.streams(&out, &errw))
	if err != nil || exit.Code != 4 || !bytes.Equal(out.Bytes(), pattern(5, 20)) || <-tb.attached != 2 {
		t.Errorf("%+v, %v, %q", exit, err, out.Bytes())
	}
	if d := cmp.Diff([]driver.Gap{{From: 2, To: 5}}, r.Gaps); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]driver.Started{{ProcessID: "known", PID: 7, Reattached: true}}, r.Started); d != "" {
		t.Error(d)
	}
	if _, err := sb.Attach(t.Context(), "other", 0, driver.Streams{}); !errors.Is(err, errs.ProcessUnknown) {
		t.Errorf("got %v", err)
	}
	if err := sb.Signal(t.Context(), "known", driver.Signal{Name: "HUP", LeaderOnly: true}); err != nil || !(<-tb.signals).LeaderOnly {
		t.Errorf("signal: %v", err)
	}
	all, err := sb.Processes(t.Context())
	want := []driver.Process{{ID: "known", PID: 7, Argv: []string{"a\xff"}, Exit: &driver.Exit{Code: 4}}, {ID: "live"}}
	if d := cmp.Diff(want, all); err != nil || d != "" {
		t.Errorf("%v %s", err, d)
	}
	// A command that is cut off is the driver's affair: its context ends.
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err = sb.Run(ctx, &driver.Command{ID: "p", Argv: []string{"sleep"}, Detached: true}, driver.Streams{
		OnStart: func(driver.Started) { cancel(errors.New("cut")) },
	})
	if !errors.Is(err, errs.Canceled) || <-tb.ended != "p" {
		t.Errorf("got %v", err)
	}
}

// A driver that dies in the middle of a command is told apart from a link that broke.
func TestTheLinkBreaks(t *testing.T) {
	for name, c := range map[string]struct {
		gone func() error
		code errs.Code
	}{
		"driver alive":   {nil, errs.ExecTransport},
		"driver crashed": {func() error { return errs.New(errs.DriverCrashed, "exit status 2") }, errs.DriverCrashed},
	} {
		conn := servetest.Pair(t, newFake())
		d := rpc.New(conn, rpc.Config{Gone: c.gone})
		sb := create(t, d, "sb")
		_, err := sb.Run(t.Context(), &driver.Command{Argv: []string{"sleep"}}, driver.Streams{
			OnStart: func(driver.Started) { conn.Close() },
		})
		var e *errs.Error
		if !errors.Is(err, c.code) || !errors.As(err, &e) || !e.MaybeApplied {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := sb.Inspect(t.Context()); !errors.Is(err, c.code) {
			t.Errorf("%s, afterwards: %v", name, err)
		}
	}
}
