// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"os"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/sdk/driver"
)

// The real service, for those who have a token and say that they want to: one small sandbox for some seconds.
func TestRealModal(t *testing.T) {
	if os.Getenv("BERTH_TEST_MODAL") == "" {
		t.Skip("BERTH_TEST_MODAL is not set: the real service costs money")
	}
	process := map[string]any{"token_id": os.Getenv("MODAL_TOKEN_ID"), "token_secret": os.Getenv("MODAL_TOKEN_SECRET"), "app": "berth-test"}
	if env := os.Getenv("MODAL_ENVIRONMENT"); env != "" {
		maps.Copy(process, map[string]any{"environment": env})
	}
	t.Setenv("BERTH_GUEST", "") // the one for Modal's processors
	d := New(hclog.NewNullLogger()).(*hosted)
	if diags := d.Configure(t.Context(), driver.Host{StateDir: t.TempDir()}, values(t, process)); len(diags) > 0 {
		t.Fatal(diags)
	}
	f := &fixture{hosted: d}
	req := request(t, map[string]any{"image": "debian:bookworm-slim", "timeout": 600})
	s := f.create(t, req)
	if got := sh(t, s, "echo works; echo file > f; cat f; pwd"); got != "works\nfile\n/workspace" {
		t.Errorf("%q", got)
	}
	again, err := d.Resume(t.Context(), &driver.ResumeRequest{SandboxID: req.SandboxID, State: s.State(), Config: req.Config})
	if err != nil {
		t.Fatal(err)
	}
	if got := sh(t, again, "cat f"); got != "file" {
		t.Errorf("%q", got)
	}
}
