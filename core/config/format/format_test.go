// SPDX-License-Identifier: Apache-2.0

package format_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/core/config/format"
	"github.com/berth-dev/berth/core/diag"
)

const (
	ugly = "agent \"a\" {\n      model=\"m\"\n  instructions   = <<-EOT\n    keep   this\n  EOT\n}\n"
	nice = "agent \"a\" {\n  model        = \"m\"\n  instructions = <<-EOT\n    keep   this\n  EOT\n}\n"
)

func TestSource(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"spaces":        {ugly, nice},
		"canonical":     {nice, nice},
		"crlf":          {strings.ReplaceAll(ugly, "\n", "\r\n"), strings.ReplaceAll(nice, "\n", "\r\n")},
		"bom":           {"\xEF\xBB\xBF" + ugly, "\xEF\xBB\xBF" + nice},
		"no last line":  {"a=1", "a = 1"},
		"comments":      {"#  a\n//b\n/* c\n  d */\na=1 # e\n", "#  a\n//b\n/* c\n  d */\na = 1 # e\n"},
		"wide":          {"a=\"日本\"\nbb=\"é\"\n", "a  = \"日本\"\nbb = \"é\"\n"},
		"order is kept": {"b=1\n\na=2\n", "b = 1\n\na = 2\n"},
		"empty":         {"", ""},
	} {
		got, ds, _ := format.Source("x.berth.hcl", []byte(c.in))
		if len(ds) > 0 {
			t.Errorf("%s: %s", name, ds.Error())
		}
		if diff := cmp.Diff(c.want, string(got)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
		if again, _, _ := format.Source("x.berth.hcl", got); !bytes.Equal(again, got) {
			t.Errorf("%s: formatting twice gives something else:\n%s", name, again)
		}
	}
}

func TestRefusesBrokenFiles(t *testing.T) {
	for _, src := range []string{"a = \"x\n", "a {\n", "a = \xff\n", "a == 1\n"} {
		out, ds, files := format.Source("x.berth.hcl", []byte(src))
		if out != nil || !ds.HasErrors() {
			t.Errorf("%q was formatted to %q", src, out)
		}
		var text bytes.Buffer
		if err := diag.WriteText(&text, ds, files, diag.TextOptions{}); err != nil || !strings.Contains(text.String(), "^") {
			t.Errorf("%q: %v\n%s", src, err, &text)
		}
	}
}

func write(t *testing.T, dir, name, content string, mode os.FileMode) {
	t.Helper()
	full := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(full, mode); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func tree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "a.berth.hcl", ugly, 0o640)
	write(t, dir, "v.auto.berthvars.hcl", "x=1\n", 0o644)
	write(t, dir, "broken.berth.hcl", "a {\n", 0o644)
	write(t, dir, "other.hcl", "x=1\n", 0o644)
	write(t, dir, ".berth.lock.hcl", "x=1\n", 0o644)
	write(t, dir, ".berth/cached.berth.hcl", "x=1\n", 0o644)
	write(t, dir, "below/b.berth.hcl", "x=1\n", 0o644)
	return dir
}

func TestDirectory(t *testing.T) {
	dir := tree(t)
	var out bytes.Buffer
	got, err := format.Command{Dir: dir, Out: &out}.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a.berth.hcl", "v.auto.berthvars.hcl"}, got.Changed); diff != "" {
		t.Errorf("changed: (-want +got)\n%s", diff)
	}
	if len(got.Diagnostics) != 1 || got.Diagnostics[0].Subject.Filename != "broken.berth.hcl" || got.Files["broken.berth.hcl"] == nil {
		t.Errorf("diagnostics: %v", got.Diagnostics)
	}
	if out.String() != "a.berth.hcl\nv.auto.berthvars.hcl\n" {
		t.Errorf("printed %q", out.String())
	}
	for name, want := range map[string]string{
		"a.berth.hcl": nice, "v.auto.berthvars.hcl": "x = 1\n", "broken.berth.hcl": "a {\n", "other.hcl": "x=1\n",
		".berth.lock.hcl": "x=1\n", ".berth/cached.berth.hcl": "x=1\n", "below/b.berth.hcl": "x=1\n",
	} {
		if got := read(t, dir, name); got != want {
			t.Errorf("%s holds %q, want %q", name, got, want)
		}
	}
	info, err := os.Stat(filepath.Join(dir, "a.berth.hcl"))
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v; want 0640", info.Mode(), err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 7 {
		t.Errorf("%d entries are in the directory, want 7 (%v)", len(entries), err)
	}

	got, err = format.Command{Dir: dir, Recursive: true, Out: &out}.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"below/b.berth.hcl"}, got.Changed); diff != "" {
		t.Errorf("changed the second time, recursively: (-want +got)\n%s", diff)
	}
}

func TestCheckPrintsAPatch(t *testing.T) {
	dir := t.TempDir()
	long := "b=2\n\n" + strings.Repeat("# c\n\n", 2) + "d=2\n\n" + strings.Repeat("# e\n\n", 20) + "f=1"
	write(t, dir, "a.berth.hcl", long, 0o644)
	var out bytes.Buffer
	got, err := format.Command{Dir: dir, Check: true, Diff: true, Out: &out}.Run(t.Context())
	if err != nil || read(t, dir, "a.berth.hcl") != long {
		t.Fatalf("the file was changed, or %v", err)
	}
	if len(got.Changed) != 1 || strings.Count(out.String(), "@@ -") != 2 {
		t.Errorf("changed %v, diff:\n%s", got.Changed, &out)
	}
	patch, err := exec.LookPath("patch")
	if err != nil {
		t.Skip("patch is not installed; the diff was not applied")
	}
	cmd := exec.CommandContext(t.Context(), patch, "-s", "a.berth.hcl")
	cmd.Dir, cmd.Stdin = dir, &out
	if msg, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("patch: %v\n%s", err, msg)
	}
	want, _, _ := format.Source("a", []byte(long))
	if got := read(t, dir, "a.berth.hcl"); got != string(want) {
		t.Errorf("the diff leads to %q, want %q", got, want)
	}
}

func TestStdin(t *testing.T) {
	var out bytes.Buffer
	got, err := format.Command{Paths: []string{"-"}, In: strings.NewReader(ugly), Out: &out}.Run(t.Context())
	if err != nil || out.String() != nice || len(got.Changed) != 1 {
		t.Errorf("%v, %v\n%s", got, err, &out)
	}
	out.Reset()
	got, err = format.Command{Paths: []string{"-"}, In: strings.NewReader("a {"), Out: &out}.Run(t.Context())
	if err != nil || out.Len() != 0 || !got.Diagnostics.HasErrors() {
		t.Errorf("%v, %v\n%s", got, err, &out)
	}
	if _, err := (format.Command{Paths: []string{"-", "x"}, Out: &out}).Run(t.Context()); err == nil {
		t.Error("- beside a path gave no error")
	}
}

func TestPathsThatCannotBe(t *testing.T) {
	dir := tree(t)
	write(t, dir, "c.berth.json", "{}", 0o644)
	for _, p := range []string{"nothing.berth.hcl", "c.berth.json"} {
		if _, err := (format.Command{Dir: dir, Paths: []string{p}, Out: &bytes.Buffer{}}).Run(t.Context()); err == nil || !strings.Contains(err.Error(), p) {
			t.Errorf("%s: %v", p, err)
		}
	}
}

func TestALinkStaysALink(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "real.hcl", "x=1\n", 0o600)
	link := filepath.Join(dir, "a.berth.hcl")
	if err := os.Symlink("real.hcl", link); err != nil {
		t.Fatal(err)
	}
	if _, err := (format.Command{Dir: dir, Paths: []string{"a.berth.hcl"}, Out: &bytes.Buffer{}}).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(link)
	if err != nil || info.Mode()&os.ModeSymlink == 0 || read(t, dir, "real.hcl") != "x = 1\n" {
		t.Errorf("link %v, content %q, %v", info.Mode(), read(t, dir, "real.hcl"), err)
	}
}

func FuzzSource(f *testing.F) {
	for _, s := range []string{ugly, nice, "a {\n b = [1,\n2]\n}\n", "x = \"${ a ? b : c }\"\n", "x = <<EOT\n%{ if a }\n b\n%{endif}\nEOT\n", "a=[for x in y: x]\r\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		out, ds, files := format.Source("x.berth.hcl", src)
		if err := diag.WriteText(&bytes.Buffer{}, ds, files, diag.TextOptions{}); err != nil {
			t.Fatal(err)
		}
		if ds.HasErrors() {
			return
		}
		again, ds, _ := format.Source("x.berth.hcl", out)
		if ds.HasErrors() {
			t.Fatalf("%q is formatted to %q, which does not parse: %s", src, out, ds.Error())
		}
		if !bytes.Equal(again, out) {
			t.Fatalf("%q: once %q, twice %q", src, out, again)
		}
	})
}
