// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"testing"

	"github.com/berth-dev/berth/plugins/daytona/internal/fake"
	"github.com/berth-dev/berth/plugins/internal/canary"
)

// The key shows nowhere while the real berth works, nor afterwards.
func TestCanaries(t *testing.T) {
	v := newVendor(t, fake.Options{})
	canary.Test(t, canary.Options{
		Driver: "daytona", Secrets: map[string]string{"KEY": v.Key()}, Config: `user = "root"`, Refusal: "Invalid credentials",
		Blocks: `
secret "daytona" { env = "KEY" }
driver "daytona" {
  config {
    api_url = "` + v.api + `"
    api_key = secret.daytona
  }
}
`,
	})
	if n := count(t, driverAt(t, v, t.TempDir())); n != 0 {
		t.Errorf("%d sandboxes are left", n)
	}
}
