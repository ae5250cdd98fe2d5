// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/berth-dev/berth/core/config"
)

// large writes a project of 500 agents in about 9,000 lines.
func large(tb testing.TB) string {
	tb.Helper()
	var b strings.Builder
	b.WriteString("locals {\n  root = \"/workspace\"\n}\n\nmanifest \"m\" {\n  root = local.root\n}\n\nmodel_provider \"p\" {}\n\nmodel \"deep\" {\n  provider = model_provider.p\n  name     = \"gpt-5.6\"\n}\n\n")
	for i := range 500 {
		fmt.Fprintf(&b, `agent "a%[1]d" {
  model        = model.deep
  instructions = "You are agent %[1]d in ${local.root}."
  manifest     = manifest.m
  handoffs     = [agent.a%[2]d]

  model_settings {
    verbosity = "low"
    reasoning {
      effort = "high"
    }
  }

  approvals {
    rule "push" {
      match    = ["^git push"]
      decision = "ask"
    }
  }
}

`, i, (i+1)%500)
	}
	dir := tb.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.berth.hcl"), []byte(b.String()), 0o600); err != nil {
		tb.Fatal(err)
	}
	return dir
}

func TestLargeProject(t *testing.T) {
	dir := large(t)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	l, err := config.Load(t.Context(), config.Options{Path: dir, Env: noEnv, Schemas: schemas})
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Fatal(render(l))
	}
	if n := len(l.Project.Agents); n != 500 {
		t.Fatalf("%d agents", n)
	}
	alloc := (after.TotalAlloc - before.TotalAlloc) >> 20
	t.Logf("%d MiB allocated", alloc)
	if alloc > 400 {
		t.Errorf("loading allocated %d MiB", alloc)
	}
}

func BenchmarkLarge(b *testing.B) {
	dir := large(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := config.Load(b.Context(), config.Options{Path: dir, Env: noEnv, Schemas: schemas}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCoding(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := config.Load(b.Context(), config.Options{Path: "testdata/coding", Env: noEnv, Schemas: schemas}); err != nil {
			b.Fatal(err)
		}
	}
}
