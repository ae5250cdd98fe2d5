// SPDX-License-Identifier: Apache-2.0

package runs_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/runlog"
	"github.com/berth-dev/berth/core/runner/history"
	"github.com/berth-dev/berth/core/runs"
)

var update = flag.Bool("update", false, "write the golden file of this version")

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// paused makes a run that waits for a decision.
func paused(t *testing.T, d runs.Dir, id string) {
	t.Helper()
	dir, err := runlog.Dir(d.Path, id)
	if err != nil {
		t.Fatal(err)
	}
	log, err := runlog.Create(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	put := func(it model.Item) run.Ref {
		ref, err := log.Put(it)
		if err != nil {
			t.Fatal(err)
		}
		return ref
	}
	input := put(model.Message("user", "do <it>"))
	call := put(model.CallItem(model.ToolCall{CallID: "c1", Kind: model.ToolFunction, Name: "exec_command", Arguments: `{"cmd": "a && b"}`}))
	ref := run.CallRef{CallID: "c1", Kind: model.ToolFunction, Name: "exec_command", Fingerprint: "f", Item: call}
	var s run.State
	for _, ev := range []run.Event{
		run.Start{Time: now, RunID: id, Agent: "main", Config: run.Config{Agents: map[string]run.Agent{"main": {}}}, Input: []run.Ref{input}},
		run.ModelAnswered{Time: now.Add(time.Second), Effect: 1, Items: []run.Ref{call}, Calls: []run.PlannedCall{{CallRef: ref, Ask: true, Reason: "careful"}}},
		run.Pause{Time: now.Add(time.Minute)},
	} {
		next, effects, err := run.Step(s, ev)
		if err != nil {
			t.Fatal(err)
		}
		s = next
		raw, err := run.MarshalEvent(ev)
		if err != nil {
			t.Fatal(err)
		}
		data, err := history.EncodeStep(raw, effects[0].(run.Persist))
		if err != nil {
			t.Fatal(err)
		}
		if err := log.Append(true, runlog.Entry{Type: history.Step, Time: now, Data: data}); err != nil {
			t.Fatal(err)
		}
	}
}

// A run goes through its document unchanged, and the document of this version stays as it is and readable.
func TestDocument(t *testing.T) {
	from, to := runs.Dir{Path: t.TempDir()}, runs.Dir{Path: t.TempDir()}
	paused(t, from, "run-1")
	doc, err := from.Export("run-1", now)
	if err != nil {
		t.Fatal(err)
	}
	doc.Sandboxes = map[string]runs.Sandbox{"main": {Session: "01h"}}
	doc.Note = json.RawMessage(`{"input":"do it"}`)
	b, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "state-v2.json")
	if *update {
		if err := os.WriteFile(golden, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(b)); diff != "" {
		t.Errorf("the document changed; those that exist must stay readable (-want +got):\n%s", diff)
	}
	old, err := runs.ReadDocument(want)
	if err != nil {
		t.Fatal(err)
	}
	if err := to.Import(old, now); err != nil {
		t.Fatal(err)
	}
	was, err := from.Read("run-1")
	if err != nil {
		t.Fatal(err)
	}
	is, err := to.Read("run-1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(was.State, is.State); diff != "" {
		t.Errorf("the state (-exported +imported):\n%s", diff)
	}
	if diff := cmp.Diff(was.Items, is.Items); diff != "" {
		t.Errorf("the transcript (-exported +imported):\n%s", diff)
	}
	if len(is.Waiting) != 1 || is.Waiting[0].CallID != "c1" || string(is.Waiting[0].Arguments) != `{"cmd": "a && b"}` || is.Summary.Status != run.Paused {
		t.Errorf("%+v", is)
	}
	if err := to.Import(old, now); err == nil || !strings.Contains(err.Error(), "is here already") {
		t.Errorf("imported twice: %v", err)
	}
	for _, bad := range []string{``, `{}`, `{"format":"x"}`, `{"format":"berth run state","version":3}`, `{"format":"berth run state"}`, `{"format":"berth run state","version":1}`} {
		if _, err := runs.ReadDocument([]byte(bad)); err == nil {
			t.Errorf("%s was read", bad)
		}
	}
}

// What an earlier version exported can be imported.
func TestFirstDocumentIsRead(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "state-v1.json"))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := runs.ReadDocument(data)
	if err != nil {
		t.Fatal(err)
	}
	d := runs.Dir{Path: t.TempDir()}
	if err := d.Import(doc, now); err != nil {
		t.Fatal(err)
	}
	r, err := d.Read(doc.RunID)
	if err != nil || r.State.Version != 1 || len(r.Waiting) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestFindAndRemove(t *testing.T) {
	g, ctx := place(t, store(t)), t.Context()
	d := g.Dir
	paused(t, d, "run-1")
	paused(t, d, "run-2")
	for text, want := range map[string]string{"run-1": "run-1", "run-2": "run-2", "run": "", "": "", "x": "", "../x": ""} {
		if got, err := g.Find(ctx, text); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	log, err := runlog.Open(filepath.Join(d.Path, "run-1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Remove(ctx, "run-1"); err == nil {
		t.Error("a live run was removed")
	}
	if _, err := d.Export("run-1", now); err == nil {
		t.Error("a live run was exported")
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if err := g.Remove(ctx, "run-1"); err != nil {
		t.Error(err)
	}
	if all, err := g.List(ctx); err != nil || len(all) != 1 || all[0].ID != "run-2" || all[0].Waiting != 1 || !all[0].Resumable() {
		t.Errorf("%+v, %v", all, err)
	}
}
