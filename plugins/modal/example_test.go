// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/berth-dev/berth/internal/testbin"
	"github.com/berth-dev/berth/plugins/modal/internal/fake"
)

// hostImage is an image with some of this machine's own programs, and what they are linked with.
func hostImage(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	add := func(path, as string) {
		b, err := os.ReadFile(path)
		if err == nil {
			err = os.MkdirAll(filepath.Join(dir, filepath.Dir(as)), 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, as), b, 0o755)
		}
		if err != nil {
			t.Skipf("the example needs programs of this machine: %v", err)
		}
	}
	library := regexp.MustCompile(`(?m)(?:=> )?(/\S+) \(0x`)
	for _, p := range []string{
		"sh", "bash", "cat", "ls", "date", "awk", "mkdir", "env", "wc", "ps", "id", "touch", "rm", "uname", "grep", "sleep", "chmod", "mv",
	} {
		path, err := exec.LookPath(p)
		if err == nil {
			path, err = filepath.EvalSymlinks(path)
		}
		if err != nil {
			t.Skipf("the example needs %s: %v", p, err)
		}
		add(path, "bin/"+p)
		out, err := exec.Command("ldd", path).Output()
		if err != nil {
			continue // it is static
		}
		for _, m := range library.FindAllStringSubmatch(string(out), -1) {
			add(m[1], m[1])
		}
	}
	return dir
}

// hostSettings are for sandboxes of an image with this machine's programs.
const hostSettings = `
secret "modal_id" { env = "TEST_ID" }
secret "modal_secret" { env = "TEST_SECRET" }
driver "modal" {
  config {
    token_id     = secret.modal_id
    token_secret = secret.modal_secret
  }
}
sandbox "box" {
  driver = "modal"
  config {
    image = "host:1"
  }
}
`

// outside runs berth as people do, with a vendor.
func outside(t *testing.T) (*fake.Server, func(dir string, args ...string) string) {
	t.Helper()
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
	driverPath, berth := testbin.Driver(t, "modal"), testbin.Berth(t)
	home := t.TempDir()
	return v, func(dir string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), berth, append([]string{"--driver-binary", "modal=" + driverPath, "--chdir", dir}, args...)...)
		cmd.Env = append(os.Environ(), "HOME="+home, "XDG_STATE_HOME="+home, "XDG_CACHE_HOME="+home, "XDG_CONFIG_HOME="+home,
			"MODAL_SERVER_URL="+v.URL(), "TEST_ID="+tokenID, "TEST_SECRET="+tokenSecret)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("berth %v: %v\n%s", args, err, out)
		}
		if strings.Contains(string(out), tokenSecret) {
			t.Error("berth shows the token")
		}
		return string(out)
	}
}

// The examples run as they are, with another driver.
func TestExamples(t *testing.T) {
	v, run := outside(t)
	for name, prompt := range map[string][]string{"renewal-packet": nil, "ten-lines": {".", "Where are you?"}} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(filepath.Join("../../examples", name))); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "sandbox.berth.hcl"), []byte(hostSettings), 0o600); err != nil {
			t.Fatal(err)
		}
		if out := run(dir, append([]string{"run", "--replay", "transcript.jsonl"}, prompt...)...); !strings.Contains(out, "completed") {
			t.Errorf("%s: %s", name, out)
		}
		if out := run(dir, "exec", "--", "sh", "-c", "echo works in $(pwd)"); !strings.Contains(out, "works in /workspace") {
			t.Errorf("%s: %s", name, out)
		}
	}
	if left := v.Running(); len(left) > 0 {
		t.Errorf("sandboxes are left: %v", left)
	}
}
