// SPDX-License-Identifier: Apache-2.0

package main

import (
	"runtime"
	"testing"
	"time"

	"github.com/berth-dev/berth/plugins/docker/internal/inside"
	"github.com/berth-dev/berth/sdk/conformance"
)

// asDriver makes the test program the driver.
const asDriver = "BERTH_TEST_AS_DRIVER"

// What this driver promises, seen from outside.
func TestConformance(t *testing.T) {
	t.Parallel()
	e := needEngine(t)
	// Something that can listen, as the suite starts it.
	image := loaded(t, "conformance", runtime.GOARCH, append(busybox(t),
		entry{name: "bin/listen", mode: 0o755, body: []byte("#!/bin/sh\nexec nc -ll -p $1 -e cat\n")}), map[string]any{"Env": []string{"PATH=/bin"}})
	conformance.Run(t, conformance.Options{
		Binary: "/proc/self/exe", Env: []string{asDriver + "=1", inside.EnvGuest + "=" + builtGuest}, Parallel: atOnce, Faults: true,
		ProcessConfig: values(t, map[string]any{"host": e.Where}),
		// Each of these takes an engine half a second, and many times that on a loaded machine.
		Lives: 10, Timeout: 5 * time.Minute,
		SandboxConfig: values(t, map[string]any{"image": image, "network": "none", "pull": "never"}),
	})
}
