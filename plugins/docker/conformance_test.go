// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/berth-dev/berth/plugins/docker/internal/inside"
	"github.com/berth-dev/berth/sdk/conformance"
)

// asDriver makes the test program the driver.
const asDriver = "BERTH_TEST_AS_DRIVER"

// What this driver promises, seen from outside.
func TestConformance(t *testing.T) {
	e := needEngine(t)
	conformance.Run(t, conformance.Options{
		Binary: "/proc/self/exe", Env: []string{asDriver + "=1", inside.EnvGuest + "=" + builtGuest}, Parallel: 2,
		ProcessConfig: values(t, map[string]any{"host": e.Where}),
		Skip: map[string]string{
			"leaks/memory-and-files": "it makes 50 sandboxes, which takes an engine half a minute; TestNoGoroutinesAreLeft looks for less with two",
		},
		SandboxConfig: values(t, map[string]any{"image": busyboxImage(t), "network": "none", "pull": "never"}),
	})
}
