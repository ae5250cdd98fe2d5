// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"testing"

	"github.com/berth-dev/berth/plugins/e2b/internal/fakee2b"
	"github.com/berth-dev/berth/plugins/internal/canary"
)

// The key shows nowhere while the real berth works, nor afterwards.
func TestCanaries(t *testing.T) {
	s := newService(t)
	canary.Test(t, canary.Options{
		Driver: "e2b", Secrets: map[string]string{"KEY": fakee2b.Key}, Refusal: "Invalid API key",
		Blocks: `
secret "e2b" { env = "KEY" }
driver "e2b" {
  config {
    api_key     = secret.e2b
    api_url     = "` + s.url + `"
    sandbox_url = "` + s.url + `"
  }
}
`,
	})
	if left := s.fake.Alive(); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}
