// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/berth-dev/berth/plugins/daytona/internal/fake"
	"github.com/berth-dev/berth/sdk/conformance"
	"github.com/berth-dev/berth/sdk/driver"
)

// What this driver promises, seen from outside, with a proxy between it and the vendor.
func TestConformance(t *testing.T) {
	v := newVendor(t, fake.Options{})
	conformance.Run(t, conformance.Options{
		Binary: "/proc/self/exe", Env: []string{asDriver + "=1"}, Repeat: 3, Parallel: 2, Lives: 5, Faults: true,
		// As version 0.1.0 made it. Such a line is never changed, only followed by others.
		States: []conformance.SavedState{{SandboxID: "01JE5Z8W9T6N3V2Q1R0P4M7K5H", State: driver.State{Version: 1, Data: []byte(`{"id":"3c60aef2-86ca-45aa-9375-ea64675cb066","name":"berth-x","api":"` + v.api + `","root":"/workspace","filled":true,"lifetime":3600000000000}`)}}},
		// The fake's domain is in no directory.
		Transport: &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, strings.TrimPrefix(v.URL, "http://"))
		}},
		ProcessConfig: values(t, v.process()), SandboxConfig: values(t, map[string]any{"user": "root"}), Secrets: []string{v.Key()},
	})
}
