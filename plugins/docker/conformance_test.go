// SPDX-License-Identifier: Apache-2.0

package main

import (
	"runtime"
	"testing"
	"time"

	"github.com/berth-dev/berth/plugins/docker/internal/inside"
	"github.com/berth-dev/berth/sdk/conformance"
	"github.com/berth-dev/berth/sdk/driver"
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
		Lives: 5, Timeout: 5 * time.Minute,
		// As version 0.1.0 made it. Such a line is never changed, only followed by others.
		States:        []conformance.SavedState{{SandboxID: "01JE5Z8W9T6N3V2Q1R0P4M7K5H", State: driver.State{Version: 1, Data: []byte(`{"container":"6f1ed002ab5595859014ebf0951522d9cd3b0a1c8a0fb0f6d8d8b7d8b0c1d2e3","engine":"` + e.Info.ID + `","where":"unix:///var/run/docker.sock","image":"sha256:0","filled":true}`)}}},
		SandboxConfig: values(t, map[string]any{"image": image, "network": "bridge", "publish_address": "0.0.0.0", "pull": "never"}),
	})
}
