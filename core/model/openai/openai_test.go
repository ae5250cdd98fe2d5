// SPDX-License-Identifier: Apache-2.0

package openai_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/model/modeltest"
	"github.com/berth-dev/berth/core/model/openai"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/value"
)

const script = `{"berth_transcript": 1}
{"say": "I look at the files, ähm.", "calls": [{"tool": "exec_command", "args": {"cmd": "ls"}}, {"tool": "exec_command", "args": {"cmd": "cat a"}}], "usage": {"input_tokens": 100, "output_tokens": 7, "total_tokens": 107, "cached_tokens": 60}}
{"say": "Done: “two” files.", "usage": {"input_tokens": 150, "output_tokens": 5, "total_tokens": 155}}
`

var apis = []string{openai.APIResponses, openai.APIChatCompletions}

func provider(t *testing.T, api, url, key string) *openai.Provider {
	t.Helper()
	p, err := openai.New(t.Context(), openai.Config{
		Provider: &spec.ModelProvider{Label: "test", API: api, BaseURL: url, APIKey: value.PlainSecret(key)},
		Random:   func() float64 { return 0 }, // no waiting
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func message(t *testing.T, role, text string) model.Item {
	t.Helper()
	return encode(t, model.ItemMessage, map[string]any{"type": "message", "role": role, "content": text})
}

func encode(t *testing.T, typ model.ItemType, v any) model.Item {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return model.Item{Type: typ, Raw: raw}
}

func request(t *testing.T) *model.Request {
	return &model.Request{
		Model: "m", Instructions: "be brief", Items: []model.Item{message(t, "user", "what is here?")},
		Tools: []model.ToolSpec{{Kind: model.ToolFunction, Name: "exec_command", Description: "runs", Parameters: json.RawMessage(`{"type":"object"}`)}},
	}
}

// call collects one stream.
func call(ctx context.Context, m model.Model, req *model.Request) (text string, retries []model.Retrying, res *model.Response, err error) {
	for ev, e := range m.Stream(ctx, req) {
		if e != nil {
			return text, retries, nil, e
		}
		switch ev := ev.(type) {
		case model.TextDelta:
			text += ev.Text
		case model.Retrying:
			text = ""
			retries = append(retries, ev)
		case model.Done:
			res = ev.Response
		case model.ItemDone, model.ReasoningDelta:
		}
	}
	return text, retries, res, nil
}

type conversation struct {
	Texts []string
	Calls []string
	Usage model.Usage
}

// converse plays the whole script as the harness would, answering every call.
func converse(t *testing.T, m model.Model) (c conversation, retried int) {
	t.Helper()
	req := request(t)
	for range 10 {
		text, retries, res, err := call(t.Context(), m, req)
		if err != nil {
			t.Fatal(err)
		}
		retried += len(retries)
		c.Texts = append(c.Texts, text)
		c.Usage = c.Usage.Add(res.Usage)
		req.Items = append(req.Items, res.Items...)
		more := false
		for _, it := range res.Items {
			if it.Type != model.ItemFunctionCall {
				continue
			}
			var fc struct {
				CallID    string `json:"call_id"`
				Name      string `json:"name"`
				Arguments string `json:"arguments"`
			}
			if err := json.Unmarshal(it.Raw, &fc); err != nil {
				t.Fatal(err)
			}
			c.Calls = append(c.Calls, fc.CallID+" "+fc.Name+" "+fc.Arguments)
			req.Items = append(req.Items, encode(t, model.ItemFunctionCallOutput, map[string]any{"type": "function_call_output", "call_id": fc.CallID, "output": "ok"}))
			more = true
		}
		if !more {
			return c, retried
		}
	}
	t.Fatal("no end")
	return c, retried
}

var want = conversation{
	Texts: []string{"I look at the files, ähm.", "Done: “two” files."},
	Calls: []string{`call_1_1 exec_command {"cmd": "ls"}`, `call_1_2 exec_command {"cmd": "cat a"}`},
	Usage: model.Usage{Requests: 2, InputTokens: 250, CachedTokens: 60, OutputTokens: 12, TotalTokens: 262},
}

// Both wire formats give the same conversation, also when streams break off anywhere and when the server is busy.
func TestBothAPIsGiveTheSame(t *testing.T) {
	for _, api := range apis {
		for name, faults := range map[string][]*modeltest.Fault{
			"well":  nil,
			"cut":   {{CutAfter: 1}, {CutAfter: 700}, {CutAfter: 900}, nil, {CutAfter: 300}},
			"busy":  {{Status: 429, Code: "rate_limit_exceeded", Message: "slow down"}, nil, {Status: 503, Message: "overloaded"}, {Status: 500}},
			"event": {{Event: "server_error"}},
		} {
			t.Run(api+"/"+name, func(t *testing.T) {
				s := modeltest.New(t, script, faults...)
				got, retried := converse(t, provider(t, api, s.URL, modeltest.Key))
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("(-want +got)\n%s", d)
				}
				if n := len(slices.DeleteFunc(faults, func(f *modeltest.Fault) bool { return f == nil })); retried != n {
					t.Errorf("%d retries, want %d", retried, n)
				}
			})
		}
	}
}

func TestErrors(t *testing.T) {
	for _, api := range apis {
		for _, tt := range []struct {
			name     string
			key      string
			fault    *modeltest.Fault
			kind     model.ErrorKind
			requests int
		}{
			{"key", "wrong", nil, model.ErrAuth, 1},
			{"quota", modeltest.Key, &modeltest.Fault{Status: 429, Code: "insufficient_quota", Message: "no credit"}, model.ErrQuota, 1},
			{"context", modeltest.Key, &modeltest.Fault{Status: 400, Code: "context_length_exceeded", Message: "too long"}, model.ErrContext, 1},
			{"model", modeltest.Key, &modeltest.Fault{Status: 404, Code: "model_not_found", Message: "no such model"}, model.ErrBadRequest, 1},
			{"long retry-after", modeltest.Key, &modeltest.Fault{Status: 429, RetryAfter: "3600", Message: "later"}, model.ErrRateLimit, 1},
		} {
			t.Run(api+"/"+tt.name, func(t *testing.T) {
				s := modeltest.New(t, script, tt.fault)
				_, _, _, err := call(t.Context(), provider(t, api, s.URL, tt.key), request(t))
				var me *model.Error
				if !errors.As(err, &me) || me.Kind != tt.kind || len(s.Requests()) != tt.requests {
					t.Fatalf("got %v after %d requests, want %s after %d", err, len(s.Requests()), tt.kind, tt.requests)
				}
				if strings.Contains(err.Error(), tt.key) {
					t.Errorf("the key is in the error: %v", err)
				}
			})
		}
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	s := modeltest.New(t, script, &modeltest.Fault{Status: 429, RetryAfter: "0.05", Message: "slow down"})
	_, retries, _, err := call(t.Context(), provider(t, openai.APIResponses, s.URL, modeltest.Key), request(t))
	if err != nil || len(retries) != 1 || retries[0].After != 50*time.Millisecond {
		t.Fatalf("%v, %v", retries, err)
	}
}

func TestRetriesEnd(t *testing.T) {
	s := modeltest.New(t, script, &modeltest.Fault{Status: 500}, &modeltest.Fault{Status: 500}, &modeltest.Fault{Status: 500})
	req := request(t)
	two := 2
	req.Settings = &spec.ModelSettings{Retry: &spec.RetrySettings{MaxRetries: &two}}
	_, retries, _, err := call(t.Context(), provider(t, openai.APIResponses, s.URL, modeltest.Key), req)
	var me *model.Error
	if !errors.As(err, &me) || me.Kind != model.ErrServer || len(retries) != 2 {
		t.Fatalf("%v, %v", retries, err)
	}
}

func TestTimeoutAndCancel(t *testing.T) {
	s := modeltest.New(t, script, &modeltest.Fault{Status: 503}, &modeltest.Fault{Status: 503})
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	stop := errors.New("the user wants no more")
	p := provider(t, openai.APIResponses, s.URL, modeltest.Key)
	var last error
	for ev, err := range p.Stream(ctx, request(t)) {
		last = err
		if _, ok := ev.(model.Retrying); ok {
			cancel(stop)
		}
	}
	if !errors.Is(last, stop) {
		t.Errorf("cancelled: %v", last)
	}
	req := request(t)
	tiny, none := time.Nanosecond, 0
	req.Settings = &spec.ModelSettings{Timeout: &tiny, Retry: &spec.RetrySettings{MaxRetries: &none}}
	_, _, _, err := call(t.Context(), p, req)
	var me *model.Error
	if !errors.As(err, &me) || me.Kind != model.ErrTimeout {
		t.Errorf("timeout: %v", err)
	}
}

// What is sent is what the settings say, by the API's names.
func TestSettingsOnTheWire(t *testing.T) {
	temp, tokens, effort, verbosity, choice, store := 0.5, int64(99), "high", "low", "exec_command", false
	settings := &spec.ModelSettings{
		Temperature: &temp, MaxTokens: &tokens, ReasoningEffort: &effort, Verbosity: &verbosity,
		ToolChoice: &choice, Store: &store, Metadata: map[string]string{"team": "x"},
		ExtraHeaders: map[string]value.Secret{"X-Extra": value.PlainSecret("1")},
	}
	wants := map[string]map[string]any{
		openai.APIResponses: {
			"temperature": 0.5, "max_output_tokens": 99.0, "reasoning": map[string]any{"effort": "high"},
			"text": map[string]any{"verbosity": "low"}, "tool_choice": map[string]any{"type": "function", "name": "exec_command"},
			"store": false, "include": []any{"reasoning.encrypted_content"}, "instructions": "be brief",
		},
		openai.APIChatCompletions: {
			"temperature": 0.5, "max_completion_tokens": 99.0, "reasoning_effort": "high", "verbosity": "low",
			"tool_choice": map[string]any{"type": "function", "function": map[string]any{"name": "exec_command"}}, "store": false,
		},
	}
	for _, api := range apis {
		s := modeltest.New(t, script)
		req := request(t)
		req.Settings = settings
		if _, _, _, err := call(t.Context(), provider(t, api, s.URL, modeltest.Key), req); err != nil {
			t.Fatal(err)
		}
		seen := s.Requests()[0]
		for k, v := range wants[api] {
			if d := cmp.Diff(v, seen.Body[k]); d != "" {
				t.Errorf("%s %s: (-want +got)\n%s", api, k, d)
			}
		}
		if seen.Header.Get("X-Extra") != "1" {
			t.Errorf("%s: no extra header", api)
		}
	}
	req := request(t)
	req.Settings = &spec.ModelSettings{Temperature: &temp, ExtraArgs: map[string]any{"temperature": 1}}
	_, _, _, err := call(t.Context(), provider(t, openai.APIResponses, "http://127.0.0.1:1", "k"), req)
	if err == nil || !strings.Contains(err.Error(), "temperature") {
		t.Errorf("the same thing set twice: %v", err)
	}
}

func TestNoKey(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "")
	_, err := openai.New(t.Context(), openai.Config{})
	var me *model.Error
	if !errors.As(err, &me) || me.Kind != model.ErrAuth || !strings.Contains(me.Hint, "OPENAI_API_KEY") {
		t.Fatalf("%v", err)
	}
}
