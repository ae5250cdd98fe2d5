// SPDX-License-Identifier: Apache-2.0

//go:build linux

package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/plugins/e2b/client"
	"github.com/berth-dev/berth/plugins/e2b/internal/fakee2b"
	"github.com/berth-dev/berth/sdk/conformance/faultproxy"
	"github.com/berth-dev/berth/sdk/errs"
)

func TestMain(m *testing.M) {
	fakee2b.Main()
	os.Exit(m.Run())
}

// service is a fake behind a proxy that can spoil it, and a client of it.
func service(t testing.TB, change func(*client.Options)) (*client.Client, *fakee2b.Fake, *faultproxy.Proxy) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("the fake's sandboxes are namespaces, which needs root")
	}
	f := fakee2b.New(t.TempDir())
	t.Cleanup(f.Close)
	u, err := url.Parse(f.URL())
	if err != nil {
		t.Fatal(err)
	}
	p := faultproxy.New(u, nil)
	front := httptest.NewServer(p)
	t.Cleanup(func() {
		front.CloseClientConnections()
		front.Close()
	})
	o := client.Options{APIKey: fakee2b.Key, APIURL: front.URL, SandboxURL: front.URL}
	if change != nil {
		change(&o)
	}
	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdle)
	return c, f, p
}

func create(t testing.TB, c *client.Client, change func(*client.CreateRequest)) *client.Sandbox {
	t.Helper()
	r := &client.CreateRequest{TemplateID: "base", Timeout: 300, Secure: true}
	if change != nil {
		change(r)
	}
	s, err := c.Create(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// follow reads a process to its end.
func follow(t testing.TB, p *client.Process) (stdout, stderr string, end client.Event) {
	t.Helper()
	var out, bad bytes.Buffer
	for {
		e, err := p.Next()
		if err != nil {
			t.Fatalf("%v, after %q", err, out.String())
		}
		switch e.Kind {
		case client.Stderr:
			bad.Write(e.Data)
		case client.Ended:
			p.Close()
			return out.String(), bad.String(), e
		default:
			out.Write(e.Data)
		}
	}
}

func start(t testing.TB, s *client.Sandbox, c client.Command) *client.Process {
	t.Helper()
	p, err := s.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func sh(script string) client.Command {
	return client.Command{Cmd: "/bin/sh", Args: []string{"-c", script}}
}

func TestProcesses(t *testing.T) {
	c, _, _ := service(t, nil)
	s := create(t, c, func(r *client.CreateRequest) { r.EnvVars = map[string]string{"A": "global", "B": "global"} })
	cmd := sh(`printf 'out\000\377'; echo err >&2; echo $A $B $HOME $(id -un); pwd; exit 3`)
	cmd.Env, cmd.Dir = map[string]string{"B": "own"}, "/tmp"
	out, bad, end := follow(t, start(t, s, cmd))
	if out != "out\x00\xffglobal own /home/user user\n/tmp\n" || bad != "err\n" || end.Code != 3 || end.Signal != "" {
		t.Errorf("%q, %q, %+v", out, bad, end)
	}
	if _, bad, end := follow(t, start(t, s, client.Command{Cmd: "no-such-program"})); end.Code != 127 || !strings.Contains(bad, "not found") {
		t.Errorf("%q, %+v", bad, end)
	}
	p := start(t, s, client.Command{Cmd: "sleep", Args: []string{"1000"}, User: "root"})
	running, err := s.Processes(t.Context())
	if err != nil || len(running) != 1 || running[0].PID != p.PID() || running[0].Cmd != "sleep" {
		t.Errorf("%+v, %v", running, err)
	}
	if err := p.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, _, end := follow(t, p); end.Code != -1 || end.Signal != "killed" {
		t.Errorf("%+v", end)
	}
	for _, bad := range []client.Command{{Cmd: "true", User: "nobody-here"}, {Cmd: "true", Dir: "/no/such"}} {
		if _, err := s.Start(t.Context(), bad); !errors.Is(err, errs.AuthFailed) && !errors.Is(err, errs.InvalidArgument) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if _, err := s.Attach(t.Context(), 99999, ""); !errors.Is(err, errs.ProcessUnknown) {
		t.Errorf("%v", err)
	}
}

func TestInputAndAttach(t *testing.T) {
	c, _, _ := service(t, nil)
	s := create(t, c, nil)
	cmd := sh("read a; echo first $a; read b; echo second $b; cat | wc -c")
	cmd.Stdin = true
	p := start(t, s, cmd)
	in, err := p.Input(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(in, "one\n"); err != nil {
		t.Fatal(err)
	}
	if e, err := p.Next(); err != nil || string(e.Data) != "first one\n" {
		t.Errorf("%+v, %v", e, err)
	}
	p.Close()
	again, err := s.Attach(t.Context(), p.PID(), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(in, "two\n"+strings.Repeat("x", 700_000)); err != nil {
		t.Fatal(err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := again.CloseStdin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out, _, end := follow(t, again); out != "second two\n700000\n" || end.Code != 0 {
		t.Errorf("%q, %+v", out, end)
	}
}

func TestTerminal(t *testing.T) {
	c, _, _ := service(t, nil)
	s := create(t, c, nil)
	cmd := sh("stty size; read x; stty size; tty")
	cmd.Rows, cmd.Cols = 30, 100
	p := start(t, s, cmd)
	if e, err := p.Next(); err != nil || string(e.Data) != "30 100\r\n" {
		t.Fatalf("%+v, %v", e, err)
	}
	if err := p.Resize(t.Context(), 40, 120); err != nil {
		t.Fatal(err)
	}
	in, err := p.Input(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(in, "\n"); err != nil {
		t.Fatal(err)
	}
	if out, _, end := follow(t, p); !strings.Contains(out, "40 120\r\n/dev/pts/") || end.Code != 0 {
		t.Errorf("%q, %+v", out, end)
	}
}

func TestFiles(t *testing.T) {
	c, f, _ := service(t, nil)
	s := create(t, c, nil)
	content := strings.Repeat("0123456789", 100_000)
	if err := s.Write(t.Context(), "a/b.txt", strings.NewReader(content), client.WriteOptions{User: "user", Length: int64(len(content))}); err != nil {
		t.Fatal(err)
	}
	e, err := s.Stat(t.Context(), "/home/user/a/b.txt", "")
	if err != nil || e.Size != int64(len(content)) || !e.Regular || e.Owner != "user" || e.Mode != 0o644 {
		t.Errorf("%+v, %v", e, err)
	}
	r, err := s.Read(t.Context(), "a/b.txt", "user", int64(len(content)-7))
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if r.Close(); err != nil || string(b) != "3456789" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := s.Read(t.Context(), "missing", "user", 0); !errors.Is(err, errs.FileNotFound) {
		t.Errorf("%v", err)
	}
	if err := s.Mkdir(t.Context(), "a/sub", ""); err != nil {
		t.Error(err)
	}
	if err := s.Mkdir(t.Context(), "a/sub", ""); !errors.Is(err, errs.FileExists) {
		t.Errorf("%v", err)
	}
	if err := s.Move(t.Context(), "a/b.txt", "a/sub/c", ""); err != nil {
		t.Error(err)
	}
	if l, err := s.List(t.Context(), "a", 2, ""); err != nil || len(l) != 2 || !l[0].Dir || l[1].Name != "c" {
		t.Errorf("%+v, %v", l, err)
	}
	if err := errors.Join(s.Remove(t.Context(), "a", ""), s.Remove(t.Context(), "a", "")); err != nil {
		t.Error(err)
	}
	if err := s.Health(t.Context()); err != nil {
		t.Error(err)
	}
	if u, err := s.Usage(t.Context()); err != nil || u.CPUCount != 2 {
		t.Errorf("%+v, %v", u, err)
	}
	if _, err := s.SignedURL("x", "user", false, time.Time{}); !errors.Is(err, errs.Unsupported) {
		t.Errorf("%v", err)
	}
	if m, err := c.Metrics(t.Context(), s.ID(), time.Now().Add(-time.Hour), time.Time{}); err != nil || len(m) != 1 {
		t.Errorf("%+v, %v", m, err)
	}
	// Whoever has another token comes to nothing, and the new one is in the sandbox's details.
	if err := f.Rotate(s.ID()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Stat(t.Context(), "/", ""); !errors.Is(err, errs.AuthFailed) {
		t.Errorf("%v", err)
	}
	info, err := c.Get(t.Context(), s.ID())
	if err != nil {
		t.Fatal(err)
	}
	s.Renew(info)
	if _, err := s.Stat(t.Context(), "/", ""); err != nil {
		t.Error(err)
	}
}

// Signed addresses need an address of its own for each sandbox.
func TestSignedAddress(t *testing.T) {
	c, err := client.New(client.Options{APIKey: fakee2b.Key})
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.Open(&client.Info{SandboxID: "iabcdefghij0123456789-old", EnvdAccessToken: "token-token"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.SignedURL("/a+b", "user", true, time.Unix(1800000000, 0))
	u, e := url.Parse(got)
	if err != nil || e != nil || u.Host != "49983-iabcdefghij0123456789.e2b.app" || !strings.HasPrefix(u.Query().Get("signature"), "v1_") ||
		u.Query().Get("path") != "/a+b" || u.Query().Get("signature_expiration") != "1800000000" {
		t.Errorf("%s, %v", got, err)
	}
}

func TestLife(t *testing.T) {
	c, f, _ := service(t, nil)
	s := create(t, c, func(r *client.CreateRequest) { r.Metadata = map[string]string{"k": "v 1&=", "n": "1"} })
	_ = create(t, c, func(r *client.CreateRequest) { r.Metadata = map[string]string{"k": "other"} })
	var found []string
	for info, err := range c.List(t.Context(), client.ListOptions{Metadata: map[string]string{"k": "v 1&="}}) {
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, info.SandboxID)
	}
	if len(found) != 1 || found[0] != s.ID() {
		t.Errorf("%v", found)
	}
	before, err := c.Get(t.Context(), s.ID())
	if err != nil {
		t.Fatal(err)
	}
	// To connect with less does not shorten.
	if _, err := c.Connect(t.Context(), s.ID(), time.Second); err != nil {
		t.Fatal(err)
	}
	if now, err := c.Get(t.Context(), s.ID()); err != nil || !now.EndAt.Equal(before.EndAt) {
		t.Errorf("%v became %v, %v", before.EndAt, now.EndAt, err)
	}
	p := start(t, s, sh("sleep 1000"))
	p.Close()
	if err := errors.Join(c.Pause(t.Context(), s.ID(), true), c.Pause(t.Context(), s.ID(), true)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Processes(t.Context()); !errors.Is(err, errs.SandboxGone) {
		t.Errorf("%v", err)
	}
	again, err := c.Connect(t.Context(), s.ID(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if ps, err := again.Processes(t.Context()); err != nil || len(ps) != 1 || ps[0].PID != p.PID() {
		t.Errorf("%+v, %v", ps, err)
	}
	snap, err := c.Snapshot(t.Context(), s.ID(), "saved")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for got, err := range c.Snapshots(t.Context(), s.ID()) {
		if n++; err != nil || got.ID != snap.ID {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if err := errors.Join(c.DeleteSnapshot(t.Context(), snap.ID), c.DeleteSnapshot(t.Context(), snap.ID)); err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
	if err := errors.Join(c.Kill(t.Context(), s.ID()), c.Kill(t.Context(), s.ID())); err != nil {
		t.Error(err)
	}
	if _, err := c.Get(t.Context(), s.ID()); !errors.Is(err, errs.SandboxGone) || len(f.Alive()) != 1 {
		t.Errorf("%v, %v", err, f.Alive())
	}
}

func TestErrors(t *testing.T) {
	c, f, p := service(t, func(o *client.Options) { o.Attempts = 2 })
	for name, x := range map[string]struct {
		fault faultproxy.Fault
		code  errs.Code
		retry errs.Retry
	}{
		"no key":      {faultproxy.Fault{Status: 401, Body: `{"code":401,"message":"Invalid API key"}`}, errs.AuthFailed, errs.RetryNever},
		"blocked":     {faultproxy.Fault{Status: 403, Body: `{"code":403,"message":"team is blocked"}`}, errs.PermissionDenied, errs.RetryNever},
		"no template": {faultproxy.Fault{Status: 404, Body: `{"code":404,"message":"template 'x' not found"}`}, errs.ConfigInvalid, errs.RetryNever},
		"too many":    {faultproxy.Fault{Status: 429, Body: `{"code":429,"message":"you have reached the maximum number of concurrent E2B sandboxes (20)"}`}, errs.QuotaExceeded, errs.RetryNever},
		"too fast":    {faultproxy.Fault{Status: 429, Body: `{"code":429,"message":"Rate limit exceeded"}`}, errs.RateLimited, errs.RetrySafe},
		"too long":    {faultproxy.Fault{Status: 400, Body: `{"code":400,"message":"Timeout cannot be greater than 1 hours"}`}, errs.InvalidArgument, errs.RetryNever},
		"capacity":    {faultproxy.Fault{Status: 503, Body: `{"code":503,"message":"no room","error_code":"sandbox_capacity_unavailable"}`}, errs.VendorFailed, errs.RetrySafe},
		"unclear":     {faultproxy.Fault{Status: 504, Body: `{"code":504,"message":"","error_code":"sandbox_placement_timeout"}`}, errs.VendorFailed, errs.RetryUnknown},
	} {
		p.Clear()
		x.fault.Kind, x.fault.Method, x.fault.Path = faultproxy.Answer, "POST", "/sandboxes"
		p.Inject(x.fault)
		_, err := c.Create(t.Context(), &client.CreateRequest{TemplateID: "base", Timeout: 60})
		e, ok := errors.AsType[*errs.Error](err)
		if !ok || e.Code != x.code || e.RetryClass() != x.retry || e.MaybeApplied != (x.retry == errs.RetryUnknown) || strings.Contains(fmt.Sprint(e, e.Vendor), fakee2b.Key) {
			t.Errorf("%s: %+v", name, err)
		}
	}
	if f.Creates() != 0 {
		t.Errorf("%d sandboxes were made", f.Creates())
	}
}

// A stream that is cut off before its end is neither an exit nor a time-out.
func TestStreamCut(t *testing.T) {
	c, _, p := service(t, nil)
	s := create(t, c, nil)
	p.Inject(faultproxy.Fault{Kind: faultproxy.CutEnd, Path: "/process.Process/Start", Times: 1})
	proc := start(t, s, sh("echo hello; exit 4"))
	var err error
	for err == nil {
		var e client.Event
		if e, err = proc.Next(); e.Kind == client.Ended {
			proc.Close()
			return // the end itself had come; only the empty last frame was missing
		}
	}
	if !errors.Is(err, errs.ExecTransport) {
		t.Errorf("%v", err)
	}
	again, err := s.Attach(t.Context(), proc.PID(), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, end := follow(t, again); end.Code != 4 {
		t.Errorf("%+v", end)
	}
}

func TestGoneIsNoTimeout(t *testing.T) {
	c, f, _ := service(t, nil)
	s := create(t, c, nil)
	p := start(t, s, sh("sleep 1000"))
	f.Expire(s.ID())
	if _, err := p.Next(); !errors.Is(err, errs.ExecTransport) {
		t.Errorf("%v", err)
	}
	if _, err := s.Attach(t.Context(), p.PID(), ""); !errors.Is(err, errs.SandboxGone) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if _, err := s.Start(ctx, sh("true")); !errors.Is(err, errs.Canceled) {
		t.Errorf("%v", err)
	}
}

func ExampleClient() {
	c, err := client.New(client.Options{APIKey: os.Getenv("E2B_API_KEY")})
	if err != nil {
		fmt.Println(errs.CodeOf(err)) // without a key
		return
	}
	ctx := context.Background()
	box, err := c.Create(ctx, &client.CreateRequest{TemplateID: "base", Timeout: 300, Secure: true})
	if err != nil {
		return
	}
	defer c.Kill(ctx, box.ID())
	p, err := box.Start(ctx, client.Command{Cmd: "/bin/bash", Args: []string{"-l", "-c", "uname -a"}})
	if err != nil {
		return
	}
	for {
		e, err := p.Next()
		if err != nil || e.Kind == client.Ended {
			return
		}
		os.Stdout.Write(e.Data)
	}
}
