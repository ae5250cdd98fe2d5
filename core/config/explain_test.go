// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-dev/berth/core/config"
	"github.com/berth-dev/berth/core/config/explain"
)

func write(t *testing.T, files []explain.File) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range files {
		p := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(f.Content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestExplained loads the examples of every code: the wrong one must give the code, the right one no error.
func TestExplained(t *testing.T) {
	for _, e := range explain.All() {
		if e.Needs != "" && e.Needs != "untrusted" {
			continue
		}
		t.Run(e.Code.String(), func(t *testing.T) {
			opt := config.Options{Env: noEnv, Schemas: schemas, Version: "0.1.0", Untrusted: e.Needs == "untrusted", Drivers: []string{"docker", "e2b"}}
			if len(e.Wrong) > 0 {
				opt.Path = write(t, e.Wrong)
				l, _ := config.Load(t.Context(), opt)
				found := false
				for _, d := range l.Diags {
					found = found || d.Code == e.Code
				}
				if !found {
					t.Errorf("the wrong example does not give it:\n%s", render(l))
				} else {
					t.Logf("\n%s", render(l))
				}
			}
			if len(e.Right) > 0 {
				opt.Path = write(t, e.Right)
				l, _ := config.Load(t.Context(), opt)
				for _, d := range l.Diags {
					if d.Code == e.Code || d.Severity == 1 {
						t.Errorf("the right example gives: %s", d)
					}
				}
			}
		})
	}
}
