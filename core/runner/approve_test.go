// SPDX-License-Identifier: Apache-2.0

package runner_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/core/approval"
	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/runlog"
	"github.com/berth-dev/berth/core/runner"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/tool"
)

// ruled gives a run rules.
func ruled(t *testing.T, cfg *runner.Config, rules ...spec.ApprovalRule) {
	t.Helper()
	cfg.Run.Agent.Approvals = &spec.Approvals{Rules: rules}
	var err error
	if cfg.Rules, err = approval.Compile(nil, "/workspace", cfg.Run.Agent); err != nil {
		t.Fatal(err)
	}
}

const deniedHint = `,"retryable":false,"hint":"do not make the same call again; find another way, or say what you need"}}`

func TestApprovals(t *testing.T) {
	answer := script(calls(call("1", "push", `{"n":1}`), call("2", "push", `{"n":2}`), call("3", "push", `{"n":3}`)), say("fine"))
	for name, c := range map[string]struct {
		approve func(context.Context, runner.Approval) (runner.Decision, error)
		want    string
	}{
		"nobody": {nil, `{"error":{"code":"approval_unavailable","message":"the call needs an approval, and nobody can give one: approvals are not available in this run","retryable":false,"hint":"find a way that needs no approval, or say what you need"}}`},
		"yes": {func(context.Context, runner.Approval) (runner.Decision, error) {
			return runner.Decision{Allow: true}, nil
		}, `done {"n":1}`},
		"no": {func(_ context.Context, a runner.Approval) (runner.Decision, error) {
			return runner.Decision{Message: a.Reason + ": no"}, nil
		}, `{"error":{"code":"approval_denied","message":"it leaves the house: no"` + deniedHint},
		"broken": {func(context.Context, runner.Approval) (runner.Decision, error) {
			return runner.Decision{Allow: true}, errors.New("no terminal")
		}, `{"error":{"code":"approval_denied","message":"the approval could not be asked for: no terminal"` + deniedHint},
	} {
		t.Run(name, func(t *testing.T) {
			m := &fakeModel{answer: answer}
			rec := &recorder{}
			cfg, _ := newConfig(t, m, &fakeTool{name: "push"})
			ruled(t, &cfg, spec.ApprovalRule{Match: []string{`"n":1`}, Decision: "ask", Reason: "it leaves the house"},
				spec.ApprovalRule{Match: []string{`"n":2`}, Decision: "deny", Reason: "not this one"})
			cfg.Approve, cfg.Emit = c.approve, rec.emit
			_, got := outputs(t, cfg, m)
			want := []string{c.want, `{"error":{"code":"approval_denied","message":"not this one"` + deniedHint, `done {"n":3}`}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("outputs (-want +got):\n%s", diff)
			}
			if w := of[event.ApprovalWanted](rec); len(w) != 1 || w[0].CallID != "1" || string(w[0].Arguments) != `{"n":1}` || w[0].Reason != "it leaves the house" {
				t.Errorf("approval.wanted events: %+v", w)
			}
			if d := of[event.ApprovalDecided](rec); len(d) != 1 || d[0].CallID != "1" || d[0].Allow != (name == "yes") {
				t.Errorf("approval.decided events: %+v", d)
			}
		})
	}
}

// An answer that is to count for later calls decides those that wait, and those to come; others are still asked about.
func TestAlways(t *testing.T) {
	for _, how := range []string{"always", "remember", "reject"} {
		t.Run(how, func(t *testing.T) {
			m := &fakeModel{answer: script(
				calls(call("1", "push", `{"n":1}`), call("2", "push", `{"n":2}`), call("3", "other", `{}`)),
				calls(call("4", "push", `{"n":4}`)), say("fine"),
			)}
			cfg, _ := newConfig(t, m, &fakeTool{name: "push"}, &fakeTool{name: "other"})
			r := spec.ApprovalRule{Tools: []string{"push", "other"}, Decision: "ask"}
			if how != "always" {
				r.Remember = "run"
			}
			ruled(t, &cfg, r)
			var mu sync.Mutex
			asked := map[string]int{}
			cfg.Approve = func(ctx context.Context, a runner.Approval) (runner.Decision, error) {
				mu.Lock()
				asked[a.Call.CallID]++
				mu.Unlock()
				if a.Call.CallID == "2" {
					<-ctx.Done() // the answer to the first covers this one
					return runner.Decision{}, context.Cause(ctx)
				}
				return runner.Decision{Allow: how != "reject", Always: how == "always" && a.Call.CallID == "1", Message: "no"}, nil
			}
			_, got := outputs(t, cfg, m)
			want := []string{`done {"n":1}`, `done {"n":2}`, `done {}`, `done {"n":4}`}
			if how == "reject" {
				no := `{"error":{"code":"approval_denied","message":"no"` + deniedHint
				want = []string{no, no, no, `{"error":{"code":"approval_denied","message":"a call of this kind was rejected before: no"` + deniedHint}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("outputs (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(map[string]int{"1": 1, "2": 1, "3": 1}, asked); diff != "" {
				t.Errorf("asked about (-want +got):\n%s", diff)
			}
		})
	}
}

// A run that only waits for a decision pauses when nobody decides, and a resume asks again.
func TestPause(t *testing.T) {
	m := &fakeModel{answer: script(calls(call("1", "push", `{}`), call("2", "look", `{}`)), say("fine"))}
	tools := newCounting()
	cfg, dir := newConfig(t, m, &fakeTool{name: "push"}, tools.tool())
	ruled(t, &cfg, spec.ApprovalRule{Tools: []string{"push"}, Decision: "ask"})
	cfg.Approve = func(context.Context, runner.Approval) (runner.Decision, error) {
		return runner.Decision{}, runner.ErrUndecided
	}
	res, err := runner.Run(t.Context(), cfg)
	if err != nil || res.Status != run.Paused || res.Hint != "decide with berth approve run-1 or berth reject run-1, then go on with berth resume run-1" {
		t.Fatalf("%+v, %v", res, err)
	}
	cfg.Log.(*runlog.Log).Close()
	for _, decided := range []bool{false, true} {
		l, err := runlog.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Log = l
		if decided {
			cfg.Approve = func(_ context.Context, a runner.Approval) (runner.Decision, error) {
				return runner.Decision{Allow: a.Call.Name == "push" && !a.Unsure}, nil
			}
		}
		res, err = runner.Resume(t.Context(), cfg)
		l.Close()
		if want := map[bool]run.Status{false: run.Paused, true: run.Completed}[decided]; err != nil || res.Status != want {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	if tools.ran["c2"] > 0 || tools.ran["2"] != 1 {
		t.Errorf("the other call ran %v", tools.ran)
	}
}

// A call that may have been made is asked about, unless its tool can find out by itself.
func TestUnsure(t *testing.T) {
	for name, c := range map[string]struct {
		approve func(context.Context, runner.Approval) (runner.Decision, error)
		want    string
		ran     int
	}{
		"nobody": {nil, `{"error":{"code":"interrupted","message":"the run was interrupted while this call was made; it may have done all, a part or nothing of its work, and was not made again","retryable":false,"hint":"see what it has done, and make a new call if that is right"}}`, 1},
		"yes": {func(_ context.Context, a runner.Approval) (runner.Decision, error) {
			return runner.Decision{Allow: a.Unsure && cmp.Equal(a.Covers, run.Cover{})}, nil
		}, `did it {}`, 2},
		"no": {func(context.Context, runner.Approval) (runner.Decision, error) {
			return runner.Decision{Message: "it is done"}, nil
		}, `{"error":{"code":"interrupted","message":"the run was interrupted while this call was made; it may have done all, a part or nothing of its work, and was not made again: it is done","retryable":false,"hint":"see what it has done, and make a new call if that is right"}}`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			m := &fakeModel{answer: script(calls(call("1", "write", `{}`)), say("fine"))}
			ran, again := 0, false
			cfg, dir := newConfig(t, m, &fakeTool{name: "write", f: func(_ context.Context, c tool.Call) (tool.Result, error) {
				ran++
				again = again || c.Again
				if ran == 1 {
					if err := c.Save([]byte(`{"half":true}`)); err != nil {
						t.Error(err)
					}
				}
				return tool.Result{Text: "did it " + c.Arguments}, nil
			}})
			plain := cfg.Log.(*runlog.Log)
			cfg.Log = &crashLog{Log: plain, left: 4} // start, answer, checkpoint, result
			if _, err := runner.Run(t.Context(), cfg); !errors.Is(err, errCrash) || ran != 1 {
				t.Fatalf("the run did not crash behind the call: %v, %d", err, ran)
			}
			plain.Close()
			l, err := runlog.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			cfg.Log, cfg.Approve = l, c.approve
			res, err := runner.Resume(t.Context(), cfg)
			if err != nil || res.Output != "fine" {
				t.Fatalf("%+v, %v", res, err)
			}
			items := m.requests[len(m.requests)-1].Items
			if got := items[len(items)-1].Text(); got != c.want || ran != c.ran || again {
				t.Errorf("the model was told %s\nafter %d calls, again %t", got, ran, again)
			}
		})
	}
}

// What a tool saves during a call comes back to it after a crash.
func TestCheckpoint(t *testing.T) {
	m := &fakeModel{answer: script(calls(call("1", "write", `{}`)), say("fine"))}
	write := &recoveringTool{fakeTool{name: "write", f: func(_ context.Context, c tool.Call) (tool.Result, error) {
		if c.Again {
			return tool.Result{Text: "saved " + string(c.Saved)}, nil
		}
		return tool.Result{Text: "first"}, errors.Join(c.Save([]byte(`1`)), c.Save([]byte(`{"step":2}`)))
	}}}
	cfg, dir := newConfig(t, m, write)
	plain := cfg.Log.(*runlog.Log)
	cfg.Log = &crashLog{Log: plain, left: 5}
	if _, err := runner.Run(t.Context(), cfg); !errors.Is(err, errCrash) {
		t.Fatalf("the run did not crash: %v", err)
	}
	plain.Close()
	l, err := runlog.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cfg.Log = l
	if _, err := runner.Resume(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	items := m.requests[len(m.requests)-1].Items
	if got := items[len(items)-1].Text(); got != `saved {"step":2}` {
		t.Errorf("the tool answered %s", got)
	}
}
