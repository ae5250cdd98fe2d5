// SPDX-License-Identifier: Apache-2.0

package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/runlog"
	"github.com/berth-dev/berth/core/runner"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/tool"
)

// A clean stop cancels tools, keeps what they say and closes the sandbox; the waiting call is left to a resume.
func TestStopIsClean(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := make(chan struct{})
		m := &fakeModel{answer: script(calls(call("1", "slow", `{}`), call("2", "quick", `{}`)), say("fine"))}
		var ran []string
		slow := &fakeTool{name: "slow", f: func(ctx context.Context, _ tool.Call) (tool.Result, error) {
			ran = append(ran, "slow")
			close(stop)
			<-ctx.Done()
			return tool.Result{}, ctx.Err()
		}}
		quick := &fakeTool{name: "quick", f: func(context.Context, tool.Call) (tool.Result, error) {
			ran = append(ran, "quick")
			return tool.Result{Text: "ok"}, nil
		}}
		s := &fakeSession{}
		rec := &recorder{}
		cfg, _ := newConfig(t, m, slow, quick)
		cfg.Run.Agent.Sandboxed, cfg.Run.MaxToolsAtOnce = true, 1
		cfg.OpenSession = func(context.Context, string, func(event.Data)) (runner.Session, error) { return s, nil }
		cfg.Stop, cfg.Emit = stop, rec.emit
		res, err := runner.Run(t.Context(), cfg)
		if err != nil || res.Status != run.Cancelled || res.Hint != "berth resume run-1" {
			t.Fatalf("result %+v, error %v", res, err)
		}
		if !slices.Equal(s.closed, []run.Status{run.Cancelled}) {
			t.Errorf("the session was closed with %v", s.closed)
		}
		if last := rec.all()[len(rec.all())-1].Data.(event.RunFinished); last.Status != "cancelled" || last.Hint == "" {
			t.Errorf("the last event is %+v", last)
		}
		cfg.Stop = nil
		res, err = runner.Resume(t.Context(), cfg)
		if err != nil || res.Output != "fine" {
			t.Fatalf("resumed: %+v, error %v", res, err)
		}
		if diff := cmp.Diff([]string{"slow", "quick"}, ran); diff != "" {
			t.Errorf("calls that ran (-want +got):\n%s", diff)
		}
		items := m.requests[1].Items
		if got := items[3].Text(); got != `{"error":{"code":"canceled","message":"the call was cancelled: the run was stopped","retryable":true}}` {
			t.Errorf("the model was told %s", got)
		}
	})
}

// Cancelling the context ends the run at once, even when a tool does not listen.
func TestCancelIsNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		deaf := make(chan struct{})
		m := &fakeModel{answer: script(calls(call("1", "deaf", `{}`)), say("fine"))}
		s := &fakeSession{}
		cfg, _ := newConfig(t, m, &recoveringTool{fakeTool{name: "deaf", f: func(_ context.Context, c tool.Call) (tool.Result, error) {
			if !c.Again {
				cancel(errors.New("second signal"))
				<-deaf
			}
			return tool.Result{Text: "again " + fmt.Sprint(c.Again)}, nil
		}}})
		cfg.Run.Agent.Sandboxed = true
		cfg.OpenSession = func(context.Context, string, func(event.Data)) (runner.Session, error) { return s, nil }
		begin := time.Now()
		res, err := runner.Run(ctx, cfg)
		if err != nil || res.Status != run.Cancelled {
			t.Fatalf("result %+v, error %v", res, err)
		}
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("the run took %s to end", took)
		}
		if len(s.closed) != 1 {
			t.Errorf("the session was closed %d times", len(s.closed))
		}
		close(deaf)
		res, err = runner.Resume(t.Context(), cfg)
		if err != nil || res.Output != "fine" || m.requests[1].Items[2].Text() != "again true" {
			t.Errorf("resumed: %+v, error %v", res, err)
		}
	})
}

// What the end of the context breaks is not taken for a failure of the run.
func TestCancelIsNeverAFailure(t *testing.T) {
	for range 40 {
		ctx, cancel := context.WithCancelCause(t.Context())
		cfg, _ := newConfig(t, &fakeModel{answer: func(mctx context.Context, _ *model.Request) (*model.Response, error) {
			cancel(nil)
			<-mctx.Done()
			return nil, context.Cause(mctx)
		}})
		if res, err := runner.Run(ctx, cfg); err != nil || res.Status != run.Cancelled {
			t.Fatalf("result %+v, error %v", res, err)
		}
	}
}

// A session that comes to be after the run was cancelled is closed.
func TestLateSessionIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		s := &fakeSession{}
		cfg, _ := newConfig(t, &fakeModel{answer: script(say("fine"))})
		cfg.Run.Agent.Sandboxed = true
		cfg.OpenSession = func(context.Context, string, func(event.Data)) (runner.Session, error) {
			cancel(nil)
			time.Sleep(time.Second)
			return s, nil
		}
		if res, err := runner.Run(ctx, cfg); err != nil || res.Status != run.Cancelled {
			t.Fatalf("result %+v, error %v", res, err)
		}
		if len(s.closed) != 1 {
			t.Errorf("the late session was closed %d times", len(s.closed))
		}
	})
}

// A sandbox that does not end is not waited for once the run's context is over.
func TestClosingIsBoundedAfterACancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		rec := &recorder{}
		cfg, _ := newConfig(t, &fakeModel{answer: script(say("fine"))})
		cfg.Run.Agent.Sandboxed, cfg.Emit = true, rec.emit
		cfg.OpenSession = func(context.Context, string, func(event.Data)) (runner.Session, error) {
			return closeFunc(func(ctx context.Context) error {
				time.Sleep(10 * time.Minute) // as long as it likes, while the run may
				if err := ctx.Err(); err != nil {
					t.Errorf("closing was cut off: %v", err)
				}
				cancel(nil)
				<-ctx.Done()
				return context.Cause(ctx)
			}), nil
		}
		begin := time.Now()
		res, err := runner.Run(ctx, cfg)
		if err != nil || res.Status != run.Completed {
			t.Fatalf("result %+v, error %v", res, err)
		}
		if took := time.Since(begin); took != 11*time.Minute {
			t.Errorf("the run took %s", took)
		}
		if w := of[event.Warning](rec); len(w) != 1 || !strings.Contains(w[0].Message, "closing the sandbox took longer than 1m0s") {
			t.Errorf("warnings %v", w)
		}
	})
}

type closeFunc func(context.Context) error

func (f closeFunc) Close(ctx context.Context, _ run.Status) error { return f(ctx) }

func TestSandboxComesWithTheFirstTurnThatNeedsIt(t *testing.T) {
	opened := 0
	s := &fakeSession{}
	open := func(_ context.Context, _ string, emit func(event.Data)) (runner.Session, error) {
		opened++
		emit(event.SandboxReady{SandboxID: "sb", Driver: "d", Root: "/workspace"})
		return s, nil
	}
	m := &fakeModel{answer: script(say("fine"))}
	cfg, _ := newConfig(t, m)
	cfg.OpenSession = open
	if _, err := runner.Run(t.Context(), cfg); err != nil || opened != 0 {
		t.Errorf("a plain agent opened %d sandboxes: %v", opened, err)
	}
	rec := &recorder{}
	cfg, _ = newConfig(t, m)
	cfg.OpenSession, cfg.Emit = open, rec.emit
	cfg.Run.Agent.Sandboxed = true
	cfg.Tools = func(got runner.Session) ([]tool.Tool, error) {
		if got != s {
			t.Errorf("the tools are for session %v", got)
		}
		return []tool.Tool{&fakeTool{name: "look"}}, nil
	}
	cfg.Instructions = func(_ context.Context, got runner.Session) (string, error) {
		return fmt.Sprintf("work in %t", got == s), nil
	}
	if _, err := runner.Run(t.Context(), cfg); err != nil || opened != 1 || !slices.Equal(s.closed, []run.Status{run.Completed}) {
		t.Errorf("%d sandboxes, closed %v: %v", opened, s.closed, err)
	}
	if req := m.requests[1]; req.Instructions != "work in true" || len(req.Tools) != 1 || req.IdempotencyKey != "run-1-2" {
		t.Errorf("request %+v", req)
	}
	want := []event.Kind{event.KindRunStarted, event.KindSandboxReady, event.KindTurnStarted, event.KindModelDone, event.KindRunFinished}
	if diff := cmp.Diff(want, rec.kinds()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}

	cfg, _ = newConfig(t, m)
	cfg.Run.Agent.Sandboxed = true
	noRoom := errors.New("no room")
	cfg.OpenSession = func(context.Context, string, func(event.Data)) (runner.Session, error) { return nil, noRoom }
	if res, err := runner.Run(t.Context(), cfg); !errors.Is(err, noRoom) || res.Status != run.Failed {
		t.Errorf("without room: %+v, %v", res, err)
	}
}

func TestModelFailureKeepsItsCause(t *testing.T) {
	fail := &model.Error{Kind: model.ErrAuth, Message: "no key", Hint: "set OPENAI_API_KEY"}
	m := &fakeModel{answer: func(context.Context, *model.Request) (*model.Response, error) { return nil, fail }}
	cfg, _ := newConfig(t, m)
	res, err := runner.Run(t.Context(), cfg)
	var got *model.Error
	if !errors.As(err, &got) || got != fail || res.Failure.Code != "model_auth" || !strings.Contains(res.Hint, "OPENAI_API_KEY") {
		t.Errorf("result %+v, error %v", res, err)
	}
	m.answer = script(say("fine"))
	if res, err := runner.Resume(t.Context(), cfg); err != nil || res.Output != "fine" || res.Turns != 1 {
		t.Errorf("resumed: %+v, %v", res, err)
	}
	if a, b := m.requests[0].IdempotencyKey, m.requests[1].IdempotencyKey; a != b {
		t.Errorf("the same call has the keys %q and %q", a, b)
	}
	if _, err := runner.Resume(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "complete") {
		t.Errorf("a complete run was resumed: %v", err)
	}
	if _, err := runner.Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("a second run was put into the log: %v", err)
	}
}

func TestLimits(t *testing.T) {
	loop := func(_ context.Context, req *model.Request) (*model.Response, error) {
		return &model.Response{Items: calls(call(fmt.Sprint(len(req.Items)), "look", `{}`)), Usage: model.Usage{TotalTokens: 100}}, nil
	}
	for name, c := range map[string]struct {
		set  func(*spec.Run)
		want run.Status
		code string
	}{
		"default turns": {func(r *spec.Run) { r.MaxTurns = nil }, run.MaxTurns, run.FailTurns},
		"tokens":        {func(r *spec.Run) { r.Budget.TotalTokens = 450 }, run.Budget, run.FailTokens},
		"cost":          {func(r *spec.Run) { r.Budget.CostUSD = 0.02 }, run.Budget, run.FailCost},
		"tool calls":    {func(r *spec.Run) { r.Budget.ToolCalls = 3 }, run.Budget, run.FailToolCalls},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, _ := newConfig(t, &fakeModel{answer: loop}, &fakeTool{name: "look"})
			cfg.Cost = func(_ string, u model.Usage) float64 { return float64(u.TotalTokens) / 20_000 }
			c.set(cfg.Run)
			res, err := runner.Run(t.Context(), cfg)
			if err != nil || res.Status != c.want || res.Failure.Code != c.code || !strings.Contains(res.Hint, "berth resume run-1") {
				t.Errorf("result %+v, error %v", res, err)
			}
		})
	}
	t.Run("wall time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			cfg, _ := newConfig(t, &fakeModel{answer: loop}, &fakeTool{name: "look", f: func(ctx context.Context, _ tool.Call) (tool.Result, error) {
				select {
				case <-ctx.Done():
				case <-time.After(40 * time.Second):
				}
				return tool.Result{Text: "x"}, nil
			}})
			cfg.Run.Budget.WallTime = time.Minute
			begin := time.Now()
			res, err := runner.Run(t.Context(), cfg)
			if err != nil || res.Status != run.Budget || res.Failure.Code != run.FailTime || time.Since(begin) != time.Minute {
				t.Errorf("after %s: result %+v, error %v", time.Since(begin), res, err)
			}
		})
	})
}

func TestOutputSchema(t *testing.T) {
	m := &fakeModel{answer: script(say("nonsense"), say(`{"n":1}`))}
	cfg, _ := newConfig(t, m)
	cfg.Run.Agent.OutputSchema = &spec.OutputSchema{Label: "number", Schema: json.RawMessage(`{"type":"object"}`), Strict: true, Retry: 1}
	cfg.CheckOutput = func(s *spec.OutputSchema, text string) error {
		if !json.Valid([]byte(text)) {
			return errors.New("it is not JSON")
		}
		return nil
	}
	res, err := runner.Run(t.Context(), cfg)
	if err != nil || res.Output != `{"n":1}` {
		t.Fatalf("result %+v, error %v", res, err)
	}
	items := m.requests[1].Items
	if fb := items[len(items)-1]; role(fb) != "user" || !strings.Contains(fb.Text(), "it is not JSON") {
		t.Errorf("the model was told %s", fb.Raw)
	}
	if s := m.requests[0].OutputSchema; s == nil || s.Name != "number" || !s.Strict {
		t.Errorf("the request has the schema %+v", s)
	}
}

func TestToolChoiceIsReset(t *testing.T) {
	required, temperature := "required", 0.5
	m := &fakeModel{answer: script(calls(call("1", "look", `{}`)), say("fine"))}
	cfg, _ := newConfig(t, m, &fakeTool{name: "look"})
	cfg.Settings = &spec.ModelSettings{ToolChoice: &required, Temperature: &temperature}
	if _, err := runner.Run(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	a, b := m.requests[0].Settings, m.requests[1].Settings
	if a.ToolChoice == nil || *a.ToolChoice != required || b.ToolChoice != nil || *b.Temperature != temperature {
		t.Errorf("settings %+v, then %+v", a, b)
	}
}

// A consumer that never comes back does not stop the run; what it gets later is in order and says what is missing.
func TestSlowConsumerDoesNotStopTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const turns = 3000
		m := &fakeModel{deltas: []string{"some", "text"}, answer: func(_ context.Context, req *model.Request) (*model.Response, error) {
			if n := len(req.Items) / 2; n < turns {
				return &model.Response{Items: calls(call(fmt.Sprint(n), "look", `{}`))}, nil
			}
			return &model.Response{Items: say("fine")}, nil
		}}
		cfg, _ := newConfig(t, m, &fakeTool{name: "look"})
		gate := make(chan struct{})
		rec := &recorder{}
		cfg.Emit = func(ev event.Event) {
			<-gate
			rec.emit(ev)
		}
		begin := time.Now()
		res, err := runner.Run(t.Context(), cfg)
		if err != nil || res.Output != "fine" {
			t.Fatalf("result %+v, error %v", res, err)
		}
		if took := time.Since(begin); took > 11*time.Second {
			t.Errorf("the run waited %s for its consumer", took)
		}
		close(gate)
		synctest.Wait()
		evs := rec.all()
		if len(of[event.ToolFinished](rec)) != turns || len(of[event.RunFinished](rec)) != 1 {
			t.Errorf("%d tools finished, %d runs", len(of[event.ToolFinished](rec)), len(of[event.RunFinished](rec)))
		}
		if n := len(of[event.ModelDelta](rec)); n >= turns {
			t.Errorf("%d deltas waited", n)
		}
		warned := false
		for i, ev := range evs {
			if i > 0 && ev.Seq <= evs[i-1].Seq && ev.Kind != event.KindWarning {
				t.Fatalf("event %d has number %d after %d", i, ev.Seq, evs[i-1].Seq)
			}
			if w, ok := ev.Data.(event.Warning); ok && strings.Contains(w.Message, "left out") {
				warned = true
			}
		}
		if !warned {
			t.Error("nobody was told that events were left out")
		}
	})
}

// The log alone tells the whole story, also after a resume: numbers go up and are never used twice.
func TestEventsAreInTheLog(t *testing.T) {
	stop := make(chan struct{})
	m := &fakeModel{deltas: []string{"x"}, answer: script(calls(call("1", "look", `{}`)), say("fine"))}
	rec := &recorder{}
	cfg, dir := newConfig(t, m, &fakeTool{name: "look", f: func(context.Context, tool.Call) (tool.Result, error) {
		close(stop)
		return tool.Result{Text: "ok"}, nil
	}})
	cfg.Emit, cfg.Stop = rec.emit, stop
	res, err := runner.Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Stop = nil
	if res.Status == run.Cancelled {
		if _, err := runner.Resume(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	var fromLog, seen []string
	last := uint64(0)
	for r, err := range runlog.Read(dir) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Type != "event" {
			continue
		}
		var ev struct {
			Seq  uint64
			Type string
		}
		if err := json.Unmarshal(r.Data, &ev); err != nil {
			t.Fatal(err)
		}
		if ev.Seq <= last {
			t.Errorf("event %d follows %d", ev.Seq, last)
		}
		last = ev.Seq
		fromLog = append(fromLog, ev.Type)
	}
	for _, ev := range rec.all() {
		if ev.Kind != event.KindModelDelta {
			seen = append(seen, string(ev.Kind))
		}
	}
	if diff := cmp.Diff(seen, fromLog); diff != "" {
		t.Errorf("events (-seen +log):\n%s", diff)
	}
}

func TestConfigFaultsAreAllTold(t *testing.T) {
	if _, err := runner.Run(t.Context(), runner.Config{}); err == nil {
		t.Fatal("an empty configuration runs")
	} else {
		for _, want := range []string{"no id", "no model", "no log", "no agent"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q is not in: %v", want, err)
			}
		}
	}
	cfg, _ := newConfig(t, &fakeModel{})
	cfg.Run.Agent.Sandboxed = true
	cfg.Run.Agent.Handoffs = []*spec.Handoff{{Agent: &spec.Agent{Label: "other"}}}
	cfg.Run.InputGuardrails = []*spec.Guardrail{{}}
	cfg.Run.Approvals = &spec.Approvals{Default: "ask"}
	cfg.Run.Budget.CostUSD = 1
	_, err := runner.Run(t.Context(), cfg)
	if err == nil {
		t.Fatal("what is not available yet runs")
	}
	for _, want := range []string{"sandbox", `agent "other", which is not there`, "guardrails", "approval rules", "prices"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
}
