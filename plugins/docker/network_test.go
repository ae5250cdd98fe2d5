// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/moby/moby/client"
	"github.com/oklog/ulid/v2"

	"github.com/berth-dev/berth/plugins/docker/internal/settings"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// server starts a web server inside, and returns when it answers there.
func server(t testing.TB, s driver.Sandbox, port int) {
	t.Helper()
	sh(t, s, fmt.Sprintf("echo from inside > index.html; (httpd -f -p %d -h . >/dev/null 2>&1 &); until wget -q -O /dev/null 127.0.0.1:%d 2>/dev/null; do :; done", port, port))
}

func get(t testing.TB, at driver.Endpoint) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://%s:%d/index.html", at.Host, at.Port), nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// Any port can be opened at any time, also where the sandbox has no network.
func TestPortsThroughTheGuest(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.create(t, request(t, nil))
	opened := make(chan driver.Event, 8)
	ctx, cancel := context.WithCancelCause(t.Context())
	watched := make(chan error, 1)
	go func() { watched <- s.(driver.Watcher).Watch(ctx, func(e driver.Event) { opened <- e }) }()
	server(t, s, 8080)
	if ev := <-opened; ev.Kind != driver.EventPortOpened || ev.Port != 8080 {
		t.Errorf("%+v", ev)
	}
	cancel(errLeft)
	if err := <-watched; !errors.Is(err, errs.Canceled) {
		t.Errorf("%v", err)
	}

	at, err := s.(driver.PortExposer).Expose(t.Context(), 8080, "http", false)
	if err != nil {
		t.Fatal(err)
	}
	if got := get(t, at); got != "from inside" || at.Host != "127.0.0.1" {
		t.Errorf("%q at %+v", got, at)
	}
	if again, err := s.(driver.PortExposer).Expose(t.Context(), 8080, "http", false); err != nil || again.Port != at.Port {
		t.Errorf("%+v, %v", again, err)
	}
	if _, err := s.(driver.PortExposer).Expose(t.Context(), 8080, "http", true); !errors.Is(err, errs.PortUnavailable) {
		t.Errorf("to the public: %v", err)
	}
	c, err := s.(driver.PortForwarder).Dial(t.Context(), 8080)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := s.(driver.PortForwarder).Dial(t.Context(), 9); !errors.Is(err, errs.PortUnavailable) {
		t.Errorf("%v", err)
	}
	if err := s.(driver.PortExposer).Unexpose(t.Context(), 8080); err != nil {
		t.Error(err)
	}
	if c, err := net.Dial("tcp", net.JoinHostPort(at.Host, strconv.Itoa(int(at.Port)))); err == nil {
		_ = c.Close()
		t.Error("the port is still open")
	}
}

// A port that was asked for is published on this machine alone, and found again after a restart.
func TestPublishedPorts(t *testing.T) {
	both(t, func(t *testing.T, f *fixture, config map[string]any) {
		req := request(t, with(config, map[string]any{"network": "bridge"}))
		req.Ports = []uint16{8080}
		s := f.create(t, req)
		server(t, s, 8080)
		at, err := s.(driver.PortExposer).Expose(t.Context(), 8080, "http", false)
		if err != nil {
			t.Fatal(err)
		}
		if got := get(t, at); got != "from inside" || at.Host != "127.0.0.1" {
			t.Errorf("%q at %+v", got, at)
		}
		if _, err := s.(driver.PortExposer).Expose(t.Context(), 8080, "http", true); !errors.Is(err, errs.PortUnavailable) {
			t.Errorf("to the public: %v", err)
		}
		if config["guest"] == settings.GuestNever {
			if _, err := s.(driver.PortExposer).Expose(t.Context(), 8081, "http", false); !errors.Is(err, errs.PortUnavailable) {
				t.Errorf("%v", err)
			}
		}
		if err := s.(driver.Stopper).Stop(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		again, err := f.Resume(t.Context(), &driver.ResumeRequest{SandboxID: req.SandboxID, State: s.State()})
		if err != nil {
			t.Fatal(err)
		}
		server(t, again, 8080)
		if at, err = again.(driver.PortExposer).Expose(t.Context(), 8080, "http", false); err != nil {
			t.Fatal(err)
		}
		if got := get(t, at); got != "from inside" {
			t.Errorf("%q at %+v", got, at)
		}
	})
}

// An internal network leads nowhere but to those on it.
func TestNamedNetwork(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	name := "berth-test-" + strings.ToLower(ulid.Make().String())
	if _, err := f.e.NetworkCreate(t.Context(), name, client.NetworkCreateOptions{Internal: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := f.e.NetworkRemove(context.WithoutCancel(t.Context()), name, client.NetworkRemoveOptions{}); err != nil {
			t.Error(err)
		}
	})
	a, b := f.create(t, request(t, map[string]any{"network": name})), f.create(t, request(t, map[string]any{"network": name}))
	server(t, a, 8080)
	ip := sh(t, a, "hostname -i")
	if got := sh(t, b, "wget -q -O - "+ip+":8080/index.html; wget -q -T 2 -O - 192.0.2.1 2>/dev/null || echo nowhere"); got != "from inside\nnowhere" {
		t.Errorf("%q", got)
	}
}
