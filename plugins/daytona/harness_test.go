// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"encoding/json"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/plugins/daytona/internal/fake"
	"github.com/berth-dev/berth/plugins/daytona/internal/fake/machine"
	"github.com/berth-dev/berth/sdk/conformance/faultproxy"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/schema"
	"github.com/berth-dev/berth/sdk/serve"
)

// asDriver makes the test program the driver.
const asDriver = "BERTH_TEST_AS_DRIVER"

func TestMain(m *testing.M) {
	machine.Enter()
	if os.Getenv(asDriver) != "" {
		serve.Main(New)
	}
	os.Exit(m.Run())
}

// vendor is a fake with a proxy before it.
type vendor struct {
	*fake.Fake
	proxy *faultproxy.Proxy
	api   string // by way of the proxy
}

func newVendor(t testing.TB, o fake.Options) *vendor {
	t.Helper()
	if err := machine.Supported(); err != nil {
		t.Skip(err)
	}
	f, err := fake.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	at, err := url.Parse(f.URL)
	if err != nil {
		t.Fatal(err)
	}
	p := faultproxy.New(at, nil)
	server := httptest.NewServer(p)
	t.Cleanup(func() {
		p.Sever(nil)
		server.CloseClientConnections()
		server.Close()
	})
	f.Behind(server.URL)
	return &vendor{Fake: f, proxy: p, api: server.URL + "/api"}
}

func (v *vendor) process() map[string]any {
	return map[string]any{"api_url": v.api, "api_key": v.Key()}
}

// driverAt gives a driver of a vendor, as a process of its own would be.
func driverAt(t testing.TB, v *vendor, stateDir string) *daytona {
	t.Helper()
	d := New(hclog.New(&hclog.LoggerOptions{Output: testWriter{t}, Level: hclog.Warn})).(*daytona)
	if diags := d.Configure(t.Context(), driver.Host{StateDir: stateDir}, values(t, v.process())); len(diags) > 0 {
		t.Fatal(diags)
	}
	t.Cleanup(func() {
		for _, b := range d.boxes.All() {
			b.Park()
		}
		d.client.Close()
	})
	return d
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

func values(t testing.TB, v map[string]any) schema.Value {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return schema.Value{JSON: b}
}
