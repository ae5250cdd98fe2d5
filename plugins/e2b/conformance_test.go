// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"testing"

	"github.com/berth-dev/berth/plugins/e2b/internal/fakee2b"
	"github.com/berth-dev/berth/sdk/conformance"
	"github.com/berth-dev/berth/sdk/driver"
)

// What this driver promises, seen from outside, over the fake.
func TestConformance(t *testing.T) {
	s := newService(t)
	conformance.Run(t, conformance.Options{
		Binary: "/proc/self/exe", Env: []string{asDriver + "=1"}, Parallel: 2, Repeat: 3, Lives: 5, Faults: true, Secrets: []string{fakee2b.Key},
		ProcessConfig: values(t, s.process(nil)), SandboxConfig: values(t, map[string]any{"public_traffic": true}),
		// As version 0.1.0 made it. Such a line is never changed, only followed by others.
		States: []conformance.SavedState{{SandboxID: "01JE5Z8W9T6N3V2Q1R0P4M7K5H", State: driver.State{Version: 1, Data: []byte(`{"sandbox":"ix2vllrgv5fhks7bualbw","where":"e2b.app","template":"base","filled":true,"deadline":"2026-12-01T12:00:00Z"}`)}}},
	})
	if left := s.fake.Alive(); len(left) > 0 {
		t.Errorf("the service still has %v", left)
	}
}
