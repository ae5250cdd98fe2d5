// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"os"
	"testing"

	"github.com/berth-dev/berth/plugins/internal/canary"
	"github.com/berth-dev/berth/plugins/modal/internal/fake"
)

// The token shows nowhere while the real berth works, nor afterwards.
func TestCanaries(t *testing.T) {
	newVendor(t) // says where it cannot be
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	v, err := fake.Start(fake.Options{TokenID: tokenID, TokenSecret: tokenSecret, Images: map[string]string{"host:1": hostImage(t)}, FSTools: self})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	})
	canary.Test(t, canary.Options{
		Driver: "modal", Secrets: map[string]string{"TOKEN_ID": tokenID, "TOKEN_SECRET": tokenSecret}, Config: `image = "host:1"`, Refusal: "Token ID is malformed",
		Blocks: `
secret "id" { env = "TOKEN_ID" }
secret "secret" { env = "TOKEN_SECRET" }
driver "modal" {
  config {
    token_id     = secret.id
    token_secret = secret.secret
    server_url   = "` + v.URL() + `"
  }
}
`,
	})
	if left := v.Running(); len(left) > 0 {
		t.Errorf("sandboxes are left: %v", left)
	}
}
