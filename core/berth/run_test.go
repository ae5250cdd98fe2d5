// SPDX-License-Identifier: Apache-2.0

//go:build linux

package berth_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/core/berth"
	"github.com/berth-dev/berth/core/berth/watch"
	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/model/replay"
	"github.com/berth-dev/berth/core/plugin"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/runlog"
	"github.com/berth-dev/berth/core/runner"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/state"
	"github.com/berth-dev/berth/internal/localtest"
)

// fixture is a harness over the real driver.
type fixture struct {
	*berth.Harness
	host *localtest.Host
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	w := &watch.Watch{}
	host := localtest.New(t, w.Notify)
	return &fixture{host: host, Harness: harness(host.Manager, w, host.Dir)}
}

func harness(m *plugin.Manager, w *watch.Watch, dir string) *berth.Harness {
	return berth.New(berth.Config{
		Plugins: m, Watch: w, CacheDir: filepath.Join(dir, "core-cache"), RunsDir: filepath.Join(dir, "runs"),
		Store: store(dir), KeyFile: filepath.Join(dir, "session.key"),
	})
}

// store opens the state store of a directory when it is first asked for. The process ends without closing it.
func store(dir string) func(context.Context) (state.Store, error) {
	var mu sync.Mutex
	var s state.Store
	return func(ctx context.Context) (_ state.Store, err error) {
		mu.Lock()
		defer mu.Unlock()
		if s == nil {
			s, err = state.Open(ctx, state.Config{Path: filepath.Join(dir, "state.db")})
		}
		return s, err
	}
}

// recorded keeps the events of a run.
type recorded struct {
	mu     sync.Mutex
	events []event.Event // guarded by mu
	on     func(event.Data)
}

func (r *recorded) emit(ev event.Event) {
	r.mu.Lock()
	r.events = append(r.events, ev)
	on := r.on
	r.mu.Unlock()
	if on != nil {
		on(ev.Data)
	}
}

// kinds are the kinds of the events, without the frequent ones.
func (r *recorded) kinds() []event.Kind {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []event.Kind
	for _, ev := range r.events {
		switch ev.Kind {
		case event.KindModelDelta, event.KindToolOutput, event.KindSandboxProgress:
		default:
			out = append(out, ev.Kind)
		}
	}
	return out
}

func find[T event.Data](r *recorded) (last T, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ev := range r.events {
		if d, ok := ev.Data.(T); ok {
			last = d
			n++
		}
	}
	return last, n
}

// worker is a project of one agent.
func worker() (*spec.Project, *spec.Run) {
	agent := &spec.Agent{Label: "worker", Sandboxed: true, Instructions: spec.Text{Literal: "Work."}, Capabilities: spec.Capabilities{
		Shell: &spec.ShellCapability{}, Filesystem: &spec.FilesystemCapability{ApplyPatch: true, ViewImage: true},
	}}
	m := &spec.Manifest{Root: spec.DefaultRoot, Entries: []spec.Entry{
		{Kind: spec.EntryFile, Path: "in/a.txt", File: &spec.FileEntry{Content: []byte("one\r\ntwo\r\n")}},
		{Kind: spec.EntryFile, Path: "tool.sh", File: &spec.FileEntry{Content: []byte("#!/bin/sh\necho tool ran\n"), Executable: true}},
	}}
	return &spec.Project{}, &spec.Run{Label: "default", Agent: agent, Manifest: m, Input: "do it", Sandbox: &spec.Sandbox{}}
}

type turn map[string]any

func exec(cmd string) map[string]any {
	return map[string]any{"tool": "exec_command", "args": map[string]any{"cmd": cmd, "yield_time_ms": 30000}}
}

func patch(text string) map[string]any { return map[string]any{"tool": "apply_patch", "input": text} }

// script makes a transcript.
func script(t testing.TB, turns ...turn) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("{\"berth_transcript\": 1}\n")
	for _, tn := range turns {
		line, err := json.Marshal(tn)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(line, '\n'))
	}
	return b.String()
}

func player(t testing.TB, turns ...turn) model.Model {
	t.Helper()
	tr, err := replay.Parse(strings.NewReader(script(t, turns...)))
	if err != nil {
		t.Fatal(err)
	}
	return replay.New(tr)
}

// gone checks that nothing of a sandbox is left on this machine.
func (f *fixture) gone(t testing.TB, id string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(f.host.Dir, "state"), func(path string, _ os.DirEntry, err error) error {
		if err == nil && strings.Contains(filepath.Base(path), id) {
			t.Errorf("%s is left", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

const fixPatch = "*** Begin Patch\n*** Update File: in/a.txt\n@@\n one\n-two\n+TWO\n*** Add File: out/b.txt\n+new\n*** End Patch\n"

func TestWholeRun(t *testing.T) {
	f := newFixture(t)
	p, r := worker()
	var rec recorded
	res, err := f.Run(t.Context(), berth.RunOptions{ID: runlog.NewID(time.Now()), Project: p, Run: r, Name: "replay", Emit: rec.emit, Model: player(t,
		turn{"say": "I look.", "calls": []any{exec("cat in/a.txt; ./tool.sh; exit 3"), exec("cat no-such-file")}},
		turn{"expect": []string{"tool ran", "Process exited with code 3", "No such file"}, "calls": []any{patch(fixPatch)}},
		turn{"expect": []string{"M in/a.txt\nA out/b.txt"}, "calls": []any{exec("od -c in/a.txt | head -1; cat out/b.txt")}},
		turn{"expect": []string{`T   W   O  \r  \n`, "new"}, "say": "All done."},
	)})
	if err != nil {
		t.Fatal(err)
	}
	if res.Status != run.Completed || res.Output != "All done." || res.Turns != 4 || res.Hint != "" {
		t.Errorf("%+v", res)
	}
	want := []event.Kind{
		event.KindRunStarted, event.KindSandboxReady, event.KindTurnStarted, event.KindModelDone, event.KindToolStarted,
		event.KindToolStarted, event.KindToolFinished, event.KindToolFinished, event.KindTurnStarted, event.KindModelDone, event.KindToolStarted,
		event.KindToolFinished, event.KindTurnStarted, event.KindModelDone, event.KindToolStarted, event.KindToolFinished, event.KindTurnStarted,
		event.KindModelDone, event.KindSandboxEnded, event.KindRunFinished,
	}
	if d := cmp.Diff(want, rec.kinds()); d != "" {
		t.Error(d)
	}
	ready, _ := find[event.SandboxReady](&rec)
	if ready.Root != "/workspace" || len(ready.Isolation) == 0 {
		t.Errorf("%+v", ready)
	}
	if ended, _ := find[event.SandboxEnded](&rec); ended.Outcome != "destroyed" {
		t.Errorf("%+v", ended)
	}
	f.gone(t, res.RunID)
	if _, err := f.Resume(t.Context(), berth.RunOptions{ID: res.RunID, Project: p, Run: r, Name: "replay", Model: player(t, turn{"say": "x"})}); err == nil || !strings.Contains(err.Error(), "it is complete") {
		t.Errorf("a complete run was resumed: %v", err)
	}
	if _, err := f.Resume(t.Context(), berth.RunOptions{ID: runlog.NewID(time.Now()), Project: p, Run: r, Name: "replay", Model: player(t, turn{"say": "x"})}); err == nil || !strings.Contains(err.Error(), "there is no run") {
		t.Errorf("%v", err)
	}
}

// A run that is stopped, kindly or at once, keeps its sandbox without any process in it, says how to go on, and goes on in
// the same workspace.
func TestCancelAndResume(t *testing.T) {
	f := newFixture(t)
	for _, how := range []string{"stop", "now"} {
		t.Run(how, func(t *testing.T) {
			p, r := worker()
			mark := localtest.Mark()
			turns := []turn{
				{"calls": []any{exec(fmt.Sprintf("echo kept >> state.txt; (setsid sh -c 'sleep 1000; : %[1]s' &); echo up; sleep 1000; : %[1]s", mark))}},
				{"expect": []string{`{"error":{"code":"`}, "calls": []any{exec("cat state.txt; ls in")}},
				{"expect": []string{"Output:\nkept\na.txt"}, "say": "went on"},
			}
			var rec recorded
			stop := make(chan struct{})
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			var once sync.Once
			rec.on = func(d event.Data) {
				if out, ok := d.(event.ToolOutput); ok && strings.Contains(out.Text, "up") {
					once.Do(func() {
						if how == "stop" {
							close(stop)
						} else {
							cancel(errors.New("interrupted twice"))
						}
					})
				}
			}
			id := runlog.NewID(time.Now())
			began := time.Now()
			res, err := f.Run(ctx, berth.RunOptions{ID: id, Project: p, Run: r, Name: "replay", Emit: rec.emit, Stop: stop, Model: player(t, turns...)})
			if err != nil {
				t.Fatal(err)
			}
			if res.Status != run.Cancelled || !strings.Contains(res.Hint, "berth resume "+id) {
				t.Errorf("%+v", res)
			}
			t.Logf("the run ended after %s", time.Since(began).Round(time.Millisecond))
			if ended, n := find[event.SandboxEnded](&rec); n != 1 || ended.Outcome != "stopped" {
				t.Errorf("%+v", ended)
			}
			localtest.Eventually(t, "no process is left", func() bool { return len(localtest.Marked(t, mark)) == 0 })
			var again recorded
			res, err = f.Resume(t.Context(), berth.RunOptions{ID: id, Project: p, Run: r, Name: "replay", Emit: again.emit, Approve: reject, Model: player(t, turns...)})
			if err != nil {
				t.Fatalf("resume: %v", err)
			}
			if res.Status != run.Completed || res.Output != "went on" {
				t.Errorf("%+v, %v", res, again.kinds())
			}
			f.gone(t, id)
		})
	}
}

// The driver is killed in the middle of a command of a run: a person sees it, the model does not.
func TestDriverKilledUnderRun(t *testing.T) {
	f := newFixture(t)
	p, r := worker()
	const lines = 3000
	var want strings.Builder
	for i := range lines {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	var rec recorded
	var once sync.Once
	rec.on = func(d event.Data) {
		if out, ok := d.(event.ToolOutput); ok && strings.Contains(out.Text, "line 20") {
			once.Do(func() { f.host.KillDriver(t) })
		}
	}
	res, err := f.Run(t.Context(), berth.RunOptions{Project: p, Run: r, Name: "replay", Emit: rec.emit, Model: player(t,
		turn{"calls": []any{exec(fmt.Sprintf(`i=0; while [ $i -lt %d ]; do echo "line $i"; i=$((i+1)); [ $((i %% 100)) = 0 ] && sleep 0.05; done; exit 5`, lines))}},
		turn{"expect": []string{"Process exited with code 5\nOutput:\n" + want.String()}, "calls": []any{exec("cat in/a.txt")}},
		turn{"expect": []string{"one\r\ntwo\r\n"}, "say": "done"},
	)})
	if err != nil {
		t.Fatal(err)
	}
	if res.Status != run.Completed {
		t.Errorf("%+v", res)
	}
	lost, n := find[event.SandboxLost](&rec)
	if n != 1 || !strings.Contains(lost.Reason, "killed") {
		t.Errorf("%d times lost, %+v", n, lost)
	}
	if ready, n := find[event.SandboxReady](&rec); n != 2 || !ready.Reattached || ready.Root != "/workspace" {
		t.Errorf("%d times ready, %+v", n, ready)
	}
}

func TestFailures(t *testing.T) {
	f := newFixture(t)
	run1 := func(t *testing.T, edit func(*spec.Run), turns ...turn) (*runner.Result, *recorded, error) {
		t.Helper()
		p, r := worker()
		edit(r)
		var rec recorded
		res, err := f.Run(t.Context(), berth.RunOptions{Project: p, Run: r, Name: "replay", Emit: rec.emit, Model: player(t, turns...)})
		return res, &rec, err
	}
	t.Run("sandbox", func(t *testing.T) {
		res, rec, err := run1(t, func(r *spec.Run) {
			r.Manifest.Entries = append(r.Manifest.Entries, spec.Entry{Kind: spec.EntryLocalFile, Path: "x", LocalFile: &spec.LocalFileEntry{Source: "/no/such/file"}})
		}, turn{"say": "x"})
		if err == nil || !strings.Contains(err.Error(), "/no/such/") || (res != nil && res.Status != run.Failed) {
			t.Errorf("%+v, %v", res, err)
		}
		if _, n := find[event.SandboxReady](rec); n != 0 {
			t.Error("a sandbox was made")
		}
	})
	t.Run("turns", func(t *testing.T) {
		res, rec, err := run1(t, func(r *spec.Run) { r.MaxTurns = new(1) }, turn{"calls": []any{exec("true")}}, turn{"say": "x"})
		if err != nil || res.Status != run.MaxTurns || !strings.Contains(res.Hint, "berth resume") {
			t.Errorf("%+v, %v", res, err)
		}
		if ended, _ := find[event.SandboxEnded](rec); ended.Outcome != "stopped" {
			t.Errorf("%+v", ended)
		}
	})
}
