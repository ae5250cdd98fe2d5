// SPDX-License-Identifier: Apache-2.0

package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/rpc"
	"github.com/berth-dev/berth/sdk/serve/servetest"
)

// allCodes are the codes of the error table.
var allCodes = []errs.Code{
	errs.ConfigInvalid, errs.ManifestPathInvalid, errs.MountConfigInvalid, errs.InvalidArgument, errs.Unsupported,
	errs.AuthFailed, errs.PermissionDenied, errs.QuotaExceeded, errs.RateLimited, errs.SandboxUnknown, errs.SandboxGone,
	errs.SandboxNotReady, errs.CreateFailed, errs.StartFailed, errs.StopFailed, errs.IsolationMissing, errs.ExecNotFound,
	errs.ExecTimeout, errs.ExecTransport, errs.ProcessUnknown, errs.OutputGap, errs.FileNotFound, errs.FileExists,
	errs.IsDirectory, errs.NotDirectory, errs.NotRegular, errs.DirectoryNotEmpty, errs.PathEscapes, errs.ReadOnly,
	errs.NoSpace, errs.VersionMismatch, errs.ArchiveInvalid, errs.ArchiveLimit, errs.SnapshotPersist,
	errs.SnapshotRestore, errs.SnapshotUnusable, errs.PortNotConfigured, errs.PortUnavailable, errs.MountToolMissing,
	errs.MountFailed, errs.DriverCrashed, errs.DriverStartFailed, errs.DriverChecksum, errs.DriverIncompatible,
	errs.DriverUnknown, errs.Canceled, errs.Internal,
}

func TestEveryCodeSurvives(t *testing.T) {
	f := newFake()
	var give *errs.Error
	f.create = func(context.Context, *driver.CreateRequest) error { return give }
	d := rpc.New(servetest.Pair(t, f), rpc.Config{})
	for _, code := range allCodes {
		give = errs.New(code, "because of %s", code).With("port", "80").WithHint("try %s", "again")
		_, err := d.Create(t.Context(), &driver.CreateRequest{SandboxID: string(code)})
		var e *errs.Error
		if !errors.Is(err, code) || !errors.As(err, &e) {
			t.Errorf("%s became %v", code, err)
			continue
		}
		for _, other := range allCodes {
			if other != code && errors.Is(err, other) {
				t.Errorf("%s is %s too", code, other)
			}
		}
		if e.RetryClass() != give.RetryClass() {
			t.Errorf("%s: retry class %d, not %d", code, e.RetryClass(), give.RetryClass())
		}
		// The end of a resumed sandbox has an event of its own.
		if code != errs.SandboxGone && (e.Message != give.Message || e.Hint != give.Hint || e.Context["port"] != "80") {
			t.Errorf("%s: %+v", code, e)
		}
	}
}

func TestUntypedErrorsAreInternal(t *testing.T) {
	f := newFake()
	f.create = func(context.Context, *driver.CreateRequest) error {
		return fmt.Errorf("vendor: %w", errors.New("teapot"))
	}
	d := rpc.New(servetest.Pair(t, f), rpc.Config{})
	_, err := d.Create(t.Context(), &driver.CreateRequest{SandboxID: "a"})
	if !errors.Is(err, errs.Internal) || !strings.Contains(err.Error(), "vendor: teapot") {
		t.Errorf("got %v", err)
	}
}

func TestCreate(t *testing.T) {
	f := newFake()
	var seen *driver.CreateRequest
	f.create = func(_ context.Context, r *driver.CreateRequest) error {
		seen = r
		r.Progress(driver.Progress{Phase: "pulling", Done: 1, Total: 2})
		r.Progress(driver.Progress{Phase: "starting", Message: "with " + r.SecretEnv["K"]})
		return nil
	}
	d := rpc.New(servetest.Pair(t, f), rpc.Config{})
	var news []driver.Progress
	req := &driver.CreateRequest{
		SandboxID: "a", Workspace: driver.Workspace{Root: "/w"}, Labels: map[string]string{"l": "1"},
		SecretEnv: map[string]string{"K": "canary-value"}, Progress: func(p driver.Progress) { news = append(news, p) },
	}
	got, err := d.Create(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	want := []driver.Progress{{Phase: "pulling", Done: 1, Total: 2}, {Phase: "starting", Message: "with (sensitive value)"}}
	if diff := cmp.Diff(want, news); diff != "" {
		t.Error(diff)
	}
	if seen.SecretEnv["K"] != "canary-value" || seen.Workspace.Root != "/w" {
		t.Errorf("the driver saw %+v", seen)
	}
	sb := got.(*rpc.Sandbox)
	if string(sb.State().Data) != "a" || sb.WorkspacePreserved() || sb.Info().Root != "/w" || sb.Info().Labels["l"] != "1" {
		t.Errorf("state %q, info %+v", sb.State().Data, sb.Info())
	}
	// The same id is the same sandbox.
	if _, err := d.Create(t.Context(), req); err != nil || f.creates != 1 {
		t.Errorf("%v, %d creates", err, f.creates)
	}
}

func TestCreateAtTheSameTimeIsOneCreate(t *testing.T) {
	f := newFake()
	begun, release := make(chan struct{}, 99), make(chan struct{})
	f.create = func(context.Context, *driver.CreateRequest) error {
		begun <- struct{}{}
		<-release
		return nil
	}
	d := rpc.New(servetest.Pair(t, f), rpc.Config{})
	var all sync.WaitGroup
	joined := make(chan struct{}, 20)
	for range 20 {
		all.Go(func() {
			joined <- struct{}{}
			if _, err := d.Create(t.Context(), &driver.CreateRequest{SandboxID: "a"}); err != nil {
				t.Error(err)
			}
		})
	}
	<-begun
	for range 20 {
		<-joined
	}
	close(release)
	all.Wait()
	if f.creates != 1 {
		t.Errorf("%d creates", f.creates)
	}
}

// A create that is given up half-way leaves nothing behind, even when the driver notices too late.
func TestCreateGivenUp(t *testing.T) {
	f := newFake()
	ctx, cancel := context.WithCancelCause(t.Context())
	f.create = func(dctx context.Context, r *driver.CreateRequest) error {
		if r.SandboxID != "late" {
			return nil
		}
		cancel(errors.New("never mind"))
		<-dctx.Done()
		return nil // and makes the sandbox all the same
	}
	d := rpc.New(servetest.Pair(t, f), rpc.Config{})
	if _, err := d.Create(ctx, &driver.CreateRequest{SandboxID: "late"}); !errors.Is(err, errs.Canceled) {
		t.Fatalf("got %v", err)
	}
	waitFor(t, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.removed == 1 && len(f.boxes) == 0
	})
	// The id is free again.
	f.create = nil
	create(t, d, "late")
}

func TestUnknownSandbox(t *testing.T) {
	d := rpc.New(servetest.Pair(t, newFake()), rpc.Config{})
	sb := d.Handle("nobody", driver.State{})
	_, err := sb.Run(t.Context(), &driver.Command{Argv: []string{"echo"}}, driver.Streams{})
	var e *errs.Error
	if !errors.Is(err, errs.SandboxUnknown) || !errors.As(err, &e) || e.RetryClass() != errs.RetryAfterResume {
		t.Errorf("got %v", err)
	}
}

func TestResume(t *testing.T) {
	f := newFake()
	d, sb := connect(t, f)
	// Another driver process that knows nothing.
	d2 := rpc.New(servetest.Pair(t, f), rpc.Config{})
	again, err := d2.Resume(t.Context(), &driver.ResumeRequest{SandboxID: "sb", State: sb.State()})
	if err != nil {
		t.Fatal(err)
	}
	if s := again.(*rpc.Sandbox); !s.Reattached() || !s.WorkspacePreserved() {
		t.Errorf("reattached %v, preserved %v", s.Reattached(), s.WorkspacePreserved())
	}
	if got, err := run(t, again, &driver.Command{Argv: []string{"echo", "hi"}}); err != nil || got.Out != "hi" {
		t.Errorf("%+v, %v", got, err)
	}
	// In the same process too, and what runs goes on.
	ctx, cancel := context.WithCancelCause(t.Context())
	sb.Run(ctx, &driver.Command{ID: "p", Argv: []string{"crumbs", "3"}, Detached: true}, driver.Streams{
		OnStart: func(driver.Started) { cancel(errors.New("cut")) },
	})
	if _, err := d.Resume(t.Context(), &driver.ResumeRequest{SandboxID: "sb", State: sb.State()}); err != nil {
		t.Fatal(err)
	}
	if all, err := sb.Processes(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
	if err := sb.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err = d.Resume(t.Context(), &driver.ResumeRequest{SandboxID: "sb", State: sb.State()})
	var e *errs.Error
	if !errors.Is(err, errs.SandboxGone) || !errors.As(err, &e) || e.Context["snapshot"] != "snap-1" {
		t.Errorf("after destroy: %v", err)
	}
	for _, version := range []uint32{1, 9} {
		_, err = d.Resume(t.Context(), &driver.ResumeRequest{SandboxID: "x", State: driver.State{Version: version, Data: []byte("x")}})
		if want := map[uint32]errs.Code{1: errs.SandboxGone, 9: errs.DriverIncompatible}[version]; !errors.Is(err, want) {
			t.Errorf("state version %d: %v", version, err)
		}
	}
}

func TestDestroy(t *testing.T) {
	f := newFake()
	d, sb := connect(t, f)
	ended := make(chan error, 1)
	started := make(chan struct{})
	go func() {
		_, err := sb.Run(t.Context(), &driver.Command{Argv: []string{"sleep"}}, driver.Streams{OnStart: func(driver.Started) { close(started) }})
		ended <- err
	}()
	<-started
	for range 3 {
		if err := sb.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-ended; err == nil {
		t.Error("a command in a destroyed sandbox ended well")
	}
	if len(f.live()) > 0 {
		t.Error("it lives")
	}
	if _, err := sb.Inspect(t.Context()); !errors.Is(err, errs.SandboxUnknown) {
		t.Errorf("afterwards: %v", err)
	}
	// By state, in a process that never saw it.
	other := create(t, d, "other")
	d2 := rpc.New(servetest.Pair(t, f), rpc.Config{})
	if err := d2.Handle("other", other.State()).Destroy(t.Context()); err != nil || len(f.live()) > 0 {
		t.Errorf("%v, %v live", err, f.live())
	}
}

func TestStateIsBounded(t *testing.T) {
	f := newFake()
	f.wrap = func(b *box) driver.Sandbox {
		b.state.Data = make([]byte, 64<<10+1)
		return b
	}
	d := rpc.New(servetest.Pair(t, f), rpc.Config{})
	if _, err := d.Create(t.Context(), &driver.CreateRequest{SandboxID: "a"}); !errors.Is(err, errs.Internal) {
		t.Errorf("got %v", err)
	}
	if len(f.live()) > 0 {
		t.Error("the sandbox was left behind")
	}
}

// stopBox changes its state when it is stopped.
type stopBox struct{ *box }

func (b stopBox) Stop(_ context.Context, persist bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state.Display = map[string]string{"persisted": fmt.Sprint(persist)}
	return nil
}

func (b stopBox) Watch(ctx context.Context, report func(driver.Event)) error {
	b.mu.Lock()
	b.state.Data = []byte("changed")
	b.mu.Unlock()
	report(driver.Event{Kind: driver.EventStateChanged, Message: "m"})
	report(driver.Event{Kind: driver.EventPortOpened, Port: 80})
	return nil
}

func TestNewStateArrives(t *testing.T) {
	f := newFake()
	f.wrap = func(b *box) driver.Sandbox { return stopBox{b} }
	_, sb := connect(t, f)
	if err := sb.Stop(t.Context(), true); err != nil || sb.State().Display["persisted"] != "true" {
		t.Errorf("%v, %+v", err, sb.State())
	}
	var events []driver.Event
	var states []string
	err := sb.Watch(t.Context(), func(e driver.Event) {
		events = append(events, e)
		states = append(states, string(sb.State().Data))
	})
	want := []driver.Event{{Kind: driver.EventStateChanged, Message: "m"}, {Kind: driver.EventPortOpened, Port: 80}}
	if d := cmp.Diff(want, events); err != nil || d != "" || states[0] != "changed" {
		t.Errorf("%v %s %v", err, d, states)
	}
}

func TestWhatIsMissingIsUnsupported(t *testing.T) {
	d, sb := connect(t, newFake())
	ctx := t.Context()
	_, errStat := sb.Stat(ctx, []string{"a"}, driver.StatOptions{})
	_, _, errOpen := sb.Open(ctx, "a", driver.ReadOptions{})
	_, errWrite := sb.Write(ctx, "a", driver.WriteOptions{}, strings.NewReader(strings.Repeat("x", 3<<20)))
	_, errImport := sb.Import(ctx, driver.ImportOptions{}, strings.NewReader("x"))
	_, errSnap := sb.Snapshot(ctx, "a", false, nil)
	_, errExpose := sb.Expose(ctx, 80, "http", false)
	_, errDial := sb.Dial(ctx, 80)
	_, errMount := sb.Mount(ctx, driver.MountSpec{})
	_, errDeadline := sb.ExtendDeadline(ctx, sb.Info().Created)
	for name, err := range map[string]error{
		"stat": errStat, "open": errOpen, "write": errWrite, "import": errImport, "snapshot": errSnap, "expose": errExpose,
		"dial": errDial, "mount": errMount, "deadline": errDeadline, "stop": sb.Stop(ctx, true), "pause": sb.Pause(ctx),
		"watch":       sb.Watch(ctx, func(driver.Event) {}),
		"accounts":    sb.EnsureAccounts(ctx, driver.Accounts{}),
		"watch files": sb.WatchFiles(ctx, "", true, "", func(driver.FileEvent) {}),
		"export":      sb.Export(ctx, driver.ExportOptions{}, &strings.Builder{}),
		"delete":      d.DeleteSnapshot(ctx, "s"),
	} {
		if !errors.Is(err, errs.Unsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, err := range d.List(ctx, nil) {
		if !errors.Is(err, errs.Unsupported) {
			t.Errorf("list: %v", err)
		}
	}
	if info, err := sb.Inspect(ctx); err != nil || info.Status != driver.StatusRunning || info.Root != "/w" {
		t.Errorf("inspect: %+v, %v", info, err)
	}
	if ds := d.Validate(ctx, sbConfig, true); len(ds) > 0 {
		t.Errorf("validate: %+v", ds)
	}
}

func TestDrain(t *testing.T) {
	f := newFake()
	f.wrap = func(b *box) driver.Sandbox { return stopBox{b} }
	d, sb := connect(t, f)
	create(t, d, "two")
	got := map[string]string{}
	if err := d.Drain(t.Context(), driver.OrphanStop, func(r driver.DrainResult) { got[r.SandboxID] = r.Outcome }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"sb": "stopped", "two": "stopped"}, got); diff != "" {
		t.Error(diff)
	}
	if _, err := d.Create(t.Context(), &driver.CreateRequest{SandboxID: "three"}); !errors.Is(err, errs.SandboxNotReady) {
		t.Errorf("create while draining: %v", err)
	}
	if _, err := sb.Inspect(t.Context()); !errors.Is(err, errs.SandboxNotReady) {
		t.Errorf("inspect while draining: %v", err)
	}
}

func TestDescribe(t *testing.T) {
	f := newFake()
	f.desc.Isolation = []driver.Isolation{{Axis: "network", Statement: "none", Strength: 3}}
	d := rpc.New(servetest.Pair(t, f), rpc.Config{})
	if diff := cmp.Diff(f.desc, d.Describe()); diff != "" {
		t.Error(diff)
	}
}
