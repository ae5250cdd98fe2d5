// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/ops"
	"github.com/berth-dev/berth/core/trace"
)

func environment(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

func open(t testing.TB, o trace.Options, env ...string) *trace.Trace {
	t.Helper()
	tr, err := trace.Open(t.Context(), trace.Config{Getenv: environment(env...), Warn: func(m, _ string) { t.Error(m) }}, o)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func spans(t testing.TB, dir string) []trace.Span {
	t.Helper()
	all, lost, err := trace.ReadFile(dir)
	if err != nil || lost != 0 {
		t.Fatal(lost, err)
	}
	return all
}

func send(r *trace.Run, turn int, all ...event.Data) {
	for _, d := range all {
		r.Event(event.Event{Time: time.Now(), RunID: "r", Agent: "a", Turn: turn, Kind: d.Kind(), Data: d})
	}
}

func TestSettings(t *testing.T) {
	for _, c := range []struct {
		env  []string
		says string // of the error; empty = there is none
	}{
		{env: nil},
		{env: []string{"OTEL_TRACES_EXPORTER", "none", "OTEL_EXPORTER_OTLP_ENDPOINT", "http://x", "OTEL_EXPORTER_OTLP_PROTOCOL", "nonsense"}},
		{env: []string{"OTEL_SDK_DISABLED", "true", "OTEL_EXPORTER_OTLP_ENDPOINT", "http://x", "OTEL_EXPORTER_OTLP_PROTOCOL", "nonsense"}},
		{env: []string{"OTEL_TRACES_EXPORTER", "zipkin"}, says: `OTEL_TRACES_EXPORTER is "zipkin"`},
		{env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://x", "OTEL_EXPORTER_OTLP_PROTOCOL", "nonsense"}, says: `is "nonsense"`},
		{env: []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "other", "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "OTEL_TRACES_EXPORTER", "otlp"}, says: `is "other"`},
	} {
		tr, err := trace.Open(t.Context(), trace.Config{Getenv: environment(c.env...)}, trace.Options{Dir: t.TempDir()})
		if tr != nil {
			tr.Close(t.Context())
		}
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v", c.env, err)
		}
	}
	if _, err := trace.Open(t.Context(), trace.Config{}, trace.Options{Dir: t.TempDir(), Parent: "x"}); err == nil {
		t.Error("a parent that is none was taken")
	}
}

func TestIDs(t *testing.T) {
	const digits = "0af7651916cd43dd8448eb211c80319c"
	for _, c := range []struct{ id, outer, want string }{
		{id: digits, want: digits},
		{id: "trace_" + strings.ToUpper(digits), want: digits},
		{outer: "00-" + digits + "-b7ad6b7169203331-01", want: digits},
		{id: "my trace", outer: "00-" + digits + "-b7ad6b7169203331-01"},
		{id: strings.Repeat("0", 32)},
		{outer: "nonsense"},
	} {
		id := func() string {
			tr := open(t, trace.Options{Dir: t.TempDir(), ID: c.id}, "TRACEPARENT", c.outer)
			defer tr.Close(t.Context())
			return strings.Split(tr.Parent(), "-")[1]
		}
		first, again := id(), id()
		if len(first) != 32 || c.want != "" && first != c.want || c.want == "" && first == digits || (c.id != "" || c.want != "") != (first == again) {
			t.Errorf("%+v is %s and %s", c, first, again)
		}
	}
}

// Attempts, a shortened conversation, a failure and what was going on at the end are in the trace.
func TestEvents(t *testing.T) {
	dir := t.TempDir()
	tr := open(t, trace.Options{Dir: dir})
	r := tr.Run("r")
	r.Model("a", "m")
	r.Server("look", "files")
	send(r, 0, event.TurnStarted{}) // before the run starts there is nothing to hold it
	send(r, 0, event.RunStarted{})
	send(r, 1, event.TurnStarted{}, event.ModelRetry{Attempt: 1, After: time.Second}, event.Compacted{Tokens: 9, Items: 3},
		event.ModelDone{Usage: model.Usage{InputTokens: 5, OutputTokens: 2, CachedTokens: 4, ReasoningTokens: 1}},
		event.ToolStarted{CallID: "c", Tool: "look"}, event.ToolStarted{CallID: "d", Tool: "wait"}, event.ApprovalWanted{CallID: "e", Tool: "x"},
		event.ToolFinished{CallID: "c", Tool: "look", Code: "suspended"}, event.ToolFinished{CallID: "unknown"})
	ctx := ops.With(t.Context(), ops.Who{To: r, Run: "r", Call: "d"})
	inner, end, err := ops.Begin(ctx, nil, ops.Op{Kind: ops.Exec, Sandbox: "box", Driver: "docker"})
	if err != nil {
		t.Fatal(err)
	}
	_, more, err := ops.Begin(inner, nil, ops.Op{Kind: ops.Mount, Name: "s3"})
	if err != nil {
		t.Fatal(err)
	}
	more(ops.End{Err: errors.New("no")})
	send(r, 2, event.TurnStarted{}, event.RunFinished{Status: "failed", Code: "model_overloaded", Error: "secret text"})
	end(ops.End{}) // too late
	tr.Close(t.Context())
	by := map[string]trace.Span{}
	for _, s := range spans(t, dir) {
		if s.End == nil {
			t.Errorf("%s has no end", s.Name)
		}
		by[s.Name] = s
	}
	parents := map[string]string{
		"compaction": "chat m", "execute_tool look": "turn 1", "approval x": "turn 1", "sandbox.exec": "execute_tool wait", "sandbox.mount s3": "sandbox.exec",
	}
	for child, parent := range parents {
		// There are two calls of the model; compaction is in the first.
		if p := by[child].ParentID; parent != "chat m" && p != by[parent].SpanID || p == "" {
			t.Errorf("%s is in %s", child, p)
		}
	}
	if s := by["chat m"]; s.Status != "error" || s.Message != "model_overloaded" {
		t.Errorf("%+v", s)
	}
	if s := by["turn 1"]; s.Attrs["gen_ai.usage.cache_read.input_tokens"] != 4.0 || s.Attrs["gen_ai.usage.reasoning.output_tokens"] != 1.0 {
		t.Errorf("%+v", s)
	}
	if s := by["execute_tool look"]; s.Attrs["berth.mcp.server"] != "files" || s.Status == "error" {
		t.Errorf("%+v", s)
	}
	if s := by["execute_tool wait"]; s.Attrs["berth.unfinished"] != true {
		t.Errorf("%+v", s)
	}
	text, err := os.ReadFile(filepath.Join(dir, trace.FileName))
	if err != nil || strings.Contains(string(text), "secret text") || !strings.Contains(string(text), `"name":"retry"`) {
		t.Errorf("%s %v", text, err)
	}
}

// A file that ends in the middle of a line is gone on with, and what cannot be read is counted.
func TestTornFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, trace.FileName)
	if err := os.WriteFile(path, []byte(`{"span_id":"1","name":"a","sta`), 0o600); err != nil {
		t.Fatal(err)
	}
	if all, lost, err := trace.ReadFile(dir); err != nil || len(all) != 0 || lost != 0 {
		t.Errorf("what is being written counts: %v %d %v", all, lost, err)
	}
	tr := open(t, trace.Options{Dir: dir})
	send(tr.Run("r"), 0, event.RunStarted{})
	tr.Close(t.Context())
	all, lost, err := trace.ReadFile(dir)
	if err != nil || lost != 1 || !slices.ContainsFunc(all, func(s trace.Span) bool { return s.Name == "run a" && s.End == nil }) {
		t.Errorf("%+v %d %v", all, lost, err)
	}
}

// BenchmarkTurn is what the spans of a turn with one call cost the run, the writing of the file included.
func BenchmarkTurn(b *testing.B) {
	tr := open(b, trace.Options{Dir: b.TempDir()})
	r := tr.Run("r")
	r.Model("a", "m")
	send(r, 0, event.RunStarted{})
	ctx := ops.With(b.Context(), ops.Who{To: r, Run: "r", Call: "c"})
	turn := 0
	for b.Loop() {
		turn++
		send(r, turn, event.TurnStarted{}, event.ModelDone{Usage: model.Usage{InputTokens: 1000}}, event.ToolStarted{CallID: "c", Tool: "exec_command"})
		_, end, err := r.Begin(ctx, ops.Op{Kind: ops.Exec, Sandbox: "box", Driver: "docker"})
		if err != nil {
			b.Fatal(err)
		}
		end(ops.End{})
		send(r, turn, event.ToolFinished{CallID: "c", Tool: "exec_command", OK: true})
	}
	send(r, turn, event.RunFinished{Status: "completed"})
	tr.Close(b.Context())
}
