// SPDX-License-Identifier: Apache-2.0

package runner_test

import (
	"context"
	"fmt"
	"iter"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/runlog"
	"github.com/berth-dev/berth/core/runner"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/tool"
)

// fakeModel answers by a function of the request.
type fakeModel struct {
	support model.Support
	answer  func(ctx context.Context, req *model.Request) (*model.Response, error)
	deltas  []string

	mu       sync.Mutex
	requests []*model.Request // guarded by mu
}

func (m *fakeModel) Supports() model.Support { return m.support }

func (m *fakeModel) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		m.mu.Lock()
		m.requests = append(m.requests, req)
		m.mu.Unlock()
		for _, d := range m.deltas {
			if !yield(model.TextDelta{Text: d}, nil) {
				return
			}
		}
		resp, err := m.answer(ctx, req)
		if err != nil {
			yield(nil, err)
			return
		}
		yield(model.Done{Response: resp}, nil)
	}
}

// script answers the n-th request of the transcript with the n-th list of items; the position is found by counting the
// model's own items, so that a model call that is repeated after a crash gets the same answer.
func script(turns ...[]model.Item) func(context.Context, *model.Request) (*model.Response, error) {
	return func(_ context.Context, req *model.Request) (*model.Response, error) {
		seen := 0
		for i, it := range req.Items {
			own := isOwn(it)
			if own && (i == 0 || !isOwn(req.Items[i-1])) {
				seen++
			}
		}
		if seen >= len(turns) {
			return nil, &model.Error{Kind: model.ErrReplay, Message: fmt.Sprintf("the script has no turn %d", seen+1)}
		}
		return &model.Response{
			ID: fmt.Sprintf("resp_%d", seen+1), Items: turns[seen],
			Usage: model.Usage{Requests: 1, InputTokens: 10, OutputTokens: 5, TotalTokens: 15},
		}, nil
	}
}

func isOwn(it model.Item) bool {
	if _, ok := it.ToolCall(); ok {
		return true
	}
	return it.Type == model.ItemMessage && slices.Contains([]string{"assistant"}, role(it))
}

func say(text string) []model.Item { return []model.Item{model.Assistant(text)} }

func calls(cs ...model.ToolCall) []model.Item {
	var items []model.Item
	for _, c := range cs {
		items = append(items, model.CallItem(c))
	}
	return items
}

func call(id, name, args string) model.ToolCall {
	return model.ToolCall{CallID: id, Kind: model.ToolFunction, Name: name, Arguments: args}
}

// fakeTool is a tool made of a function.
type fakeTool struct {
	name  string
	kind  model.ToolKind
	limit time.Duration
	fatal bool
	f     func(ctx context.Context, c tool.Call) (tool.Result, error)
}

func (t *fakeTool) Spec() model.ToolSpec {
	kind := t.kind
	if kind == "" {
		kind = model.ToolFunction
	}
	return model.ToolSpec{Kind: kind, Name: t.name, Parameters: []byte(`{"type":"object"}`)}
}

func (t *fakeTool) Call(ctx context.Context, c tool.Call) (tool.Result, error) {
	if t.f == nil {
		return tool.Result{Text: "done " + c.Arguments}, nil
	}
	return t.f(ctx, c)
}

func (t *fakeTool) TimeLimit() (time.Duration, bool) { return t.limit, t.fatal }

// recoveringTool is one that takes up calls that may have been made.
type recoveringTool struct{ fakeTool }

func (*recoveringTool) Recovers() {}

// fakeSession counts how it was closed.
type fakeSession struct {
	mu     sync.Mutex
	closed []run.Status // guarded by mu
}

func (s *fakeSession) Close(_ context.Context, st run.Status) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = append(s.closed, st)
	return nil
}

// recorder keeps events.
type recorder struct {
	mu     sync.Mutex
	events []event.Event // guarded by mu
}

func (r *recorder) emit(ev event.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, ev)
}

func (r *recorder) all() []event.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

func (r *recorder) kinds() []event.Kind {
	var ks []event.Kind
	for _, ev := range r.all() {
		ks = append(ks, ev.Kind)
	}
	return ks
}

// of gives the events of one kind of data.
func of[T event.Data](r *recorder) []T {
	var out []T
	for _, ev := range r.all() {
		if d, ok := ev.Data.(T); ok {
			out = append(out, d)
		}
	}
	return out
}

// newConfig is a run of an agent without a sandbox, with a log in a fresh directory.
func newConfig(tb testing.TB, m model.Model, tools ...tool.Tool) (runner.Config, string) {
	tb.Helper()
	dir := filepath.Join(tb.TempDir(), "run-1")
	l, err := runlog.Create(dir)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { l.Close() })
	turns := 0
	return runner.Config{
		RunID: "run-1", Log: l,
		Run: &spec.Run{
			Label: "r", Input: "do it", MaxTurns: &turns,
			Agent: &spec.Agent{Label: "main"},
		},
		Member: runner.Member{
			Model: m, ModelName: "fake",
			Tools: func(runner.Session) ([]tool.Tool, error) { return tools, nil },
		},
	}, dir
}
