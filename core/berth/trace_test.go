// SPDX-License-Identifier: Apache-2.0

//go:build linux

package berth_test

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/berth-dev/berth/core/berth"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/runlog"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/tool"
	"github.com/berth-dev/berth/core/trace"
	"github.com/berth-dev/berth/core/value"
)

// receiver is a collector that takes OTLP over HTTP and gRPC.
type receiver struct {
	collector.UnimplementedTraceServiceServer
	http, grpc string

	mu    sync.Mutex
	spans []*otlp.Span // guarded by mu
	raw   []byte       // guarded by mu; everything that came
	auth  []string     // guarded by mu
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		in := &collector.ExportTraceServiceRequest{}
		if err != nil || req.URL.Path != "/v1/traces" || proto.Unmarshal(body, in) != nil {
			http.Error(w, "bad request", http.StatusBadRequest)
			return
		}
		r.take(in, req.Header.Values("Authorization"))
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(srv.Close)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gs := grpc.NewServer()
	collector.RegisterTraceServiceServer(gs, r)
	done := make(chan struct{})
	go func() { defer close(done); _ = gs.Serve(ln) }()
	t.Cleanup(func() { gs.Stop(); <-done })
	r.http, r.grpc = srv.URL, "http://"+ln.Addr().String()
	return r
}

func (r *receiver) Export(ctx context.Context, in *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	r.take(in, md.Get("authorization"))
	return &collector.ExportTraceServiceResponse{}, nil
}

func (r *receiver) take(in *collector.ExportTraceServiceRequest, auth []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rs := range in.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			r.spans = append(r.spans, ss.Spans...)
		}
	}
	raw, _ := proto.Marshal(in)
	r.raw = append(r.raw, raw...)
	r.auth = append(r.auth, auth...)
}

// tree gives the path of names of each span, sorted.
func (r *receiver) tree() (paths []string, byPath map[string]*otlp.Span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	byID, byPath := map[string]*otlp.Span{}, map[string]*otlp.Span{}
	for _, s := range r.spans {
		byID[hex.EncodeToString(s.SpanId)] = s
	}
	for _, s := range r.spans {
		path := s.Name
		for p := byID[hex.EncodeToString(s.ParentSpanId)]; p != nil; p = byID[hex.EncodeToString(p.ParentSpanId)] {
			path = p.Name + " > " + path
		}
		paths = append(paths, path)
		byPath[path] = s
	}
	slices.Sort(paths)
	return paths, byPath
}

func attr(s *otlp.Span, key string) any {
	for _, kv := range s.GetAttributes() {
		if kv.Key == key {
			if v := kv.Value.GetStringValue(); v != "" {
				return v
			}
			return kv.Value.GetIntValue()
		}
	}
	return nil
}

const canary = "canary-4b1d7c"

// desk is a run of plain agents with all that a trace can show: a guardrail, a tool, an agent as a tool, a handoff.
func desk() (*spec.Run, []tool.Tool) {
	first := false
	clerk := &spec.Agent{Label: "clerk", Instructions: spec.Text{Literal: "Know " + canary}}
	second := &spec.Agent{Label: "reviewer", Instructions: spec.Text{Literal: "Review."}}
	agent := &spec.Agent{
		Label: "desk", Instructions: spec.Text{Literal: "Be exact: " + canary},
		InputGuardrails: []*spec.Guardrail{{Label: "polite", Stage: "input", Regex: "curse", Require: "no_match", Parallel: &first}},
		AgentTools:      []*spec.AgentTool{{Name: "ask", Agent: clerk, MaxTurns: 3}},
		Handoffs:        []*spec.Handoff{{Agent: second, ToolName: "pass_on"}},
	}
	tools := []tool.Tool{
		tool.Func("clock", "Tells the time.", nil, func(context.Context, string) (string, error) { return "noon " + canary, nil }),
		tool.Func("broken", "Fails.", nil, func(context.Context, string) (string, error) { return "", errors.New("no " + canary) }),
	}
	return &spec.Run{Agent: agent, Input: "What time is it, " + canary + "?", WorkflowName: "front desk"}, tools
}

func tokens(in, out int) map[string]any {
	return map[string]any{"input_tokens": in, "output_tokens": out, "total_tokens": in + out}
}

func deskTurns() []turn {
	return []turn{
		{"calls": []any{
			map[string]any{"tool": "clock"},
			map[string]any{"tool": "broken"},
			map[string]any{"tool": "ask", "id": "asked", "args": map[string]any{"input": canary}},
		}, "usage": tokens(100, 10)},
		{"in_call": "asked", "say": "clerk says " + canary, "usage": tokens(20, 2)},
		{"calls": []any{handTo("pass_on")}, "usage": tokens(200, 20)},
		{"say": "It is noon, " + canary, "usage": tokens(300, 30)},
	}
}

func TestTraceTree(t *testing.T) {
	for _, protocol := range []string{"http/protobuf", "grpc"} {
		t.Run(protocol, func(t *testing.T) {
			rcv := newReceiver(t)
			o := &trace.OTLP{Endpoint: rcv.http, Protocol: protocol, Headers: map[string]value.Secret{"x-team": value.PlainSecret("blue")}}
			if protocol == "grpc" {
				o.Endpoint = rcv.grpc
			}
			dir := t.TempDir()
			h := berth.New(berth.Config{RunsDir: dir, Store: store(dir), Trace: trace.Config{OTLP: o, Getenv: noEnv, Warn: func(message, _ string) { t.Error(message) }}})
			r, tools := desk()
			r.Trace = &spec.Trace{ID: "trace_1", GroupID: "g", Metadata: map[string]any{"team": "blue"}, APIKey: value.PlainSecret("key-9f3a77")}
			id := runlog.NewID(time.Now())
			res, err := h.Run(t.Context(), berth.RunOptions{ID: id, Project: &spec.Project{}, Run: r, Model: player(t, deskTurns()...), Name: "m", Tools: tools})
			if err != nil || res.Status != run.Completed {
				t.Fatalf("%+v, %v", res, err)
			}
			paths, by := rcv.tree()
			const (
				top  = "run front desk"
				one  = top + " > invoke_agent desk"
				ask  = one + " > turn 1 > execute_tool ask"
				nest = ask + " > run clerk > invoke_agent clerk"
			)
			want := []string{
				top, top + " > handoff desk → reviewer", one, one + " > guardrail polite",
				one + " > turn 1", one + " > turn 1 > chat m", one + " > turn 1 > execute_tool broken", one + " > turn 1 > execute_tool clock",
				ask, ask + " > run clerk", nest, nest + " > turn 1", nest + " > turn 1 > chat m",
				one + " > turn 2", one + " > turn 2 > chat m", one + " > turn 2 > execute_tool pass_on",
				top + " > invoke_agent reviewer", top + " > invoke_agent reviewer > turn 3", top + " > invoke_agent reviewer > turn 3 > chat m",
			}
			slices.Sort(want)
			if d := cmp.Diff(want, paths); d != "" {
				t.Fatal(d)
			}
			if got := []any{attr(by[top], "gen_ai.usage.input_tokens"), attr(by[top], "gen_ai.usage.output_tokens")}; got[0] != int64(620) || got[1] != int64(62) {
				t.Errorf("the run used %v tokens", got)
			}
			chat := by[one+" > turn 2 > chat m"]
			if attr(chat, "gen_ai.usage.input_tokens") != int64(200) || attr(chat, "gen_ai.request.model") != "m" || chat.Kind != otlp.Span_SPAN_KIND_CLIENT {
				t.Errorf("the call of the model is %v", chat)
			}
			if s := by[one+" > turn 1 > execute_tool broken"]; s.Status.GetCode() != otlp.Status_STATUS_CODE_ERROR || attr(s, "error.type") != "tool_failed" {
				t.Errorf("the call that failed is %v", s)
			}
			if s := by[top]; attr(s, "berth.metadata.team") != "blue" || attr(s, "gen_ai.conversation.id") != "g" || attr(s, "berth.run.id") != id {
				t.Errorf("the run is %v", s)
			}
			rcv.mu.Lock()
			defer rcv.mu.Unlock()
			for _, a := range rcv.auth {
				if a != "Bearer key-9f3a77" {
					t.Errorf("the key is sent as %q", a)
				}
			}
			file, err := os.ReadFile(filepath.Join(dir, id, trace.FileName))
			if err != nil || len(rcv.auth) == 0 {
				t.Fatal(err, rcv.auth)
			}
			for _, secret := range []string{canary, "key-9f3a77"} {
				if strings.Contains(string(file), secret) || strings.Contains(string(rcv.raw), secret) {
					t.Errorf("the trace holds %s", secret)
				}
			}
			kept, lost, err := trace.ReadFile(filepath.Join(dir, id))
			if err != nil || lost != 0 || len(kept) != len(want) {
				t.Errorf("the file has %d spans of %d, %d lost: %v", len(kept), len(want), lost, err)
			}
			for _, s := range kept {
				if s.End == nil || s.TraceID != kept[0].TraceID {
					t.Errorf("%+v", s)
				}
			}
		})
	}
}

func noEnv(string) (string, bool) { return "", false }

// What was said is in a trace when the file asks for it, but for what is known as a secret.
func TestTraceWithTexts(t *testing.T) {
	dir, id := t.TempDir(), runlog.NewID(time.Now())
	h := berth.New(berth.Config{RunsDir: dir, Store: store(dir), Trace: trace.Config{Getenv: noEnv, Redact: func(s string) string { return strings.ReplaceAll(s, canary, "GONE") }}})
	r, tools := desk()
	r.Trace = &spec.Trace{IncludeSensitiveData: true, IncludeTurnSpans: new(bool)}
	if _, err := h.Run(t.Context(), berth.RunOptions{ID: id, Project: &spec.Project{}, Run: r, Model: player(t, deskTurns()...), Name: "m", Tools: tools}); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(filepath.Join(dir, id, trace.FileName))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"What time is it, GONE?", "noon GONE", "It is noon, GONE", "clerk says GONE", `\"input\":\"GONE\"`, "no GONE"} {
		if !strings.Contains(string(file), want) {
			t.Errorf("the trace does not hold %s", want)
		}
	}
	if strings.Contains(string(file), canary) || strings.Contains(string(file), `"turn 1"`) {
		t.Errorf("the trace holds a secret or a turn:\n%s", file)
	}
}

// A collector that is not there, or never answers, changes nothing about the run, and is told of once.
func TestDeadCollector(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	for name, c := range map[string]trace.OTLP{
		"silent": {Endpoint: "http://" + ln.Addr().String()}, "silent grpc": {Endpoint: "http://" + ln.Addr().String(), Protocol: "grpc"},
		"gone": {Endpoint: "http://" + gone.Addr().String()}, "gone grpc": {Endpoint: "http://" + gone.Addr().String(), Protocol: "grpc"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var told []string
			dir, id := t.TempDir(), runlog.NewID(time.Now())
			h := berth.New(berth.Config{RunsDir: dir, Store: store(dir), Trace: trace.Config{OTLP: &c, Getenv: noEnv, Warn: func(message, _ string) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, message)
			}}})
			r, tools := desk()
			res, err := h.Run(t.Context(), berth.RunOptions{ID: id, Project: &spec.Project{}, Run: r, Model: player(t, deskTurns()...), Name: "m", Tools: tools})
			if err != nil || res.Status != run.Completed {
				t.Fatalf("%+v, %v", res, err)
			}
			mu.Lock()
			defer mu.Unlock()
			if len(told) != 1 || !strings.Contains(told[0], "not delivered to "+c.Endpoint) {
				t.Errorf("told: %q", told)
			}
			if spans, _, err := trace.ReadFile(filepath.Join(dir, id)); err != nil || len(spans) != 19 {
				t.Errorf("the file has %d spans, %v", len(spans), err)
			}
		})
	}
}

// A resumed run goes on in the trace of the first process, also on another machine.
func TestTraceOfAResumedRun(t *testing.T) {
	rcv := newReceiver(t)
	cfg := trace.Config{OTLP: &trace.OTLP{Endpoint: rcv.http}, Getenv: noEnv}
	id := runlog.NewID(time.Now())
	turns := []turn{{"calls": []any{map[string]any{"tool": "clock"}}}, {"say": "noon"}}
	dir, elsewhere := t.TempDir(), t.TempDir()
	h := berth.New(berth.Config{RunsDir: dir, Store: store(dir), Trace: cfg})
	once := 1
	options := func(m model.Model) berth.RunOptions {
		r, tools := desk()
		r.MaxTurns = &once
		return berth.RunOptions{ID: id, Project: &spec.Project{}, Run: r, Model: m, Name: "m", Tools: tools}
	}
	res, err := h.Run(t.Context(), options(player(t, turns...)))
	if err != nil || res.Status != run.MaxTurns {
		t.Fatalf("%+v, %v", res, err)
	}
	doc, err := h.Export(t.Context(), id)
	if err != nil || doc.Trace["traceparent"] == "" {
		t.Fatal(doc, err)
	}
	other := berth.New(berth.Config{RunsDir: elsewhere, Store: store(elsewhere), Trace: cfg})
	if err := other.Import(t.Context(), doc, nil); err != nil {
		t.Fatal(err)
	}
	once = 5
	if res, err = other.Resume(t.Context(), options(player(t, turns...))); err != nil || res.Status != run.Completed {
		t.Fatalf("%+v, %v", res, err)
	}
	paths, by := rcv.tree()
	first, again := by["run front desk"], by["run front desk > run front desk"]
	if first == nil || again == nil || string(first.TraceId) != string(again.TraceId) {
		t.Fatalf("the spans are %q", paths)
	}
	if first.Status.GetCode() != otlp.Status_STATUS_CODE_ERROR || attr(first, "error.type") != "max_turns" || again.Status.GetCode() == otlp.Status_STATUS_CODE_ERROR {
		t.Errorf("%v, %v", first, again)
	}
}
