// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"os"
	"testing"

	"github.com/berth-dev/berth/sdk/conformance"
)

// asDriver makes the test program the driver.
const asDriver = "BERTH_TEST_AS_DRIVER"

func TestConformance(t *testing.T) {
	skip := map[string]string{}
	if os.Getuid() != 0 {
		skip["faults/killed-during-create"] = "without a cgroup a guest that a killed driver had just started lives until its lease ends"
	}
	conformance.Run(t, conformance.Options{
		Binary: "/proc/self/exe", Env: []string{asDriver + "=1"}, Repeat: 3, Parallel: 2, Faults: true, Skip: skip,
	})
}
