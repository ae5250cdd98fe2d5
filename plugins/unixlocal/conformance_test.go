// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"testing"

	"github.com/berth-dev/berth/sdk/conformance"
	"github.com/berth-dev/berth/sdk/driver"
)

// asDriver makes the test program the driver.
const asDriver = "BERTH_TEST_AS_DRIVER"

func TestConformance(t *testing.T) {
	conformance.Run(t, conformance.Options{
		Binary: "/proc/self/exe", Env: []string{asDriver + "=1"}, Repeat: 3, Parallel: 2, Faults: true,
		// As version 0.1.0 made it. Such a line is never changed, only followed by others.
		States: []conformance.SavedState{{SandboxID: "01JE5Z8W9T6N3V2Q1R0P4M7K5H", State: driver.State{Version: 1, Data: []byte(`{"id":"01JE5Z8W9T6N3V2Q1R0P4M7K5H","proof":"b3f6d0f6c2b04ac2"}`)}}},
	})
}
