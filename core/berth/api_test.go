// SPDX-License-Identifier: Apache-2.0

//go:build linux

package berth_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/core/berth"
	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/model/modeltest"
	"github.com/berth-dev/berth/core/model/openai"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/value"
)

// The same agent comes to the same files and the same answer over both wire formats, also where streams break off, the
// server is busy or fails.
func TestBothAPIs(t *testing.T) {
	f := newFixture(t)
	text := script(t,
		turn{"say": "I look first.", "calls": []any{exec("cat in/a.txt"), exec("ls; exit 2")}},
		turn{"calls": []any{patch(strings.Replace(fixPatch, "-two", "-no such line", 1))}},
		turn{"say": "Again, ähm.", "calls": []any{patch(fixPatch)}},
		turn{"calls": []any{exec("sha256sum in/a.txt out/b.txt tool.sh; stat -c '%a %n' in/a.txt out/b.txt tool.sh; cat out/b.txt > proof")}},
		turn{"say": "Both files are “right”."},
	)
	faults := map[string][]*modeltest.Fault{
		"whole": nil,
		"cut":   {{CutAfter: 700}, nil, {CutAfter: 1}, {CutAfter: 1500}, nil, {CutAfter: 300}},
		"busy":  {{Status: 429, Code: "rate_limit_exceeded", Message: "slow down", RetryAfter: "0"}, {Status: 503, Message: "overloaded"}, nil, {Event: "server_error"}},
	}
	results := map[string]string{}
	for _, api := range []string{openai.APIResponses, openai.APIChatCompletions} {
		for name, faults := range faults {
			t.Run(api+"/"+name, func(t *testing.T) {
				srv := modeltest.New(t, text, faults...)
				m, err := openai.New(t.Context(), openai.Config{
					Provider: &spec.ModelProvider{Label: "test", API: api, BaseURL: srv.URL, APIKey: value.PlainSecret(modeltest.Key)},
					Random:   func() float64 { return 0 }, // no waiting
				})
				if err != nil {
					t.Fatal(err)
				}
				p, r := worker()
				var rec recorded
				res, err := f.Run(t.Context(), berth.RunOptions{Project: p, Run: r, Model: m, Name: "m", Emit: rec.emit})
				if err != nil {
					t.Fatal(err)
				}
				if res.Status != run.Completed || res.Turns != 5 || res.Output != "Both files are “right”." {
					t.Errorf("%+v", res)
				}
				if _, n := find[event.ModelRetry](&rec); (n > 0) != (len(faults) > 0) {
					t.Errorf("%d retries", n)
				}
				results[t.Name()] = facts(t, srv)
			})
		}
	}
	var first string
	for name, got := range results {
		if first == "" {
			first = got
		}
		if d := cmp.Diff(first, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	if !strings.Contains(first, "644 in/a.txt\n644 out/b.txt\n755 tool.sh") {
		t.Errorf("the sandbox says: %s", first)
	}
}

// facts is what the sandbox said about its files, as the last request tells the model.
func facts(t *testing.T, srv *modeltest.Server) string {
	t.Helper()
	reqs := srv.Requests()
	body := reqs[len(reqs)-1].Body
	items, _ := body["input"].([]any)
	if items == nil {
		items, _ = body["messages"].([]any)
	}
	last, _ := items[len(items)-1].(map[string]any)
	text, _ := last["output"].(string)
	if text == "" {
		text, _ = last["content"].(string)
	}
	_, out, ok := strings.Cut(text, "Output:\n")
	if !ok {
		t.Errorf("the last item is no output of a command: %v", last)
	}
	return out
}
