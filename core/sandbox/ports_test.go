// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sandbox_test

import (
	"bufio"
	"errors"
	"net"
	"net/url"
	"os/exec"
	"testing"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/sandbox"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/internal/localtest"
	"github.com/berth-dev/berth/sdk/errs"
)

// An exposed port is reachable at the address that is told, also in a sandbox that has no network, and until its end.
func TestExposedPorts(t *testing.T) {
	if _, err := exec.LookPath("busybox"); err != nil {
		t.Skip("busybox, whose nc is the server, is not installed")
	}
	h := localtest.New(t, nil)
	var rec recorder
	s := h.Open(t, sandbox.Config{Emit: rec.emit, Spec: &spec.Sandbox{Ports: []spec.Port{{Port: 8000, Protocol: "tcp"}}}})
	var told []event.Port
	for _, d := range rec.events {
		if ready, ok := d.(event.SandboxReady); ok {
			told = ready.Ports
		}
	}
	if len(told) != 1 || told[0].Port != 8000 || len(s.Ports()) != 1 || s.Ports()[0] != told[0] {
		t.Fatalf("told %v, has %v", told, s.Ports())
	}
	at, err := url.Parse(told[0].URL)
	if err != nil || at.Scheme != "tcp" {
		t.Fatalf("%q, %v", told[0].URL, err)
	}
	localtest.Sh(t, s, "(setsid busybox nc -ll -p 8000 -e cat >/dev/null 2>&1 &)")
	localtest.Eventually(t, "the server inside answers", func() bool {
		c, err := net.Dial("tcp", at.Host)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("hello\n")); err != nil {
			return false
		}
		line, err := bufio.NewReader(c).ReadString('\n')
		return err == nil && line == "hello\n"
	})
	localtest.Close(t, s, run.Completed)
	if _, err := net.Dial("tcp", at.Host); err == nil {
		t.Error("the address is served after the session's end")
	}
}

// What a driver cannot do is refused when the sandbox is opened, and nothing is left.
func TestPublicPort(t *testing.T) {
	h := localtest.New(t, nil)
	_, err := h.TryOpen(t, sandbox.Config{ID: "public", Spec: &spec.Sandbox{Ports: []spec.Port{{Port: 8000, Public: true}}}})
	if !errors.Is(err, errs.Unsupported) {
		t.Errorf("%v", err)
	}
	if found := left(t, h, "public"); len(found) > 0 {
		t.Errorf("left: %v", found)
	}
}
