// SPDX-License-Identifier: Apache-2.0

package check

import (
	"sort"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/json"
	"github.com/zclconf/go-cty/cty"

	"github.com/berth-dev/berth/core/config/eval"
	"github.com/berth-dev/berth/core/config/schema"
	"github.com/berth-dev/berth/core/config/tree"
	"github.com/berth-dev/berth/core/diag"
)

// Registry holds every block that references can name.
type Registry struct {
	nodes map[string]*tree.Node // scope key + "/" + "agent.coder"
	names map[string][]string   // the same by scope and kind
	// Modules are the scopes of the modules of a scope, by name.
	modules map[string]map[string]string
}

// NewRegistry makes an empty registry.
func NewRegistry() *Registry {
	return &Registry{nodes: map[string]*tree.Node{}, names: map[string][]string{}, modules: map[string]map[string]string{}}
}

// Add registers a node of a scope; it gives the node that has the name already, if any.
func (r *Registry) Add(scope string, n *tree.Node) *tree.Node {
	key := scope + "/" + n.Key()
	if old := r.nodes[key]; old != nil {
		return old
	}
	r.nodes[key] = n
	r.names[scope+"/"+n.Type] = append(r.names[scope+"/"+n.Type], n.Key())
	return nil
}

// Replace puts a merged node in place of the one that was registered.
func (r *Registry) Replace(scope string, n *tree.Node) { r.nodes[scope+"/"+n.Key()] = n }

// AddModule makes the blocks of another scope reachable by module.NAME.
func (r *Registry) AddModule(scope, name, inner string) {
	if r.modules[scope] == nil {
		r.modules[scope] = map[string]string{}
	}
	r.modules[scope][name] = inner
}

// Find gives the node of a key such as "agent.coder".
func (r *Registry) Find(scope, key string) *tree.Node { return r.nodes[scope+"/"+key] }

// Names lists the keys of a kind, sorted.
func (r *Registry) Names(scope, kind string) []string {
	out := append([]string(nil), r.names[scope+"/"+kind]...)
	sort.Strings(out)
	return out
}

// reference resolves a reference attribute.
func (c *Checker) reference(n *tree.Node, a *tree.Attr) {
	kind := a.Schema.Refs[0]
	expr := a.Expr
	if isNull(expr) {
		a.Null = true
		return
	}
	if a.Schema.Kind != schema.Refs {
		if a.Schema.Kind == schema.RefOrString && !refers(expr, kind) {
			c.value(n, a)
			return
		}
		if t := c.Resolve(expr, a.Env.Scope.Module, kind); t != nil {
			a.Targets = []*tree.Node{t}
		}
		return
	}
	items, ds := hcl.ExprList(expr)
	if ds.HasErrors() {
		d := diag.Errorf(diag.ReferenceNeeded, expr.Range(), "%q needs a list of references", a.Name).
			Labelf("write [%s]", form(kind))
		if t, found := Traversal(expr); found {
			d.Label = "write [" + eval.Text(t) + "]"
		}
		c.add(d)
		return
	}
	seen := map[*tree.Node]hcl.Range{}
	for _, item := range items {
		t := c.Resolve(item, a.Env.Scope.Module, kind)
		if t == nil {
			continue
		}
		if first, twice := seen[t]; twice {
			c.add(diag.Warnf(diag.DuplicateName, item.Range(), "%s is named twice", t.Key()).Labelf("once is enough").Relate(first, "first here"))
			continue
		}
		seen[t] = item.Range()
		a.Targets = append(a.Targets, t)
	}
}

func isNull(expr hcl.Expression) bool {
	if l, ok := expr.(*hclsyntax.LiteralValueExpr); ok {
		return l.Val.IsNull()
	}
	if !json.IsJSONExpression(expr) {
		return false
	}
	v, ds := expr.Value(nil)
	return !ds.HasErrors() && v.IsKnown() && v.IsNull()
}

// refers reports whether an attribute that takes a reference or a text has a reference.
func refers(expr hcl.Expression, kind string) bool {
	if !json.IsJSONExpression(expr) {
		switch x := expr.(type) {
		case *hclsyntax.ScopeTraversalExpr:
			root := x.Traversal.RootName()
			return root == kind || root == "module" && len(x.Traversal) > 2 && field(x.Traversal, 2) == kind || schema.Referable(root)
		}
		return false
	}
	t, ok := Traversal(expr)
	return ok && (t.RootName() == kind || t.RootName() == "module" && len(t) > 2 && field(t, 2) == kind)
}

func field(t hcl.Traversal, i int) string {
	if i < len(t) {
		if a, ok := t[i].(hcl.TraverseAttr); ok {
			return a.Name
		}
	}
	return ""
}

// Traversal gives the static path of an expression: a bare one, or in JSON a text with it, with or without "${ }".
func Traversal(expr hcl.Expression) (hcl.Traversal, bool) {
	if json.IsJSONExpression(expr) {
		v, ds := expr.Value(nil)
		if ds.HasErrors() || v.IsNull() || v.Type() != cty.String {
			return nil, false
		}
		text := v.AsString()
		if inner, ok := strings.CutPrefix(text, "${"); ok {
			if inner, ok = strings.CutSuffix(inner, "}"); ok {
				text = strings.TrimSpace(inner)
			}
		}
		t, ds := hclsyntax.ParseTraversalAbs([]byte(text), expr.Range().Filename, expr.Range().Start)
		return t, !ds.HasErrors()
	}
	if w, ok := expr.(*hclsyntax.TemplateWrapExpr); ok {
		expr = w.Wrapped
	}
	t, ds := hcl.AbsTraversalForExpr(expr)
	return t, !ds.HasErrors()
}

// Resolve follows a reference; nil after an error.
func (c *Checker) Resolve(expr hcl.Expression, scope, kind string) *tree.Node {
	rng := expr.Range()
	t, ok := Traversal(expr)
	if !ok {
		c.add(c.notReference(expr, scope, kind))
		return nil
	}
	for _, s := range t[1:] {
		if _, plain := s.(hcl.TraverseAttr); !plain {
			c.add(diag.Errorf(diag.IndexInReference, rng, "a reference has no index").
				Labelf("name the %s itself: %s", kind, form(kind)))
			return nil
		}
	}
	parts := make([]string, 0, len(t))
	for i := range t {
		if i == 0 {
			parts = append(parts, t.RootName())
		} else {
			parts = append(parts, field(t, i))
		}
	}
	written := strings.Join(parts, ".")
	for parts[0] == "module" {
		inner, d := c.intoModule(parts, scope, rng, kind)
		if d != nil {
			c.add(d)
			return nil
		}
		scope, parts = inner, parts[2:]
	}
	if !schema.Referable(parts[0]) {
		d := diag.Errorf(diag.ReferenceNeeded, rng, "a reference to a %s is needed here", spoken(kind)).Labelf("write %s", form(kind))
		if parts[0] == "var" || parts[0] == "local" {
			d.Notef("references are static: they cannot come from variables or locals")
		} else if near := diag.Suggest(parts[0], schema.Kinds()); near != "" {
			d.Labelf("did you mean %q?", near)
		}
		c.add(d)
		return nil
	}
	key := strings.Join(parts, ".")
	if found := c.Registry.Find(scope, key); found != nil {
		if parts[0] != kind {
			c.add(diag.Errorf(diag.WrongReference, rng, "reference to %s where %s is needed", article(parts[0]), article(kind)).
				Labelf("this is %s, %s is needed", article(parts[0]), article(kind)).Relate(found.Header, "declared here"))
			return nil
		}
		return found
	}
	c.add(c.nothing(rng, written, scope, parts))
	return nil
}

func (c *Checker) intoModule(parts []string, scope string, rng hcl.Range, kind string) (string, *diag.Diagnostic) {
	if len(parts) < 3 {
		return "", diag.Errorf(diag.ReferenceNeeded, rng, "a module is no %s", spoken(kind)).
			Labelf("write module.NAME.%s", form(kind))
	}
	inner, ok := c.Registry.modules[scope][parts[1]]
	if ok {
		return inner, nil
	}
	d := diag.Errorf(diag.NoSuchBlock, rng, "no module named %q", parts[1])
	var names []string
	for n := range c.Registry.modules[scope] {
		names = append(names, n)
	}
	sort.Strings(names)
	if near := diag.Suggest(parts[1], names); near != "" {
		d.Labelf("did you mean module.%s?", near)
	}
	return "", d
}

// nothing reports a reference to a block that is not there.
func (c *Checker) nothing(rng hcl.Range, written, scope string, parts []string) *diag.Diagnostic {
	key := strings.Join(parts, ".")
	have := c.Registry.Names(scope, parts[0])
	d := diag.Errorf(diag.NoSuchBlock, rng, "no %s named %q", spoken(parts[0]), strings.Join(parts[1:], "."))
	prefix := strings.TrimSuffix(written, key)
	near := diag.Suggest(key, have)
	if last := parts[len(parts)-1]; !has(lastOf(have), last) && diag.Suggest(last, lastOf(have)) == "" {
		near = "" // the kind alone makes keys look alike
	}
	switch {
	case near != "":
		d.Labelf("did you mean %s%s?", prefix, near).Relate(c.Registry.Find(scope, near).Header, "declared here")
	case len(have) == 0:
		d.Labelf("there is no %s block", parts[0])
	case len(have) <= 6:
		d.Labelf("there is: %s", strings.Join(have, ", "))
	}
	return d
}

func lastOf(keys []string) []string {
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = k[strings.LastIndex(k, ".")+1:]
	}
	return out
}

// notReference reports a text or an expression where a reference is needed.
func (c *Checker) notReference(expr hcl.Expression, scope, kind string) *diag.Diagnostic {
	d := diag.Errorf(diag.ReferenceNeeded, expr.Range(), "a reference is needed here, not a quoted string or an expression")
	if v, ok := quotedText(expr); ok {
		key := v
		if !strings.HasPrefix(v, kind+".") {
			key = kind + "." + v
		}
		if n := c.Registry.Find(scope, key); n != nil {
			return d.Labelf("write %s without quotes", key).Relate(n.Header, "declared here")
		}
	}
	return d.Labelf("write a reference such as %s", form(kind))
}

func quotedText(expr hcl.Expression) (string, bool) {
	v, ds := expr.Value(nil)
	if ds.HasErrors() || !v.IsKnown() || v.IsNull() || v.Type() != cty.String {
		return "", false
	}
	return v.AsString(), true
}

// form is how a reference to a kind is written.
func form(kind string) string {
	for _, b := range schema.Root().Blocks {
		if b.Type == kind {
			var f strings.Builder
			f.WriteString(kind)
			for _, l := range b.Labels {
				f.WriteString("." + strings.ToUpper(l.Name))
			}
			return f.String()
		}
	}
	return kind + ".NAME"
}

// spoken is a kind in words.
func spoken(kind string) string { return strings.ReplaceAll(kind, "_", " ") }

func article(kind string) string {
	s := spoken(kind)
	if kind == "mcp_server" || strings.ContainsRune("aeio", rune(s[0])) {
		return "an " + s
	}
	return "a " + s
}
