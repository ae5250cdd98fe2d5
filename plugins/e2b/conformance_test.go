// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"testing"

	"github.com/berth-dev/berth/plugins/e2b/internal/fakee2b"
	"github.com/berth-dev/berth/sdk/conformance"
)

// What this driver promises, seen from outside, over the fake.
func TestConformance(t *testing.T) {
	s := newService(t)
	conformance.Run(t, conformance.Options{
		Binary: "/proc/self/exe", Env: []string{asDriver + "=1"}, Parallel: 2, Repeat: 3, Lives: 5, Faults: true, Secrets: []string{fakee2b.Key},
		ProcessConfig: values(t, s.process(nil)), SandboxConfig: values(t, map[string]any{}),
	})
	if left := s.fake.Alive(); len(left) > 0 {
		t.Errorf("the service still has %v", left)
	}
}
