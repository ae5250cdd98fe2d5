// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/berth-dev/berth/core/config"
	"github.com/berth-dev/berth/core/diag"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/schema"
)

var update = flag.Bool("update", false, "write the texts that are found into the cases")

// goldenDrivers are what the drivers of the cases say about themselves.
func goldenDrivers(name string) (*driver.Description, error) {
	block := func(attrs ...schema.Attribute) *schema.Schema {
		return &schema.Schema{Block: schema.Block{Attributes: attrs}}
	}
	switch name {
	case "unixlocal":
		return &driver.Description{
			Name: name, Features: []driver.Feature{driver.PortHTTP, driver.PathGrants}, SandboxConfig: block(),
			Mounts: []driver.MountSupport{{Kind: "s3", Strategies: []string{"in_container"}}},
		}, nil
	case "docker":
		return &driver.Description{Name: name, SandboxConfig: block(
			schema.Attribute{Name: "image", Type: schema.String, Required: true, Doc: "Image."},
			schema.Attribute{Name: "network_mode", Type: schema.String, OneOf: []string{"none", "bridge"}, Doc: "Network."},
			schema.Attribute{Name: "labels", Type: schema.MapOf(schema.String), Doc: "Labels."},
			schema.Attribute{Name: "token", Type: schema.String, Sensitive: true, Doc: "Token."},
		)}, nil
	case "e2b":
		return &driver.Description{
			Name:          name,
			ProcessConfig: block(schema.Attribute{Name: "api_key", Type: schema.String, Required: true, Sensitive: true, Doc: "Key."}),
			SandboxConfig: block(schema.Attribute{Name: "template", Type: schema.String, Doc: "Template."}),
		}, nil
	}
	return nil, errs.New(errs.DriverUnknown, "no driver %q", name)
}

// golden is one case: files, and what is said about them.
type golden struct {
	path  string
	ar    *txtar.Archive
	files map[string]string
	want  map[string]string
}

func readGolden(t *testing.T, path string) golden {
	t.Helper()
	ar, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	g := golden{path: path, ar: ar, files: map[string]string{}, want: map[string]string{}}
	for _, f := range ar.Files {
		if strings.HasPrefix(f.Name, "want") {
			g.want[f.Name] = string(f.Data)
		} else {
			g.files[f.Name] = string(f.Data)
		}
	}
	return g
}

// load writes the files, changed, into a directory and loads them.
func (g golden) load(t *testing.T, change func(name, content string) string) *config.Loaded {
	t.Helper()
	t.Chdir(t.TempDir())
	for name, content := range g.files {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(change(name, content)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	l, _ := config.Load(t.Context(), config.Options{
		Path: ".", Env: func(string) (string, bool) { return "", false }, Version: "0.1.0", Schemas: goldenDrivers,
		Drivers: []string{"docker", "e2b", "unixlocal"}, Untrusted: strings.Contains(string(g.ar.Comment), "untrusted"),
	})
	return l
}

func asText(t *testing.T, l *config.Loaded) string {
	t.Helper()
	var b bytes.Buffer
	if err := diag.WriteText(&b, l.Diags, l.Files, diag.TextOptions{Width: 120}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func asJSON(t *testing.T, l *config.Loaded) string {
	t.Helper()
	var b bytes.Buffer
	if err := diag.WriteJSON(&b, l.Diags, l.Files); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

var carets = regexp.MustCompile(`(?m)^ +\| +([\^-]+.*)$`)

// marked gives the carets with what stands behind them.
func marked(text string) []string {
	var out []string
	for _, m := range carets.FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	return out
}

func TestDiagnostics(t *testing.T) {
	cases, err := filepath.Glob("testdata/diagnostics/*.txtar")
	if err != nil || len(cases) < 30 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	for _, path := range cases {
		full, err := filepath.Abs(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			g := readGolden(t, full)
			l := g.load(t, func(_, content string) string { return content })
			text, object := asText(t, l), asJSON(t, l)
			if *update {
				g.write(t, text, object)
				return
			}
			if diff := cmp.Diff(g.want["want"], text); diff != "" {
				t.Errorf("text: (-want +got)\n%s\n%s", diff, text)
			}
			if diff := cmp.Diff(g.want["want.json"], object); diff != "" {
				t.Errorf("JSON: (-want +got)\n%s", diff)
			}
			if len(l.Diags) == 0 {
				t.Error("nothing was found")
			}
			for _, d := range l.Diags {
				if d.Code == 0 || strings.HasSuffix(d.Summary, ".") || strings.Contains(d.Summary, "cty.") {
					t.Errorf("summary %q, code %s", d.Summary, d.Code)
				}
			}
			g.variants(t, text)
		})
	}
}

// variants are other ways to write the same bytes; they change nothing in what is said.
func (g golden) variants(t *testing.T, text string) {
	t.Helper()
	same := map[string]func(name, content string) string{
		"CRLF": func(_, content string) string { return strings.ReplaceAll(content, "\n", "\r\n") },
		"BOM":  func(_, content string) string { return "\xEF\xBB\xBF" + content },
	}
	for name, change := range same {
		if diff := cmp.Diff(text, asText(t, g.load(t, change))); diff != "" {
			t.Errorf("with %s: (-without +with)\n%s", name, diff)
		}
	}
	// With tabs the columns are others, but everything is said about the same characters.
	tabs := asText(t, g.load(t, func(_, content string) string {
		return regexp.MustCompile(`(?m)^( {2})+`).ReplaceAllStringFunc(content, func(s string) string {
			return strings.Repeat("\t", len(s)/2)
		})
	}))
	if diff := cmp.Diff(marked(text), marked(tabs)); diff != "" {
		t.Errorf("with tabs: (-without +with)\n%s", diff)
	}
}

func (g golden) write(t *testing.T, text, object string) {
	t.Helper()
	out := &txtar.Archive{Comment: g.ar.Comment}
	for _, f := range g.ar.Files {
		if !strings.HasPrefix(f.Name, "want") {
			out.Files = append(out.Files, f)
		}
	}
	out.Files = append(out.Files, txtar.File{Name: "want", Data: []byte(text)}, txtar.File{Name: "want.json", Data: []byte(object)})
	if err := os.WriteFile(g.path, txtar.Format(out), 0o644); err != nil {
		t.Fatal(err)
	}
}
