// SPDX-License-Identifier: Apache-2.0

package runner_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/runner"
	"github.com/berth-dev/berth/core/tool"
	"github.com/berth-dev/berth/sdk/errs"
)

// outputs runs one answer with calls and gives what the model was told, by call.
func outputs(t *testing.T, cfg runner.Config, m *fakeModel) (*runner.Result, []string) {
	t.Helper()
	res, err := runner.Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, it := range m.requests[len(m.requests)-1].Items {
		if strings.HasSuffix(string(it.Type), "_output") {
			out = append(out, it.Text())
		}
	}
	return res, out
}

// Whatever goes wrong in a tool goes to the model in one shape, and the run goes on.
func TestToolFailuresGoToTheModel(t *testing.T) {
	tools := []tool.Tool{
		&fakeTool{name: "typed", f: func(context.Context, tool.Call) (tool.Result, error) {
			return tool.Result{Error: &tool.Error{Code: "file_not_found", Message: `no "a<b>"`, Hint: "look first"}}, nil
		}},
		&fakeTool{name: "plain", f: func(context.Context, tool.Call) (tool.Result, error) {
			return tool.Result{}, errors.New("something broke")
		}},
		&fakeTool{name: "driver", f: func(context.Context, tool.Call) (tool.Result, error) {
			return tool.Result{}, fmt.Errorf("run it: %w", errs.New(errs.RateLimited, "too fast").WithHint("wait"))
		}},
		&fakeTool{name: "panics", f: func(context.Context, tool.Call) (tool.Result, error) { panic("oh no") }},
		&fakeTool{name: "ok"},
	}
	m := &fakeModel{answer: script(calls(
		call("1", "typed", `{}`), call("2", "plain", `{}`), call("3", "driver", `{}`), call("4", "panics", `{}`),
		call("5", "ok", `{"a":`), call("6", "ok", `[1]`), call("7", "missing", `{}`), call("8", "ok", ` `),
		model.ToolCall{CallID: "9", Kind: model.ToolCustom, Name: "ok", Arguments: "free"},
	), say("fine"))}
	rec := &recorder{}
	cfg, _ := newConfig(t, m, tools...)
	cfg.Emit = rec.emit
	res, got := outputs(t, cfg, m)
	want := []string{
		`{"error":{"code":"file_not_found","message":"no \"a<b>\"","retryable":false,"hint":"look first"}}`,
		`{"error":{"code":"tool_failed","message":"something broke","retryable":false}}`,
		`{"error":{"code":"rate_limited","message":"run it: too fast","retryable":true,"hint":"wait"}}`,
		`{"error":{"code":"tool_crashed","message":"the tool crashed: oh no","retryable":false}}`,
		`{"error":{"code":"invalid_arguments","message":"the arguments are not a JSON object: unexpected end of JSON input","retryable":true,"hint":"make the call again with one JSON object as arguments"}}`,
		`{"error":{"code":"invalid_arguments","message":"the arguments are not a JSON object: json: cannot unmarshal array into Go value of type map[string]json.RawMessage","retryable":true,"hint":"make the call again with one JSON object as arguments"}}`,
		`{"error":{"code":"unknown_tool","message":"there is no tool \"missing\"","retryable":false,"hint":"the tools are driver, ok, panics, plain, typed"}}`,
		`done {}`,
		`{"error":{"code":"unknown_tool","message":"there is no tool \"ok\"","retryable":false,"hint":"the tools are driver, ok, panics, plain, typed"}}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what the model was told (-want +got):\n%s", diff)
	}
	if res.Output != "fine" {
		t.Errorf("the run ended with %q", res.Output)
	}
	codes := map[string]string{}
	for _, f := range of[event.ToolFinished](rec) {
		codes[f.CallID] = fmt.Sprint(f.OK, " ", f.Code)
	}
	wantCodes := map[string]string{
		"1": "false file_not_found", "2": "false tool_failed", "3": "false rate_limited", "4": "false tool_crashed",
		"5": "false invalid_arguments", "6": "false invalid_arguments", "7": "false unknown_tool", "8": "true ", "9": "false unknown_tool",
	}
	if diff := cmp.Diff(wantCodes, codes); diff != "" {
		t.Errorf("tool.finished events (-want +got):\n%s", diff)
	}
}

func TestToolEndsRun(t *testing.T) {
	for name, cause := range map[string]error{
		"end run":      tool.EndRun(errors.New("policy broken")),
		"sandbox gone": errs.New(errs.SandboxGone, "it vanished").WithHint("restore the snapshot"),
	} {
		t.Run(name, func(t *testing.T) {
			m := &fakeModel{answer: script(calls(call("1", "bad", `{}`)), say("never"))}
			cfg, _ := newConfig(t, m, &fakeTool{name: "bad", f: func(context.Context, tool.Call) (tool.Result, error) {
				return tool.Result{}, cause
			}})
			res, err := runner.Run(t.Context(), cfg)
			if !errors.Is(err, cause) || res.Status != run.Failed || !strings.Contains(res.Hint, "berth resume run-1") {
				t.Errorf("result %+v, error %v", res, err)
			}
		})
	}
}

func TestToolTimeout(t *testing.T) {
	for _, endRun := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m := &fakeModel{answer: script(calls(call("1", "slow", `{}`)), say("fine"))}
			cfg, _ := newConfig(t, m, &fakeTool{name: "slow", limit: 3 * time.Second, fatal: endRun, f: func(ctx context.Context, _ tool.Call) (tool.Result, error) {
				<-ctx.Done()
				return tool.Result{}, ctx.Err()
			}})
			begin := time.Now()
			res, err := runner.Run(t.Context(), cfg)
			if took := time.Since(begin); took != 3*time.Second {
				t.Errorf("the run took %s", took)
			}
			if endRun {
				if err == nil || res.Status != run.Failed || !strings.Contains(err.Error(), "its limit of 3s") {
					t.Errorf("result %+v, error %v", res, err)
				}
				return
			}
			if err != nil || res.Output != "fine" {
				t.Fatalf("result %+v, error %v", res, err)
			}
			if told := m.requests[1].Items[2].Text(); !strings.Contains(told, `"code":"timeout","message":"the tool took longer than its limit of 3s"`) {
				t.Errorf("the model was told %s", told)
			}
		})
	}
}

func TestToolsRunInParallelUpToTheBound(t *testing.T) {
	for _, bound := range []int{0, 1, 3} {
		synctest.Test(t, func(t *testing.T) {
			var now, most atomic.Int32
			var cs []model.ToolCall
			for i := range 7 {
				cs = append(cs, call(fmt.Sprint(i), "slow", fmt.Sprintf(`{"n":%d}`, i)))
			}
			m := &fakeModel{answer: script(calls(cs...), say("fine"))}
			cfg, _ := newConfig(t, m, &fakeTool{name: "slow", f: func(_ context.Context, c tool.Call) (tool.Result, error) {
				n := now.Add(1)
				for {
					if old := most.Load(); n <= old || most.CompareAndSwap(old, n) {
						break
					}
				}
				// The later the call, the sooner it ends; outputs are in call order all the same.
				time.Sleep(time.Duration(100-len(c.ID)) * time.Millisecond)
				now.Add(-1)
				return tool.Result{Text: c.ID}, nil
			}})
			cfg.Run.MaxToolsAtOnce = bound
			_, got := outputs(t, cfg, m)
			if diff := cmp.Diff([]string{"0", "1", "2", "3", "4", "5", "6"}, got); diff != "" {
				t.Errorf("outputs (-want +got):\n%s", diff)
			}
			want := int32(bound)
			if bound == 0 {
				want = 7
			}
			if most.Load() != want {
				t.Errorf("%d calls ran at once, the bound is %d", most.Load(), bound)
			}
		})
	}
}

func TestImagesInToolOutput(t *testing.T) {
	picture := tool.Image{MIME: "image/png", Data: []byte("PNG"), Detail: "low"}
	for _, c := range []struct {
		support model.Support
		kind    model.ToolKind
		want    string
	}{
		{model.Support{ImageToolOutput: true}, model.ToolFunction, `{"type":"function_call_output","call_id":"1","output":[{"type":"input_text","text":"look"},{"type":"input_image","image_url":"data:image/png;base64,UE5H","detail":"low"}]}`},
		{model.Support{}, model.ToolFunction, `{"type":"function_call_output","call_id":"1","output":"look\n[a picture was left out: image/png, 3 bytes; this model takes no pictures from tools]"}`},
		{model.Support{ImageToolOutput: true}, model.ToolCustom, `{"type":"custom_tool_call_output","call_id":"1","output":[{"type":"input_text","text":"look"},{"type":"input_image","image_url":"data:image/png;base64,UE5H","detail":"low"}]}`},
	} {
		m := &fakeModel{support: c.support, answer: script(calls(model.ToolCall{CallID: "1", Kind: c.kind, Name: "view", Arguments: "{}"}), say("fine"))}
		cfg, _ := newConfig(t, m, &fakeTool{name: "view", kind: c.kind, f: func(context.Context, tool.Call) (tool.Result, error) {
			return tool.Result{Text: "look", Images: []tool.Image{picture}}, nil
		}})
		if _, err := runner.Run(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		if got := string(m.requests[1].Items[2].Raw); got != c.want {
			t.Errorf("output item %s\nwant %s", got, c.want)
		}
	}
}

func TestToolCollision(t *testing.T) {
	first := &fakeTool{name: "look", f: func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{Text: "first"}, nil }}
	m := &fakeModel{answer: script(calls(call("1", "look", `{}`)), say("fine"))}
	cfg, _ := newConfig(t, m, first, &fakeTool{name: "look"})
	if _, err := runner.Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), `two tools with the name "look"`) {
		t.Errorf("a collision gives %v", err)
	}
	rec := &recorder{}
	cfg, _ = newConfig(t, m, first, &fakeTool{name: "look"})
	cfg.Run.OnToolCollision, cfg.Emit = "warn", rec.emit
	if _, got := outputs(t, cfg, m); len(got) != 1 || got[0] != "first" || len(of[event.Warning](rec)) != 1 || len(m.requests[0].Tools) != 1 {
		t.Errorf("with warn: outputs %q, warnings %v, %d tools", got, of[event.Warning](rec), len(m.requests[0].Tools))
	}
}

// A character that comes in two parts is not torn, however the parts are cut.
func TestLiveOutputKeepsCharactersWhole(t *testing.T) {
	const text = "aé日\U0001F600z"
	m := &fakeModel{answer: script(calls(call("1", "say", `{}`)), say("fine"))}
	rec := &recorder{}
	cfg, _ := newConfig(t, m, &fakeTool{name: "say", f: func(_ context.Context, c tool.Call) (tool.Result, error) {
		for i := range len(text) {
			c.Progress(tool.Progress{Output: []byte(text[i : i+1])})
		}
		c.Progress(tool.Progress{Output: []byte("\xe6\x97")}) // and never the rest
		return tool.Result{Text: text}, nil
	}})
	cfg.Emit = rec.emit
	outputs(t, cfg, m)
	var got strings.Builder
	for _, o := range of[event.ToolOutput](rec) {
		if strings.Contains(o.Text, "\xe6\x97") != !utf8.ValidString(o.Text) {
			t.Errorf("a torn character: %q", o.Text)
		}
		got.WriteString(o.Text)
	}
	if got.String() != text+"\xe6\x97" {
		t.Errorf("the output was %q", got.String())
	}
}
