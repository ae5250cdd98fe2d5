// SPDX-License-Identifier: Apache-2.0

package diag_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/berth-dev/berth/core/diag"
)

func TestDeepSources(t *testing.T) {
	n := 5000
	for name, c := range map[string]struct{ file, src string }{
		"parentheses": {"a.hcl", "a = " + strings.Repeat("(", n) + "1" + strings.Repeat(")", n)},
		"lists":       {"a.hcl", "a = " + strings.Repeat("[", n)},
		"blocks":      {"a.hcl", strings.Repeat("a {\n", n)},
		"not":         {"a.hcl", "a = " + strings.Repeat("!", n) + "true"},
		"minus":       {"a.hcl", "a = " + strings.Repeat("-", n) + "1"},
		"conditions":  {"a.hcl", "a = " + strings.Repeat("true ? 1 : ", n) + "1"},
		"templates":   {"a.hcl", "a = " + strings.Repeat("\"${", n)},
		"directives":  {"a.hcl", "a = \"" + strings.Repeat("%{ if true }", n) + "\""},
		"operators":   {"a.hcl", "a = 1" + strings.Repeat("+1", 200_000)},
		"JSON":        {"a.json", strings.Repeat(`{"a":`, n)},
		"JSON text":   {"a.json", `{"a": "${` + strings.Repeat("(", n) + `"}`},
		"too large":   {"a.hcl", strings.Repeat("#", 4<<20+1)},
	} {
		if _, bad := diag.Source(c.file, []byte(c.src)); bad == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	fine := "a = [" + strings.Repeat("{ b = [\"((((\"] },\n", 20_000) + "]\n# " + strings.Repeat("(", 1000) + "\n"
	if _, bad := diag.Source("a.hcl", []byte(fine)); bad != nil {
		t.Errorf("a long flat list is refused: %v", bad)
	}
}

func FuzzConvert(f *testing.F) {
	for _, s := range []string{"a = \"x\n", "x = <<E\n", "a { b = 1, c = 2 }", "a: 1", "a = [1, 2\n b", "a = \"%{ if x }\"", "\xff", "a = 1\na = 2", `{"a": {"b": "${x"}}`} {
		f.Add(s, false)
		f.Add(s, true)
	}
	f.Fuzz(func(t *testing.T, src string, asJSON bool) {
		name := "a.hcl"
		if asJSON {
			name = "a.json"
		}
		files, ds := parse(name, src)
		for _, write := range []func(w *bytes.Buffer) error{
			func(w *bytes.Buffer) error { return diag.WriteText(w, ds, files, diag.TextOptions{Width: 40}) },
			func(w *bytes.Buffer) error { return diag.WriteJSON(w, ds, files) },
			func(w *bytes.Buffer) error { return diag.WriteSARIF(w, ds, files, "") },
		} {
			var b bytes.Buffer
			if err := write(&b); err != nil {
				t.Fatal(err)
			}
			if strings.ContainsAny(b.String(), "\x1b\r\x07") {
				t.Fatalf("control characters in %q", b.String())
			}
		}
		for _, d := range ds {
			if d.Summary == "" || d.Subject.Filename == "" {
				t.Fatalf("%q: %s", src, fmt.Sprintf("%#v", d))
			}
		}
	})
}
