// SPDX-License-Identifier: Apache-2.0

package funcs_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/berth-dev/berth/core/config/funcs"
	"github.com/berth-dev/berth/core/config/mark"
	"github.com/berth-dev/berth/core/diag"
)

const canary = "hunter2-canary"

type scope struct {
	options funcs.Options
	vars    map[string]cty.Value
}

func (s scope) eval(t *testing.T, src string) (cty.Value, diag.Diagnostics) {
	t.Helper()
	expr, ds := hclsyntax.ParseExpression([]byte(src), "test.hcl", hcl.InitialPos)
	if ds.HasErrors() {
		t.Fatalf("%s: %s", src, ds)
	}
	v, ds := mark.Eval(expr, &hcl.EvalContext{Variables: s.vars, Functions: funcs.Table(s.options)})
	c := diag.Converter{Files: diag.Files{"test.hcl": {Bytes: []byte(src)}}, Functions: funcs.Names()}
	return v, c.Convert(ds)
}

// project is a directory with files and links, and beside it a secret that no function may reach.
func project(t *testing.T) scope {
	t.Helper()
	top := t.TempDir()
	dir := filepath.Join(top, "project")
	for name, content := range map[string]string{
		"project/a.txt":          "alpha\n",
		"project/prompts/b.md":   "Hello ${name}\n%{ for r in regions ~}\n- ${r}\n%{ endfor ~}\n",
		"project/prompts/bad.md": "Hello ${nme}",
		"project/prompts/self":   "${templatefile(\"self\", {})}",
		"project/bin":            "\xff\x00",
		"project/deep/x/y.txt":   "y",
		"outside.txt":            canary,
		"out/secret":             canary,
	} {
		full := filepath.Join(top, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{
		"leaves":     "../outside.txt",
		"leavesdir":  "../out",
		"stays":      "a.txt",
		"staysfull":  filepath.Join(dir, "a.txt"),
		"dangling":   "nothing",
		"loop":       "loop",
		"missingout": "../does-not-exist",
	} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	files, err := funcs.NewFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	return scope{options: funcs.Options{Dir: dir, Files: files}}
}

func TestResults(t *testing.T) {
	s := project(t)
	for src, want := range map[string]string{
		`abs(-3)`:      `3`,
		`ceil(1.2)`:    `2`,
		`floor(1.8)`:   `1`,
		`max(1, 3, 2)`: `3`, `min(2, 1)`: `1`,
		`parseint("ff", 16)`: `255`, `pow(2, 10)`: `1024`, `signum(-5)`: `-1`, `sum([1, 2.5])`: `3.5`,

		`chomp("a\n")`: `"a"`, `endswith("abc", "bc")`: `true`, `format("%03d-%s", 7, "x")`: `"007-x"`,
		`formatlist("%s!", ["a", "b"])`: `["a!","b!"]`, `indent(2, "a\nb")`: `"a\n  b"`, `join(",", ["a", "b"])`: `"a,b"`,
		`lower("AB")`: `"ab"`, `upper("ab")`: `"AB"`, `title("a b")`: `"A B"`, `trim("?a?", "?")`: `"a"`,
		`trimprefix("abc", "a")`: `"bc"`, `trimsuffix("abc", "c")`: `"ab"`, `trimspace(" a ")`: `"a"`,
		`regex("[0-9]+", "a12b")`: `"12"`, `regexall("[0-9]", "1a2")`: `["1","2"]`, `replace("a-b", "-", "+")`: `"a+b"`,
		`replace("a12b", "/[0-9]+/", "#")`: `"a#b"`, `split(",", "a,b")`: `["a","b"]`, `startswith("abc", "ab")`: `true`,
		`strcontains("abc", "b")`: `true`, `strrev("abc")`: `"cba"`, `substr("hello", 1, 3)`: `"ell"`,

		`alltrue([])`: `true`, `alltrue([true, false])`: `false`, `anytrue([])`: `false`, `anytrue([false, true])`: `true`,
		`chunklist([1, 2, 3], 2)`: `[[1,2],[3]]`, `coalesce(null, "", "x")`: `"x"`, `coalescelist([], [1])`: `[1]`,
		`compact(["a", "", "b"])`: `["a","b"]`, `concat([1], [2])`: `[1,2]`, `contains([1, 2], 2)`: `true`,
		`distinct([1, 1, 2])`: `[1,2]`, `element(["a", "b"], 3)`: `"b"`, `flatten([[1], [2, [3]]])`: `[1,2,3]`,
		`index(["a", "b"], "b")`: `1`, `keys({ b = 1, a = 2 })`: `["a","b"]`, `length("né")`: `2`, `length([1, 2])`: `2`,
		`length({ a = 1 })`: `1`, `lookup({ a = 1 }, "b", 9)`: `9`, `lookup({ a = 1 }, "a")`: `1`,
		`lookup(tomap({ a = 1 }), "b", 9)`:           `9`,
		`matchkeys(["i1", "i2"], ["a", "b"], ["b"])`: `["i2"]`, `merge({ a = 1 }, { b = 2 })`: `{"a":1,"b":2}`,
		`one([])`: `null`, `one(["x"])`: `"x"`, `range(3)`: `[0,1,2]`, `reverse([1, 2])`: `[2,1]`,
		`setintersection(["a", "b"], ["b"])`: `["b"]`, `setproduct(["a"], ["x", "y"])`: `[["a","x"],["a","y"]]`,
		`setsubtract(["a", "b"], ["b"])`: `["a"]`, `setunion(["a"], ["b"])`: `["a","b"]`, `slice([1, 2, 3], 1, 2)`: `[2]`,
		`sort(["b", "a"])`: `["a","b"]`, `transpose({ a = ["x"], b = ["x", "y"] })`: `{"x":["a","b"],"y":["b"]}`,
		`values({ b = 1, a = 2 })`: `[2,1]`, `zipmap(["a"], [1])`: `{"a":1}`,

		`base64decode("aGk=")`: `"hi"`, `base64encode("hi")`: `"aGk="`, `csvdecode("a,b\n1,2\n")`: `[{"a":"1","b":"2"}]`,
		`jsondecode("[1]")`: `[1]`, `jsonencode({ a = [1] })`: `"{\"a\":[1]}"`, `urlencode("a b&c")`: `"a+b%26c"`,
		`yamldecode("a: [1, x]")`: `{"a":[1,"x"]}`, `yamlencode({ a = 1 })`: `"\"a\": 1\n"`,
		`textencodebase64("hi", "UTF-16LE")`: `"aABpAA=="`,

		`md5("a")`:                         `"0cc175b9c0f1b6a831c399e269772661"`,
		`sha256("a")`:                      `"ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"`,
		`substr(sha512("a"), 0, 8)`:        `"1f40fc92"`,
		`uuidv5("dns", "www.example.com")`: `"2ed6657d-e927-568b-95e1-2665a8aea6a2"`,
		`uuidv5("6ba7b810-9dad-11d1-80b4-00c04fd430c8", "www.example.com")`: `"2ed6657d-e927-568b-95e1-2665a8aea6a2"`,

		`can(regex("x", "y"))`: `false`, `can(1)`: `true`, `try(regex("x", "y"), "no")`: `"no"`,
		`tostring(1)`: `"1"`, `tonumber("1")`: `1`, `tobool("true")`: `true`, `tolist([1, "a"])`: `["1","a"]`,
		`tomap({ a = 1 })`: `{"a":1}`, `toset(["a", "a"])`: `["a"]`, `type([1])`: `"tuple([number])"`,

		`cidrhost("10.0.0.0/8", 5)`: `"10.0.0.5"`, `cidrhost("10.0.0.0/8", -1)`: `"10.255.255.255"`,
		`cidrnetmask("10.0.0.0/12")`: `"255.240.0.0"`, `cidrsubnet("10.0.0.0/8", 8, 2)`: `"10.2.0.0/16"`,
		`cidrsubnet("fd00::/48", 16, 255)`: `"fd00:0:0:ff::/64"`,

		`issensitive(sensitive("x"))`: `true`, `nonsensitive(sensitive("x"))`: `"x"`, `ephemeralasnull("x")`: `"x"`,
		`duration("1h30m")`: `5400`, `duration("250ms")`: `0.25`, `bytes("512MiB")`: `536870912`, `bytes("1.5kB")`: `1500`,
		`semver("1.2.3", "~> 1.2")`: `true`,

		`file("a.txt")`: `"alpha\n"`, `file("./prompts/../a.txt")`: `"alpha\n"`, `file("stays")`: `"alpha\n"`,
		`file("staysfull")`: `"alpha\n"`, `filebase64("bin")`: `"/wA="`, `fileexists("nothing")`: `false`,
		`fileexists("a.txt")`: `true`, `fileexists("dangling")`: `false`, `fileset("deep", "**/*.txt")`: `["x/y.txt"]`,
		`fileset(".", "*.txt")`: `["a.txt"]`,
		`filesha256("a.txt")`:   `"b6a98d9ce9a2d9149288fa3df42d377c3e42737afdcdaf714e33c0a100b51060"`,
		`templatefile("prompts/b.md", { name = "Ann", regions = ["eu", "us"] })`: `"Hello Ann\n- eu\n- us\n"`,
		`basename("a/b.txt")`: `"b.txt"`, `dirname("a/b.txt")`: `"a"`,
		`abspath("a.txt") == "` + s.options.Dir + `/a.txt"`: `true`, `pathexpand("a")`: `"a"`,
	} {
		v, ds := s.eval(t, `jsonencode(`+src+`)`)
		if ds.HasErrors() {
			t.Errorf("%s: %s", src, ds.Error())
			continue
		}
		if diff := cmp.Diff(want, v.AsString()); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", src, diff)
		}
	}
}

func TestEveryFunctionIsTried(t *testing.T) {
	src, err := os.ReadFile("funcs_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range funcs.Names() {
		if !bytes.Contains(src, []byte("`"+name+"(")) && !bytes.Contains(src, []byte("("+name+"(")) {
			t.Errorf("no test calls %s", name)
		}
	}
}

func TestErrors(t *testing.T) {
	s := project(t)
	if err := os.WriteFile(filepath.Join(s.options.Dir, "big"), make([]byte, 4<<20+1), 0o644); err != nil {
		t.Fatal(err)
	}
	for src, want := range map[string]string{
		`file("missing.txt")`:          `no file exists at "missing.txt"; paths are relative to the directory of the configuration`,
		`file("../outside.txt")`:       `outside the project directory`,
		`file("../nothing")`:           `outside the project directory`,
		`file("/etc/passwd")`:          `outside the project directory`,
		`file("leaves")`:               `outside the project directory`,
		`file("leavesdir/secret")`:     `outside the project directory`,
		`file("missingout")`:           `no file exists at "missingout"`,
		`file("loop")`:                 `cannot be read`,
		`file("fifo")`:                 `not a regular file`,
		`file("deep")`:                 `is a directory`,
		`file("bin")`:                  `not UTF-8 text; use filebase64`,
		`file("big")`:                  `larger than 4 MiB`,
		`file("")`:                     `the path is empty`,
		`fileset("..", "*")`:           `outside the project directory`,
		`fileset(".", "../*")`:         `leaves the directory`,
		`fileset("leavesdir", "*")`:    `outside the project directory`,
		`fileexists("../outside.txt")`: `outside the project directory`,
		`templatefile("prompts/bad.md", { name = 1 })`:            `prompts/bad.md:1:9: error[BERTH1201]: unknown name "nme"; did you mean "name"?`,
		`templatefile("prompts/self", {})`:                        `templatefile cannot be called inside a template`,
		`setproduct(range(1000), range(1000), range(1000))`:       `more than 1000000 elements`,
		`format("%99999d", 1)`:                                    `width or precision`,
		`indent(1e9, "a\nb")`:                                     `between 0 and 1000`,
		`replace(format("%500s", "a"), "", format("%999s", "") )`: ``,
		`bytes("12 parsecs")`:                                     `not a size such as`,
		`duration("soon")`:                                        `not a duration such as`,
		`duration("-1s")`:                                         `negative`,
		`cidrsubnet("10.0.0.0/8", 8, 256)`:                        `does not fit into 8 bits`,
		`cidrhost("10.0.0.0/30", 4)`:                              `has 4 addresses only`,
		`one([1, 2])`:                                             `at most one element`,
		`semver("x", "1")`:                                        `not a version`,
		`try(regex("x", "y"))`:                                    `every expression has an error`,
		`base64decode("?")`:                                       `not valid Base64`,
	} {
		_, ds := s.eval(t, src)
		if want == "" {
			continue
		}
		if got := ds.Error(); !strings.Contains(got, want) {
			t.Errorf("%s: error %q does not say %q", src, got, want)
		}
		if strings.Contains(ds.Error(), canary) {
			t.Errorf("%s: %s", src, ds.Error())
		}
	}
}

func TestUntrusted(t *testing.T) {
	s := project(t)
	s.options.Untrusted = true
	for _, src := range []string{
		`file("a.txt")`, `filebase64("a.txt")`, `fileexists("a.txt")`, `fileset(".", "*")`, `filesha256("a.txt")`,
		`templatefile("prompts/b.md", {})`, `abspath("a")`, `pathexpand("~")`, `nonsensitive("x")`,
	} {
		_, ds := s.eval(t, src)
		if len(ds) != 1 || ds[0].Code != diag.FunctionUntrusted {
			t.Errorf("%s: %v, want %s", src, ds, diag.FunctionUntrusted)
		}
	}
	if _, ds := s.eval(t, `try(file("a.txt"), "no")`); ds.HasErrors() {
		t.Error(ds.Error())
	}
}

func TestMarksAreKept(t *testing.T) {
	s := project(t)
	secret := func(v cty.Value) cty.Value { return v.Mark(mark.Sensitive{Origin: "secret.s"}).Mark(mark.Ephemeral{}) }
	calls := map[string]string{
		"abs": "n", "ceil": "n", "floor": "n", "max": "1, n", "min": "n, 1", "parseint": "digits, 10", "pow": "n, 2", "signum": "n",
		"sum": "[n, 1]", "format": `"%s", s`, "formatlist": `"%s", [s]`, "indent": "2, s", "join": `",", [s]`,
		"regex": `".*", s`, "regexall": `".", s`, "replace": `s, "a", "b"`, "split": `",", s`, "startswith": `s, "a"`,
		"endswith": `"a", s`, "strcontains": `s, "a"`, "substr": "s, 0, 1", "trim": `s, "a"`, "trimprefix": `s, "a"`,
		"trimsuffix": `s, "a"`, "alltrue": "[b]", "anytrue": "[b]", "chunklist": "[s], 1", "coalesce": `s, "x"`,
		"coalescelist": "[s], []", "compact": `["a", s]`, "concat": "[s], []", "contains": `[s], "a"`, "distinct": "[s]",
		"element": "[s], 0", "flatten": "[[s]]", "index": `[s], s`, "keys": "whole", "length": "wholelist", "lookup": `{ a = s }, "a"`,
		"matchkeys": `["a"], [s], [s]`, "merge": "{ a = s }", "one": "[s]", "range": "n", "reverse": "[s]",
		"setintersection": "[s], [s]", "setproduct": "[s], [1]", "setsubtract": "[s], []", "setunion": "[s], []",
		"slice": "[s], 0, 1", "sort": "[s]", "transpose": "{ a = [s] }", "values": "{ a = s }", "zipmap": `["a"], [s]`,
		"textencodebase64": `s, "UTF-8"`, "uuidv5": `"dns", s`, "csvdecode": "csv", "jsondecode": "json", "yamldecode": "json",
		"base64decode": "b64", "jsonencode": "{ a = s }", "yamlencode": "[s]", "tobool": "b", "tonumber": "n", "tolist": "[s]",
		"toset": "[s]", "tomap": "{ a = s }", "cidrhost": "net, 1", "cidrnetmask": "net", "cidrsubnet": "net, 1, 1",
		"semver": `version, "1"`, "duration": "dur", "bytes": "size", "file": "name", "filebase64": "name", "fileexists": "name",
		"filesha256": "name", "fileset": `".", name`, "templatefile": `"prompts/b.md", { name = s, regions = [] }`,
		"can": "s", "try": "s",
	}
	known := map[string]cty.Value{
		"s": secret(cty.StringVal(canary)), "n": secret(cty.NumberIntVal(3)), "b": secret(cty.True),
		"digits": secret(cty.StringVal("12")), "csv": secret(cty.StringVal("a\n1\n")), "json": secret(cty.StringVal("[1]")),
		"b64": secret(cty.StringVal("aGk=")), "net": secret(cty.StringVal("10.0.0.0/8")), "version": secret(cty.StringVal("1.0.0")),
		"dur": secret(cty.StringVal("1s")), "size": secret(cty.StringVal("1KiB")), "name": secret(cty.StringVal("a.txt")),
		"whole":     secret(cty.ObjectVal(map[string]cty.Value{"a": cty.True})),
		"wholelist": secret(cty.ListVal([]cty.Value{cty.True})),
	}
	unknown := map[string]cty.Value{}
	for n, v := range known {
		bare, marks := v.Unmark()
		unknown[n] = cty.UnknownVal(bare.Type()).WithMarks(marks)
	}
	without := []string{"issensitive", "nonsensitive", "type", "ephemeralasnull"}
	for _, name := range funcs.Names() {
		if slices.Contains(without, name) {
			continue
		}
		args := calls[name]
		if args == "" {
			args = "s"
		}
		for kind, vars := range map[string]map[string]cty.Value{"known": known, "unknown": unknown} {
			s.vars = vars
			src := name + "(" + args + ")"
			v, ds := s.eval(t, src)
			switch {
			case ds.HasErrors():
				t.Errorf("%s, %s: %s", src, kind, ds.Error())
			case !mark.IsSensitive(v):
				t.Errorf("%s, %s: the result %#v is not sensitive", src, kind, v)
			case !mark.IsEphemeral(v):
				t.Errorf("%s, %s: the result %#v is not ephemeral", src, kind, v)
			}
		}
	}
}

func TestOperatorsKeepMarks(t *testing.T) {
	m := func(v cty.Value) cty.Value { return v.Mark(mark.Sensitive{}) }
	for kind, vars := range map[string]map[string]cty.Value{
		"known":   {"s": m(cty.StringVal("x")), "n": m(cty.NumberIntVal(1)), "b": m(cty.True), "l": m(cty.ListVal([]cty.Value{cty.StringVal("x")}))},
		"unknown": {"s": m(cty.UnknownVal(cty.String)), "n": m(cty.UnknownVal(cty.Number)), "b": m(cty.UnknownVal(cty.Bool)), "l": m(cty.UnknownVal(cty.List(cty.String)))},
	} {
		s := scope{vars: vars}
		for _, src := range []string{
			`"a-${s}"`, `n + 1`, `-n`, `n * 2`, `n == 1`, `n < 2`, `!b`, `b && true`, `b || false`, `b ? 1 : 2`, `true ? s : "x"`,
			`[for x in l : x]`, `{ for x in l : x => 1 }`, `l[0]`, `l[*]`, `{ (s) = 1 }`, `["a", s]`, `{ a = s }`, `(s)`,
			`"%{ if b }x%{ endif }"`, `"%{ for x in l }${x}%{ endfor }"`, `{ a = "x" }[s]`, `[1, 2][n]`, `length(l)`,
		} {
			if kind == "known" && src == `{ a = "x" }[s]` {
				continue // there is no such key
			}
			v, ds := s.eval(t, src)
			if ds.HasErrors() {
				t.Errorf("%s, %s: %s", src, kind, ds.Error())
			} else if !mark.IsSensitive(v) {
				t.Errorf("%s, %s: the result %#v is not sensitive", src, kind, v)
			}
		}
	}
}

// Whatever fails on a secret, no form of the error shows it.
func TestErrorsNeverShowSecrets(t *testing.T) {
	s := project(t)
	m := func(v cty.Value) cty.Value { return v.Mark(mark.Sensitive{}) }
	s.vars = map[string]cty.Value{
		"s": m(cty.StringVal(canary)),
		"o": cty.ObjectVal(map[string]cty.Value{"k": m(cty.StringVal(canary)), "p": cty.StringVal("plain")}),
		"l": m(cty.ListVal([]cty.Value{cty.StringVal(canary), cty.StringVal(canary)})),
		"m": cty.MapVal(map[string]cty.Value{"a": cty.StringVal("x")}),
	}
	for _, src := range []string{
		`parseint(s, 10)`, `regex(s, "x")`, `regex("^[0-9]+$", s)`, `jsondecode(s)`, `yamldecode("{${s}")`, `base64decode("${s}?")`,
		`cidrhost(s, 1)`, `duration(s)`, `bytes(s)`, `semver(s, "1")`, `file(s)`, `fileset(s, "*")`, `templatefile(s, {})`, `tonumber(s)`,
		`tobool(s)`, `s + 1`, `m[s]`, `{ a = 1 }[s]`, `[1][s]`, `s.x`, `o.k.x`, `{ for x in l : x => 1 }`, `lookup(m, s)`, `try(parseint(s, 10))`,
		`index(["a"], s)`, `format("%d", s)`, `element([], s)`, `uuidv5(s, "x")`, `textencodebase64("x", s)`, `csvdecode("a\n${s},${s}")`,
		`templatefile("prompts/bad.md", { n = s })`, `s ? 1 : 2`, `[for x in s : x]`, `[for x in l : parseint(x, 10)]`, `"%{ for x in l }${parseint(x, 10)}%{ endfor }"`,
		`try([for x in l : parseint(x, 10)])`, `[for x in split("-", s) : parseint(x, 10)]`, `{ for x in l : x => parseint(x, 10) }`, `nope(s)`, `merge(s, {})`, `substr(s, s, 1)`,
		`fileexists("../${s}")`, `indent(s, "x")`, `zipmap([s], [])`, `one([s, s])`, `range(s)`, `!s`, `urlencode(s, s)`,
	} {
		_, ds := s.eval(t, src)
		if !ds.HasErrors() {
			t.Errorf("%s: no error", src)
			continue
		}
		files := diag.Files{"test.hcl": {Bytes: []byte(src)}}
		var all bytes.Buffer
		for _, write := range []func() error{
			func() error { return diag.WriteText(&all, ds, files, diag.TextOptions{}) },
			func() error { return diag.WriteJSON(&all, ds, files) },
			func() error { return diag.WriteShort(&all, ds) },
			func() error { return diag.WriteSARIF(&all, ds, files, "") },
		} {
			if err := write(); err != nil {
				t.Fatal(err)
			}
		}
		if strings.Contains(all.String(), canary) {
			t.Errorf("%s: shown in\n%s", src, all.String())
		}
	}
}

func TestHashes(t *testing.T) {
	s := project(t)
	if _, ds := s.eval(t, `file("a.txt")`); ds.HasErrors() {
		t.Fatal(ds.Error())
	}
	if err := os.WriteFile(filepath.Join(s.options.Dir, "a.txt"), []byte("changed"), 0o644); err != nil {
		t.Fatal(err)
	}
	v, _ := s.eval(t, `file("stays")`)
	if v.AsString() != "alpha\n" {
		t.Errorf("a second expression of the same load sees %q", v.AsString())
	}
	want := map[string]string{"a.txt": "b6a98d9ce9a2d9149288fa3df42d377c3e42737afdcdaf714e33c0a100b51060"}
	if diff := cmp.Diff(want, s.options.Files.Hashes()); diff != "" {
		t.Errorf("hashes: (-want +got)\n%s", diff)
	}
}
