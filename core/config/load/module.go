// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"

	"github.com/berth-dev/berth/core/config/eval"
	"github.com/berth-dev/berth/core/config/mark"
	"github.com/berth-dev/berth/core/config/schema"
	"github.com/berth-dev/berth/core/config/source"
	"github.com/berth-dev/berth/core/config/tree"
	"github.com/berth-dev/berth/core/config/vars"
	"github.com/berth-dev/berth/core/diag"
)

// args are what a module block gives its module; nil for the project itself.
type args struct {
	node *tree.Node
}

// sorted are the top-level blocks of a module by type.
type topLevel struct {
	byType map[string]hcl.Blocks
}

func (l *loader) module(layout source.Layout, name string, given *args, depth int) *Module {
	files := l.read(layout)
	if files == nil {
		return nil
	}
	m := &Module{Name: name, Vars: map[string]*vars.Variable{}}
	top := topLevel{byType: map[string]hcl.Blocks{}}
	for _, f := range files {
		for _, b := range l.build.Top(f.Body, f.JSON) {
			m.Blocks = append(m.Blocks, b)
			top.byType[b.Type] = append(top.byType[b.Type], b)
		}
	}
	l.duplicates(m.Blocks)
	table := maps.Clone(l.table(layout.Dir))
	m.Scope = eval.NewScope(l.res.World, name, layout.Dir, table)

	l.functions(m, top.byType["function"], table)
	l.variables(m, top.byType["variable"], layout, given)
	l.secrets(m, top.byType["secret"])
	l.solve(m, top, layout, depth)
	l.validations(m)
	l.outputs(m, top.byType["output"], given)

	for _, b := range m.Blocks {
		s := schema.Root().Block(b.Type)
		switch {
		case b.Type == "berth" && m.Berth == nil:
			m.Berth = l.build.Block(b, s, m.Scope.Env())
		case schema.Referable(b.Type):
			n := l.build.Block(b, s, m.Scope.Env())
			if l.res.Registry.Add(name, n) == nil {
				m.Nodes = append(m.Nodes, n)
			}
		}
	}
	return m
}

// duplicates reports blocks with the same labels, and a second berth block.
func (l *loader) duplicates(blocks hcl.Blocks) {
	first := map[string]*hcl.Block{}
	for _, b := range blocks {
		if b.Type == "locals" {
			continue
		}
		key := b.Type + "\x00" + strings.Join(b.Labels, "\x00")
		old := first[key]
		if old == nil {
			first[key] = b
			continue
		}
		d := diag.Errorf(diag.DuplicateName, b.DefRange, "second %s", b.Type)
		if len(b.Labels) > 0 {
			d = diag.Errorf(diag.DuplicateName, b.DefRange, "second %s named %q", spoken(b.Type), b.Labels[len(b.Labels)-1])
		}
		l.add(d.Labelf("names must be unique in a directory").Relate(old.DefRange, "first declared here"))
	}
}

func spoken(kind string) string { return strings.ReplaceAll(kind, "_", " ") }

// functions adds the functions of a module. Only built-in ones and their parameters are known inside them, so that no
// function can call itself.
func (l *loader) functions(m *Module, blocks hcl.Blocks, table map[string]function.Function) {
	builtin := maps.Clone(table)
	for _, b := range blocks {
		n := l.build.Block(b, schema.Root().Block("function"), m.Scope.Env())
		name := n.Name()
		if _, taken := builtin[name]; taken {
			l.add(diag.Errorf(diag.DuplicateName, n.Header, "function %q is built in", name).Labelf("choose another name"))
			continue
		}
		params, variadic, result := n.Attrs["params"], n.Attrs["variadic_param"], n.Attrs["result"]
		if params == nil || result == nil {
			l.checker.Node(n)
			continue
		}
		l.checker.Attr(n, params, eval.Use{})
		names := append([]string(nil), params.Names...)
		spec := &function.Spec{Type: function.StaticReturnType(cty.DynamicPseudoType)}
		for _, p := range params.Names {
			spec.Params = append(spec.Params, open(p))
		}
		if variadic != nil {
			l.checker.Attr(n, variadic, eval.Use{})
			if len(variadic.Names) == 1 {
				p := open(variadic.Names[0])
				spec.VarParam = &p
				names = append(names, variadic.Names[0])
			}
		}
		if l.badResult(result.Expr, names, builtin) {
			continue
		}
		spec.Type = func(a []cty.Value) (cty.Type, error) {
			v, err := call(result.Expr, params.Names, variadic, a, builtin)
			return v.Type(), err
		}
		spec.Impl = func(a []cty.Value, _ cty.Type) (cty.Value, error) {
			return call(result.Expr, params.Names, variadic, a, builtin)
		}
		table[name] = function.New(spec)
	}
}

// badResult reports names in a function's result that it does not have.
func (l *loader) badResult(expr hcl.Expression, params []string, builtin map[string]function.Function) bool {
	inner := eval.NewScope(l.res.World, "", l.res.World.Root, builtin)
	bad := false
	for _, t := range expr.Variables() {
		known := false
		for _, p := range params {
			known = known || p == t.RootName()
		}
		if known {
			continue
		}
		bad = true
		d := diag.Errorf(diag.UnknownRoot, t[0].SourceRange(), "unknown name %q", t.RootName()).
			Labelf("a function knows its parameters only")
		if near := diag.Suggest(t.RootName(), params); near != "" {
			d.Labelf("did you mean %q?", near)
		}
		l.add(d)
	}
	for _, d := range inner.Env().Check(expr, eval.Use{}) {
		if d.Code == diag.UnknownFunction || d.Code == diag.FunctionUntrusted {
			l.add(d)
			bad = true
		}
	}
	return bad
}

func open(name string) function.Parameter {
	return function.Parameter{Name: name, Type: cty.DynamicPseudoType, AllowNull: true, AllowUnknown: true, AllowDynamicType: true, AllowMarked: true}
}

func call(expr hcl.Expression, params []string, variadic *tree.Attr, a []cty.Value, builtin map[string]function.Function) (cty.Value, error) {
	ctx := &hcl.EvalContext{Variables: map[string]cty.Value{}, Functions: builtin}
	for i, p := range params {
		ctx.Variables[p] = a[i]
	}
	if variadic != nil && len(variadic.Names) == 1 {
		ctx.Variables[variadic.Names[0]] = cty.TupleVal(a[len(params):])
	}
	v, found := expr.Value(ctx)
	if !found.HasErrors() {
		return v, nil
	}
	for _, x := range a {
		if x.ContainsMarked() {
			return cty.DynamicVal, fmt.Errorf("its result cannot be made; the reason could show a sensitive argument")
		}
	}
	return cty.DynamicVal, fmt.Errorf("%s: %s", found[0].Summary, found[0].Detail)
}

// solve evaluates locals and loads modules.
func (l *loader) solve(m *Module, top topLevel, layout source.Layout, depth int) {
	locals := map[string]*hcl.Attribute{}
	for _, b := range top.byType["locals"] {
		for n, a := range l.attrs(b.Body) {
			if old := locals[n]; old != nil {
				l.add(diag.Errorf(diag.DuplicateName, a.NameRange, "second local value named %q", n).
					Labelf("names must be unique in a directory").Relate(old.NameRange, "first declared here"))
				continue
			}
			locals[n] = a
		}
	}
	modules := map[string]*eval.Module{}
	for _, b := range top.byType["module"] {
		if modules[b.Labels[0]] != nil {
			continue // reported as a duplicate
		}
		n := l.build.Block(b, schema.Root().Block("module"), m.Scope.Env())
		em := &eval.Module{Range: n.Header}
		for name, a := range n.Attrs {
			if name != "source" {
				em.Exprs = append(em.Exprs, a.Expr)
			}
		}
		em.Load = func() diag.Diagnostics {
			l.child(m, n, layout, depth)
			return nil
		}
		modules[n.Name()] = em
		m.Modules = append(m.Modules, n)
	}
	l.add(m.Scope.Solve(locals, modules)...)
}

// child loads the module of a module block.
func (l *loader) child(m *Module, n *tree.Node, layout source.Layout, depth int) {
	name := n.Name()
	a := n.Attrs["source"]
	if a == nil {
		l.checker.Node(n)
		return
	}
	l.checker.Attr(n, a, eval.Use{})
	if a.Bad {
		return
	}
	bad := func(format string, v ...any) {
		l.add(diag.Errorf(diag.ModuleProblem, a.Expr.Range(), "module %q cannot be loaded", name).Labelf(format, v...))
	}
	src := a.Value.AsString()
	if depth+1 > maxModuleDepth {
		bad("modules can be %d deep", maxModuleDepth)
		return
	}
	if filepath.IsAbs(src) || strings.Contains(src, "://") {
		bad("the source is a directory of the project, such as \"./modules/team\"")
		return
	}
	dir := filepath.Join(layout.Dir, filepath.FromSlash(src))
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		bad("no directory %q", src)
		return
	}
	root, err := filepath.EvalSymlinks(l.res.World.Root)
	if err != nil {
		root = l.res.World.Root
	}
	if rel, err := filepath.Rel(root, real); err != nil || !filepath.IsLocal(rel) {
		bad("the directory is outside the project")
		return
	}
	if info, err := os.Stat(real); err != nil || !info.IsDir() {
		bad("%q is no directory", src)
		return
	}
	inner, ds := source.Find(dir)
	inner.Shown = filepath.Join(layout.Shown, filepath.FromSlash(src))
	if ds.HasErrors() {
		bad("the directory has no configuration")
		return
	}
	scope := "module." + name
	if m.Name != "" {
		scope = m.Name + "." + scope
	}
	l.res.Registry.AddModule(m.Name, name, scope)
	loaded := l.module(inner, scope, &args{node: n}, depth+1)
	if loaded == nil {
		return
	}
	m.Children = append(m.Children, loaded)
	vals := map[string]cty.Value{}
	for _, o := range loaded.Outputs {
		v := cty.DynamicVal
		if at := o.Attrs["value"]; at != nil && !at.Bad && at.Value != cty.NilVal {
			v = at.Value
		}
		if s := o.Attr("sensitive"); s != nil && s.Value.IsKnown() && !s.Value.IsNull() && s.Value.Type() == cty.Bool && s.Value.True() {
			key := scope + ".output." + o.Name()
			l.res.World.Origins[key] = o.Header
			v = v.Mark(mark.Sensitive{Origin: key})
		}
		vals[o.Name()] = v
	}
	d := m.Scope.Modules[name]
	d.Value = cty.ObjectVal(vals)
	d.Outputs = loaded.outputDecls()
}

func (m *Module) outputDecls() map[string]*eval.Decl {
	out := map[string]*eval.Decl{}
	for _, o := range m.Outputs {
		if a := o.Attrs["value"]; a != nil {
			out[o.Name()] = &eval.Decl{Name: o.Name(), Value: a.Value, Range: o.Header, Expr: a.Expr, Env: a.Env}
		}
	}
	return out
}

// outputs evaluates the outputs of a module.
func (l *loader) outputs(m *Module, blocks hcl.Blocks, given *args) {
	for _, b := range blocks {
		n := l.build.Block(b, schema.Root().Block("output"), m.Scope.Env())
		l.checker.Node(n)
		m.Outputs = append(m.Outputs, n)
		if given == nil {
			l.add(diag.Warnf(diag.ModuleProblem, n.Header, "output %q has no effect", n.Name()).Labelf("only modules have outputs"))
		}
	}
}

// validations checks the conditions of variables, when locals are known.
func (l *loader) validations(m *Module) {
	for _, v := range m.Vars {
		for _, c := range v.Validations {
			l.validate(m, v, c)
		}
	}
}

func (l *loader) validate(m *Module, v *vars.Variable, c vars.Validation) {
	env := m.Scope.Env()
	ok, ds := env.Value(c.Condition, eval.Use{})
	l.add(ds...)
	bare, _ := ok.UnmarkDeep()
	if ds.HasErrors() || !bare.IsKnown() {
		return
	}
	if bare.IsNull() || bare.Type() != cty.Bool {
		l.add(diag.Errorf(diag.WrongType, c.Condition.Range(), "wrong type").Labelf(`"condition" needs true or false`))
		return
	}
	if bare.True() {
		return
	}
	text := "its value is not valid"
	msg, ds := env.Value(c.Message, eval.Use{})
	l.add(ds...)
	if plain, marks := msg.Unmark(); len(marks) == 0 && plain.IsKnown() && !plain.IsNull() && plain.Type() == cty.String {
		text = plain.AsString()
	}
	rng := v.Header
	if at := m.Values[v.Name]; at != nil && at.Range.Filename != "" {
		rng = at.Range
	}
	d := diag.Errorf(diag.VariableInvalid, rng, "variable %q is not valid", v.Name).Labelf("%s", text).
		Relate(c.Condition.Range(), "this condition is not met")
	if at := m.Values[v.Name]; at != nil && at.Range.Filename == "" && at.Origin != "" {
		d.Notef("the value comes from %s", at.Origin)
	}
	l.add(d)
}
