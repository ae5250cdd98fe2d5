// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/oklog/ulid/v2"

	"github.com/berth-dev/berth/plugins/modal/internal/box"
	"github.com/berth-dev/berth/plugins/modal/internal/fake"
	"github.com/berth-dev/berth/plugins/modal/internal/fake/fstools"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/schema"
	"github.com/berth-dev/berth/sdk/serve"
)

const (
	// asDriver makes the test program the driver.
	asDriver = "BERTH_TEST_AS_DRIVER"

	tokenID     = "ak-canary-of-the-token-id"
	tokenSecret = "as-canary-of-the-token-secret"
	imageTag    = "busybox:test"
)

// imageDir is the files of the one image that the fake vendor knows.
var imageDir string

// TestMain is also the vendor's program for files inside, and the driver.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == fstools.Name {
		os.Exit(fstools.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	if os.Getenv(asDriver) != "" {
		serve.Main(New)
	}
	code := func() int {
		dir, err := os.MkdirTemp("", "berth-modal-test-")
		if err != nil {
			panic(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		imageDir = filepath.Join(dir, "image")
		return m.Run()
	}()
	os.Exit(code)
}

// image makes the files of a small image, once.
var image = sync.OnceValue(func() error { return fake.Busybox(imageDir) })

// newVendor starts a fake vendor.
func newVendor(t testing.TB) *fake.Server {
	t.Helper()
	if os.Getuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("the fake vendor needs root, and CI needs the fake vendor")
		}
		t.Skip("the fake vendor needs root: it makes namespaces")
	}
	if err := image(); err != nil {
		t.Skipf("there is no image to make sandboxes of: %v", err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s, err := fake.Start(fake.Options{TokenID: tokenID, TokenSecret: tokenSecret, Images: map[string]string{imageTag: imageDir}, FSTools: self})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("end the fake vendor: %v", err)
		}
	})
	return s
}

// fixture is a driver and its vendor.
type fixture struct {
	*hosted
	vendor *fake.Server
	log    *logged
}

type logged struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newFixture(t testing.TB) *fixture { return driverFor(t, newVendor(t), nil) }

func driverFor(t testing.TB, s *fake.Server, process map[string]any) *fixture {
	t.Helper()
	f := &fixture{vendor: s, log: &logged{}}
	f.hosted = New(hclog.New(&hclog.LoggerOptions{Output: f.log, Level: hclog.Trace})).(*hosted)
	if diags := f.Configure(t.Context(), driver.Host{StateDir: t.TempDir()}, values(t, processConfig(s, process))); len(diags) > 0 {
		t.Fatal(diags)
	}
	t.Cleanup(func() {
		for _, b := range f.boxes.All() {
			b.Park()
		}
		f.c.Close()
		if t.Failed() {
			t.Logf("the driver's log:\n%.8000s", f.log.String())
		}
	})
	return f
}

func processConfig(s *fake.Server, more map[string]any) map[string]any {
	all := map[string]any{"server_url": s.URL(), "token_id": tokenID, "token_secret": tokenSecret}
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

// request is a create request with the given config on top of the tests' own.
func request(t testing.TB, config map[string]any) *driver.CreateRequest {
	t.Helper()
	all := map[string]any{"image": imageTag}
	maps.Copy(all, config)
	return &driver.CreateRequest{
		SandboxID: ulid.Make().String(), Workspace: driver.Workspace{Root: "/workspace"}, Progress: func(driver.Progress) {}, Config: values(t, all),
	}
}

// create makes a sandbox that the test destroys.
func (f *fixture) create(t testing.TB, req *driver.CreateRequest) *box.Box {
	t.Helper()
	s, err := f.Create(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	f.destroyAfter(t, s)
	return s.(*box.Box)
}

func (f *fixture) destroyAfter(t testing.TB, s driver.Sandbox) {
	t.Cleanup(func() {
		if err := s.Destroy(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("destroy: %v", err)
		}
	})
}

// sh runs a script and gives what it printed.
func sh(t testing.TB, s driver.Sandbox, script string) string {
	t.Helper()
	var out bytes.Buffer
	exit, err := s.Run(t.Context(), &driver.Command{Argv: []string{"/bin/sh", "-c", script}}, driver.Streams{Stdout: &out, Stderr: &out})
	if err != nil || exit.Code != 0 {
		t.Fatalf("%s: %v, %+v: %s", script, err, exit, out.String())
	}
	return strings.TrimSpace(out.String())
}

// eventually waits for something that needs a moment; the test's own deadline bounds it.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !cond(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it did not come to pass that %s", what)
		}
	}
}
