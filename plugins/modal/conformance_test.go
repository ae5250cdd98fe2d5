// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/berth-dev/berth/plugins/modal/internal/place"
	"github.com/berth-dev/berth/sdk/conformance"
)

// What this driver promises, seen from outside, over the fake vendor.
func TestConformance(t *testing.T) {
	v := newVendor(t)
	conformance.Run(t, conformance.Options{
		Binary: "/proc/self/exe", Env: []string{asDriver + "=1", place.EnvGuest + "=" + builtGuest}, Parallel: 4, Repeat: 3, Faults: true,
		ProcessConfig: values(t, processConfig(v, nil)), SandboxConfig: values(t, map[string]any{"image": imageTag}),
		Secrets: []string{tokenID, tokenSecret},
		Skip:    map[string]string{"leaks/memory-and-files": "it makes 50 sandboxes; TestNothingIsLeft looks for less with two"},
	})
	if left := v.Running(); len(left) > 0 {
		t.Errorf("sandboxes are left: %v", left)
	}
}
