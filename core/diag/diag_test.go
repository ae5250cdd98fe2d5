// SPDX-License-Identifier: Apache-2.0

package diag_test

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	hcljson "github.com/hashicorp/hcl/v2/json"
	"github.com/zclconf/go-cty/cty"

	"github.com/berth-dev/berth/core/diag"
	"github.com/berth-dev/berth/sdk/driver"
)

func parse(name, src string) (diag.Files, diag.Diagnostics) {
	clean, bad := diag.Source(name, []byte(src))
	files := diag.Files{name: {Bytes: []byte(src)}}
	if bad != nil {
		return files, diag.Diagnostics{bad}
	}
	isJSON := diag.SyntaxOf(name) == diag.JSON
	var file *hcl.File
	var ds hcl.Diagnostics
	if isJSON {
		file, ds = hcljson.Parse(clean, name)
	} else {
		file, ds = hclsyntax.ParseConfig(clean, name, hcl.InitialPos)
	}
	if file == nil {
		file = &hcl.File{}
	}
	file.Bytes = clean
	files[name] = file
	return files, diag.Converter{Files: files, JSON: isJSON}.Convert(ds)
}

func text(t *testing.T, ds diag.Diagnostics, files diag.Files, opts diag.TextOptions) string {
	t.Helper()
	var b bytes.Buffer
	if err := diag.WriteText(&b, ds, files, opts); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// at gives the range of the first occurrence of part in a file.
func at(t *testing.T, files diag.Files, name, part string) hcl.Range {
	t.Helper()
	src := files[name].Bytes
	i := bytes.Index(src, []byte(part))
	if i < 0 {
		t.Fatalf("%s does not hold %q", name, part)
	}
	pos := func(n int) hcl.Pos {
		line := src[bytes.LastIndexByte(src[:n], '\n')+1 : n]
		return hcl.Pos{Line: bytes.Count(src[:n], []byte("\n")) + 1, Column: len([]rune(string(line))) + 1, Byte: n}
	}
	return hcl.Range{Filename: name, Start: pos(i), End: pos(i + len(part))}
}

func TestSyntaxErrors(t *testing.T) {
	for name, c := range map[string]struct{ file, src, want string }{
		"quote": {"a.hcl", "a {\n  x = \"unterminated\n}\nb {\n  y = \"ok\"\n}\n", `
error[BERTH1003]: string is not closed on its line
 --> a.hcl:2:7
  |
2 |   x = "unterminated
  |       ^^^^^^^^^^^^^ opened here
  = help: close the quote, or use a heredoc (<<-EOT) for text of several lines
`},
		"quote of a label": {"a.hcl", "agent \"a {\n  x = 1\n}\n", `
error[BERTH1003]: string is not closed on its line
 --> a.hcl:1:7
  |
1 | agent "a {
  |       ^^^^ opened here
  = help: close the quote, or use a heredoc (<<-EOT) for text of several lines
`},
		"heredoc": {"a.hcl", "x = <<-EOT\n  hello\n  EOTX\n", `
error[BERTH1003]: heredoc is not closed
 --> a.hcl:1:5
  |
1 | x = <<-EOT
  |     ^^^^^^ no line with only "EOT" follows
 ::: a.hcl:3:3
  |
3 |   EOTX
  |   ---- is this meant to be "EOT"?
`},
		"heredoc without an end": {"a.hcl", "x = <<EOT\nfoo\n", `
error[BERTH1003]: heredoc is not closed
 --> a.hcl:1:5
  |
1 | x = <<EOT
  |     ^^^^^ no line with only "EOT" follows
`},
		"one line": {"a.hcl", "a { b = 1, c = 2 }\n", `
error[BERTH1004]: a block on one line can have one argument only
 --> a.hcl:1:10
  |
1 | a { b = 1, c = 2 }
  |          ^ write the block over several lines, one argument on each
`},
		"twice": {"a.hcl", "bc = 1\nbc = 2\n", `
error[BERTH1106]: argument "bc" is set twice
 --> a.hcl:2:1
  |
2 | bc = 2
  | ^^ each argument may be set only once
 ::: a.hcl:1:1
  |
1 | bc = 1
  | -- first set here
`},
		"single quotes": {"a.hcl", "a = 'x'\n", `
error[BERTH1002]: single quotes are not valid
 --> a.hcl:1:5
  |
1 | a = 'x'
  |     ^ use double quotes (") around text
`},
		"colon": {"a.hcl", "a: 1\n", `
error[BERTH1002]: a colon is not valid here
 --> a.hcl:1:1
  |
1 | a: 1
  | ^ write the equals sign: a = ...
`},
		"not closed": {"a.hcl", "a {\n  b = 1\n", `
error[BERTH1003]: block is not closed
 --> a.hcl:1:3
  |
1 | a {
  |   ^ no matching } follows
  = help: a brace may be missing, or one too many may stand, further down
`},
		"template in a label": {"a.hcl", "agent \"${x}\" {\n}\n", `
error[BERTH1002]: a label cannot be an expression
 --> a.hcl:1:8
  |
1 | agent "${x}" {
  |        ^^ labels are plain text
  = help: a dynamic block has "labels", which are expressions
`},
		"no value": {"a.hcl", "a =\n", `
error[BERTH1002]: a value is missing
 --> a.hcl:1:4
  |
1 | a =
  |    ^ an expression is needed here
`},
		"encoding": {"a.hcl", "a = 1\nb = \"\xff\"\n", `
error[BERTH1001]: file is not UTF-8
 --> a.hcl:2:6
  |
2 | b = "` + "\uFFFD" + `"
  |      ^ byte 0xFF at offset 11
  = help: save the file as UTF-8
`},
		"JSON comma": {"a.json", `{"a": 1,}`, `
error[BERTH1005]: trailing comma in object
 --> a.json:1:8
  |
1 | {"a": 1,}
  |        ^
  = JSON does not permit a trailing comma after the final property in an object.
`},
		"JSON quotes": {"a.json", `{"a": 'x'}`, `
error[BERTH1005]: invalid start of value
 --> a.json:1:7
  |
1 | {"a": 'x'}
  |       ^
  = A JSON value must start with a brace, a bracket, a number, a string, or a keyword.
`},
	} {
		files, ds := parse(c.file, c.src)
		if diff := cmp.Diff(strings.TrimPrefix(c.want, "\n"), text(t, ds, files, diag.TextOptions{})); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
		// Line endings and a byte order mark change nothing that is seen.
		files, ds = parse(c.file, "\xEF\xBB\xBF"+strings.ReplaceAll(c.src, "\n", "\r\n"))
		if name == "encoding" {
			continue // its offset counts the bytes of the file
		}
		if diff := cmp.Diff(strings.TrimPrefix(c.want, "\n"), text(t, ds, files, diag.TextOptions{})); diff != "" {
			t.Errorf("%s with CRLF and BOM: (-want +got)\n%s", name, diff)
		}
	}
}

func TestPlacesOnALine(t *testing.T) {
	long := strings.Repeat("x", 80) + " HERE " + strings.Repeat("y", 80)
	for name, c := range map[string]struct{ line, part, want string }{
		"tab": {"\ta = HERE", "HERE", `
1 |  a = HERE
  |      ^^^^ label
`},
		"wide": {`a = "日本語" HERE`, "HERE", `
1 | a = "日本語" HERE
  |              ^^^^ label
`},
		"wide marked": {`a = "日本語"`, "日本語", `
1 | a = "日本語"
  |      ^^^^^^ label
`},
		"combined": {"a = \"e\u0301\" HERE", "HERE", "\n1 | a = \"e\u0301\" HERE\n  |         ^^^^ label\n"},
		"family":   {"a = \"👨‍👩‍👧\" HERE", "HERE", "\n1 | a = \"👨‍👩‍👧\" HERE\n  |          ^^^^ label\n"},
		"escape":   {"a = \x1b[31m HERE", "HERE", "\n1 | a = \uFFFD[31m HERE\n  |           ^^^^ label\n"},
		"long": {long, "HERE", `
1 | …xxxxxxxxxxxxxxxxxxxxxxx HERE yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy…
  |                          ^^^^ label
`},
		"long start": {"HERE " + long, "HERE", `
1 | HERE xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…
  | ^^^^ label
`},
	} {
		files := diag.Files{"a": {Bytes: []byte(c.line + "\n")}}
		d := diag.Errorf(0, at(t, files, "a", c.part), "s").Labelf("label")
		got := text(t, diag.Diagnostics{d}, files, diag.TextOptions{Width: 78})
		_, got, _ = strings.Cut(got, "\n  |\n")
		if diff := cmp.Diff(strings.TrimPrefix(c.want, "\n"), got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
}

// However a line is cut, it keeps to the width and the carets stand below the subject.
func TestCutting(t *testing.T) {
	for _, fill := range []string{"x", "日", "é", "\t", "e\u0301"} {
		for before := 0; before < 90; before += 7 {
			for after := 0; after < 90; after += 11 {
				line := strings.Repeat(fill, before) + "<HERE>" + strings.Repeat(fill, after)
				files := diag.Files{"a": {Bytes: []byte(line)}}
				d := diag.Errorf(0, at(t, files, "a", "<HERE>"), "s")
				got := strings.Split(text(t, diag.Diagnostics{d}, files, diag.TextOptions{Width: 50}), "\n")
				code, carets := got[3], got[4]
				if !strings.Contains(code, "<HERE>") || strings.Count(carets, "^") != 6 {
					t.Fatalf("%d %q %d:\n%s\n%s", before, fill, after, code, carets)
				}
				head, _, _ := strings.Cut(code, "<HERE>")
				wide := strings.Count(head, "日") - strings.Count(head, "\u0301")
				if len([]rune(head))+wide != strings.Index(carets, "^") {
					t.Fatalf("%d %q %d: carets are not below:\n%s\n%s", before, fill, after, code, carets)
				}
				if n := len([]rune(code)) + strings.Count(code, "日") - strings.Count(code, "\u0301"); n > 50 {
					t.Fatalf("%d %q %d: %d columns:\n%s", before, fill, after, n, code)
				}
			}
		}
	}
}

var escapes = regexp.MustCompile("\x1b\\[[0-9;]*m")

func TestColorOnlyAdds(t *testing.T) {
	files, ds := parse("a.hcl", "x = <<-EOT\n  hello\n  EOTX\n")
	ds = append(ds, diag.Warnf(diag.UnusedBlock, hcl.Range{}, "w").Notef("n\nm").Helpf("h"))
	plain := text(t, ds, files, diag.TextOptions{})
	colored := text(t, ds, files, diag.TextOptions{Color: true})
	if colored == plain {
		t.Error("no colour")
	}
	if diff := cmp.Diff(plain, escapes.ReplaceAllString(colored, "")); diff != "" {
		t.Errorf("(-plain +coloured)\n%s", diff)
	}
}

func TestOrderAndLimit(t *testing.T) {
	files := diag.Files{"a": {Bytes: []byte(strings.Repeat("x\n", 50))}}
	var ds diag.Diagnostics
	for line := 40; line > 0; line-- {
		p := hcl.Pos{Line: line, Column: 1, Byte: 2 * (line - 1)}
		r := hcl.Range{Filename: "a", Start: p, End: p}
		ds = append(ds, diag.Errorf(1, r, "e%d", line), diag.Errorf(1, r, "e%d", line))
		if line > 35 {
			ds = append(ds, diag.Warnf(1, r, "w%d", line))
		}
	}
	got := text(t, ds, files, diag.TextOptions{})
	if strings.Count(got, "error[") != 30 || !strings.Contains(got, "\nand 10 more errors and 5 warnings\n") {
		t.Errorf("%d errors, end %q", strings.Count(got, "error["), got[len(got)-80:])
	}
	if !strings.HasPrefix(got, "error[BERTH0001]: e1\n") {
		t.Errorf("starts with %q", got[:40])
	}
	if e, w := ds.Sorted().Count(); e != 40 || w != 5 {
		t.Errorf("%d errors and %d warnings, want 40 and 5", e, w)
	}
}

func TestMachineForms(t *testing.T) {
	files, _ := parse("main.berth.hcl", "agent \"a\" {\n  x = \"日本\" + wrong\n}\n")
	d := diag.Errorf(diag.UnsupportedArgument, at(t, files, "main.berth.hcl", "wrong"), "unsupported argument %q", "x").
		Labelf("l").Notef("n").Helpf("h").Relate(at(t, files, "main.berth.hcl", "agent"), "declared here")
	d.Values = []diag.Value{{Name: "var.a", Text: "1"}}
	w := diag.Warnf(diag.UnusedBlock, hcl.Range{}, "nowhere")

	var b bytes.Buffer
	if err := diag.WriteJSON(&b, diag.Diagnostics{d, w}, files); err != nil {
		t.Fatal(err)
	}
	var got any
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	pos := func(line, column, at float64) any {
		return map[string]any{"line": line, "column": column, "byte": at}
	}
	want := map[string]any{
		"format_version": "1", "valid": false, "error_count": 1.0, "warning_count": 1.0,
		"diagnostics": []any{
			map[string]any{"severity": "warning", "code": "BERTH1904", "summary": "nowhere"},
			map[string]any{
				"severity": "error", "code": "BERTH1101", "summary": `unsupported argument "x"`, "detail": "n", "label": "l",
				"range": map[string]any{"filename": "main.berth.hcl", "start": pos(2, 14, 29), "end": pos(2, 19, 34)},
				"snippet": map[string]any{
					"context": `agent "a"`, "code": `  x = "日本" + wrong`, "start_line": 2.0, "highlight_start": 17.0, "highlight_end": 22.0,
					"values": []any{map[string]any{"name": "var.a", "value": "1"}},
				},
				"related": []any{map[string]any{
					"range": map[string]any{"filename": "main.berth.hcl", "start": pos(1, 1, 0), "end": pos(1, 6, 5)}, "text": "declared here",
				}},
				"help": []any{"h"},
			},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("JSON: (-want +got)\n%s", diff)
	}

	b.Reset()
	if err := diag.WriteShort(&b, diag.Diagnostics{d, w}); err != nil {
		t.Fatal(err)
	}
	short := "warning[BERTH1904]: nowhere\nmain.berth.hcl:2:14: error[BERTH1101]: unsupported argument \"x\"; l\n"
	if diff := cmp.Diff(short, b.String()); diff != "" {
		t.Errorf("short: (-want +got)\n%s", diff)
	}

	b.Reset()
	if err := diag.WriteSARIF(&b, diag.Diagnostics{d, w}, files, "1.0.0"); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`"ruleId": "BERTH1101"`, `"uri": "main.berth.hcl"`, `"startColumn": 14`, `"level": "warning"`, `"version": "2.1.0"`} {
		if !strings.Contains(b.String(), part) {
			t.Errorf("SARIF does not hold %s:\n%s", part, &b)
		}
	}
}

func TestSuggest(t *testing.T) {
	names := []string{"instructions", "manifest", "model", "lower", "customer", "docker", "e2b", "var", "env"}
	for given, want := range map[string]string{
		"instrutions": "instructions", "modle": "model", "lowercase": "lower", "custmer": "customer", "dokcer": "docker", //nolint:misspell // what people write
		"vars": "var", "MODEL": "model", "e2c": "e2b", "zebra": "", "x": "", "manifesto": "manifest", "instructions_text": "instructions",
	} {
		if got := diag.Suggest(given, names); got != want {
			t.Errorf("Suggest(%q) = %q, want %q", given, got, want)
		}
	}
}

func TestSchemaErrors(t *testing.T) {
	src := "a {\n  imge = 1\n  env {\n  }\n  build = 1\n  zzz = 1\n  lab {\n  }\n}\n"
	files, _ := parse("a.hcl", src)
	schema := &hcl.BodySchema{
		Attributes: []hcl.AttributeSchema{{Name: "image", Required: true}, {Name: "env"}, {Name: "name", Required: true}},
		Blocks:     []hcl.BlockHeaderSchema{{Type: "build"}, {Type: "lab", LabelNames: []string{"kind", "path"}}},
	}
	body, ok := files["a.hcl"].Body.(*hclsyntax.Body)
	if !ok {
		t.Fatal("not a native body")
	}
	_, found := body.Blocks[0].Body.Content(schema)
	ds := diag.Converter{Files: files, Schema: schema, Header: body.Blocks[0].DefRange()}.Convert(found)
	want := `error[BERTH1103]: missing required argument
 --> a.hcl:1:1
  |
1 | a {
  | ^ "name" is required here

error[BERTH1101]: unsupported argument "imge"
 --> a.hcl:2:3
  |
2 |   imge = 1
  |   ^^^^ did you mean "image"?

error[BERTH1102]: unsupported block type "env"
 --> a.hcl:3:3
  |
3 |   env {
  |   ^^^ write env = { ... }

error[BERTH1101]: unsupported argument "build"
 --> a.hcl:5:3
  |
5 |   build = 1
  |   ^^^^^ write build { ... } without the equals sign

error[BERTH1101]: unsupported argument "zzz"
 --> a.hcl:6:3
  |
6 |   zzz = 1
  |   ^^^

error[BERTH1104]: missing kind for lab
 --> a.hcl:7:3
  |
7 |   lab {
  |   ^^^
  = All lab blocks must have 2 labels (kind, path).
`
	if diff := cmp.Diff(want, text(t, ds, files, diag.TextOptions{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestDriverFindings(t *testing.T) {
	src := "config {\n  image = \"x\"\n  labels = { team = \"a\" }\n  args = [\"a\", \"b\"]\n  mount \"m\" {\n    path = \"/\"\n  }\n}\n"
	files, _ := parse("a.hcl", src)
	body, ok := files["a.hcl"].Body.(*hclsyntax.Body)
	if !ok {
		t.Fatal("not a native body")
	}
	block := body.Blocks[0]
	one := int64(1)
	for name, c := range map[string]struct {
		path driver.Path
		want string
	}{
		"attribute":    {driver.Path{{Attribute: "image"}}, `"x"`},
		"key":          {driver.Path{{Attribute: "labels"}, {Key: "team"}}, `"a"`},
		"missing key":  {driver.Path{{Attribute: "labels"}, {Key: "none"}}, `{ team = "a" }`},
		"index":        {driver.Path{{Attribute: "args"}, {Index: &one}}, `"b"`},
		"label":        {driver.Path{{Attribute: "mount"}, {Key: "m"}, {Attribute: "path"}}, `"/"`},
		"not said":     {driver.Path{{Attribute: "timeout"}}, `config`},
		"no path":      {nil, `config`},
		"block itself": {driver.Path{{Attribute: "mount"}}, `mount "m"`},
	} {
		ds := diag.FromDriver("docker", []driver.Diagnostic{{Summary: "Bad thing.", Detail: "Why.", Path: c.path}}, block.Body, block.DefRange())
		r := ds[0].Subject
		if got := src[r.Start.Byte:r.End.Byte]; got != c.want {
			t.Errorf("%s: points at %q, want %q", name, got, c.want)
		}
		if ds[0].Code != diag.DriverFinding || ds[0].Summary != "bad thing" {
			t.Errorf("%s: %v", name, ds[0])
		}
	}
}

func TestValuesAreShownAndCut(t *testing.T) {
	src := `a = var.n + var.long + var.secret`
	files, _ := parse("a.hcl", src)
	attrs, _ := files["a.hcl"].Body.JustAttributes()
	_, found := attrs["a"].Expr.Value(&hcl.EvalContext{Variables: map[string]cty.Value{"var": cty.ObjectVal(map[string]cty.Value{
		"n": cty.NumberIntVal(1), "long": cty.StringVal(strings.Repeat("z", 200)), "secret": cty.StringVal("hunter2").Mark("s"),
	})}})
	got := text(t, diag.Converter{Files: files}.Convert(found), files, diag.TextOptions{})
	if strings.Contains(got, "hunter2") || strings.Contains(got, strings.Repeat("z", 61)) || !strings.Contains(got, "with var.long = \"zzz") {
		t.Errorf("got\n%s", got)
	}
}
