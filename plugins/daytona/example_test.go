// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/internal/testbin"
	"github.com/berth-dev/berth/plugins/daytona/internal/fake"
)

// The examples run as they are, with another driver.
func TestExamples(t *testing.T) {
	v := newVendor(t, fake.Options{})
	driverPath, berth := testbin.Driver(t, "daytona"), testbin.Berth(t)
	home := t.TempDir()
	run := func(dir string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), berth, append([]string{"--driver-binary", "daytona=" + driverPath, "--chdir", dir}, args...)...)
		cmd.Env = append(os.Environ(), "HOME="+home, "XDG_STATE_HOME="+home, "XDG_CACHE_HOME="+home, "XDG_CONFIG_HOME="+home,
			"DAYTONA_API_URL="+v.api, "DAYTONA_API_KEY="+v.Key())
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("berth %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	for name, prompt := range map[string][]string{"renewal-packet": nil, "ten-lines": {".", "Where are you?"}} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(filepath.Join("../../examples", name))); err != nil {
			t.Fatal(err)
		}
		block := "sandbox \"box\" {\n  driver = \"daytona\"\n  config {\n    user = \"root\"\n  }\n}\n"
		if err := os.WriteFile(filepath.Join(dir, "sandbox.berth.hcl"), []byte(block), 0o600); err != nil {
			t.Fatal(err)
		}
		out := run(dir, append([]string{"run", "--replay", "transcript.jsonl"}, prompt...)...)
		if !strings.Contains(out, "completed") {
			t.Errorf("%s: %s", name, out)
		}
		if out := run(dir, "exec", "--", "sh", "-c", "echo works in $(pwd)"); !strings.Contains(out, "works in /workspace") {
			t.Errorf("%s: %s", name, out)
		}
	}
	if n := count(t, driverAt(t, v, t.TempDir())); n != 0 {
		t.Errorf("%d sandboxes are left", n)
	}
	// Nothing that the runs left on this machine holds the key.
	err := filepath.WalkDir(home, func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if strings.Contains(string(b), v.Key()) {
			t.Errorf("the API key is in %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
