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
	"github.com/berth-dev/berth/plugins/e2b/internal/fakee2b"
)

// The examples run as they are, with another driver, and leave nothing.
func TestExamples(t *testing.T) {
	s := newService(t)
	driver, berth, home := testbin.Driver(t, "e2b"), testbin.Berth(t), t.TempDir()
	run := func(dir string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), berth, append([]string{"--driver-binary", "e2b=" + driver, "--chdir", dir}, args...)...)
		cmd.Env = append(os.Environ(), "HOME="+home, "XDG_STATE_HOME="+home, "XDG_CACHE_HOME="+home, "XDG_CONFIG_HOME="+home,
			"E2B_API_KEY="+fakee2b.Key, "E2B_API_URL="+s.url, "E2B_SANDBOX_URL="+s.url)
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
		if err := os.WriteFile(filepath.Join(dir, "sandbox.berth.hcl"), []byte("sandbox \"box\" {\n  driver = \"e2b\"\n}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if out := run(dir, append([]string{"run", "--replay", "transcript.jsonl"}, prompt...)...); !strings.Contains(out, "completed") {
			t.Errorf("%s: %s", name, out)
		}
		if out := run(dir, "exec", "--", "sh", "-c", "echo works in $(pwd) as $(id -un)"); !strings.Contains(out, "works in /workspace as user") {
			t.Errorf("%s: %s", name, out)
		}
	}
	if left := s.fake.Alive(); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
	// The key is nowhere in what berth keeps.
	err := filepath.WalkDir(home, func(p string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(p)
		if strings.Contains(string(b), fakee2b.Key) {
			t.Errorf("the key is in %s", p)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
