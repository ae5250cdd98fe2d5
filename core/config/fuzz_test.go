// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/berth-dev/berth/core/config"
)

// FuzzLoad gives the loader whatever there is: it must not panic, and neither time nor memory may run away.
func FuzzLoad(f *testing.F) {
	for _, pattern := range []string{"testdata/*/*.berth.hcl", "testdata/*/*.berth.json"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, p := range paths {
			src, err := os.ReadFile(p)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(src, strings.HasSuffix(p, ".json"))
		}
	}
	cases, err := filepath.Glob("testdata/diagnostics/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, c := range cases {
		ar, err := txtar.ParseFile(c)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range ar.Files {
			if !strings.HasPrefix(file.Name, "want") {
				f.Add(file.Data, strings.HasSuffix(file.Name, ".json"))
			}
		}
	}
	for _, s := range []string{
		`agent "a" { handoffs = [agent.a] }`, `locals { a = local.b }`, `manifest "m" { dynamic "file" { for_each = range(9) } }`,
		`module "m" { source = "." }`, `variable "x" { type = object({ a = optional(list(any), []) }) }`, `secret "s" { command = ["id"] }`,
		`tool "command" "t" { command = [param.x], parameters = object({ x = string }) }`,
	} {
		f.Add([]byte(s), false)
	}
	f.Fuzz(func(t *testing.T, src []byte, asJSON bool) {
		if len(src) > 64<<10 {
			return
		}
		name := "main.berth.hcl"
		if asJSON {
			name = "main.berth.json"
		}
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, src, 0o600); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := time.Now()
		l, err := config.Load(t.Context(), config.Options{
			Path: path, Env: func(string) (string, bool) { return "", false }, Schemas: goldenDrivers, Version: "0.1.0",
		})
		// A minute is far above what any input of this size takes; it is what a run-away would reach.
		if took := time.Since(start); took > time.Minute {
			t.Errorf("loading took %v", took)
		}
		runtime.ReadMemStats(&after)
		if n := (after.TotalAlloc - before.TotalAlloc) >> 20; n > 2048 {
			t.Errorf("loading allocated %d MiB", n)
		}
		if err != nil && !l.Diags.HasErrors() {
			t.Errorf("an error without a diagnostic: %v", err)
		}
		everyForm(t, l.Diags, l.Files)
	})
}
