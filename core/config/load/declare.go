// SPDX-License-Identifier: Apache-2.0

package load

import (
	"sort"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/json"
	"github.com/zclconf/go-cty/cty"

	"github.com/berth-dev/berth/core/config/check"
	"github.com/berth-dev/berth/core/config/eval"
	"github.com/berth-dev/berth/core/config/read"
	"github.com/berth-dev/berth/core/config/schema"
	"github.com/berth-dev/berth/core/config/secret"
	"github.com/berth-dev/berth/core/config/source"
	"github.com/berth-dev/berth/core/config/tree"
	"github.com/berth-dev/berth/core/config/vars"
	"github.com/berth-dev/berth/core/diag"
)

// variables declares the variables of a module and gives them values.
func (l *loader) variables(m *Module, blocks hcl.Blocks, layout source.Layout, given *args) {
	for _, b := range blocks {
		if len(b.Labels) == 1 && m.Vars[b.Labels[0]] == nil {
			m.Vars[b.Labels[0]] = l.variable(m, b)
		}
	}
	if given != nil {
		l.arguments(m, given)
		return
	}
	shown := make([]string, len(layout.Auto))
	for i, n := range layout.Auto {
		shown[i] = layout.Show(n)
	}
	values, ds := vars.Gather(l.opt.Sources, m.Vars, vars.Options{
		Env: l.opt.Env, Environ: l.opt.Environ, Auto: vars.Files(layout.Dir, layout.Auto), Shown: shown,
		Args: l.opt.Vars, AllowUndeclared: l.opt.AllowUndeclared,
	})
	l.add(ds...)
	m.Values = values
	for n, v := range values {
		l.res.World.Origins["var."+n] = m.Vars[n].Header
		l.res.World.Learn(v.Value)
		m.Scope.Vars[n] = &eval.Decl{Name: n, Value: v.Value, Range: m.Vars[n].Header}
	}
	m.Scope.Changed()
}

func (l *loader) variable(m *Module, b *hcl.Block) *vars.Variable {
	n := l.build.Block(b, schema.Root().Block("variable"), m.Scope.Env())
	v := &vars.Variable{Name: n.Name(), Header: n.Header, Type: cty.DynamicPseudoType}
	typed := false
	if a := n.Attrs["type"]; a != nil {
		t, defaults, found := typeexpr.TypeConstraintWithDefaults(typeOf(a.Expr))
		if found.HasErrors() {
			// Our own reader says it better, when it finds fault too.
			if _, d := check.ParseType(a.Expr, a.Env); d != nil {
				l.add(d)
			} else {
				l.add(diag.Converter{Files: l.opt.Sources.Files}.Convert(found)...)
			}
		} else {
			v.Type, v.Defaults, typed = t.WithoutOptionalAttributesDeep(), defaults, true
			if defaults != nil {
				v.Type = t
			}
		}
	}
	if a := n.Attrs["default"]; a != nil {
		l.defaultValue(v, a, typed)
	}
	delete(n.Attrs, "type")
	delete(n.Attrs, "default")
	for _, val := range n.All("validation") {
		c, msg := val.Attrs["condition"], val.Attrs["error_message"]
		if c != nil && msg != nil {
			v.Validations = append(v.Validations, vars.Validation{Condition: c.Expr, Message: msg.Expr})
			continue
		}
		l.checker.Node(val)
	}
	n.Blocks = nil
	if a := n.Attrs["description"]; a != nil {
		// It may use other variables, which have no values yet.
		v.Description, _ = check.Literal(a.Expr)
		delete(n.Attrs, "description")
		l.later = append(l.later, func() { l.checker.Attr(n, a, eval.Use{}) })
	}
	l.checker.Node(n)
	r := read.New(n)
	v.Sensitive, v.Ephemeral, v.Nullable = r.Bool("sensitive"), r.Bool("ephemeral"), r.Bool("nullable")
	v.Env = r.Strings("env")
	return v
}

// typeOf lets `type = "list(string)"` of JSON files through, with or without "${ }".
func typeOf(expr hcl.Expression) hcl.Expression {
	if !json.IsJSONExpression(expr) {
		return expr
	}
	v, ds := expr.Value(nil)
	if ds.HasErrors() || v.IsNull() || v.Type() != cty.String {
		return expr
	}
	x, ds := hclsyntax.ParseExpression([]byte(v.AsString()), expr.Range().Filename, expr.Range().Start)
	if ds.HasErrors() {
		return expr
	}
	return x
}

func (l *loader) defaultValue(v *vars.Variable, a *tree.Attr, typed bool) {
	for _, t := range a.Expr.Variables() {
		l.add(diag.Errorf(diag.RunTimeName, t.SourceRange(), "the default of a variable cannot refer to anything").
			Labelf("write a plain value, or use a local value instead"))
		return
	}
	val, ds := a.Env.Value(a.Expr, eval.Use{})
	l.add(ds...)
	if ds.HasErrors() {
		return
	}
	if !typed && !val.IsNull() {
		v.Type = val.Type()
	}
	out, err := vars.Convert(v, val)
	if err != nil {
		l.add(diag.Errorf(diag.VariableConversion, a.Expr.Range(), "the default of variable %q does not fit its type", v.Name).
			Labelf("%v", err))
		out = cty.UnknownVal(v.Type)
	}
	v.Default, v.DefaultAt = out, a.Expr.Range()
}

// arguments gives the variables of a module the values of its module block.
func (l *loader) arguments(m *Module, given *args) {
	m.Values = map[string]*vars.Value{}
	n := given.node
	var missing []*vars.Variable
	for name, v := range m.Vars {
		key := m.Name + ".var." + name
		l.res.World.Origins[key] = v.Header
		a := n.Attrs[name]
		decl := &eval.Decl{Name: name, Range: v.Header, Value: cty.UnknownVal(v.Type), Type: v.Type}
		m.Scope.Vars[name] = decl
		val := &vars.Value{Origin: "default", Range: v.DefaultAt, Value: v.Default}
		if a != nil {
			got, ds := a.Env.Value(a.Expr, eval.Use{})
			l.add(ds...)
			if ds.HasErrors() {
				continue
			}
			bare, _ := got.Unmark()
			if !bare.IsKnown() || !bare.IsNull() || v.Nullable {
				val = &vars.Value{Origin: n.Key(), Range: a.Expr.Range(), Value: got}
				decl.Expr, decl.Env = a.Expr, a.Env
			}
		}
		if val.Value == cty.NilVal {
			if !n.Misspelt[name] {
				missing = append(missing, v)
			}
			continue
		}
		out, err := vars.Convert(v, val.Value)
		if err != nil {
			l.add(vars.Wrong(v, val, err))
			continue
		}
		val.Value = vars.Mark(v, out, key)
		decl.Value = val.Value
		m.Values[name] = val
		l.res.World.Learn(val.Value)
	}
	sort.Slice(missing, func(i, j int) bool { return missing[i].Name < missing[j].Name })
	for _, v := range missing {
		l.add(diag.Errorf(diag.MissingArgument, n.Header, "missing required argument").
			Labelf("module %q needs %q", n.Name(), v.Name).Relate(v.Header, "variable declared here"))
	}
	var names []string
	for name := range m.Vars {
		names = append(names, name)
	}
	for _, a := range n.Sorted() {
		if a.Name == "source" || m.Vars[a.Name] != nil {
			continue
		}
		d := diag.Errorf(diag.UnsupportedArgument, a.NameRange, "module %q has no variable %q", n.Name(), a.Name)
		if near := diag.Suggest(a.Name, names); near != "" {
			d.Labelf("did you mean %q?", near).Relate(m.Vars[near].Header, "variable declared here")
		}
		l.add(d)
	}
	m.Scope.Changed()
}

// secrets declares the secrets of a module. Their values stay unknown until somebody needs them.
func (l *loader) secrets(m *Module, blocks hcl.Blocks) {
	var nodes []*tree.Node
	m.SecretNodes = map[string]*tree.Node{}
	for _, b := range blocks {
		n := l.build.Block(b, schema.Root().Block("secret"), m.Scope.Env())
		if m.Scope.Secrets[n.Name()] != nil {
			continue
		}
		s := &secret.Secret{Key: m.Scope.Key("secret." + n.Name()), Header: n.Header, Source: n.Header, Dir: m.Scope.Dir, Format: "text"}
		if a := n.Attrs["format"]; a != nil {
			if text, ok := check.Literal(a.Expr); ok {
				s.Format = text
			}
		}
		l.res.World.Origins[s.Key] = n.Header
		l.res.World.Secrets[s.Key] = s
		m.Scope.Secrets[n.Name()] = &eval.Decl{Name: n.Name(), Value: s.Unknown(), Range: n.Header}
		m.Secrets = append(m.Secrets, s)
		nodes = append(nodes, n)
		m.SecretNodes[n.Name()] = n
	}
	m.Scope.Changed()
	l.later = append(l.later, func() {
		for i, n := range nodes {
			l.secret(m.Secrets[i], n)
		}
	})
}

// secret reads the attributes of a secret, when locals are known.
func (l *loader) secret(s *secret.Secret, n *tree.Node) {
	l.checker.Node(n)
	r := read.New(n)
	s.Env, s.File, s.Command, s.Store = r.String("env"), r.String("file"), r.Strings("command"), r.String("store")
	s.Format, s.Trim, s.Optional, s.TTL = r.String("format"), r.Bool("trim"), r.Bool("optional"), r.Duration("ttl")
	for _, name := range []string{"env", "file", "command", "store"} {
		if a := n.Attr(name); a != nil {
			s.Source = a.Expr.Range()
		}
	}
	if a := n.Attr("command"); a != nil && !a.Bad && len(s.Command) == 0 {
		l.add(diag.Errorf(diag.OutOfRange, a.Expr.Range(), "command is empty").Labelf("name a program"))
	}
	if a := n.Attrs["format"]; a != nil {
		if _, ok := check.Literal(a.Expr); !ok {
			l.add(diag.Errorf(diag.WrongType, a.Expr.Range(), `"format" needs a plain text`))
		}
	}
}
