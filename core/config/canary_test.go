// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/berth-dev/berth/core/config"
	"github.com/berth-dev/berth/core/diag"
)

const canary = "canary-hunter2-4711"

// everyForm is all that a user, a log or a program can see of the diagnostics.
func everyForm(t *testing.T, ds diag.Diagnostics, files diag.Files) string {
	t.Helper()
	var b bytes.Buffer
	for _, write := range []func() error{
		func() error { return diag.WriteText(&b, ds, files, diag.TextOptions{Most: 1000}) },
		func() error { return diag.WriteJSON(&b, ds, files) },
		func() error { return diag.WriteShort(&b, ds) },
		func() error { return diag.WriteSARIF(&b, ds, files, "") },
	} {
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}
	if err := ds.Err(); err != nil {
		b.WriteString(err.Error())
	}
	return b.String()
}

// arguments finds the expression of every argument of a file.
func arguments(t *testing.T, name string, src []byte) []hcl.Range {
	t.Helper()
	file, ds := hclsyntax.ParseConfig(src, name, hcl.InitialPos)
	if ds.HasErrors() {
		t.Fatal(ds)
	}
	body, ok := file.Body.(*hclsyntax.Body)
	if !ok {
		t.Fatal("not a native body")
	}
	var out []hcl.Range
	var walk func(b *hclsyntax.Body)
	walk = func(b *hclsyntax.Body) {
		for _, a := range b.Attributes {
			out = append(out, a.Expr.Range())
		}
		for _, n := range b.Blocks {
			walk(n.Body)
		}
	}
	walk(body)
	return out
}

// A secret text is put, in several ways, into the place of every argument of the example projects: whatever comes of
// it, nothing that is printed holds the text.
func TestNoFindingShowsASecret(t *testing.T) {
	env := func(name string) (string, bool) {
		return map[string]string{"BERTH_VAR_canary": canary}[name], name == "BERTH_VAR_canary"
	}
	forms := []string{
		`var.canary`, `"x-${var.canary}"`, `[var.canary]`, `{ a = var.canary }`, `parseint(var.canary, 10)`, `{ for x in [var.canary, var.canary] : x => x }`,
		`[for x in split("-", var.canary) : parseint(x, 10)]`, `var.canary.nope`, `file(var.canary)`, `try(tonumber(var.canary))`,
	}
	for _, project := range []string{"coding", "research"} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", project))); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "main.berth.hcl")
		src, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		places := arguments(t, "main.berth.hcl", src)
		for i, r := range places {
			form := forms[i%len(forms)]
			for _, form := range []string{form, forms[0]} {
				changed := string(src[:r.Start.Byte]) + form + string(src[r.End.Byte:]) + "\nvariable \"canary\" {\n  type      = string\n  sensitive = true\n}\n"
				if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
					t.Fatal(err)
				}
				l, _ := config.Load(t.Context(), config.Options{Path: dir, Env: env, Schemas: goldenDrivers, Version: "0.1.0"})
				if all := everyForm(t, l.Diags, l.Files); strings.Contains(all, canary) || strings.Contains(all, "hunter2") {
					t.Errorf("%s, line %d, %s:\n%s", project, r.Start.Line, form, all)
				}
				if l.Project != nil && strings.Contains(fmt.Sprintf("%+v", *l.Project), canary) {
					t.Errorf("%s, line %d, %s: the project prints the text", project, r.Start.Line, form)
				}
			}
		}
		t.Logf("%s: %d places", project, len(places))
	}
}

// What somebody said may be shown is a value like any other, wherever it stands.
func TestPublicValuesAreOrdinary(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "coding"))); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "main.berth.hcl")
	src, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const declared = "\nvariable \"open\" {\n  sensitive = true\n  default   = [%s]\n}\n"
	for _, r := range arguments(t, "main.berth.hcl", src) {
		expr := string(src[r.Start.Byte:r.End.Byte])
		line := strings.TrimSpace(strings.Split(string(src), "\n")[r.Start.Line-1])
		if strings.Contains(expr, "<") || strings.Contains(expr, "secret.") || strings.HasPrefix(line, "default") || strings.HasPrefix(line, "description") || strings.HasPrefix(line, "driver") {
			continue // heredocs; what must be literal
		}
		// The same value, once as it is and once through a sensitive variable, must give the same findings.
		literal := string(src[:r.Start.Byte]) + "[" + expr + "][0]" + string(src[r.End.Byte:])
		hidden := string(src[:r.Start.Byte]) + "nonsensitive(var.open)[0]" + string(src[r.End.Byte:]) + fmt.Sprintf(declared, expr)
		var got [2]string
		for i, text := range []string{literal, hidden} {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			l, _ := config.Load(t.Context(), config.Options{Path: dir, Env: noSecrets, Schemas: schemas, Version: "0.1.0"})
			if slices.ContainsFunc(l.Diags, func(d *diag.Diagnostic) bool { return d.Subject.Start.Line > strings.Count(string(src), "\n") }) {
				got = [2]string{} // the value is no literal, so that no variable can have it
				break
			}
			for _, d := range l.Diags {
				got[i] += d.Code.String() + " "
			}
		}
		if got[0] != got[1] {
			t.Errorf("line %d, %s: the value itself gives %q, through nonsensitive %q", r.Start.Line, expr, got[0], got[1])
		}
	}
}

func noSecrets(string) (string, bool) { return "", false }

// A secret stays one through what the libraries do with something unknown, and nonsensitive still leads to the secret.
func TestUnknownSecretsKeepTheirMark(t *testing.T) {
	for form, leaks := range map[string]bool{
		`secret.s`: true, `"${secret.s}"`: true, `tostring(-tonumber(secret.s))`: true, `["a", "b"][length(secret.s)]`: true,
		`{ (secret.s) = "x" }["k"]`: true, `join("", [for c in split("", secret.s) : c])`: true, `try(secret.s, "x")`: true,
		`local.derived`: true, `can(secret.s) ? "a" : "b"`: true, `tostring(!(secret.s == "a"))`: true,
		`nonsensitive(secret.s)`: false, `"x-${nonsensitive(secret.s)}"`: false, `tostring(length(nonsensitive(secret.s)))`: false,
	} {
		dir := t.TempDir()
		src := "secret \"s\" {\n  env = \"S\"\n}\n\nlocals {\n  derived = \"%{ for c in split(\",\", secret.s) }${c}%{ endfor }\"\n}\n\n" +
			"sandbox \"d\" {\n  driver = \"docker\"\n\n  config {\n    image  = \"x\"\n    labels = { a = " + form + " }\n  }\n}\n"
		if err := os.WriteFile(filepath.Join(dir, "main.berth.hcl"), []byte(src), 0o600); err != nil {
			t.Fatal(err)
		}
		env := func(name string) (string, bool) { return canary, name == "S" }
		l, err := config.Load(t.Context(), config.Options{Path: dir, Env: env, Schemas: goldenDrivers, Version: "0.1.0"})
		if leaks {
			if len(l.Diags) != 1 || l.Diags[0].Code != diag.SecretLeak {
				t.Errorf("%s: %v, want %s", form, l.Diags, diag.SecretLeak)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", form, err)
			continue
		}
		v, err := l.Project.Sandboxes["d"].Config.Encode()
		if err != nil || !strings.Contains(form, "length") && !bytes.Contains(v.MsgPack, []byte(canary)) {
			t.Errorf("%s: encoded %q, %v", form, v.MsgPack, err)
		}
	}
}
