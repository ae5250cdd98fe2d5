// SPDX-License-Identifier: Apache-2.0

package runner_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/runlog"
	"github.com/berth-dev/berth/core/runner"
	"github.com/berth-dev/berth/core/runner/history"
	"github.com/berth-dev/berth/core/tool"
)

var errCrash = errors.New("power off")

// crashLog is a log whose n-th append crashes: before or after it is written.
type crashLog struct {
	*runlog.Log
	left  int
	after bool
}

func (l *crashLog) Append(sync bool, entries ...runlog.Entry) error {
	l.left--
	if l.left > 0 {
		return l.Log.Append(sync, entries...)
	}
	if l.left == 0 && l.after {
		if err := l.Log.Append(sync, entries...); err != nil {
			return err
		}
	}
	return errCrash
}

// story is a run with parallel tools, a repeated call id, an error and a final text.
func story() *fakeModel {
	return &fakeModel{answer: script(
		calls(call("c1", "look", `{"n":1}`), call("c2", "look", `{"n":2}`), call("c3", "nothing", `{}`)),
		calls(call("c1", "look", `{"n":1}`), call("c4", "look", `{broken`)),
		append(say("nearly"), calls(call("c5", "look", `{"n":5}`))...),
		say("the end"),
	)}
}

// counting is a tool that counts how often each call ran.
type counting struct {
	mu    sync.Mutex
	ran   map[string]int // guarded by mu
	again map[string]bool
}

func (c *counting) tool() tool.Tool {
	return &recoveringTool{fakeTool{name: "look", f: func(_ context.Context, call tool.Call) (tool.Result, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.ran[call.ID]++
		c.again[call.ID] = call.Again
		return tool.Result{Text: "saw " + call.Arguments}, nil
	}}}
}

func newCounting() *counting { return &counting{ran: map[string]int{}, again: map[string]bool{}} }

// transcript reads what a log says about a run.
func transcript(t *testing.T, dir string) []string {
	t.Helper()
	l, err := runlog.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	h, err := history.Read(l)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, it := range h.Items {
		out = append(out, string(it.Raw))
	}
	return out
}

func TestCrashAtEveryStep(t *testing.T) {
	cfg, calmDir := newConfig(t, story(), newCounting().tool())
	calm := &crashLog{Log: cfg.Log.(*runlog.Log), left: 1 << 30}
	cfg.Log = calm
	want, err := runner.Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	calm.Close()
	wantItems := transcript(t, calmDir)
	appends := 1<<30 - calm.left
	if appends < 10 || want.Output != "the end" {
		t.Fatalf("the story has %d steps and ends with %q", appends, want.Output)
	}
	for n := 1; n <= appends; n++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("step %d after=%t", n, after), func(t *testing.T) {
				tools := newCounting()
				cfg, dir := newConfig(t, story(), tools.tool())
				plain := cfg.Log.(*runlog.Log)
				cfg.Log = &crashLog{Log: plain, left: n, after: after}
				if _, err := runner.Run(t.Context(), cfg); !errors.Is(err, errCrash) {
					t.Fatalf("the run did not crash: %v", err)
				}
				plain.Close()
				recorded := settledCalls(t, dir)
				ranBefore := map[string]int{}
				maps.Copy(ranBefore, tools.ran)

				l, err := runlog.Open(dir)
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				cfg.Log = l
				rec := &recorder{}
				cfg.Emit = rec.emit
				res, err := runner.Resume(t.Context(), cfg)
				switch {
				case n == 1 && !after:
					if err == nil || !strings.Contains(err.Error(), "before the first step") {
						t.Fatalf("an empty log was resumed: %v", err)
					}
					return
				case n >= appends-1 && err != nil:
					// The last step was in the log: the run is complete, and only its end was not told.
					if !strings.Contains(err.Error(), "complete") {
						t.Fatal(err)
					}
				case err != nil:
					t.Fatal(err)
				default:
					if diff := cmp.Diff(want.Output, res.Output); diff != "" || res.Status != run.Completed {
						t.Errorf("the resumed run is %s with %q", res.Status, res.Output)
					}
					if !of[event.RunStarted](rec)[0].Resumed {
						t.Error("the resumed run does not say so")
					}
				}
				l.Close()
				if diff := cmp.Diff(wantItems, transcript(t, dir)); diff != "" {
					t.Errorf("the transcript differs from that of a calm run (-want +got):\n%s", diff)
				}
				for id, k := range tools.ran {
					if recorded[id] && k != ranBefore[id] {
						t.Errorf("call %s ran again after its result was recorded", id)
					}
					if k > 2 {
						t.Errorf("call %s ran %d times", id, k)
					}
					if k == 2 && !tools.again[id] && ranBefore[id] > 0 {
						t.Errorf("call %s ran again and was not told so", id)
					}
				}
			})
		}
	}
}

// settledCalls lists the tool calls whose results are in a log.
func settledCalls(t *testing.T, dir string) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for rec, err := range runlog.Read(dir) {
		if err != nil {
			t.Fatal(err)
		}
		// The event stands in one append with the step.
		if rec.Type == "event" && strings.Contains(string(rec.Data), `"tool.finished"`) {
			for _, id := range []string{"c1", "c2", "c3", "c4", "c5"} {
				if strings.Contains(string(rec.Data), `"call_id":"`+id+`"`) {
					out[id] = true
				}
			}
		}
	}
	return out
}

// The same with a real process that dies by SIGKILL while a tool runs.
func TestProcessKilledInTool(t *testing.T) {
	const env = "BERTH_TEST_KILLED_RUN"
	killModel := func() *fakeModel {
		return &fakeModel{answer: script(
			calls(call("c1", "look", `{}`)),
			calls(call("c2", "look", `{}`), call("c3", "die", `{}`)),
			say("lived"),
		)}
	}
	if dir := os.Getenv(env); dir != "" {
		cfg, _ := newConfig(t, killModel(), newCounting().tool(), &fakeTool{name: "die", f: func(context.Context, tool.Call) (tool.Result, error) {
			self, _ := os.FindProcess(os.Getpid())
			_ = self.Kill()
			select {}
		}})
		l, err := runlog.Create(dir)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Log = l
		_, err = runner.Run(t.Context(), cfg)
		t.Fatalf("the process lived: %v", err)
	}
	dir := filepath.Join(t.TempDir(), "run-1")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProcessKilledInTool$")
	cmd.Env = append(os.Environ(), env+"="+dir)
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("the process was not killed: %v\n%s", err, out)
	}
	l, err := runlog.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tools, again := newCounting(), false
	m := killModel()
	cfg, _ := newConfig(t, m, tools.tool(), &recoveringTool{fakeTool{name: "die", f: func(_ context.Context, c tool.Call) (tool.Result, error) {
		again = c.Again
		return tool.Result{Text: "survived"}, nil
	}}})
	cfg.Log = l
	res, err := runner.Resume(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if res.Output != "lived" || res.Turns != 3 || !again || tools.ran["c1"] != 0 || len(m.requests) != 1 {
		t.Errorf("result %+v, again %t, ran %v, %d requests", res, again, tools.ran, len(m.requests))
	}
	var last []string
	for _, it := range m.requests[0].Items {
		last = append(last, it.Text())
	}
	if diff := cmp.Diff([]string{"do it", "", "saw {}", "", "", "saw {}", "survived"}, last); diff != "" {
		t.Errorf("the request after the resume (-want +got):\n%s", diff)
	}
}

// A run that is stopped again and again comes to the same end.
func TestStopAndResumeAtEveryTurn(t *testing.T) {
	tools := newCounting()
	cfg, dir := newConfig(t, nil, tools.tool())
	cfg.Log.(*runlog.Log).Close()
	m := story()
	answer := m.answer
	var res *runner.Result
	for round := 0; ; round++ {
		l, err := runlog.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		stop := make(chan struct{})
		var once sync.Once
		m.answer = func(ctx context.Context, req *model.Request) (*model.Response, error) {
			once.Do(func() { close(stop) })
			<-ctx.Done() // stopped before the answer comes
			return nil, context.Cause(ctx)
		}
		if round%2 == 1 {
			m.answer = func(ctx context.Context, req *model.Request) (*model.Response, error) {
				defer once.Do(func() { close(stop) }) // stopped while, or before, the tools run
				return answer(ctx, req)
			}
		}
		cfg.Model, cfg.Log, cfg.Stop = m, l, stop
		if round == 0 {
			res, err = runner.Run(t.Context(), cfg)
		} else {
			res, err = runner.Resume(t.Context(), cfg)
		}
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		if res.Status == run.Completed {
			break
		}
		if res.Status != run.Cancelled || res.Hint != "berth resume run-1" || round > 20 {
			t.Fatalf("round %d: %+v", round, res)
		}
	}
	if res.Output != "the end" {
		t.Errorf("the run ended with %q", res.Output)
	}
	for id, n := range tools.ran {
		if n != 1 {
			t.Errorf("call %s ran %d times", id, n)
		}
	}
}
