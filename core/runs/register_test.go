// SPDX-License-Identifier: Apache-2.0

package runs_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/runlog"
	"github.com/berth-dev/berth/core/runner/history"
	"github.com/berth-dev/berth/core/runs"
	"github.com/berth-dev/berth/core/state"
)

func store(t *testing.T) state.Store {
	t.Helper()
	s, err := state.Open(t.Context(), state.Config{Path: filepath.Join(t.TempDir(), "state.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// place is a machine with a store that others have too.
func place(t *testing.T, s state.Store) *runs.Register {
	t.Helper()
	return &runs.Register{Dir: runs.Dir{Path: t.TempDir()}, Store: s, Now: func() time.Time { return now }}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// again goes on with a run of [paused].
var again = run.Resume{Time: now.Add(time.Hour), Config: run.Config{Agents: map[string]run.Agent{"main": {}}}}

// goOn goes on with a run at a place, one step further, and ends the work on it.
func goOn(t *testing.T, g *runs.Register, id string, ev run.Event) {
	t.Helper()
	f, err := g.Fetch(t.Context(), id)
	must(t, err)
	log, err := runlog.Open(filepath.Join(g.Dir.Path, id))
	must(t, err)
	must(t, g.Claim(t.Context(), f, "/p"))
	h, err := history.Read(log)
	must(t, err)
	_, effects, err := run.Step(h.State, ev)
	must(t, err)
	raw, err := run.MarshalEvent(ev)
	must(t, err)
	var persist run.Persist
	for _, ef := range effects {
		if p, ok := ef.(run.Persist); ok {
			persist = p
		}
	}
	data, err := history.EncodeStep(raw, persist)
	must(t, err)
	must(t, log.Append(true, runlog.Entry{Type: history.Step, Time: now, Data: data}))
	must(t, log.Close())
	must(t, g.Settle(t.Context(), id))
}

// A run is asked about at one place, answered at a second, goes on at a third, and then at the first again.
func TestPlaces(t *testing.T) {
	shared, ctx := store(t), t.Context()
	a, b, c := place(t, shared), place(t, shared), place(t, shared)
	must(t, a.Begin(ctx, "run-1", "/p", "main"))
	if sum, err := b.List(ctx); err != nil || len(sum) != 1 || !sum[0].Live || sum[0].Host == "" {
		t.Errorf("while it runs the others see %+v, %v", sum, err)
	}
	if _, err := b.Fetch(ctx, "run-1"); err == nil || !strings.Contains(err.Error(), "its log is there") {
		t.Errorf("a run was taken from a process: %v", err)
	}
	paused(t, a.Dir, "run-1")
	must(t, os.WriteFile(filepath.Join(a.Dir.Path, "run-1", runs.BesideFile), []byte(`{"session":"s1"}`), 0o600))
	must(t, a.Settle(ctx, "run-1"))

	r, err := b.Read(ctx, "run-1")
	must(t, err)
	if len(r.Waiting) != 1 || r.Waiting[0].CallID != "c1" || r.Summary.Live || r.Summary.Status != run.Paused || !r.Summary.Resumable() {
		t.Errorf("another place reads %+v", r)
	}
	here, err := a.Read(ctx, "run-1")
	must(t, err)
	if diff := cmp.Diff(here.State, r.State); diff != "" {
		t.Error(diff)
	}
	if _, won, err := b.Decide(ctx, "run-1", r.Waiting[0], runs.Decision{Allow: true, By: "bob", Message: "go"}); err != nil || !won {
		t.Fatal(won, err)
	}
	if was, won, err := a.Decide(ctx, "run-1", here.Waiting[0], runs.Decision{By: "ada"}); err != nil || won || was.By != "bob" || !was.Allow {
		t.Errorf("the second was told %+v, %v, %v", was, won, err)
	}
	if r, err := a.Read(ctx, "run-1"); err != nil || r.Waiting[0].Decision == nil || r.Waiting[0].Decision.By != "bob" {
		t.Errorf("%+v, %v", r, err)
	}

	// Of two who fetched it, one gets it.
	late, err := b.Fetch(ctx, "run-1")
	must(t, err)
	goOn(t, c, "run-1", again)
	if err := b.Claim(ctx, late, "/p"); err == nil || !strings.Contains(err.Error(), "just now") {
		t.Errorf("it was taken twice: %v", err)
	}
	if raw, err := c.Beside(ctx, "run-1"); err != nil || string(raw) != `{"session":"s1"}` {
		t.Errorf("beside it lies %s, %v", raw, err)
	}
	if err := b.Settle(ctx, "run-1"); err != nil {
		t.Errorf("a place that does not have it: %v", err)
	}

	// The first place catches up, and keeps what it had.
	want, err := c.Dir.Read("run-1")
	must(t, err)
	goOn(t, a, "run-1", run.Pause{Time: now.Add(2 * time.Hour)})
	got, err := a.Dir.Read("run-1")
	must(t, err)
	if diff := cmp.Diff(want.Items, got.Items); diff != "" {
		t.Error(diff)
	}
	if got.State.Status != run.Paused || got.Summary.Started != now {
		t.Errorf("%+v", got.Summary)
	}
	if all, err := c.List(ctx); err != nil || len(all) != 1 || all[0].Host == "" {
		t.Errorf("the place that had it lists %+v, %v", all, err)
	}
	must(t, c.Remove(ctx, "run-1"))
	// What is left of it at other places is told, and not gone on with.
	if _, err := b.Fetch(ctx, "run-1"); err == nil || !strings.Contains(err.Error(), "was removed") {
		t.Errorf("a run that was removed: %v", err)
	}
	if all, err := b.List(ctx); err != nil || len(all) != 1 || !strings.Contains(all[0].Error, "was removed") {
		t.Errorf("%+v, %v", all, err)
	}
	must(t, b.Remove(ctx, "run-1"))
	if _, err := b.Find(ctx, "run-1"); err == nil {
		t.Error("it is left")
	}
}

// A log that is not the beginning of what the store has is left as it is.
func TestOtherLogIsKept(t *testing.T) {
	shared, ctx := store(t), t.Context()
	a, b := place(t, shared), place(t, shared)
	must(t, a.Begin(ctx, "run-1", "/p", "main"))
	paused(t, a.Dir, "run-1")
	must(t, a.Settle(ctx, "run-1"))
	goOn(t, b, "run-1", again)
	rec, err := shared.Run(ctx, "run-1")
	must(t, err)
	rec.Kept = []byte(strings.ReplaceAll(string(rec.Kept), `do \u003cit`, `do that`))
	if !strings.Contains(string(rec.Kept), "do that") {
		t.Fatalf("nothing was changed in %s", rec.Kept)
	}
	must(t, shared.UpdateRun(ctx, rec, false))
	log := filepath.Join(a.Dir.Path, "run-1", "log.jsonl")
	was, err := os.ReadFile(log)
	must(t, err)
	if _, err := a.Fetch(ctx, "run-1"); err == nil || !strings.Contains(err.Error(), "is not the beginning of the one in the store: item 0 differs") {
		t.Errorf("%v", err)
	}
	if now, err := os.ReadFile(log); err != nil || string(now) != string(was) {
		t.Errorf("the log was changed: %v", err)
	}
}

// What the store keeps of a run stays readable. A new version adds a file; none is ever changed.
func TestKept(t *testing.T) {
	shared, ctx := store(t), t.Context()
	a, b := place(t, shared), place(t, shared)
	must(t, a.Begin(ctx, "run-1", "/p", "main"))
	paused(t, a.Dir, "run-1")
	must(t, os.WriteFile(filepath.Join(a.Dir.Path, "run-1", runs.BesideFile), []byte(`{"session":"s1","note":{"input":"do it"}}`), 0o600))
	must(t, a.Settle(ctx, "run-1"))
	rec, err := shared.Run(ctx, "run-1")
	must(t, err)
	golden := filepath.Join("testdata", "kept-v1.json")
	if *update {
		must(t, os.WriteFile(golden, append(rec.Kept, '\n'), 0o644))
	}
	want, err := os.ReadFile(golden)
	must(t, err)
	if diff := cmp.Diff(strings.TrimSpace(string(want)), string(rec.Kept)); diff != "" {
		t.Errorf("what is kept changed; what exists must stay readable (-want +got):\n%s", diff)
	}
	rec.Kept = want
	must(t, shared.UpdateRun(ctx, rec, false))
	goOn(t, b, "run-1", again)
	if raw, err := b.Beside(ctx, "run-1"); err != nil || !json.Valid(raw) {
		t.Errorf("%s, %v", raw, err)
	}
	rec, err = shared.Run(ctx, "run-1")
	must(t, err)
	for bad, says := range map[string]string{`{"version":2}`: "knows up to 1", `{"version":1}`: "another one", `x`: "invalid"} {
		rec.Kept = []byte(bad)
		must(t, shared.UpdateRun(ctx, rec, false))
		if _, err := a.Fetch(ctx, "run-1"); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// A decision in a file, as versions before the store had it, counts, and a run without a record can be decided about.
func TestEarlierVersion(t *testing.T) {
	g, ctx := place(t, store(t)), t.Context()
	paused(t, g.Dir, "run-1")
	paused(t, g.Dir, "run-2")
	r, err := g.Read(ctx, "run-1")
	must(t, err)
	name := filepath.Join(g.Dir.Path, "run-1", "decision-2.json")
	if r.Waiting[0].Effect != 2 || r.Waiting[0].Decision != nil {
		t.Fatalf("%+v", r.Waiting)
	}
	must(t, os.WriteFile(name, []byte(`{"allow":true,"always":true,"message":"m","by":"eve","time":"2026-01-02T03:04:05Z"}`), 0o600))
	r, err = g.Read(ctx, "run-1")
	must(t, err)
	if d := r.Waiting[0].Decision; d == nil || !d.Allow || !d.Always || d.By != "eve" || d.Message != "m" {
		t.Errorf("%+v", d)
	}
	if a, err := g.Store.Approval(ctx, "run-1", 2); err != nil || a.Decision != state.Approved || a.Who != "eve" {
		t.Errorf("%+v, %v", a, err)
	}
	r, err = g.Read(ctx, "run-2")
	must(t, err)
	if _, won, err := g.Decide(ctx, "run-2", r.Waiting[0], runs.Decision{Message: "no"}); err != nil || !won {
		t.Errorf("%v, %v", won, err)
	}
	goOn(t, g, "run-2", again)
	if rec, err := g.Store.Run(ctx, "run-2"); err != nil || rec.Holder != nil || len(rec.Kept) == 0 {
		t.Errorf("%+v, %v", rec, err)
	}
}

// A question that nothing waits for any more is taken back when the work on the run ends.
func TestStaleQuestions(t *testing.T) {
	g, ctx := place(t, store(t)), t.Context()
	must(t, g.Begin(ctx, "run-1", "/p", "main"))
	paused(t, g.Dir, "run-1")
	for _, effect := range []int64{2, 7} {
		must(t, g.Store.Ask(ctx, &state.Approval{Run: "run-1", Root: "run-1", Effect: effect, CallID: "c", Arguments: []byte("{}")}))
	}
	must(t, g.Settle(ctx, "run-1"))
	if open, err := g.Store.CountOpen(ctx); err != nil || open["run-1"] != 1 {
		t.Errorf("%v, %v", open, err)
	}
}
