// SPDX-License-Identifier: Apache-2.0

//go:build linux

package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/berth-dev/berth/core/hostproc"
	"github.com/berth-dev/berth/core/mcp"
	"github.com/berth-dev/berth/core/sandbox"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/tool"
	"github.com/berth-dev/berth/core/value"
	"github.com/berth-dev/berth/internal/localtest"
	"github.com/berth-dev/berth/internal/npmtest"
)

// long is for servers that start on a loaded machine.
const long = 2 * time.Minute

func connect(t testing.TB, cfg mcp.Config) *mcp.Servers {
	t.Helper()
	for _, s := range cfg.Servers {
		if s.Options == nil {
			s.Options = map[string]any{}
		}
		s.Options["connect_timeout"], s.Options["timeout"] = long, long
	}
	s, err := mcp.Connect(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return s
}

func names(s *mcp.Servers) []string {
	var out []string
	for _, tl := range s.Tools() {
		out = append(out, tl.Spec().Name)
	}
	return out
}

func call(t testing.TB, s *mcp.Servers, name string, args any, progress ...func(tool.Progress)) tool.Result {
	t.Helper()
	raw, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	report := func(tool.Progress) {}
	if len(progress) > 0 {
		report = progress[0]
	}
	for _, tl := range s.Tools() {
		if tl.Spec().Name == name {
			res, err := tl.Call(t.Context(), tool.Call{ID: "c", Arguments: string(raw), Progress: report})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return res
		}
	}
	t.Fatalf("no tool %q in %v", name, names(s))
	return tool.Result{}
}

type args = map[string]any

// The three servers of the protocol's own repository, as programs in a sandbox.
func TestRealServersInSandbox(t *testing.T) {
	modules := npmtest.Servers(t)
	s := localtest.New(t, nil).Open(t, sandbox.Config{Manifest: &spec.Manifest{Root: spec.DefaultRoot, Grants: []spec.PathGrant{
		{Path: "/npm", HostPath: modules, ReadOnly: true},
	}}})
	localtest.Sh(t, s, "mkdir docs && echo 'hello from the sandbox' > docs/a.txt")
	stdio := func(label string, more ...string) *spec.MCPServer {
		return &spec.MCPServer{
			Kind: "stdio", Label: label, Options: map[string]any{},
			Command: append([]string{"node", "/npm/node_modules/@modelcontextprotocol/server-" + label + "/dist/index.js"}, more...),
		}
	}
	memory := stdio("memory")
	memory.Env = map[string]value.Secret{"MEMORY_FILE_PATH": value.PlainSecret("/workspace/graph.jsonl")}
	files := stdio("filesystem", "/workspace/docs")
	files.Options["tool_filter"] = map[string]any{"block": []string{"move_*", "write_file"}}
	files.Options["approval"] = map[string]any{"require": []string{"create_*"}}
	all := connect(t, mcp.Config{Servers: []*spec.MCPServer{stdio("everything"), files, memory}, Sandbox: s})
	checkServers(t, all, "/workspace/docs/a.txt")
	if got := localtest.Sh(t, s, "cat graph.jsonl"); !strings.Contains(got, "berth") {
		t.Errorf("the graph is %s", got)
	}
	for _, tl := range all.Tools() {
		name := tl.Spec().Name
		if name == "move_file" || name == "write_file" {
			t.Errorf("%s is offered", name)
		}
		careful, served := tl.(tool.Careful), tl.(tool.Served)
		if careful.NeedsApproval("{}") != (name == "create_directory") || name == "create_directory" && served.Server() != "filesystem" {
			t.Errorf("%s of %s: %t", name, served.Server(), careful.NeedsApproval("{}"))
		}
	}
	if res := call(t, all, "read_text_file", args{"path": "/etc/passwd"}); res.Error == nil || res.Error.Code != "tool_failed" || !strings.Contains(res.Error.Message, "denied") {
		t.Errorf("%+v %+v", res, res.Error)
	}
	// A server that dies is reached anew for the next call, and the one that it died under is not made twice.
	localtest.Sh(t, s, "kill -9 $(ps ax | grep '[s]erver-memory' | awk '{print $1}') 2>/dev/null || pkill -9 -f '[s]erver-memory'")
	res := call(t, all, "read_graph", args{})
	if res.Error != nil && res.Error.Code != "mcp_connection_lost" {
		t.Errorf("%+v", res.Error)
	}
	if res = call(t, all, "read_graph", args{}); res.Error != nil || !strings.Contains(res.Text, "berth") {
		t.Errorf("%+v %+v", res, res.Error)
	}
	if err := all.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if got := localtest.Sh(t, s, "ps ax | grep -c '[s]erver-' || true"); got != "0" {
		t.Errorf("%s servers are left", got)
	}
}

// checkServers uses every server.
func checkServers(t *testing.T, s *mcp.Servers, file string) {
	t.Helper()
	if res := call(t, s, "echo", args{"message": "hi"}); res.Error != nil || res.Text != "Echo: hi" {
		t.Errorf("%+v %+v", res, res.Error)
	}
	if res := call(t, s, "get-tiny-image", args{}); len(res.Images) != 1 || res.Images[0].MIME != "image/png" || !strings.HasPrefix(string(res.Images[0].Data), "\x89PNG") {
		t.Errorf("%+v", res)
	}
	if res := call(t, s, "get-sum", args{"a": "x", "b": 1}); res.Error == nil || res.Error.Code != tool.CodeArguments || !res.Error.Retryable {
		t.Errorf("%+v %+v", res, res.Error)
	}
	var mu sync.Mutex
	var notes []string
	res := call(t, s, "trigger-long-running-operation", args{"duration": 1, "steps": 4}, func(p tool.Progress) {
		mu.Lock()
		defer mu.Unlock()
		notes = append(notes, p.Note)
	})
	mu.Lock()
	defer mu.Unlock()
	if res.Error != nil || !strings.Contains(res.Text, "completed") || !slices.Contains(notes, "1 of 4") {
		t.Errorf("%+v %+v, news %q", res, res.Error, notes)
	}
	if res := call(t, s, "read_text_file", args{"path": file}); res.Error != nil || !strings.Contains(res.Text, "hello from") {
		t.Errorf("%+v %+v", res, res.Error)
	}
	if res := call(t, s, "create_entities", args{"entities": []any{args{"name": "berth", "entityType": "program", "observations": []string{"gives agents a computer"}}}}); res.Error != nil {
		t.Errorf("%+v", res.Error)
	}
	if res := call(t, s, "search_nodes", args{"query": "computer"}); res.Error != nil || !strings.Contains(res.Text, `"berth"`) {
		t.Errorf("%+v %+v", res, res.Error)
	}
}

// The same over HTTP: the first server serves itself, both ways, the others through a bridge.
func TestRealServersOverHTTP(t *testing.T) {
	modules := npmtest.Servers(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("hello from the host\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	entry := func(name string) string {
		return filepath.Join(modules, "node_modules/@modelcontextprotocol/server-"+name+"/dist/index.js")
	}
	files := &spec.MCPServer{Kind: "streamable_http", Label: "files", URL: bridge(t, exec.Command("node", entry("filesystem"), dir))}
	graph := exec.Command("node", entry("memory"))
	graph.Env = append(os.Environ(), "MEMORY_FILE_PATH="+filepath.Join(dir, "graph.jsonl"))
	memory := &spec.MCPServer{Kind: "streamable_http", Label: "memory", URL: bridge(t, graph)}
	for kind, mode := range map[string]string{"streamable_http": "streamableHttp", "sse": "sse"} {
		t.Run(kind, func(t *testing.T) {
			address := serveEverything(t, entry("everything"), mode)
			path := map[string]string{"streamable_http": "/mcp", "sse": "/sse"}[kind]
			all := connect(t, mcp.Config{Servers: []*spec.MCPServer{{Kind: kind, Label: "everything", URL: address + path}, files, memory}})
			checkServers(t, all, filepath.Join(dir, "a.txt"))
		})
	}
}

// serveEverything starts the server's own HTTP server.
func serveEverything(t *testing.T, entry, mode string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(address)
	cmd := exec.Command("node", entry, mode)
	cmd.Env = append(os.Environ(), "PORT="+port)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	localtest.Eventually(t, "the server listens", func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	return "http://" + address
}

// bridge serves a program's tools over HTTP.
func bridge(t *testing.T, program *exec.Cmd) string {
	t.Helper()
	session, err := sdk.NewClient(&sdk.Implementation{Name: "bridge"}, nil).Connect(t.Context(), &sdk.CommandTransport{Command: program}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	srv := sdk.NewServer(&sdk.Implementation{Name: "bridge"}, nil)
	for tl, err := range session.Tools(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		srv.AddTool(tl, func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return session.CallTool(ctx, &sdk.CallToolParams{Name: req.Params.Name, Arguments: req.Params.Arguments})
		})
	}
	h := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return srv }, nil))
	t.Cleanup(h.Close)
	return h.URL
}

// fake is a server in this process.
func fake(t *testing.T, tools map[string]sdk.ToolHandler, see func(*http.Request)) *httptest.Server {
	t.Helper()
	srv := sdk.NewServer(&sdk.Implementation{Name: "fake"}, nil)
	for name, h := range tools {
		srv.AddTool(&sdk.Tool{Name: name, Description: "Do " + name, InputSchema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"number"},"m":{"type":"string"}},"required":["n"]}`)}, h)
	}
	inner := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return srv }, nil)
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if see != nil {
			see(r)
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(h.Close)
	return h
}

func text(s string) sdk.ToolHandler {
	return func(_ context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: s + string(req.Params.Arguments)}}, StructuredContent: args{"s": s}}, nil
	}
}

func TestSecretsAndHeaders(t *testing.T) {
	var with, without atomic.Int64
	h := fake(t, map[string]sdk.ToolHandler{"leak": text("the key is swordfish ")}, func(r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer swordfish" {
			with.Add(1)
		} else {
			without.Add(1)
		}
	})
	s := connect(t, mcp.Config{Servers: []*spec.MCPServer{{Kind: "streamable_http", Label: "x", URL: h.URL, Headers: map[string]value.Secret{
		"Authorization": value.NewSecret("secret.x", func(context.Context) (string, error) { return "Bearer swordfish", nil }),
	}}}})
	if res := call(t, s, "leak", args{"n": 1}); res.Error != nil || with.Load() == 0 || without.Load() != 0 {
		t.Errorf("%+v, %d with, %d without", res, with.Load(), without.Load())
	}
	bad := fake(t, nil, nil)
	u := strings.Replace(bad.URL, "http://", "http://user:swordfish1@", 1) + "/?token=swordfish2"
	bad.Close()
	_, err := mcp.Connect(t.Context(), mcp.Config{Servers: []*spec.MCPServer{{Kind: "streamable_http", Label: "x", URL: u}}})
	if err == nil || strings.Contains(err.Error(), "swordfish") || !strings.Contains(err.Error(), "mcp_server.streamable_http.x") {
		t.Errorf("%v", err)
	}
}

func TestNames(t *testing.T) {
	one := fake(t, map[string]sdk.ToolHandler{"look": text("one "), "a.b": text("dot ")}, nil)
	two := fake(t, map[string]sdk.ToolHandler{"look": text("two "), "exec_command": text("")}, nil)
	servers := func(prefix string) []*spec.MCPServer {
		opt := map[string]any{"prefix_tools": prefix}
		return []*spec.MCPServer{
			{Kind: "streamable_http", Label: "one", URL: one.URL, Options: opt},
			{Kind: "streamable_http", Label: "two", URL: two.URL, Options: opt},
		}
	}
	for prefix, want := range map[string][]string{
		"auto":   {"a_b_2e2b24f8", "mcp_one__look", "mcp_two__exec_command", "mcp_two__look"},
		"never":  {"a_b_2e2b24f8", "exec_command", "look", "look"},
		"always": {"mcp_one__a_b_", "mcp_one__look", "mcp_two__exec_command", "mcp_two__look"},
	} {
		s := connect(t, mcp.Config{Servers: servers(prefix), Taken: []string{"exec_command"}})
		got := names(s)
		slices.Sort(got)
		for i := range want {
			if len(got) != len(want) || !strings.HasPrefix(got[i], strings.TrimSuffix(want[i], "2e2b24f8")) {
				t.Errorf("%s: %q, want %q", prefix, got, want)
				break
			}
		}
		if prefix == "auto" {
			if a, b := call(t, s, "mcp_one__look", args{"n": 1}), call(t, s, "mcp_two__look", args{"n": 1}); a.Text != `one {"n":1}` || b.Text != `two {"n":1}` {
				t.Errorf("%+v, %+v", a, b)
			}
		}
	}
}

func TestOptions(t *testing.T) {
	h := fake(t, map[string]sdk.ToolHandler{"look": text("seen "), "fail": func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: "no such thing"}}}, nil
	}}, nil)
	var warnings []string
	warn := func(message, hint string) { warnings = append(warnings, message+"; "+hint) }
	sp := &spec.MCPServer{Kind: "streamable_http", Label: "x", URL: h.URL, Options: map[string]any{
		"use_structured_content": true, "strict_schemas": true, "tool_filter": map[string]any{"allow": []string{"look", "fial"}},
	}}
	s := connect(t, mcp.Config{Servers: []*spec.MCPServer{sp}, Warn: warn})
	if got := names(s); !slices.Equal(got, []string{"look"}) || len(warnings) != 1 || !strings.Contains(warnings[0], `"fial"`) || !strings.Contains(warnings[0], "fail, look") {
		t.Errorf("%q, %q", got, warnings)
	}
	ts := s.Tools()[0].Spec()
	if !ts.Strict || !strings.Contains(string(ts.Parameters), `"type":["string","null"]`) || !strings.Contains(string(ts.Parameters), `"additionalProperties":false`) {
		t.Errorf("%+v: %s", ts, ts.Parameters)
	}
	if res := call(t, s, "look", args{"n": 1, "m": nil}); res.Error != nil || res.Text != `{"s":"seen "}` {
		t.Errorf("%+v %+v", res, res.Error)
	}
	sp.Options["pin"] = strings.Repeat("0", 64)
	_, err := mcp.Connect(t.Context(), mcp.Config{Servers: []*spec.MCPServer{sp}})
	if err == nil || !strings.Contains(err.Error(), "not those that were approved") {
		t.Fatalf("%v", err)
	}
	have := err.Error()[strings.LastIndex(err.Error(), " ")+1:]
	sp.Options["pin"] = have
	connect(t, mcp.Config{Servers: []*spec.MCPServer{sp}})

	gone := &spec.MCPServer{Kind: "streamable_http", Label: "gone", URL: "http://127.0.0.1:1/", Options: map[string]any{"required": false}}
	warnings = nil
	if s := connect(t, mcp.Config{Servers: []*spec.MCPServer{gone}, Warn: warn}); len(s.Tools()) != 0 || len(warnings) != 1 {
		t.Errorf("%v, %q", names(s), warnings)
	}
	gone.Options["required"] = true
	if _, err := mcp.Connect(t.Context(), mcp.Config{Servers: []*spec.MCPServer{gone, sp}}); err == nil || !strings.Contains(err.Error(), "mcp_server.streamable_http.gone: reach it") {
		t.Errorf("%v", err)
	}
}

// A program that is no server, on the host: what it says is in the error, and it is gone.
func TestProgramThatIsNoServer(t *testing.T) {
	mark := localtest.Mark()
	for script, want := range map[string]string{
		"echo some trouble >&2; exit 3":                    "exit code 3: some trouble",
		fmt.Sprintf("exec sleep 1000 # %s", mark):          "connect_timeout",
		fmt.Sprintf("while :; do read x; done # %s", mark): "connect_timeout",
	} {
		sp := &spec.MCPServer{Kind: "stdio", Label: "x", RunIn: "host", Command: []string{"sh", "-c", script}, Options: map[string]any{"connect_timeout": 2 * time.Second}}
		if want != "connect_timeout" {
			sp.Options["connect_timeout"] = long
		}
		_, err := mcp.Connect(t.Context(), mcp.Config{Servers: []*spec.MCPServer{sp}, Host: hostproc.Host{}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", script, err)
		}
	}
	if pids := localtest.Marked(t, mark); len(pids) != 0 {
		t.Errorf("processes %v are left", pids)
	}
	if _, err := mcp.Connect(t.Context(), mcp.Config{Servers: []*spec.MCPServer{{Kind: "stdio", Label: "x", Command: []string{"x"}}}}); err == nil || !strings.Contains(err.Error(), "its agent has none") {
		t.Errorf("%v", err)
	}
}

// News of a call keeps it alive; a call without news ends at its bound; one that is cancelled ends at once.
func TestTimeouts(t *testing.T) {
	stop := make(chan struct{})
	entered := make(chan struct{}, 2)
	h := fake(t, map[string]sdk.ToolHandler{"hang": func(ctx context.Context, _ *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		entered <- struct{}{}
		select {
		case <-stop:
		case <-ctx.Done():
		}
		return &sdk.CallToolResult{}, nil
	}}, nil)
	t.Cleanup(func() { close(stop) }) // before the server is closed, which waits for its calls
	s := connect(t, mcp.Config{Servers: []*spec.MCPServer{{Kind: "streamable_http", Label: "x", URL: h.URL, Options: map[string]any{"session_timeout": time.Second}}}})
	if res := call(t, s, "hang", args{"n": 1}); res.Error == nil || res.Error.Code != "timeout" || !strings.Contains(res.Error.Message, "session_timeout") {
		t.Errorf("%+v", res)
	}
	<-entered
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-entered
		cancel(errors.New("enough"))
	}()
	if _, err := s.Tools()[0].Call(ctx, tool.Call{Arguments: `{"n":1}`, Progress: func(tool.Progress) {}}); err == nil || err.Error() != "enough" {
		t.Errorf("%v", err)
	}
}
