// SPDX-License-Identifier: Apache-2.0

// Package vars gives the variables of a project their values: from defaults, the environment, automatic files, and
// what the command line says, in this order.
package vars

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/berth-dev/berth/core/config/mark"
	"github.com/berth-dev/berth/core/config/source"
	"github.com/berth-dev/berth/core/diag"
)

// envPrefix is put before a variable's name in the environment.
const envPrefix = "BERTH_VAR_"

// Variable is one `variable` block.
type Variable struct {
	Name        string
	Header      hcl.Range
	Type        cty.Type
	Defaults    *typeexpr.Defaults
	Default     cty.Value // NilVal = required
	DefaultAt   hcl.Range
	Description string
	Sensitive   bool
	Ephemeral   bool
	Nullable    bool
	Env         []string
	Validations []Validation
}

// Validation is a condition on a variable.
type Validation struct {
	Condition, Message hcl.Expression
}

// Arg is one --var or --var-file, in the order of the command line.
type Arg struct {
	Assign string // "name=text"
	File   string // a file with values
}

// Value is a variable's value and where it came from.
type Value struct {
	Value  cty.Value
	Origin string    // "default", "environment variable X", a file's name, "--var"
	Range  hcl.Range // zero when it was in no file
	set    bool
	text   string // from the environment or the command line, not converted yet
	isText bool
}

// Options are where values come from.
type Options struct {
	Env     func(string) (string, bool)
	Environ func() []string
	Auto    []string // paths of the automatic files
	Shown   []string // the same as ranges show them
	Args    []Arg
	// AllowUndeclared makes names in variable files that no block declares a warning.
	AllowUndeclared bool
}

// Gather gives every declared variable its value.
func Gather(src *source.Sources, decls map[string]*Variable, opt Options) (map[string]*Value, diag.Diagnostics) {
	g := &gatherer{src: src, decls: decls, opt: opt, vals: map[string]*Value{}}
	g.environment()
	for i, path := range opt.Auto {
		g.file(path, opt.Shown[i], auto)
	}
	for _, a := range opt.Args {
		if a.File != "" {
			g.file(a.File, a.File, given)
		} else {
			g.assign(a.Assign)
		}
	}
	g.finish()
	return g.vals, g.ds
}

type gatherer struct {
	src   *source.Sources
	decls map[string]*Variable
	opt   Options
	vals  map[string]*Value
	ds    diag.Diagnostics
}

type fileKind uint8

const (
	auto fileKind = iota
	given
)

func (g *gatherer) names() []string {
	out := make([]string, 0, len(g.decls))
	for n := range g.decls {
		out = append(out, n)
	}
	sort.Strings(out)
	return out
}

func (g *gatherer) environment() {
	for _, n := range g.names() {
		for _, env := range append([]string{envPrefix + n}, g.decls[n].Env...) {
			if text, ok := g.opt.Env(env); ok {
				g.vals[n] = &Value{Origin: "environment variable " + env, text: text, isText: true, set: true}
				break
			}
		}
	}
	if g.opt.Environ == nil {
		return
	}
	for _, e := range g.opt.Environ() {
		name, _, _ := strings.Cut(e, "=")
		rest, ok := strings.CutPrefix(name, envPrefix)
		if !ok || g.decls[rest] != nil {
			continue
		}
		near := diag.Suggest(rest, g.names())
		if near != "" && g.vals[near] == nil {
			g.ds = append(g.ds, diag.Warnf(diag.VariableUndeclared, hcl.Range{},
				"environment variable %s sets no variable of the project", name).
				Relate(g.decls[near].Header, "did you mean %s%s?", envPrefix, near))
		}
	}
}

func (g *gatherer) file(path, shown string, kind fileKind) {
	if !source.IsVars(path) {
		g.ds = append(g.ds, diag.Errorf(diag.WrongFileKind, hcl.Range{}, "%q is not a file with values of variables", path).
			Helpf("the names of such files end in .berthvars.hcl or .berthvars.json"))
		return
	}
	f, ds := g.src.Read(path, shown)
	g.ds = append(g.ds, ds...)
	if f == nil || ds.HasErrors() {
		return
	}
	if body, ok := f.Body.(*hclsyntax.Body); ok && len(body.Blocks) > 0 {
		for _, b := range body.Blocks {
			d := diag.Errorf(diag.DeclarationInValues, b.DefRange(), "a file with values cannot have blocks")
			if b.Type == "variable" && len(b.Labels) == 1 {
				d = diag.Errorf(diag.DeclarationInValues, b.DefRange(), "variable %q is declared in a file with values", b.Labels[0]).
					Labelf("write: %s = ...", b.Labels[0]).Helpf("declare variables in a file that ends in .berth.hcl")
			}
			g.ds = append(g.ds, d)
		}
	}
	attrs, found := f.Body.JustAttributes()
	if body, ok := f.Body.(*hclsyntax.Body); ok && len(body.Blocks) > 0 {
		found = nil // told above
	}
	g.ds = append(g.ds, diag.Converter{Files: g.src.Files, JSON: f.JSON}.Convert(found)...)
	for _, name := range sorted(attrs) {
		a := attrs[name]
		if g.decls[name] == nil {
			g.ds = append(g.ds, g.undeclared(name, a.NameRange, kind))
			continue
		}
		v, found := a.Expr.Value(nil)
		if found.HasErrors() {
			g.ds = append(g.ds, diag.Converter{Files: g.src.Files}.Convert(found)...)
			v = cty.DynamicVal
		}
		g.vals[name] = &Value{Value: v, Origin: shown, Range: a.Expr.Range(), set: true}
	}
}

func sorted(attrs hcl.Attributes) []string {
	out := make([]string, 0, len(attrs))
	for n := range attrs {
		out = append(out, n)
	}
	sort.Strings(out)
	return out
}

func (g *gatherer) undeclared(name string, rng hcl.Range, kind fileKind) *diag.Diagnostic {
	d := diag.Errorf(diag.VariableUndeclared, rng, "no variable named %q", name)
	if kind == auto || g.opt.AllowUndeclared {
		d.Severity = diag.Warning
	}
	if near := diag.Suggest(name, g.names()); near != "" {
		d.Labelf("did you mean %q?", near).Relate(g.decls[near].Header, "variable declared here")
	}
	return d
}

func (g *gatherer) assign(text string) {
	name, val, ok := strings.Cut(text, "=")
	name = strings.TrimSpace(name)
	switch {
	case !ok:
		g.ds = append(g.ds, diag.Errorf(diag.VariableConversion, hcl.Range{}, "--var %q has no value", text).
			Helpf("write --var name=value"))
	case g.decls[name] == nil:
		d := g.undeclared(name, hcl.Range{}, given)
		d.Severity = diag.Error
		d.Summary = fmt.Sprintf("--var %s: no variable named %q", name, name)
		g.ds = append(g.ds, d)
	default:
		g.vals[name] = &Value{Origin: "--var", text: val, isText: true, set: true}
	}
}

// finish converts what was given, and fills in defaults.
func (g *gatherer) finish() {
	var unset []*Variable
	for _, n := range g.names() {
		d, v := g.decls[n], g.vals[n]
		if v != nil && v.isText {
			g.parse(d, v)
		}
		if v != nil && v.Value.IsKnown() && v.Value.IsNull() && !d.Nullable {
			v = nil // null means the default
		}
		if v == nil {
			if d.Default == cty.NilVal {
				unset = append(unset, d)
				g.vals[n] = &Value{Value: Mark(d, cty.UnknownVal(d.Type), "var."+n)}
				continue
			}
			g.vals[n] = &Value{Value: Mark(d, d.Default, "var."+n), Origin: "default", Range: d.DefaultAt}
			continue
		}
		out, err := Convert(d, v.Value)
		if err != nil {
			g.ds = append(g.ds, Wrong(d, v, err))
			out = cty.UnknownVal(d.Type)
		}
		v.Value = Mark(d, out, "var."+n)
	}
	if len(unset) > 0 {
		g.ds = append(g.ds, missing(unset))
	}
}

// Convert converts a value to a variable's type, with the defaults of optional attributes.
func Convert(d *Variable, v cty.Value) (cty.Value, error) {
	if d.Defaults != nil && !v.IsNull() {
		v = d.Defaults.Apply(v)
	}
	return convert.Convert(v, d.Type)
}

// Wrong reports a value that does not fit its variable.
func Wrong(d *Variable, v *Value, err error) *diag.Diagnostic {
	out := diag.Errorf(diag.VariableConversion, v.Range, "variable %q needs %s", d.Name, diag.FriendlyType(d.Type))
	if v.Range.Filename == "" {
		out.Notef("the value comes from %s", v.Origin)
	}
	if !d.Sensitive {
		out.Labelf("%v", err)
	}
	return out.Relate(d.Header, "variable declared here")
}

// Mark puts a variable's marks on a value.
func Mark(d *Variable, v cty.Value, origin string) cty.Value {
	if d.Sensitive {
		v = v.Mark(mark.Sensitive{Origin: origin})
	}
	if d.Ephemeral {
		v = v.Mark(mark.Ephemeral{})
	}
	return v
}

// parse reads a text from the environment or the command line.
func (g *gatherer) parse(d *Variable, v *Value) {
	if d.Type.IsPrimitiveType() {
		v.Value = cty.StringVal(v.text)
		return
	}
	if d.Type == cty.DynamicPseudoType {
		// Without a type a text that is no expression is meant as it is.
		v.Value = cty.StringVal(v.text)
	}
	name := "<" + v.Origin + ">"
	expr, found := hclsyntax.ParseExpression([]byte(v.text), name, hcl.InitialPos)
	if !found.HasErrors() && len(v.text) <= 1<<20 {
		val, more := expr.Value(nil)
		if !more.HasErrors() {
			v.Value = val
			return
		}
		found = more
	}
	if d.Type == cty.DynamicPseudoType {
		return
	}
	v.Value = cty.UnknownVal(d.Type)
	out := diag.Errorf(diag.VariableConversion, hcl.Range{}, "variable %q: the value from %s is no expression", d.Name, v.Origin).
		Relate(d.Header, "variable declared here").
		Helpf(`for a list write '["a", "b"]', for a map '{ name = "value" }'`)
	if !d.Sensitive {
		out.Notef("%s", found[0].Detail)
	}
	g.ds = append(g.ds, out)
}

// missing reports all variables without a value at once.
func missing(unset []*Variable) *diag.Diagnostic {
	d := diag.Errorf(diag.VariableUnset, unset[0].Header, "variable %q has no value", unset[0].Name)
	if len(unset) > 1 {
		names := make([]string, len(unset))
		for i, v := range unset {
			names[i] = v.Name
		}
		d.Summary = fmt.Sprintf("%d variables have no value: %s", len(unset), strings.Join(names, ", "))
	}
	for i, v := range unset {
		text := fmt.Sprintf("%s: %s", v.Name, TypeText(v.Type))
		if v.Description != "" {
			text += ", " + v.Description
		}
		if i == 0 {
			d.Labelf("%s", text)
		} else {
			d.Relate(v.Header, "%s", text)
		}
	}
	n := unset[0].Name
	return d.Helpf("set it with --var %s=..., with %s%s in the environment, or with %s = ... in a file NAME.auto.berthvars.hcl", n, envPrefix, n, n)
}

// TypeText writes a type as the language has it.
func TypeText(t cty.Type) string {
	switch {
	case t == cty.NilType || t == cty.DynamicPseudoType:
		return "any"
	case t == cty.String:
		return "string"
	case t == cty.Number:
		return "number"
	case t == cty.Bool:
		return "bool"
	}
	return typeexpr.TypeString(t)
}

// Files gives the absolute paths of automatic files.
func Files(dir string, names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = filepath.Join(dir, n)
	}
	return out
}

// OSEnv is the environment of the process.
func OSEnv(name string) (string, bool) { return os.LookupEnv(name) }
