// SPDX-License-Identifier: Apache-2.0

// Package check evaluates the attributes of a tree and holds them against the schema: what must be there, types,
// ranges, words, references, and where secrets may go. What it finds out is kept in the attributes; the decoder only
// reads it.
package check

import (
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/berth-dev/berth/core/config/eval"
	"github.com/berth-dev/berth/core/config/mark"
	"github.com/berth-dev/berth/core/config/schema"
	"github.com/berth-dev/berth/core/config/tree"
	"github.com/berth-dev/berth/core/diag"
)

// Checker checks nodes and collects what is wrong.
type Checker struct {
	World    *eval.World
	Registry *Registry
	Diags    diag.Diagnostics

	patterns patterns
}

// Node checks a node and everything inside it, once.
func (c *Checker) Node(n *tree.Node) {
	if !n.Once() {
		return
	}
	command := hostCommand(n)
	if command != nil {
		c.World.HostCommands = append(c.World.HostCommands, *command)
	}
	if c.World.Untrusted {
		c.untrusted(n, command)
	}
	c.required(n)
	c.groups(n)
	use := eval.Use{}
	if n.Type == "tool" {
		if a := n.Attrs["parameters"]; a != nil {
			c.Attr(n, a, use)
			use.Arguments = a.Arguments
		}
	}
	for _, a := range n.Sorted() {
		c.Attr(n, a, use)
	}
	for _, b := range n.Blocks {
		c.Node(b)
	}
}

func (c *Checker) add(d *diag.Diagnostic) { c.Diags = append(c.Diags, d) }

func (c *Checker) required(n *tree.Node) {
	if n.Unchecked {
		return
	}
	for _, a := range n.Body.Attrs {
		if a.Required && n.Attrs[a.Name] == nil && !n.Misspelt[a.Name] {
			d := diag.Errorf(diag.MissingArgument, n.Header, "missing required argument").Labelf("%q is required here", a.Name)
			if a.Doc != "" {
				d.Helpf("%s: %s", a.Name, a.Doc)
			}
			c.add(d)
		}
	}
	for _, b := range n.Body.Blocks {
		if count := len(n.All(b.Type)); count < b.Min && !n.Misspelt[b.Type] {
			c.add(diag.Errorf(diag.MissingArgument, n.Header, "missing required block").Labelf("%q is required here", b.Type))
		}
	}
}

// present lists the members of a group that the node has, with their places.
func present(n *tree.Node, group []string) (names []string, places []hcl.Range) {
	for _, name := range group {
		if a := n.Attrs[name]; a != nil {
			names, places = append(names, name), append(places, a.NameRange)
		} else if b := n.Block(name); b != nil {
			names, places = append(names, name), append(places, b.Header)
		}
	}
	return names, places
}

func (c *Checker) groups(n *tree.Node) {
	for _, g := range n.Body.ExactlyOne {
		names, places := present(n, g)
		missed := false
		for _, m := range g {
			missed = missed || n.Misspelt[m]
		}
		switch {
		case len(names) == 0 && !missed:
			c.add(diag.Errorf(diag.ExactlyOneOf, n.Header, "one of %s is needed", list(g)).Labelf("none is here"))
		case len(names) > 1:
			c.add(diag.Errorf(diag.ExactlyOneOf, places[1], "only one of %s can be set", list(g)).
				Labelf("%q is set too", names[1]).Relate(places[0], "%q is set here", names[0]))
		}
	}
	for _, g := range n.Body.AtMostOne {
		if names, places := present(n, g); len(names) > 1 {
			c.add(diag.Errorf(diag.Conflicting, places[1], "%q and %q cannot both be set", names[0], names[1]).
				Labelf("set one of them").Relate(places[0], "%q is set here", names[0]))
		}
	}
	for name, a := range n.Attrs {
		for _, r := range a.Schema.Requires {
			if n.Attrs[r] == nil && n.Block(r) == nil && !n.Misspelt[r] {
				c.add(diag.Errorf(diag.Conflicting, a.NameRange, "%q needs %q too", name, r).Labelf("%q is not set", r))
			}
		}
	}
}

func list(words []string) string {
	switch len(words) {
	case 0:
		return ""
	case 1:
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

// Attr checks one attribute, once.
func (c *Checker) Attr(n *tree.Node, a *tree.Attr, use eval.Use) {
	if a.Checked {
		return
	}
	a.Checked = true
	a.Use = eval.Use{
		Run: a.Schema.Has(schema.Runtime), Param: a.Schema.Has(schema.Param), Output: a.Schema.Has(schema.Output),
		Arguments: use.Arguments,
	}
	before := len(c.Diags)
	if a.Schema.Deprecated != "" {
		c.add(diag.Warnf(diag.Deprecated, a.NameRange, "%q is deprecated", a.Name).Labelf("%s", a.Schema.Deprecated))
	}
	switch a.Schema.Kind {
	case schema.Ref, schema.Refs, schema.RefOrString:
		c.reference(n, a)
	case schema.Expr, schema.BoolOrExpr:
		c.expression(a)
	case schema.TypeExpr:
		c.typeExpr(a)
	case schema.Literal:
		c.literal(a)
	case schema.Names:
		c.names(a)
	default:
		c.value(n, a)
	}
	if c.Diags[before:].HasErrors() {
		a.Bad = true
	}
}

func (c *Checker) expression(a *tree.Attr) {
	v, ds := a.Env.Value(a.Expr, a.Use)
	c.Diags = append(c.Diags, ds...)
	a.Value = v
	if ds.HasErrors() {
		return
	}
	bare, _ := v.UnmarkDeep()
	a.Null = bare.IsKnown() && bare.IsNull()
	a.Later = !bare.IsWhollyKnown()
	want := a.Schema.Type
	if a.Name == "condition" || a.Name == "enabled" || a.Name == "tripwire" {
		want = cty.Bool
	}
	if a.Null || want == cty.DynamicPseudoType {
		return
	}
	if out, ok := c.converted(a, v, want); ok {
		a.Value = out
	}
}

// value evaluates an attribute and checks it against its schema.
func (c *Checker) value(n *tree.Node, a *tree.Attr) {
	v, ds := a.Env.Value(a.Expr, a.Use)
	c.Diags = append(c.Diags, ds...)
	if ds.HasErrors() {
		a.Value = cty.DynamicVal
		return
	}
	bare, _ := v.Unmark()
	if bare.IsKnown() && bare.IsNull() {
		a.Null = true
		if a.Schema.Required {
			c.add(diag.Errorf(diag.NullNotAllowed, a.Expr.Range(), "%q cannot be null", a.Name).Labelf("it is required"))
		}
		a.Value = cty.NullVal(a.Schema.Type)
		return
	}
	a.Secret = mark.IsSensitive(v)
	if a.Secret && !a.Schema.Has(schema.Secret) {
		c.leak(n, a, v)
		a.Value = cty.UnknownVal(a.Schema.Type)
		return
	}
	c.World.Learn(v)
	v, ok := c.unit(a, v)
	if !ok {
		a.Value = cty.UnknownVal(a.Schema.Type)
		return
	}
	v, ok = c.converted(a, v, a.Schema.Type)
	if !ok {
		a.Value = cty.UnknownVal(a.Schema.Type)
		return
	}
	a.Value = c.overlay(n, a, v)
	plain, _ := a.Value.UnmarkDeep()
	a.Later = !plain.IsWhollyKnown()
	c.limits(a, plain)
}

// overlay lays a map over that of the parent and takes away the keys that are null.
func (c *Checker) overlay(n *tree.Node, a *tree.Attr, v cty.Value) cty.Value {
	if !a.Schema.Type.IsMapType() {
		return v
	}
	elems := map[string]cty.Value{}
	bare, marks := v.Unmark()
	if !bare.IsKnown() {
		return v
	}
	if a.Base != nil {
		c.Attr(n, a.Base, a.Use)
		base, more := a.Base.Value.Unmark()
		if !a.Base.Null && base.IsKnown() && !base.IsNull() {
			for it := base.ElementIterator(); it.Next(); {
				k, e := it.Element()
				elems[k.AsString()] = e.WithMarks(more)
			}
		}
	}
	for it := bare.ElementIterator(); it.Next(); {
		k, e := it.Element()
		elems[k.AsString()] = e.WithMarks(marks)
	}
	for k, e := range elems {
		if b, _ := e.Unmark(); b.IsKnown() && b.IsNull() {
			delete(elems, k)
		}
	}
	if len(elems) == 0 {
		return cty.MapValEmpty(a.Schema.Type.ElementType())
	}
	return cty.MapVal(elems)
}

// leak reports a secret in an attribute that would show it.
func (c *Checker) leak(n *tree.Node, a *tree.Attr, v cty.Value) {
	_, paths := v.UnmarkDeepWithPaths()
	var first cty.Path
	origin := ""
	for _, p := range paths {
		for m := range p.Marks {
			if s, ok := m.(mark.Sensitive); ok {
				if first == nil || len(p.Path) < len(first) {
					first = p.Path
				}
				if origin == "" || s.Origin != "" && s.Origin < origin {
					origin = s.Origin
				}
			}
		}
	}
	expr, where := tightest(a.Expr, first, a.Env)
	name := a.Name + where
	summary := `secret value in "` + name + `"`
	if n.Owner != "" {
		summary += `, which driver "` + n.Owner + `" does not mark as sensitive`
	}
	d := diag.Errorf(diag.SecretLeak, expr.Range(), "%s", summary)
	if n.Owner != "" {
		d.Labelf("this value would be written to session state and logs")
	} else {
		d.Labelf("this value would be shown and stored")
	}
	if r, ok := c.World.Origins[origin]; ok {
		what, _, _ := strings.Cut(origin[strings.LastIndex(origin, ".")+1:], ".")
		_ = what
		kind := "secret"
		if strings.Contains("."+origin, ".var.") {
			kind = "variable"
		}
		d.Relate(r, "%s declared here", kind)
	}
	d.Helpf("use nonsensitive(...) only when the value may be public")
	c.add(d)
}

// tightest follows a path into an expression as far as the file says its parts.
func tightest(expr hcl.Expression, path cty.Path, env *eval.Env) (hcl.Expression, string) {
	where := ""
	for _, s := range path {
		inner, name := part(expr, s, env)
		if inner == nil {
			break
		}
		expr, where = inner, where+"."+name
	}
	return expr, where
}

func part(expr hcl.Expression, s cty.PathStep, env *eval.Env) (hcl.Expression, string) {
	key := ""
	switch s := s.(type) {
	case cty.GetAttrStep:
		key = s.Name
	case cty.IndexStep:
		k, _ := s.Key.Unmark()
		switch {
		case !k.IsKnown() || k.IsNull():
			return nil, ""
		case k.Type() == cty.String:
			key = k.AsString()
		case k.Type() == cty.Number:
			i, _ := k.AsBigFloat().Int64()
			items, ds := hcl.ExprList(expr)
			if ds.HasErrors() || i < 0 || int(i) >= len(items) {
				return nil, ""
			}
			return items[i], k.AsBigFloat().String()
		}
	}
	pairs, ds := hcl.ExprMap(expr)
	if ds.HasErrors() {
		return nil, ""
	}
	for _, p := range pairs {
		v, ds := env.Value(p.Key, eval.Use{})
		k, _ := v.Unmark()
		if !ds.HasErrors() && k.IsKnown() && !k.IsNull() && k.Type() == cty.String && k.AsString() == key {
			return p.Value, key
		}
	}
	return nil, ""
}
