// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/oklog/ulid/v2"

	"github.com/berth-dev/berth/plugins/e2b/internal/fakee2b"
	"github.com/berth-dev/berth/sdk/conformance/faultproxy"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/schema"
	"github.com/berth-dev/berth/sdk/serve"
)

// asDriver makes the test program the driver.
const asDriver = "BERTH_TEST_AS_DRIVER"

func TestMain(m *testing.M) {
	fakee2b.Main()
	if os.Getenv(asDriver) != "" {
		serve.Main(New)
	}
	os.Exit(m.Run())
}

// service is the fake behind a proxy that can spoil it.
type service struct {
	fake  *fakee2b.Fake
	proxy *faultproxy.Proxy
	url   string
}

func newService(t testing.TB) *service {
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
	s := &service{fake: f, proxy: faultproxy.New(u, nil)}
	front := httptest.NewServer(s.proxy)
	s.url = front.URL
	t.Cleanup(func() {
		front.CloseClientConnections()
		front.Close()
	})
	return s
}

// process is the driver block.
func (s *service) process(more map[string]any) map[string]any {
	all := map[string]any{"api_key": fakee2b.Key, "api_url": s.url, "sandbox_url": s.url}
	maps.Copy(all, more)
	return all
}

func values(t testing.TB, v map[string]any) schema.Value {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return schema.Value{JSON: b}
}

// logs keeps what a driver logs.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// newDriver is a driver of the service, as in a process of its own.
func (s *service) newDriver(t testing.TB) (*e2b, *logs) {
	t.Helper()
	l := &logs{}
	d := New(hclog.New(&hclog.LoggerOptions{Output: l, Level: hclog.Trace})).(*e2b)
	if diags := d.Configure(t.Context(), driver.Host{StateDir: t.TempDir()}, values(t, s.process(nil))); len(diags) > 0 {
		t.Fatal(diags)
	}
	t.Cleanup(func() {
		_ = d.Drain(t.Context(), driver.OrphanPark, func(driver.DrainResult) {}) // to park cannot fail
		d.boxed.API.CloseIdle()
		if t.Failed() {
			t.Log(l.String())
		}
	})
	return d, l
}

func request(t testing.TB, config map[string]any) *driver.CreateRequest {
	t.Helper()
	return &driver.CreateRequest{
		SandboxID: ulid.Make().String(), Workspace: driver.Workspace{Root: "/workspace"}, Progress: func(driver.Progress) {}, Config: values(t, config),
	}
}

func create(t testing.TB, d *e2b, req *driver.CreateRequest) driver.Sandbox {
	t.Helper()
	s, err := d.Create(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// sh runs a script and gives what it printed.
func sh(t testing.TB, s driver.Sandbox, script string) string {
	t.Helper()
	var out, bad bytes.Buffer
	exit, err := s.Run(t.Context(), &driver.Command{Argv: []string{"sh", "-c", script}}, driver.Streams{Stdout: &out, Stderr: &bad})
	if err != nil || exit.Code != 0 {
		t.Fatalf("%s: %+v, %v, %q, %q", script, exit, err, out.String(), bad.String())
	}
	return strings.TrimSpace(out.String())
}
