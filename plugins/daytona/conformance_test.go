// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"testing"

	"github.com/berth-dev/berth/plugins/daytona/internal/fake"
	"github.com/berth-dev/berth/sdk/conformance"
)

// What this driver promises, seen from outside, with a proxy between it and the vendor.
func TestConformance(t *testing.T) {
	v := newVendor(t, fake.Options{})
	conformance.Run(t, conformance.Options{
		Binary: "/proc/self/exe", Env: []string{asDriver + "=1"}, Repeat: 3, Parallel: 2, Lives: 5, Faults: true,
		ProcessConfig: values(t, v.process()), SandboxConfig: values(t, map[string]any{"user": "root"}), Secrets: []string{v.Key()},
	})
}
