// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"testing"

	"github.com/berth-dev/berth/sdk/conformance"
)

// What this driver promises, seen from outside, over the fake vendor.
func TestConformance(t *testing.T) {
	v := newVendor(t)
	conformance.Run(t, conformance.Options{
		Binary: "/proc/self/exe", Env: []string{asDriver + "=1"}, Parallel: 4, Repeat: 3, Lives: 5, Faults: true,
		ProcessConfig: values(t, processConfig(v, nil)), SandboxConfig: values(t, map[string]any{"image": imageTag}),
		Secrets: []string{tokenID, tokenSecret},
	})
	if left := v.Running(); len(left) > 0 {
		t.Errorf("sandboxes are left: %v", left)
	}
}
