// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/plugins/e2b/client"
	"github.com/berth-dev/berth/plugins/e2b/internal/fakee2b"
	"github.com/berth-dev/berth/sdk/conformance/faultproxy"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

func resume(t testing.TB, d *e2b, req *driver.CreateRequest, st driver.State) (driver.Sandbox, error) {
	t.Helper()
	return d.Resume(t.Context(), &driver.ResumeRequest{SandboxID: req.SandboxID, State: st, Config: req.Config, Progress: func(driver.Progress) {}})
}

func info(t testing.TB, d *e2b, s driver.Sandbox) *client.Info {
	t.Helper()
	i, err := d.boxed.API.Get(t.Context(), s.State().Display["sandbox"])
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func TestCreateRunDestroy(t *testing.T) {
	s := newService(t)
	d, _ := s.newDriver(t)
	b := create(t, d, request(t, nil))
	if got := sh(t, b, "id -un; pwd; echo $HOME; echo x > f; stat -c %U f ."); got != "user\n/workspace\n/home/user\nuser\nuser" {
		t.Errorf("%q", got)
	}
	if err := b.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	if left := s.fake.Alive(); len(left) > 0 {
		t.Errorf("%v", left)
	}
}

// The answer to a create is lost, or is a gateway's 504, after the sandbox was made: it is found again, and there is one.
func TestCreateAnswerIsLost(t *testing.T) {
	for name, fault := range map[string]faultproxy.Fault{
		"connection": {Kind: faultproxy.LostAnswer},
		"gateway":    {Kind: faultproxy.LateAnswer, Status: 504, Body: `{"code":504,"message":"timed out","error_code":"sandbox_placement_timeout"}`},
		"cut":        {Kind: faultproxy.CutBody},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			d, _ := s.newDriver(t)
			fault.Method, fault.Path, fault.Times = "POST", "/sandboxes", 1
			s.proxy.Inject(fault)
			b := create(t, d, request(t, nil))
			if got := sh(t, b, "echo hello"); got != "hello" || s.fake.Creates() != 1 || s.proxy.Hits() != 1 {
				t.Errorf("%q, %d creates", got, s.fake.Creates())
			}
		})
	}
}

// A create that nobody waits for any more leaves nothing, also when the service goes on with it.
func TestCreateIsCancelled(t *testing.T) {
	s := newService(t)
	d, _ := s.newDriver(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	s.proxy.Inject(faultproxy.Fault{Kind: faultproxy.LostAnswer, Method: "POST", Path: "/sandboxes", Times: 1, Match: func(*http.Request) bool {
		cancel(errors.New("enough"))
		return true
	}})
	if _, err := d.Create(ctx, request(t, nil)); !errors.Is(err, errs.Canceled) {
		t.Errorf("%v", err)
	}
	if err := d.boxed.Settle(t.Context()); err != nil || len(s.fake.Alive()) > 0 {
		t.Errorf("%v, %v", s.fake.Alive(), err)
	}
	// The service takes its time: who asks again waits until the first sandbox is gone.
	slow := make(chan struct{})
	reached := make(chan struct{})
	s.proxy.Inject(faultproxy.Fault{Kind: faultproxy.SlowBody, Method: "POST", Path: "/sandboxes", Times: 1, Match: func(*http.Request) bool {
		close(reached)
		<-slow
		return true
	}})
	ctx, cancel = context.WithCancelCause(t.Context())
	go func() {
		<-reached
		cancel(errors.New("enough"))
	}()
	req := request(t, nil)
	if _, err := d.Create(ctx, req); !errors.Is(err, errs.Canceled) {
		t.Errorf("%v", err)
	}
	close(slow)
	b := create(t, d, req)
	if alive := s.fake.Alive(); len(alive) != 1 || alive[0] != b.State().Display["sandbox"] {
		t.Errorf("%v are there, and %s is wanted", alive, b.State().Display["sandbox"])
	}
}

// Too many requests, with and without a wish for when, and failures before anything was done: asked again, once made.
func TestCreateIsThrottled(t *testing.T) {
	for name, fault := range map[string]faultproxy.Fault{
		"when":     {Kind: faultproxy.TooMany, RetryAfter: time.Second},
		"whenever": {Kind: faultproxy.TooMany},
		"capacity": {Kind: faultproxy.Answer, Status: 503, Body: `{"code":503,"message":"no room","error_code":"sandbox_capacity_unavailable"}`},
		"failure":  {Kind: faultproxy.ServerError},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			d, _ := s.newDriver(t)
			fault.Method, fault.Path, fault.Times = "POST", "/sandboxes", 1
			s.proxy.Inject(fault)
			if create(t, d, request(t, nil)); s.fake.Creates() != 1 || s.proxy.Hits() != 1 {
				t.Errorf("%d creates, %d faults", s.fake.Creates(), s.proxy.Hits())
			}
		})
	}
}

// Streams are cut in every way while commands run: nothing is lost, nothing is run twice.
func TestStreamsAreCut(t *testing.T) {
	s := newService(t)
	d, _ := s.newDriver(t)
	b := create(t, d, request(t, nil))
	for name, fault := range map[string]faultproxy.Fault{
		"in the middle":  {Kind: faultproxy.CutBody, Bytes: 20_000, Path: "/process.Process/Connect"},
		"before its end": {Kind: faultproxy.CutEnd, Path: "/process.Process/Connect"},
		"throttled":      {Kind: faultproxy.TooMany, Path: "/process.Process/Connect"},
		"bad gateway":    {Kind: faultproxy.Answer, Status: 502, Body: "<html>", Path: "/process.Process/Connect"},
		"no input":       {Kind: faultproxy.Answer, Status: 503, Path: "/process.Process/StreamInput"},
	} {
		t.Run(name, func(t *testing.T) {
			s.proxy.Clear()
			fault.Times = 1
			s.proxy.Inject(fault)
			var out bytes.Buffer
			script := "echo run >> runs; i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done"
			started := make(chan struct{})
			go func() {
				<-started
				s.proxy.Sever(func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/process.") })
			}()
			exit, err := b.Run(t.Context(), &driver.Command{Argv: []string{"sh", "-c", script}}, driver.Streams{
				Stdout: &out, OnStart: func(driver.Started) { close(started) },
			})
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			if err != nil || exit.Code != 0 || len(lines) != 20000 || lines[19999] != "line 19999" {
				t.Fatalf("%+v, %v, %d lines", exit, err, len(lines))
			}
			if got := sh(t, b, "wc -l < runs; rm runs"); got != "1" {
				t.Errorf("it ran %s times", got)
			}
		})
	}
}

// The sandbox's time is over in the middle of a command: that is no time-out of the command, and what is left is told.
func TestExpires(t *testing.T) {
	for _, on := range []string{"pause", "kill"} {
		t.Run(on, func(t *testing.T) {
			s := newService(t)
			d, _ := s.newDriver(t)
			req := request(t, map[string]any{"on_timeout": on})
			b := create(t, d, req)
			sh(t, b, "echo work > file")
			events := make(chan driver.Event, 8)
			go func() { _ = b.(driver.Watcher).Watch(t.Context(), func(e driver.Event) { events <- e }) }()
			started := make(chan struct{})
			go func() {
				<-started
				s.fake.Expire(b.State().Display["sandbox"])
			}()
			exit, err := b.Run(t.Context(), &driver.Command{ID: "long", Argv: []string{"sleep", "1000"}, Detached: true}, driver.Streams{
				OnStart: func(driver.Started) { close(started) },
			})
			want := map[string]errs.Code{"pause": errs.ExecTransport, "kill": errs.SandboxGone}[on]
			if errs.CodeOf(err) != want || exit.TimedOut {
				t.Errorf("%+v, %v", exit, err)
			}
			kind := map[string]driver.EventKind{"pause": driver.EventPaused, "kill": driver.EventDied}[on]
			for e := range events {
				if e.Kind == kind {
					break
				}
			}
			_, err = b.Run(t.Context(), &driver.Command{Argv: []string{"true"}}, driver.Streams{})
			if want := map[string]errs.Code{"pause": errs.SandboxUnknown, "kill": errs.SandboxGone}[on]; errs.CodeOf(err) != want {
				t.Errorf("%v", err)
			}
			again, err := resume(t, d, req, b.State())
			if on == "kill" {
				if !errors.Is(err, errs.SandboxGone) {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := sh(t, again, "cat file; ps -e | grep -c sleep"); got != "work\n1" || !again.(driver.Reattached).Reattached() {
				t.Errorf("%q", got)
			}
			if err := again.(driver.ProcessTable).Signal(t.Context(), "long", driver.Signal{Name: "KILL"}); err != nil {
				t.Error(err)
			}
		})
	}
}

// Somebody else resumes the sandbox, and its token is another: the driver asks for it and goes on.
func TestTokenIsRotated(t *testing.T) {
	s := newService(t)
	d, _ := s.newDriver(t)
	b := create(t, d, request(t, nil))
	started := make(chan struct{})
	rotated := make(chan error, 1)
	go func() {
		<-started
		rotated <- s.fake.Rotate(b.State().Display["sandbox"])
	}()
	var out bytes.Buffer
	exit, err := b.Run(t.Context(), &driver.Command{Argv: []string{"sh", "-c", "echo a; read x; echo b"}}, driver.Streams{
		Stdout: &out, OnStart: func(driver.Started) { close(started) }, Stdin: readerFunc(func(p []byte) (int, error) {
			if err := <-rotated; err != nil {
				return 0, err
			}
			return copy(p, "go\n"), io.EOF
		}),
	})
	if err != nil || exit.Code != 0 || out.String() != "a\nb\n" {
		t.Errorf("%+v, %v, %q", exit, err, out.String())
	}
	if got := sh(t, b, "echo after"); got != "after" {
		t.Errorf("%q", got)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// Work, looking and taking the sandbox up again leave its end where it is.
func TestOnlyLifetimeCallsMoveTheEnd(t *testing.T) {
	s := newService(t)
	d, _ := s.newDriver(t)
	req := request(t, map[string]any{"keep_alive": false, "timeout": 600})
	b := create(t, d, req)
	before := info(t, d, b).EndAt
	sh(t, b, "echo x > x")
	other, _ := s.newDriver(t)
	again, err := resume(t, other, req, b.State())
	if err != nil {
		t.Fatal(err)
	}
	sh(t, again, "cat x")
	if at, err := again.(driver.Inspector).Inspect(t.Context()); err != nil || at.Display["memory"] != "1 of 512 MiB" || at.Display["cpu"] != "1.5 % of 2" {
		t.Errorf("%+v, %v", at.Display, err)
	}
	if now := info(t, d, b).EndAt; !now.Equal(before) {
		t.Errorf("the end moved from %v to %v", before, now)
	}
}

// While the driver holds it, a sandbox with a short time lives on.
func TestKeepAlive(t *testing.T) {
	s := newService(t)
	d, _ := s.newDriver(t)
	b := create(t, d, request(t, map[string]any{"timeout": 15}))
	before := info(t, d, b).EndAt
	for deadline := time.Now().Add(30 * time.Second); !info(t, d, b).EndAt.After(before); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("its end was never moved")
		}
	}
	if got := b.State().Deadline; !got.After(before) {
		t.Errorf("the state's deadline is %v", got)
	}
}

// A sandbox made from a snapshot has the files, and a guest of its own.
func TestSnapshots(t *testing.T) {
	s := newService(t)
	d, _ := s.newDriver(t)
	b := create(t, d, request(t, nil))
	sh(t, b, "echo saved > file")
	snap, err := b.(driver.NativeSnapshotter).Snapshot(t.Context(), "A name!", false, map[string]string{"a": "b"})
	if err != nil || !strings.HasPrefix(snap.ID, "a-name-:") {
		t.Fatalf("%+v, %v", snap, err)
	}
	sh(t, b, "echo later > file")
	req := request(t, nil)
	req.NativeSnapshot = snap.ID
	from := create(t, d, req)
	if got := sh(t, from, "cat file"); got != "saved" || !from.(driver.Preserved).WorkspacePreserved() {
		t.Errorf("%q", got)
	}
	n := 0
	for got, err := range d.Snapshots(t.Context(), nil) {
		if n++; err != nil || got.ID != snap.ID {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if err := errors.Join(d.DeleteSnapshot(t.Context(), snap.ID), d.DeleteSnapshot(t.Context(), snap.ID)); err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
	req = request(t, nil)
	req.NativeSnapshot = snap.ID
	if _, err := d.Create(t.Context(), req); !errors.Is(err, errs.SnapshotUnusable) {
		t.Errorf("%v", err)
	}
	if _, err := b.(driver.NativeSnapshotter).Snapshot(t.Context(), "", true, nil); !errors.Is(err, errs.Unsupported) {
		t.Errorf("%v", err)
	}
}

// A guest that another key began, as in a sandbox that a snapshot with memory was taken of, is ended and begun anew.
func TestForeignGuest(t *testing.T) {
	s := newService(t)
	d, _ := s.newDriver(t)
	req := request(t, nil)
	b := create(t, d, req)
	sh(t, b, "echo work > file")
	go func() {
		_, _ = b.Run(t.Context(), &driver.Command{Argv: []string{"sleep", "4711"}, Detached: true}, driver.Streams{}) // it is ended
	}()
	state := b.State()
	d.boxes.Known(req.SandboxID).Park()
	other, _ := s.newDriver(t)
	other.boxed.Key = func(string) []byte { return []byte("quite another key") }
	again, err := resume(t, other, req, state)
	if err != nil {
		t.Fatal(err)
	}
	if got := sh(t, again, "cat file; ps -ef | grep -c '[s]leep 4711' || true"); got != "work\n0" || again.(driver.Reattached).Reattached() {
		t.Errorf("%q", got)
	}
}

// A private sandbox gives its addresses with a token, and refuses to be public.
func TestPorts(t *testing.T) {
	s := newService(t)
	d, _ := s.newDriver(t)
	serve := "cd / && exec python3 -m http.server --bind 127.0.0.1 8123"
	for _, public := range []bool{false, true} {
		b := create(t, d, request(t, map[string]any{"public_traffic": public}))
		if sh(t, b, "command -v python3 || true") == "" {
			t.Skip("there is no python3 here to listen with")
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := b.Run(ctx, &driver.Command{Argv: []string{"sh", "-c", serve}}, driver.Streams{})
			done <- err
		}()
		_, err := b.(driver.PortExposer).Expose(t.Context(), 8123, "http", true)
		if public != (err == nil) || err != nil && !errors.Is(err, errs.PortUnavailable) {
			t.Errorf("public %v: %v", public, err)
		}
		at, err := b.(driver.PortExposer).Expose(t.Context(), 8123, "http", false)
		if err != nil {
			t.Fatal(err)
		}
		if public == (at.Headers["E2b-Traffic-Access-Token"] != "") {
			t.Errorf("headers %v", at.Headers)
		}
		get := func(headers map[string]string) int {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://%s:%d/etc/hostname", at.Host, at.Port), nil)
			if err != nil {
				t.Fatal(err)
			}
			for k, v := range headers {
				r.Header.Set(k, v)
			}
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			return resp.StatusCode
		}
		for deadline := time.Now().Add(20 * time.Second); get(at.Headers) != http.StatusOK; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("it answers %d", get(at.Headers))
			}
		}
		delete(at.Headers, "E2b-Traffic-Access-Token")
		if want := map[bool]int{true: http.StatusOK, false: http.StatusForbidden}[public]; get(at.Headers) != want {
			t.Errorf("without the token it answers %d", get(at.Headers))
		}
		cancel(errors.New("enough"))
		<-done
	}
}

// No key, token or secret shows in state, logs, errors or the arguments and environments of processes.
func TestSecrets(t *testing.T) {
	const canary = "canary-5d41402abc4b2a76"
	s := newService(t)
	d, l := s.newDriver(t)
	req := request(t, nil)
	req.SecretEnv = map[string]string{"CANARY": canary}
	b := create(t, d, req)
	if got := sh(t, b, "test $CANARY = canary-5d41402abc4b2a76 && echo same; for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; done"); !strings.HasPrefix(got, "same") ||
		strings.Contains(got, fakee2b.Key) || strings.Count(got, canary) != 1 { // that is this command's own
		t.Errorf("%q", got)
	}
	token := info(t, d, b).EnvdAccessToken
	if err := d.boxes.Known(req.SandboxID).Stop(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	s.proxy.Inject(faultproxy.Fault{Kind: faultproxy.Answer, Status: 401, Body: `{"code":401,"message":"bad key ` + fakee2b.Key + `"}`, Path: "/sandboxes/"})
	_, err := resume(t, d, req, b.State())
	if !errors.Is(err, errs.AuthFailed) {
		t.Errorf("%v", err)
	}
	for where, text := range map[string]string{"state": fmt.Sprintf("%s %v", b.State().Data, b.State().Display), "logs": l.String(), "error": err.Error()} {
		for what, secret := range map[string]string{"the key": fakee2b.Key, "the token": token, "a secret variable": canary} {
			if strings.Contains(text, secret) {
				t.Errorf("%s shows in %s", what, where)
			}
		}
	}
	if l.String() == "" || token == "" {
		t.Error("there was nothing to look at")
	}
	// Neither does a process of the service's side get the key.
	for _, p := range glob(t, "/proc/[0-9]*/cmdline") {
		if text, err := os.ReadFile(p); err == nil && bytes.Contains(text, []byte(fakee2b.Key)) {
			t.Errorf("%s: %q", p, text)
		}
	}
}

func glob(t testing.TB, pattern string) []string {
	t.Helper()
	all, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestRefusals(t *testing.T) {
	s := newService(t)
	d, _ := s.newDriver(t)
	for name, x := range map[string]struct {
		config map[string]any
		change func(*driver.CreateRequest)
		code   errs.Code
		hint   string
	}{
		"no such template": {map[string]any{"template": "no-such"}, nil, errs.ConfigInvalid, "template"},
		"too long":         {map[string]any{"timeout": 172800}, nil, errs.InvalidArgument, "plan"},
		"a name to deny":   {map[string]any{"deny_out": []string{"example.com"}}, nil, errs.ConfigInvalid, "names"},
		"a lone name":      {map[string]any{"allow_out": []string{"example.com"}}, nil, errs.ConfigInvalid, "deny_out"},
		"own metadata":     {map[string]any{"metadata": map[string]string{"berth_sandbox": "x"}}, nil, errs.ConfigInvalid, ""},
		"limits":           {nil, func(r *driver.CreateRequest) { r.Limits.MemoryBytes = 1 }, errs.Unsupported, "template"},
		"a host path":      {nil, func(r *driver.CreateRequest) { r.Grants = []driver.PathGrant{{Path: "/x"}} }, errs.Unsupported, ""},
		"storage":          {nil, func(r *driver.CreateRequest) { r.Mounts = []driver.MountSpec{{ID: "x"}} }, errs.Unsupported, ""},
		"a proxy":          {map[string]any{"egress_proxy": "socks5://x:1"}, nil, errs.PermissionDenied, "team"},
		"no such user":     {map[string]any{"user": "nobody-here"}, nil, "", ""},
	} {
		req := request(t, x.config)
		if x.change != nil {
			x.change(req)
		}
		_, err := d.Create(t.Context(), req)
		e, ok := errors.AsType[*errs.Error](err)
		if !ok || x.code != "" && e.Code != x.code || e.Code == errs.Internal || !strings.Contains(e.Hint, x.hint) {
			t.Errorf("%s: %+v", name, err)
		}
	}
	if left := s.fake.Alive(); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
	without := New(d.log).(*e2b)
	if diags := without.Configure(t.Context(), driver.Host{StateDir: t.TempDir()}, values(t, map[string]any{"api_key": ""})); len(diags) > 0 {
		t.Error(diags)
	}
	if _, err := without.Create(t.Context(), request(t, nil)); !errors.Is(err, errs.AuthFailed) {
		t.Errorf("%v", err)
	}
	if diags := d.Validate(t.Context(), values(t, map[string]any{"template": "mine"}), true); len(diags) != 1 || !diags[0].Warning {
		t.Errorf("%+v", diags)
	}
}

// Networks without a way out, as the service is asked for them.
func TestNetworkPolicy(t *testing.T) {
	s := newService(t)
	d, _ := s.newDriver(t)
	for mode, allow := range map[string][]string{"none": nil, "allow_list": {"pypi.org", "10.0.0.0/8"}} {
		req := request(t, nil)
		req.Network = driver.NetworkPolicy{Mode: mode, Allow: allow}
		b := create(t, d, req)
		asked := s.fake.Asked(b.State().Display["sandbox"])
		if mode == "none" && !strings.Contains(asked, `"allow_internet_access":false`) {
			t.Errorf("%s", asked)
		}
		if mode == "allow_list" && !strings.Contains(asked, `"allowOut":["pypi.org","10.0.0.0/8"],"denyOut":["0.0.0.0/0"]`) {
			t.Errorf("%s", asked)
		}
	}
}

// Headers with secrets, and tokens, are asked for as the configuration says, and show nowhere else.
func TestHeadersAndIdentities(t *testing.T) {
	s := newService(t)
	d, l := s.newDriver(t)
	header := func(name, value string) map[string]any {
		return map[string]any{"domain": "api.example.com", "name": name, "value": value}
	}
	b := create(t, d, request(t, map[string]any{
		"identity_tokens": map[string]string{"registry": "registry.example.com"},
		"inject_header":   []any{header("Authorization", "Bearer canary-of-a-header"), header("X-Team", "search")},
	}))
	const rules = `"rules":{"api.example.com":[{"transform":{"headers":{"Authorization":"Bearer canary-of-a-header","X-Team":"search"}}}]}`
	asked := s.fake.Asked(b.State().Display["sandbox"])
	if !strings.Contains(asked, rules) || !strings.Contains(asked, `"iam":{"tokens":{"registry":{"audience":"registry.example.com","tokenType":"JWT-SVID"}}}`) {
		t.Errorf("%s", asked)
	}
	if text := fmt.Sprintf("%s %v %s", b.State().Data, b.State().Display, l.String()) + sh(t, b, "env"); strings.Contains(text, "canary-of-a-header") {
		t.Error("a header's secret shows")
	}
	var many []any
	for i := range 21 {
		many = append(many, header(fmt.Sprintf("X-%d", i), "x"))
	}
	for name, config := range map[string]map[string]any{
		"too many headers": {"inject_header": many},
		"a long value":     {"inject_header": []any{header("X", strings.Repeat("x", 2049))}},
		"too many tokens":  {"identity_tokens": map[string]string{"a": "x", "b": "x", "c": "x", "d": "x", "e": "x", "f": "x"}},
	} {
		if _, err := d.Create(t.Context(), request(t, config)); !errors.Is(err, errs.ConfigInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Nothing goes on in the background once a sandbox is gone.
func TestNothingIsLeft(t *testing.T) {
	s := newService(t)
	d, _ := s.newDriver(t)
	cycle := func() {
		b := create(t, d, request(t, nil))
		sh(t, b, "echo x")
		if _, err := b.(driver.PortExposer).Expose(t.Context(), 80, "tcp", false); err != nil {
			t.Error(err)
		}
		if err := b.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
		d.boxed.API.CloseIdle()
	}
	cycle()
	before := runtime.NumGoroutine()
	cycle()
	cycle()
	for deadline := time.Now().Add(20 * time.Second); runtime.NumGoroutine() > before; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, and there were %d:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
		}
	}
}
