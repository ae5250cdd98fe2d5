// SPDX-License-Identifier: Apache-2.0

package eval

import (
	"sort"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/json"
	"github.com/zclconf/go-cty/cty"

	"github.com/berth-dev/berth/core/config/schema"
	"github.com/berth-dev/berth/core/diag"
)

// Use says which run-time names an expression may use, and their types as far as they are known.
type Use struct {
	Run    bool
	Param  bool
	Output bool
	// Arguments describe param.
	Arguments Arguments
}

// Arguments describe the arguments of a tool call.
type Arguments struct {
	Type     cty.Type // NilType = anything
	Defaults *typeexpr.Defaults
}

func (u Use) any() bool { return u.Run || u.Param || u.Output }

// unknowns are stand-ins for the run-time names.
func (u Use) unknowns() map[string]cty.Value {
	if !u.any() {
		return nil
	}
	out := map[string]cty.Value{}
	if u.Run {
		out["run"] = cty.UnknownVal(runType())
	}
	if u.Param {
		t := u.Arguments.Type
		if t == cty.NilType {
			t = cty.DynamicPseudoType
		}
		out["param"] = cty.UnknownVal(t.WithoutOptionalAttributesDeep())
	}
	if u.Output {
		out["output"] = cty.DynamicVal
	}
	return out
}

func runType() cty.Type {
	return cty.Object(map[string]cty.Type{
		"id": cty.String, "input": cty.String, "agent": cty.String, "started_at": cty.String,
		"vars": cty.DynamicPseudoType,
		"sandbox": cty.Object(map[string]cty.Type{
			"id": cty.String, "ports": cty.Map(cty.Object(map[string]cty.Type{"url": cty.String})),
		}),
	})
}

// Check reports every name and function of an expression that does not exist or may not stand here.
func (e *Env) Check(expr hcl.Expression, use Use) diag.Diagnostics {
	var ds diag.Diagnostics
	extra := use.unknowns()
	for _, t := range expr.Variables() {
		if d := e.checkName(t, use, extra); d != nil {
			ds = append(ds, d)
		}
	}
	for _, node := range nodes(expr, 0) {
		ds = append(ds, e.checkFunctions(node, expr)...)
	}
	return ds
}

// nodes are the syntax trees of an expression: itself, or the templates in the texts of a JSON file.
func nodes(expr hcl.Expression, depth int) []hclsyntax.Node {
	if node, ok := expr.(hclsyntax.Node); ok {
		return []hclsyntax.Node{node}
	}
	if !json.IsJSONExpression(expr) || depth > maxJSONDepth {
		return nil
	}
	var out []hclsyntax.Node
	if items, ds := hcl.ExprList(expr); !ds.HasErrors() {
		for _, i := range items {
			out = append(out, nodes(i, depth+1)...)
		}
		return out
	}
	if pairs, ds := hcl.ExprMap(expr); !ds.HasErrors() {
		for _, p := range pairs {
			out = append(append(out, nodes(p.Key, depth+1)...), nodes(p.Value, depth+1)...)
		}
		return out
	}
	v, ds := expr.Value(nil)
	if ds.HasErrors() || v.IsNull() || v.Type() != cty.String || !strings.Contains(v.AsString(), "{") {
		return nil
	}
	t, ds := hclsyntax.ParseTemplate([]byte(v.AsString()), expr.Range().Filename, expr.Range().Start)
	if ds.HasErrors() {
		return nil
	}
	return []hclsyntax.Node{t}
}

const maxJSONDepth = 256

// place is where a part of an expression stands. In JSON only the whole expression's place is exact.
func place(r hcl.Range, whole hcl.Expression) hcl.Range {
	if json.IsJSONExpression(whole) {
		return whole.Range()
	}
	return r
}

func (e *Env) checkFunctions(node hclsyntax.Node, whole hcl.Expression) (ds diag.Diagnostics) {
	_ = hclsyntax.VisitAll(node, func(n hclsyntax.Node) hcl.Diagnostics {
		call, ok := n.(*hclsyntax.FunctionCallExpr)
		if !ok {
			return nil
		}
		_, known := e.Scope.Functions[call.Name]
		switch {
		case e.Scope.World.Untrusted && (e.Scope.World.HostFunctions[call.Name] || call.Name == "nonsensitive"):
			ds = append(ds, diag.Errorf(diag.FunctionUntrusted, place(call.NameRange, whole), "function %q is not allowed in an untrusted project", call.Name).
				Labelf("it would reach what the project must not"))
		case !known:
			d := diag.Errorf(diag.UnknownFunction, place(call.NameRange, whole), "no function named %q", call.Name)
			if near := diag.Suggest(call.Name, keys(e.Scope.Functions)); near != "" {
				d.Labelf("did you mean %q?", near)
			}
			ds = append(ds, d)
		case call.Name == "nonsensitive":
			e.Scope.World.Open = append(e.Scope.World.Open, place(call.NameRange, whole))
		}
		return nil
	})
	return ds
}

func (e *Env) checkName(t hcl.Traversal, use Use, extra map[string]cty.Value) *diag.Diagnostic {
	root := t.RootName()
	s := e.Scope
	switch root {
	case "var":
		return e.declared(t, "variable", "var", s.Vars)
	case "local":
		return e.declared(t, "local value", "local", s.Locals)
	case "secret":
		return e.declared(t, "secret", "secret", s.Secrets)
	case "module":
		return e.moduleName(t)
	case "path", "berth":
		return fields(t, s.context().Variables[root], t.SourceRange(), root)
	case "run":
		if !use.Run {
			return runTime(t, "run.* is known only while a run is going on, and this is read before")
		}
		return fields(t, extra["run"], t.SourceRange(), "run")
	case "param":
		if !use.Param {
			return runTime(t, "param.* are the arguments of a tool call; only the body of a tool knows them")
		}
		return fields(t, extra["param"], t.SourceRange(), root)
	case "output":
		if !use.Output {
			return runTime(t, "output is what a guardrail or agent_tool looks at; only they know it")
		}
		return nil
	}
	for _, it := range e.iters {
		if it.name == root {
			return fields(t, cty.ObjectVal(map[string]cty.Value{"key": it.key, "value": it.value}), t.SourceRange(), root)
		}
	}
	if schema.Referable(root) {
		return diag.Errorf(diag.BlockAsValue, t.SourceRange(), "a block is not a value: %q", Text(t)).
			Labelf("blocks have no readable attributes").
			Helpf("put the shared value into locals and use local.NAME in both places")
	}
	rng := t[0].SourceRange()
	d := diag.Errorf(diag.UnknownRoot, rng, "unknown name %q", root)
	if root == "each" {
		return d.Labelf("each is known only inside a dynamic block without an iterator of its own")
	}
	roots := append([]string{"var", "local", "secret", "path", "berth", "module"}, e.Iterators()...)
	roots = append(roots, keys(extra)...)
	if near := diag.Suggest(root, roots); near != "" {
		d.Labelf("did you mean %q?", near)
	} else if root == strings.ToUpper(root) {
		d.Code = diag.TemplateLikeText
		d.Labelf("this is no name of the language").Helpf("for a literal, write $${%s}", root)
	}
	return d
}

func runTime(t hcl.Traversal, why string) *diag.Diagnostic {
	return diag.Errorf(diag.RunTimeName, t.SourceRange(), "%q is not known here", Text(t)).Labelf("%s", why)
}

func (e *Env) declared(t hcl.Traversal, what, root string, decls map[string]*Decl) *diag.Diagnostic {
	name, ok := step(t, 1)
	if !ok {
		if len(t) == 1 {
			return nil // all of them, as an object
		}
		return diag.Errorf(diag.UnknownName, t.SourceRange(), "a name is needed after %q", root+".")
	}
	d := decls[name]
	rng := hcl.RangeBetween(t[0].SourceRange(), t[1].SourceRange())
	if d == nil {
		out := diag.Errorf(diag.UnknownName, rng, "no %s named %q", what, name)
		if near := diag.Suggest(name, keys(decls)); near != "" {
			out.Labelf("did you mean %s.%s?", root, near).Relate(decls[near].Range, "%s declared here", what)
		} else if len(decls) == 0 {
			out.Labelf("the project has no %ss", what)
		}
		return out
	}
	return fields(t[1:], d.Value, t.SourceRange(), what)
}

func (e *Env) moduleName(t hcl.Traversal) *diag.Diagnostic {
	if d := e.declared(t[:min(2, len(t))], "module", "module", e.Scope.Modules); d != nil || len(t) < 3 {
		return d
	}
	name, _ := step(t, 1)
	field, ok := step(t, 2)
	if ok && schema.Referable(field) {
		return diag.Errorf(diag.BlockAsValue, t.SourceRange(), "a block is not a value: %q", Text(t)).
			Labelf("blocks have no readable attributes").
			Helpf("give the value out with an output block of the module")
	}
	return fields(t[1:], e.Scope.Modules[name].Value, t.SourceRange(), "module")
}

// fields follows a traversal into the type of v and reports the first attribute that an object does not have.
func fields(t hcl.Traversal, v cty.Value, whole hcl.Range, what string) *diag.Diagnostic {
	typ := v.Type()
	known := v
	for _, s := range t[1:] {
		attr, ok := s.(hcl.TraverseAttr)
		if !ok {
			return nil
		}
		switch {
		case typ.IsObjectType():
			if !typ.HasAttribute(attr.Name) {
				names := make([]string, 0, len(typ.AttributeTypes()))
				for n := range typ.AttributeTypes() {
					names = append(names, n)
				}
				sort.Strings(names)
				d := diag.Errorf(diag.UnknownField, whole, "no attribute named %q here", attr.Name)
				if near := diag.Suggest(attr.Name, names); near != "" {
					d.Labelf("did you mean %q?", near)
				} else if len(names) > 0 {
					d.Labelf("there is: %s", strings.Join(names, ", "))
				}
				return d
			}
			typ = typ.AttributeType(attr.Name)
			known = attribute(known, attr.Name)
			if typ == cty.DynamicPseudoType && known != cty.NilVal && known.IsKnown() {
				typ = known.Type()
			}
		case typ.IsMapType():
			typ, known = typ.ElementType(), cty.NilVal
		case typ.IsPrimitiveType():
			d := diag.Errorf(diag.UnknownField, whole, "no attribute named %q here", attr.Name).
				Labelf("this is %s, which has no attributes", diag.FriendlyType(typ))
			if what == "secret" {
				d.Helpf("a secret with format = \"json\" or \"dotenv\" has attributes")
			}
			return d
		default:
			return nil
		}
	}
	return nil
}

func attribute(v cty.Value, name string) cty.Value {
	if v == cty.NilVal {
		return v
	}
	bare, _ := v.Unmark()
	if !bare.IsKnown() || bare.IsNull() || !bare.Type().IsObjectType() || !bare.Type().HasAttribute(name) {
		return cty.NilVal
	}
	return bare.GetAttr(name)
}

func step(t hcl.Traversal, i int) (string, bool) {
	if i >= len(t) {
		return "", false
	}
	switch s := t[i].(type) {
	case hcl.TraverseAttr:
		return s.Name, true
	case hcl.TraverseIndex:
		k, _ := s.Key.Unmark()
		if k.Type() == cty.String && k.IsKnown() && !k.IsNull() {
			return k.AsString(), true
		}
	}
	return "", false
}

// Text writes a traversal as in the file.
func Text(t hcl.Traversal) string {
	var b strings.Builder
	for _, s := range t {
		switch s := s.(type) {
		case hcl.TraverseRoot:
			b.WriteString(s.Name)
		case hcl.TraverseAttr:
			b.WriteString("." + s.Name)
		case hcl.TraverseIndex:
			b.WriteString("[...]")
		}
	}
	return b.String()
}

func keys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}
