// SPDX-License-Identifier: Apache-2.0

//go:build linux

package declared_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/berth-dev/berth/core/hostproc"
	"github.com/berth-dev/berth/core/sandbox"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/tool"
	"github.com/berth-dev/berth/core/tool/declared"
	"github.com/berth-dev/berth/core/value"
	"github.com/berth-dev/berth/internal/localtest"
)

// expr is an expression in Go.
type expr func(p map[string]any) any

func (e expr) Eval(v spec.RunVars) (any, error) { return e(v.Params), nil }
func (expr) Pos() spec.Pos                      { return spec.Pos{} }

const oneText = `{"type":"object","properties":{"text":{"type":"string"}},"required":["text"],"additionalProperties":false}`

func make1(t testing.TB, sp *spec.Tool, env declared.Env) tool.Tool {
	t.Helper()
	tl, err := declared.New(sp, env)
	if err != nil {
		t.Fatal(err)
	}
	return tl
}

var calls atomic.Int64

func call(ctx context.Context, t testing.TB, tl tool.Tool, arguments string) tool.Result {
	t.Helper()
	res, err := tl.Call(ctx, tool.Call{ID: fmt.Sprint("call-", calls.Add(1)), Arguments: arguments, Progress: func(tool.Progress) {}})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func TestCommand(t *testing.T) {
	host := localtest.New(t, nil)
	s := host.Open(t, sandbox.Config{})
	localtest.Sh(t, s, "mkdir sub && printf 'one\\ntwo\\n' > sub/f.txt && printf '\\211PNG\\r\\n\\032\\n' > sub/p.png && head -c 100 /dev/zero > sub/z")
	envs := map[string]declared.Env{
		"sandbox": {Sandbox: s, Dir: "sub"}, "host": {Host: hostproc.Host{Dir: t.TempDir()}},
	}
	for where, env := range envs {
		t.Run(where, func(t *testing.T) {
			command := func(t *testing.T, body map[string]any) tool.Tool {
				t.Helper()
				body["target"] = where
				return make1(t, &spec.Tool{Kind: "command", Label: "x", Parameters: json.RawMessage(oneText), Body: body}, env)
			}
			// Whatever the model says is one argument.
			tl := command(t, map[string]any{"command": expr(func(p map[string]any) any {
				return []any{"sh", "-c", `printf '%s|' "$@"`, "sh", p["text"], nil, "last"}
			})})
			nasty := "a'; rm -rf / #\"$(id) `id`\n*"
			if res := call(t.Context(), t, tl, encode(t, map[string]string{"text": nasty})); res.Error != nil || res.Text != nasty+"|last|" {
				t.Errorf("%q, %+v", res.Text, res.Error)
			}
			for arguments, want := range map[string]string{
				`{}`: "required", `{"text": 1}`: "text", `{"text": "x", "more": 1}`: "more", `{"text": "a\u0000b"}`: "NUL byte", `[]`: "JSON object",
			} {
				if res := call(t.Context(), t, tl, arguments); res.Error == nil || res.Error.Code != tool.CodeArguments || !strings.Contains(res.Error.Message, want) {
					t.Errorf("%s: %+v", arguments, res.Error)
				}
			}
			subject, err := tl.(tool.Clear).About(`{"text": "a b"}`)
			if err != nil || subject.Command.Text != `sh -c 'printf '\''%s|'\'' "$@"' sh 'a b' last` && subject.Command.Text != `sh -c "printf '%s|' \"\$@\"" sh 'a b' last` {
				t.Errorf("%+v, %v", subject.Command, err)
			}
			// A secret reaches the command and does not come back.
			tl = command(t, map[string]any{
				"command": []string{"sh", "-c", `cat; test "$KEY" = swordfish && echo "key $KEY $MODE"; exit 4`}, "stdin": expr(func(p map[string]any) any { return p["text"] }),
				"env": map[string]value.Secret{
					"KEY":  value.NewSecret("secret.key", func(context.Context) (string, error) { return "swordfish", nil }),
					"MODE": value.PlainSecret("fast"),
				},
			})
			res := call(t.Context(), t, tl, `{"text": "in\n"}`)
			if res.Error == nil || res.Error.Code != "command_failed" || !strings.HasSuffix(res.Error.Message, "exit code 4; it printed:\nin\nkey (sensitive value) fast") {
				t.Errorf("%+v", res.Error)
			}
			tl = command(t, map[string]any{"command": []string{"sh", "-c", "head -c 100000 /dev/zero | tr '\\0' x; echo"}, "max_output": uint64(1000)})
			if res = call(t.Context(), t, tl, `{"text": ""}`); !strings.Contains(res.Text, "…99001 bytes left out…") || len(res.Text) > 1100 {
				t.Errorf("%d bytes: %.600s", len(res.Text), res.Text)
			}
			for script, want := range map[string]string{`echo '{"a":1}'`: `{"a":1}`, "echo nonsense": "invalid_output"} {
				tl = command(t, map[string]any{"command": []string{"sh", "-c", script}, "output": "json"})
				if res = call(t.Context(), t, tl, `{"text": ""}`); res.Text != want && (res.Error == nil || res.Error.Code != want) {
					t.Errorf("%q: %+v", script, res)
				}
			}
			tl = command(t, map[string]any{"command": []string{"no-such-program"}})
			if res = call(t.Context(), t, tl, `{"text": ""}`); res.Error == nil || res.Error.Code != "exec_not_found" {
				t.Errorf("%+v", res.Error)
			}
		})
	}
	t.Run("file", func(t *testing.T) {
		for name, want := range map[string]string{"f.txt": "one\ntwo\n", "p.png": "sub/p.png", "z": "invalid_output", "none": "file_not_found", "": "invalid_output"} {
			tl := make1(t, &spec.Tool{Kind: "command", Label: "x", Body: map[string]any{"command": []string{"echo", name}, "output": "file"}}, envs["sandbox"])
			res := call(t.Context(), t, tl, `{}`)
			if res.Text != want && (res.Error == nil || res.Error.Code != want) || (name == "p.png") != (len(res.Images) == 1) {
				t.Errorf("%q: %+v %+v", name, res, res.Error)
			}
		}
	})
	if _, err := declared.New(&spec.Tool{Kind: "command", Label: "x"}, declared.Env{}); err == nil || !strings.Contains(err.Error(), "its agent has none") {
		t.Errorf("%v", err)
	}
}

func encode(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestHTTP(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "other got %q", r.Header.Get("X-Key"))
	}))
	defer other.Close()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/echo/a b/c":
			b, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %s key=%s", r.Method, b, r.Header.Get("X-Key"))
		case "/away":
			http.Redirect(w, r, other.URL+"/", http.StatusFound)
		case "/busy":
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, "later")
		case "/picture":
			w.Header().Set("Content-Type", "image/png")
			fmt.Fprint(w, "PNG")
		case "/bytes":
			w.Header().Set("Content-Type", "application/zip")
			fmt.Fprint(w, "\xff\xfe\x00")
		default:
			fmt.Fprint(w, strings.Repeat("x", 1<<20))
		}
	}))
	defer srv.Close()
	hostOf := func(s *httptest.Server) string {
		u, err := url.Parse(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		return u.Host
	}
	request := func(t *testing.T, body map[string]any, hosts ...string) tool.Tool {
		t.Helper()
		if len(hosts) > 0 {
			body["allow_hosts"] = hosts
		}
		body["headers"] = map[string]value.Secret{"X-Key": value.NewSecret("secret.key", func(context.Context) (string, error) { return "swordfish", nil })}
		return make1(t, &spec.Tool{Kind: "http", Label: "x", Parameters: json.RawMessage(oneText), Body: body}, declared.Env{})
	}
	path := expr(func(p map[string]any) any { return srv.URL + p["text"].(string) })
	post := request(t, map[string]any{"url": path, "method": "POST", "body": expr(func(p map[string]any) any { return map[string]any{"q": p["text"]} })}, hostOf(srv))
	if res := call(t.Context(), t, post, `{"text": "/echo/a%20b/c"}`); res.Error != nil || res.Text != `POST {"q":"/echo/a%20b/c"} key=(sensitive value)` {
		t.Errorf("%+v %+v", res, res.Error)
	}
	get := request(t, map[string]any{"url": path}, hostOf(srv))
	for text, want := range map[string]string{
		"/busy": "http_503", "/away": "request_failed", "/picture": "", "@evil.example/": tool.CodeArguments, ".evil.example/": tool.CodeArguments,
	} {
		res := call(t.Context(), t, get, encode(t, map[string]string{"text": text}))
		if want == "" && len(res.Images) != 1 || want != "" && (res.Error == nil || res.Error.Code != want) {
			t.Errorf("%s: %+v %+v", text, res, res.Error)
		}
		if text == "/busy" && (!res.Error.Retryable || !strings.Contains(res.Error.Message, "later")) {
			t.Errorf("%+v", res.Error)
		}
	}
	if res := call(t.Context(), t, get, `{"text": "/bytes"}`); res.Text != "[3 bytes of application/zip, which is no text]" {
		t.Errorf("%+v", res)
	}
	if res := call(t.Context(), t, get, `{"text": "/"}`); len(res.Text) > declared.DefaultOutput+100 || !strings.Contains(res.Text, "bytes left out") {
		t.Errorf("%d bytes", len(res.Text))
	}
	// The project's headers go to no other host.
	both := request(t, map[string]any{"url": path}, hostOf(srv), hostOf(other))
	if res := call(t.Context(), t, both, `{"text": "/away"}`); res.Text != `other got ""` {
		t.Errorf("%+v %+v", res, res.Error)
	}
	if _, err := declared.New(&spec.Tool{Kind: "http", Label: "x", Body: map[string]any{"url": path}}, declared.Env{}); err == nil || !strings.Contains(err.Error(), "which hosts") {
		t.Errorf("%v", err)
	}
}

func TestApproval(t *testing.T) {
	sp := &spec.Tool{
		Kind: "http", Label: "pay", Parameters: json.RawMessage(oneText), Body: map[string]any{"url": "https://example.com/pay"},
		ApprovalExpr: expr(func(p map[string]any) any { return p["text"] != "little" }),
	}
	tl := make1(t, sp, declared.Env{}).(tool.Careful)
	for arguments, want := range map[string]bool{`{"text": "little"}`: false, `{"text": "much"}`: true, `{"text": 1}`: true, `nonsense`: true} {
		if got := tl.NeedsApproval(arguments); got != want {
			t.Errorf("%s: %t", arguments, got)
		}
	}
}

func TestStrict(t *testing.T) {
	for schema, want := range map[string]bool{
		oneText: true,
		`{"type":"object","properties":{"a":{"type":"string"}},"required":[],"additionalProperties":false}`:                             false,
		`{"type":"object","properties":{"a":{}},"required":["a"],"additionalProperties":false}`:                                         false,
		`{"type":"object","properties":{"a":{"type":"array","items":{"type":"number"}}},"required":["a"],"additionalProperties":false}`: true,
		`{"type":"object","properties":{},"required":[],"additionalProperties":{"type":"string"}}`:                                      false,
		`{"type":"object","properties":{"a":{"type":"array","items":{"type":"object"}}},"required":["a"],"additionalProperties":false}`: false,
		`{"type":"object","properties":{"a":{"type":"array","prefixItems":[]}},"required":["a"],"additionalProperties":false}`:          false,
	} {
		if got := declared.Strict(json.RawMessage(schema)); got != want {
			t.Errorf("%s: %t", schema, got)
		}
	}
	no := new(true)
	if _, err := declared.New(&spec.Tool{Kind: "http", Label: "x", Strict: no, Parameters: json.RawMessage(`{"type":"object","properties":{"a":{}}}`)}, declared.Env{}); err == nil ||
		!strings.Contains(err.Error(), "strict") {
		t.Errorf("%v", err)
	}
}
