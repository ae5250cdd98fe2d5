// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/berth-dev/berth/core/config"
	"github.com/berth-dev/berth/core/config/schema"
	"github.com/berth-dev/berth/core/diag"
	"github.com/berth-dev/berth/core/spec"
)

// TestVariablePrecedence takes the sources away one after another, the highest first.
func TestVariablePrecedence(t *testing.T) {
	dir := project(t, `
variable "x" {
  default = "default"
  env     = ["ALIAS"]
}
run "r" {
  agent = agent.a
  input = var.x
}
agent "a" {}
-- a.auto.berthvars.hcl --
x = "auto-a"
-- b.auto.berthvars.json --
{"x": "auto-b"}
-- one.berthvars.hcl --
x = "file"
`)
	file := config.Var{File: filepath.Join(dir, "one.berthvars.hcl")}
	flag := config.Var{Assign: "x=flag"}
	env := map[string]string{"BERTH_VAR_x": "env", "ALIAS": "alias"}
	for _, step := range []struct {
		want   string
		before func()
		vars   []config.Var
	}{
		{"flag", func() {}, []config.Var{file, flag}},
		{"file", func() {}, []config.Var{flag, file}},
		{"file", func() {}, []config.Var{file}},
		{"auto-b", func() {}, nil},
		{"auto-a", func() { remove(t, dir, "b.auto.berthvars.json") }, nil},
		{"env", func() { remove(t, dir, "a.auto.berthvars.hcl") }, nil},
		{"alias", func() { delete(env, "BERTH_VAR_x") }, nil},
		{"default", func() { delete(env, "ALIAS") }, nil},
	} {
		step.before()
		l, err := config.Load(t.Context(), config.Options{Path: dir, Vars: step.vars, Env: func(n string) (string, bool) { v, ok := env[n]; return v, ok }})
		if err != nil {
			t.Fatal(render(l))
		}
		if got := l.Project.Runs["r"].Input; got != step.want {
			t.Errorf("x is %q, want %q", got, step.want)
		}
	}
}

func remove(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

// TestVariableTexts converts texts of the environment for each kind of type.
func TestVariableTexts(t *testing.T) {
	for _, c := range []struct{ typ, text, want string }{
		{"string", "[1]", "[1]"},
		{"number", "12.5", "12.5"},
		{"bool", "true", "true"},
		{"list(string)", `["a", "b"]`, `["a","b"]`},
		{"set(number)", `[2, 1, 2]`, `[1,2]`},
		{"map(number)", `{ a = 1 }`, `{"a":1}`},
		{"object({ a = string, b = optional(number, 3) })", `{ a = "x" }`, `{"a":"x","b":3}`},
		{"tuple([string, bool])", `["x", false]`, `["x",false]`},
		{"any", "plain words", "plain words"},
		{"any", `{ a = [1] }`, `{"a":[1]}`},
	} {
		show := "jsonencode(var.x)"
		if !strings.HasPrefix(c.want, "{") && !strings.HasPrefix(c.want, `["`) && !strings.HasPrefix(c.want, "[1,") {
			show = "tostring(var.x)"
		}
		l := good(t, fmt.Sprintf("variable \"x\" {\n  type = %s\n}\nagent \"a\" {\n  instructions = %s\n}\n", c.typ, show), func(o *config.Options) {
			o.Env = func(n string) (string, bool) { return c.text, n == "BERTH_VAR_x" }
		})
		if got := l.Project.Agents["a"].Instructions.Literal; got != c.want {
			t.Errorf("%s %s: %s, want %s", c.typ, c.text, got, c.want)
		}
	}
}

// TestUndeclared says what a name means that no block declares, by where it stands.
func TestUndeclared(t *testing.T) {
	const main = "variable \"customer\" {\n  default = \"x\"\n}\nagent \"a\" {\n  description = var.customer\n}\n"
	for _, c := range []struct {
		name  string
		files string
		opt   func(dir string, o *config.Options)
		want  diag.Severity
	}{
		{"flag", "", func(_ string, o *config.Options) { o.Vars = []config.Var{{Assign: "custmer=1"}} }, diag.Error},
		{"file", "-- f.berthvars.hcl --\ncustmer = 1\n", func(d string, o *config.Options) {
			o.Vars = []config.Var{{File: filepath.Join(d, "f.berthvars.hcl")}}
		}, diag.Error},
		{"file, allowed", "-- f.berthvars.hcl --\ncustmer = 1\n", func(d string, o *config.Options) {
			o.Vars, o.AllowUndeclared = []config.Var{{File: filepath.Join(d, "f.berthvars.hcl")}}, true
		}, diag.Warning},
		{"auto", "-- f.auto.berthvars.hcl --\ncustmer = 1\n", func(string, *config.Options) {}, diag.Warning},
	} {
		dir := project(t, main+c.files)
		o := config.Options{Path: dir, Env: noEnv}
		c.opt(dir, &o)
		l, _ := config.Load(t.Context(), o)
		if len(l.Diags) != 1 || l.Diags[0].Code != diag.VariableUndeclared || l.Diags[0].Severity != c.want {
			t.Errorf("%s: %s", c.name, render(l))
		}
	}
}

// TestUntrusted has one case for each construct that reaches the host.
func TestUntrusted(t *testing.T) {
	for name, text := range map[string]string{
		"file":           `agent "a" { instructions = file("x.md") }`,
		"file in JSON":   "-- main.berth.json --\n" + `{"agent": {"a": {"instructions": "${file(\"x.md\")}"}}}`,
		"templatefile":   `agent "a" { instructions = templatefile("x.md", {}) }`,
		"fileset":        `agent "a" { instructions = join("", fileset(".", "*")) }`,
		"in a function":  "function \"f\" {\n  params = []\n  result = file(\"x.md\")\n}\nagent \"a\" {}",
		"in a local":     "locals { x = file(\"x.md\") }\nagent \"a\" {}",
		"nonsensitive":   `agent "a" { instructions = nonsensitive("x") }`,
		"secret":         `secret "s" { env = "HOME" }`,
		"driver":         `driver "docker" {}`,
		"model_provider": `model_provider "p" {}`,
		"path_grant":     "manifest \"m\" {\n  path_grant \"/etc\" {}\n}",
		"local_file":     "manifest \"m\" {\n  local_file \"x\" {\n    source = \"x.md\"\n  }\n}",
		"local_dir":      "manifest \"m\" {\n  local_dir \"x\" {\n    source = \"/etc\"\n  }\n}",
		"link out":       "manifest \"m\" {\n  local_dir \"x\" {\n    source = \"ok/link\"\n  }\n}",
		"stdio on host":  "mcp_server \"stdio\" \"s\" {\n  command = [\"x\"]\n  run_in  = \"host\"\n}",
		"command":        "tool \"command\" \"c\" {\n  command     = [\"x\"]\n  target      = \"host\"\n  description = \"x\"\n}",
		"guardrail":      "guardrail \"input\" \"g\" {\n  command = [\"x\"]\n  target  = \"host\"\n}",
		"http":           "tool \"http\" \"c\" {\n  url         = \"http://x\"\n  description = \"x\"\n}",
		"snapshot_store": `snapshot_store "noop" "n" {}`,
		"credentials":    "manifest \"m\" {\n  mount \"s3\" \"x\" {\n    bucket = \"b\"\n    credentials {\n      ambient = true\n    }\n  }\n}",
		"host mount":     "manifest \"m\" {\n  mount \"host\" \"x\" {\n    source = \"/etc\"\n  }\n}",
		"trusted paths":  "sandbox \"s\" {\n  driver = \"unixlocal\"\n  trusted_mount_credential_paths = [\"x\"]\n}",
		"state_file":     "sandbox \"s\" {\n  driver = \"unixlocal\"\n  session {\n    source     = \"resume\"\n    state_file = \"x\"\n  }\n}",
		"skills":         "agent \"a\" {\n  capabilities {\n    skills {\n      lazy_from \"local_dir\" {\n        source = \"/etc\"\n      }\n    }\n  }\n}",
		"dynamic":        "manifest \"m\" {\n  dynamic \"path_grant\" {\n    for_each = [\"/etc\"]\n    labels   = [each.value]\n    content {}\n  }\n}",
		"expression":     "locals { where = \"ho\" }\ntool \"command\" \"c\" {\n  command     = [\"x\"]\n  target      = \"${local.where}st\"\n  description = \"x\"\n}",
		"module outside": "module \"m\" {\n  source = \"../\"\n}",
		"extended": "mcp_server \"stdio\" \"a\" {\n  command = [\"x\"]\n  run_in  = \"host\"\n}\n" +
			"mcp_server \"stdio\" \"b\" {\n  extends = mcp_server.stdio.a\n}",
	} {
		t.Run(name, func(t *testing.T) {
			dir := project(t, text+"\n-- x.md --\nx\n-- ok/in.md --\nx\n")
			if err := os.Symlink("/etc", filepath.Join(dir, "ok", "link")); err != nil {
				t.Fatal(err)
			}
			l, err := config.Load(t.Context(), config.Options{
				Path: dir, Env: noEnv, Schemas: schemas, Untrusted: true, AllowFiles: []string{filepath.Join(dir, "ok")},
			})
			if err == nil || !slices.ContainsFunc(codes(l), func(c diag.Code) bool {
				return c == diag.NotUntrusted || c == diag.FunctionUntrusted || name == "module outside" && c == diag.ModuleProblem
			}) {
				t.Errorf("it loads:\n%s", render(l))
			}
		})
	}
	good(t, "manifest \"m\" {\n  local_dir \"x\" {\n    source = \"ok\"\n  }\n}\nagent \"a\" {\n  manifest = manifest.m\n}\n-- ok/in.md --\nx\n",
		func(o *config.Options) { o.Untrusted, o.AllowFiles = true, []string{filepath.Join(o.Path, "ok")} })
}

// TestModules loads modules in modules and refuses what is not one.
func TestModules(t *testing.T) {
	l := good(t, `
module "a" {
  source = "./a"
  name   = "x"
}
run "r" {
  agent = module.a.module.b.agent.deep
  input = module.a.greeting
}
-- a/main.berth.hcl --
variable "name" {
  type = string
}
module "b" {
  source = "../b"
  name   = "${var.name}y"
}
output "greeting" {
  value = "hello ${module.b.name}"
}
-- b/main.berth.hcl --
variable "name" {}
output "name" {
  value = upper(var.name)
}
agent "deep" {
  instructions = "${var.name} in ${basename(path.module)}"
}
`)
	r := l.Project.Runs["r"]
	if r.Input != "hello XY" || r.Agent.Label != "a.b.deep" || r.Agent.Instructions.Literal != "xy in b" {
		t.Errorf("%q %+v", r.Input, r.Agent)
	}
	for name, text := range map[string]string{
		"missing argument":   "module \"a\" {\n  source = \"./a\"\n}\n-- a/main.berth.hcl --\nvariable \"name\" {}\n",
		"unknown argument":   "module \"a\" {\n  source = \"./a\"\n  nme = 1\n}\n-- a/main.berth.hcl --\nvariable \"name\" { default = 1 }\n",
		"itself":             "module \"a\" {\n  source = \"./\"\n}\n",
		"cycle":              "module \"a\" {\n  source = \"./a\"\n  x = local.y\n}\nlocals {\n  y = module.a.z\n}\n-- a/main.berth.hcl --\nvariable \"x\" {}\noutput \"z\" {\n  value = var.x\n}\n",
		"unknown output":     "module \"a\" {\n  source = \"./a\"\n}\nlocals {\n  y = module.a.zz\n}\n-- a/main.berth.hcl --\noutput \"z\" {\n  value = 1\n}\n",
		"errors inside":      "module \"a\" {\n  source = \"./a\"\n}\n-- a/main.berth.hcl --\nagent \"x\" {\n  modl = 1\n}\n",
		"parent's reference": "module \"a\" {\n  source = \"./a\"\n}\nagent \"p\" {}\n-- a/main.berth.hcl --\nrun \"x\" {\n  agent = agent.p\n}\n",
	} {
		l, err := config.Load(t.Context(), config.Options{Path: project(t, text), Env: noEnv})
		if err == nil {
			t.Errorf("%s: no error: %s", name, render(l))
		}
	}
}

// TestLocalsGraph evaluates random graphs in any order of declaration; a cycle gives exactly one error.
func TestLocalsGraph(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for round := range 30 {
		const n = 40
		lines, want := make([]string, n), make([]int, n)
		for i := range n {
			expr := "1"
			want[i] = 1
			for range rnd.IntN(3) {
				if i > 0 {
					j := rnd.IntN(i)
					expr += fmt.Sprintf(" + local.v%d", j)
					want[i] = (want[i] + want[j]) % 1_000_003
				}
			}
			lines[i] = fmt.Sprintf("  v%d = (%s) %% 1000003\n", i, expr)
		}
		last := fmt.Sprintf("%d", want[n-1])
		rnd.Shuffle(n, func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
		text := "locals {\n" + strings.Join(lines, "") + "}\nagent \"a\" {\n  instructions = \"${local.v39}\"\n}\n"
		if got := good(t, text).Project.Agents["a"].Instructions.Literal; got != last {
			t.Fatalf("round %d: %s, want %s", round, got, last)
		}
		cyclic := strings.Replace(text, "v0 = (1)", "v0 = (local.v39)", 1)
		l, _ := config.Load(t.Context(), config.Options{Path: project(t, cyclic), Env: noEnv})
		errors, _ := l.Diags.Count()
		if strings.Contains(cyclic, "local.v39)") && reaches(cyclic) && (errors != 1 || l.Diags[0].Code != diag.Cycle) {
			t.Fatalf("round %d:\n%s", round, render(l))
		}
	}
}

// reaches reports whether v39 needs v0.
func reaches(text string) bool {
	needs := map[string][]string{}
	for line := range strings.Lines(text) {
		if name, expr, ok := strings.Cut(strings.TrimSpace(line), " = "); ok {
			for _, f := range strings.FieldsFunc(expr, func(r rune) bool { return strings.ContainsRune("+%() ", r) }) {
				if v, ok := strings.CutPrefix(f, "local."); ok {
					needs[name] = append(needs[name], v)
				}
			}
		}
	}
	seen := map[string]bool{}
	var visit func(string) bool
	visit = func(n string) bool {
		if n == "v0" {
			return true
		}
		if seen[n] {
			return false
		}
		seen[n] = true
		return slices.ContainsFunc(needs[n], visit)
	}
	return visit("v39")
}

// TestRunTime says which names are known where, and what expressions give.
func TestRunTime(t *testing.T) {
	l := good(t, `
locals {
  who = "ada"
}
agent "a" {
  instructions = "Run ${run.id} for ${local.who}: ${run.vars.ticket} at ${run.sandbox.ports["8000"].url}"
  handoff "b" {
    agent   = agent.b
    enabled = run.vars.deep
  }
}
agent "b" {}
manifest "m" {
  file "T" {
    content = "input: ${run.input}"
  }
}
run "r" {
  agent    = agent.a
  manifest = manifest.m
}
`)
	a := l.Project.Agents["a"]
	vars := spec.RunVars{RunID: "r1", Input: "fix", Vars: map[string]any{"ticket": 7.0, "deep": true}, Ports: map[string]string{"8000": "http://x"}}
	if got, err := a.Instructions.Expr.Eval(vars); got != "Run r1 for ada: 7 at http://x" || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := a.Handoffs[0].Enabled.Eval(vars); got != true || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := l.Project.Manifests["m"].Entries[0].File.Expr.Eval(vars); got != "input: fix" || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := a.Instructions.Expr.Eval(spec.RunVars{}); err == nil || !strings.Contains(err.Error(), "main.berth.hcl:6:") {
		t.Errorf("an error without its place: %v", err)
	}
	for text, want := range map[string]diag.Code{
		"agent \"a\" {\n  description = run.id\n}":                                                               diag.RunTimeName,
		"agent \"a\" {\n  instructions = param.x\n}":                                                             diag.RunTimeName,
		"agent \"a\" {\n  instructions = run.idd\n}":                                                             diag.UnknownField,
		"guardrail \"input\" \"g\" {\n  regex = output.x\n}":                                                     diag.RunTimeName,
		"tool \"command\" \"c\" {\n  command = [param.b]\n  parameters = object({ a = string })\n}":              diag.UnknownField,
		"tool \"command\" \"c\" {\n  command = [\"x\"]\n  env = { A = run.id }\n  description = run.id\n}":       diag.RunTimeName,
		"locals {\n  x = run.id\n}":                                                                              diag.RunTimeName,
		"agent \"a\" {\n  handoff \"b\" {\n    agent = agent.b\n    enabled = \"often\"\n  }\n}\nagent \"b\" {}": diag.WrongType,
	} {
		l, _ := config.Load(t.Context(), config.Options{Path: project(t, text), Env: noEnv})
		if !slices.Contains(codes(l), want) {
			t.Errorf("%s\nno %s:\n%s", text, want, render(l))
		}
	}
}

// TestSchemaDocs holds every part of the language against its documentation.
func TestSchemaDocs(t *testing.T) {
	seen := map[*schema.Block]bool{}
	attributes := 0
	var visit func(path string, b *schema.Body)
	block := func(path string, n *schema.Block) {
		if seen[n] {
			return
		}
		seen[n] = true
		if n.Doc == "" {
			t.Errorf("%s: no documentation", path)
		}
		visit(path, &n.Body)
		for l, b := range n.ByLabel {
			visit(path+" "+l, b)
			if len(n.Labels) == 0 || !slices.Contains(n.Labels[0].Enum, l) {
				t.Errorf("%s: label %q cannot be written", path, l)
			}
		}
	}
	visit = func(path string, b *schema.Body) {
		for _, a := range b.Attrs {
			attributes++
			if a.Doc == "" || !strings.HasSuffix(a.Doc, ".") && !strings.HasSuffix(a.Doc, "]") {
				t.Errorf("%s.%s: documentation %q", path, a.Name, a.Doc)
			}
			if a.Example == "" {
				t.Errorf("%s.%s: no example", path, a.Name)
			}
			if _, bad := hclsyntax.ParseExpression([]byte(a.Example), "", hcl.InitialPos); bad.HasErrors() {
				t.Errorf("%s.%s: example %s: %v", path, a.Name, a.Example, bad)
			}
			if d, ok := a.Default.(string); ok && len(a.Enum) > 0 && !slices.Contains(a.Enum, d) {
				t.Errorf("%s.%s: default %q is not one of %v", path, a.Name, d, a.Enum)
			}
			if a.Required && (a.Default != nil || a.DefText != "") {
				t.Errorf("%s.%s: required, with a default", path, a.Name)
			}
			for _, k := range a.Refs {
				if !schema.Referable(k) || schema.Root().Block(k) == nil {
					t.Errorf("%s.%s: refers to %q", path, a.Name, k)
				}
			}
		}
		for _, g := range append(append([][]string(nil), b.ExactlyOne...), b.AtMostOne...) {
			for _, n := range g {
				if b.Attr(n) == nil && b.Block(n) == nil {
					t.Errorf("%s: a group has %q", path, n)
				}
			}
		}
		for _, n := range b.Blocks {
			block(path+"."+n.Type, n)
		}
	}
	visit("", schema.Root())
	t.Logf("%d attributes", attributes)
}

// TestDynamicIsBounded nests dynamic blocks so that they would make a thousand million blocks.
func TestDynamicIsBounded(t *testing.T) {
	l, _ := config.Load(t.Context(), config.Options{Env: noEnv, Path: project(t, `
manifest "m" {
  dynamic "dir" {
    for_each = range(1000)
    labels   = ["a${each.value}"]
    content {
      dynamic "dir" {
        for_each = range(1000)
        labels   = ["b${each.value}"]
        content {
          dynamic "dir" {
            for_each = range(1000)
            labels   = ["c${each.value}"]
            content {}
          }
        }
      }
    }
  }
}
agent "a" {
  manifest = manifest.m
}
`)})
	if !slices.Equal(codes(l), []diag.Code{diag.OutOfRange}) {
		t.Error(render(l))
	}
}

// TestConcurrentUse reveals secrets, evaluates and encodes from many goroutines.
func TestConcurrentUse(t *testing.T) {
	l, err := config.Load(t.Context(), config.Options{Path: "testdata/features", Env: fixedEnv, Schemas: schemas})
	if err != nil {
		t.Fatal(render(l))
	}
	p := l.Project
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				if v, err := p.Providers["local"].Headers["X-Token"].Reveal(t.Context()); v != "t-token-canary-1" || err != nil {
					t.Errorf("%q, %v", v, err)
				}
				if _, err := p.Sandboxes["child"].Config.Encode(); err != nil {
					t.Error(err)
				}
				if v, err := p.Sandboxes["child"].Session.Key.Expr.Eval(spec.RunVars{Vars: map[string]any{"user": "u"}}); v != "k-u-ada" || err != nil {
					t.Errorf("%v, %v", v, err)
				}
			}
		})
	}
	wg.Wait()
}
