// SPDX-License-Identifier: Apache-2.0

//go:build linux

package berth_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/core/audit"
	"github.com/berth-dev/berth/core/berth"
	"github.com/berth-dev/berth/core/berth/watch"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/runlog"
	"github.com/berth-dev/berth/core/runner"
	"github.com/berth-dev/berth/core/runs"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/trace"
	"github.com/berth-dev/berth/core/value"
	"github.com/berth-dev/berth/internal/localtest"
)

func audited(t *testing.T, dir string) (all []audit.Record) {
	t.Helper()
	rep, err := audit.Verify(dir, "", func(r audit.Record, _ error) { all = append(all, r) })
	if err != nil || !rep.OK() {
		t.Fatalf("%+v, %v", rep, err)
	}
	return all
}

// has finds the first record from a place on whose JSON holds all texts.
func has(t *testing.T, all []audit.Record, from int, texts ...string) int {
	t.Helper()
	for i := from; i < len(all); i++ {
		raw, err := json.Marshal(all[i])
		if err != nil {
			t.Fatal(err)
		}
		found := true
		for _, text := range texts {
			found = found && strings.Contains(string(raw), text)
		}
		if found {
			return i
		}
	}
	raw, err := json.MarshalIndent(all[from:], "", " ")
	t.Errorf("no record from %d on holds %q (%v):\n%s", from, texts, err, raw)
	return from
}

// What a run does is in its audit log in its order, with who did it and how it ended, what agents as tools do too; and in
// its trace. Secrets are in neither.
func TestAuditAndTraceOfASandbox(t *testing.T) {
	w := &watch.Watch{}
	host := localtest.New(t, w.Notify)
	runsDir := filepath.Join(host.Dir, "runs")
	h := berth.New(berth.Config{
		Plugins: host.Manager, Watch: w, CacheDir: filepath.Join(host.Dir, "core-cache"), RunsDir: runsDir, Store: store(host.Dir),
		KeyFile: filepath.Join(host.Dir, "session.key"),
		Trace:   trace.Config{Getenv: noEnv, Redact: func(s string) string { return strings.ReplaceAll(s, canary, "GONE") }},
	})
	p, r, _ := team()
	r.Manifest.Environment = []spec.EnvVar{{Name: "TOKEN", Secret: value.PlainSecret(canary)}}
	inner := exec("cat out/b.txt")
	inner["id"] = "call_1_1" // as the first call of the outer run, which works in the same sandbox
	id := runlog.NewID(time.Now())
	allow := func(context.Context, runner.Approval) (runner.Decision, error) {
		return runner.Decision{Allow: true, By: "ada"}, nil
	}
	res, err := h.Run(t.Context(), berth.RunOptions{ID: id, Project: p, Run: r, Name: "m", Approve: allow, Model: player(t,
		turn{"calls": []any{exec("echo " + canary + " $TOKEN; exit 3"), patch(fixPatch)}},
		turn{"calls": []any{explore("asked")}},
		turn{"in_call": "asked", "calls": []any{inner}},
		turn{"in_call": "asked", "expect": []string{"Process exited with code 0\nOutput:\nnew"}, "say": "new"},
		turn{"say": "done"},
	)})
	if err != nil || res.Status != run.Completed {
		t.Fatalf("%+v, %v", res, err)
	}
	dir := filepath.Join(runsDir, id)
	all := audited(t, dir)
	inside := runs.NestedID(id, "asked")
	i := 0
	for _, want := range [][]string{
		{`"op":"run.started"`, id},
		{`"op":"sandbox.create"`, `"phase":"begin"`, `"secret_env":["TOKEN"]`, `"driver":"unixlocal"`},
		{`"op":"sandbox.create"`, `"ok":true`},
		{`"op":"sandbox.tree_import"`, `"ok":true`},
		{`"op":"tool.call"`, `"phase":"begin"`, "exec_command"},
		{`"op":"sandbox.exec"`, `"phase":"begin"`, "echo GONE $TOKEN; exit 3", `"agent":"worker"`, `"call":"`},
		{`"op":"run.started"`, inside},
		{`"op":"approval.wanted"`, inside, "cat out/b.txt"},
		{`"op":"approval.decided"`, inside, `"allow":true`, `"by":"ada"`},
		{`"op":"sandbox.exec"`, inside, `"agent":"explorer"`, "cat out/b.txt"},
		{`"op":"sandbox.exec"`, inside, `"ok":true`, `"exit_code":0`},
		{`"op":"run.finished"`, inside},
		{`"op":"sandbox.destroy"`, `"ok":true`},
		{`"op":"run.finished"`, `"run":"` + id + `"`},
	} {
		i = has(t, all, i, want...)
	}
	has(t, all, 0, `"op":"sandbox.exec"`, `"phase":"end"`, `"exit_code":3`)
	has(t, all, 0, `"op":"sandbox.file_write"`, `"phase":"begin"`, "out/b.txt")
	has(t, all, 0, `"op":"sandbox.file_write"`, `"phase":"end"`, `"ok":true`)
	begun := map[uint64]bool{}
	for _, rec := range all {
		switch rec.Phase {
		case audit.Begin:
			begun[rec.Seq] = true
		case audit.End:
			if !begun[rec.Of] {
				t.Errorf("%+v ends nothing", rec)
			}
			delete(begun, rec.Of)
		}
	}
	if len(begun) > 0 {
		t.Errorf("no end is known of the records %v", begun)
	}
	for _, name := range []string{audit.FileName, trace.FileName} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || strings.Contains(string(text), canary) {
			t.Errorf("%s holds the secret: %v", name, err)
		}
	}
	spans, _, err := trace.ReadFile(dir)
	if err != nil {
		t.Fatal(err)
	}
	name := map[string]string{}
	for _, s := range spans {
		name[s.SpanID] = s.Name
	}
	var in []string
	for _, s := range spans {
		in = append(in, fmt.Sprintf("%s < %s", s.Name, name[s.ParentID]))
		if strings.Contains(fmt.Sprint(s), "b.txt") {
			t.Errorf("the trace tells of a path or a command: %+v", s)
		}
	}
	for _, want := range []string{
		"sandbox.create < invoke_agent worker", "sandbox.exec < execute_tool exec_command", "sandbox.file_write < execute_tool apply_patch",
		"run explorer < execute_tool explore", "approval exec_command < turn 1",
	} {
		if !strings.Contains(strings.Join(in, "\n"), want) {
			t.Errorf("no span is %s in\n%s", want, strings.Join(in, "\n"))
		}
	}
	// A log that was changed is not gone on with.
	path := filepath.Join(dir, audit.FileName)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), `"by":"ada"`, `"by":"eve"`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Resume(t.Context(), berth.RunOptions{ID: id, Project: p, Run: r, Name: "m", Model: player(t, turn{"say": "x"})}); err == nil || !strings.Contains(err.Error(), "was changed") {
		t.Errorf("the run was resumed: %v", err)
	}
}
