// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A bucket of a file's manifest is mounted by the vendor, with keys that the sandbox does not see.
func TestNativeMount(t *testing.T) {
	v, run := outside(t)
	bucket, err := v.AddBucket("inputs")
	if err == nil {
		err = os.MkdirAll(filepath.Join(bucket, "2026"), 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(bucket, "2026/report"), []byte("figures"), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TEST_BUCKET_KEY", "bucket-canary")
	const project = `
secret "bucket" { env = "TEST_BUCKET_KEY" }

manifest "inputs" {
  file "notes.txt" {
    content = "notes"
  }

  mount "s3" "data" {
    bucket    = "inputs"
    prefix    = "2026"
    read_only = false

    credentials {
      access_key_id     = "AKID"
      secret_access_key = secret.bucket
    }
    STRATEGY
  }
}

agent "reader" {
  instructions = "Read."
  manifest     = manifest.inputs
}
`
	for name, strategy := range map[string]string{"auto": "", "native": "strategy \"native\" {\n      requester_pays = true\n    }"} {
		dir := t.TempDir()
		for file, text := range map[string]string{"main.berth.hcl": strings.Replace(project, "STRATEGY", strategy, 1), "sandbox.berth.hcl": hostSettings} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}

		out := run(dir, "exec", "--", "sh", "-c", "cat notes.txt data/report; echo from $0 > data/written; env", name)
		if !strings.Contains(out, "notesfigures") || strings.Contains(out, "bucket-canary") {
			t.Errorf("%s: %s", name, out)
		}
		if got, err := os.ReadFile(filepath.Join(bucket, "2026/written")); string(got) != "from "+name+"\n" {
			t.Errorf("%s: the bucket has %q, %v", name, got, err)
		}
	}
	if left := v.Running(); len(left) > 0 {
		t.Errorf("sandboxes are left: %v", left)
	}
}
