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
	id, secret := os.Getenv("MODAL_TOKEN_ID"), os.Getenv("MODAL_TOKEN_SECRET")
	if os.Getenv("BERTH_MODAL_LIVE") == "" || id == "" || secret == "" {
		t.Skip("BERTH_MODAL_LIVE, MODAL_TOKEN_ID and MODAL_TOKEN_SECRET are not set")
	}
	process := map[string]any{"token_id": id, "token_secret": secret, "app": "berth-conformance"}
	for name, attribute := range map[string]string{"MODAL_SERVER_URL": "server_url", "MODAL_ENVIRONMENT": "environment"} {
		if v := os.Getenv(name); v != "" {
			process[attribute] = v
		}
	}
	conformance.Run(t, conformance.Options{
		Binary: "/proc/self/exe", Env: []string{asDriver + "=1"}, Repeat: 3, Parallel: 2, Lives: 5, Faults: true, ProcessConfig: values(t, process),
		SandboxConfig: values(t, map[string]any{"image": "debian:bookworm-slim", "timeout": 1800}), Secrets: []string{id, secret},
	})
}
