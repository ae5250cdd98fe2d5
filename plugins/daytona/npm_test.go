// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/berth-dev/berth/plugins/daytona/internal/fake"
)

// npmClient is the vendor's client for Node, at the version that this was tried with.
const npmClient = "@daytonaio/sdk@0.218.0"

// The vendor's own client works with the fake. It is installed where BERTH_DAYTONA_NPM names a directory, or is there.
func TestVendorsClient(t *testing.T) {
	dir := os.Getenv("BERTH_DAYTONA_NPM")
	if dir == "" {
		t.Skip("BERTH_DAYTONA_NPM names no directory to install the vendor's client in")
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules")); err != nil {
		cmd := exec.CommandContext(t.Context(), "npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", dir, npmClient)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Skipf("the vendor's client cannot be installed: %v\n%s", err, out)
		}
	}
	v := newVendor(t, fake.Options{})
	script, err := os.ReadFile("testdata/client.cjs")
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(dir, "client.cjs")
	if err := os.WriteFile(at, script, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", at)
	cmd.Env = append(os.Environ(), "DAYTONA_API_URL="+v.api, "DAYTONA_API_KEY="+v.Key())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if n := v.Calls("DELETE /sandbox/{id}"); n != 1 {
		t.Errorf("the client deleted %d sandboxes", n)
	}
}
