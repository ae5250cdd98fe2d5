// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"os"
	"testing"

	"github.com/berth-dev/berth/sdk/conformance"
)

// What this driver promises, at the vendor. It makes some 150 sandboxes, two at a time.
func TestLiveConformance(t *testing.T) {
	key := os.Getenv("DAYTONA_API_KEY")
	if os.Getenv("BERTH_DAYTONA_LIVE") == "" || key == "" {
		t.Skip("BERTH_DAYTONA_LIVE and DAYTONA_API_KEY are not set")
	}
	process := map[string]any{"api_key": key}
	if at := os.Getenv("DAYTONA_API_URL"); at != "" {
		process["api_url"] = at
	}
	conformance.Run(t, conformance.Options{
		Binary: "/proc/self/exe", Env: []string{asDriver + "=1"}, Repeat: 3, Parallel: 2, Faults: true, ProcessConfig: values(t, process),
		SandboxConfig: values(t, map[string]any{"user": "root", "auto_stop": 300, "auto_delete": "1h"}), Secrets: []string{key},
		Lives: 5,
	})
}
