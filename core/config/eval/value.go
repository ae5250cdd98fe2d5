// SPDX-License-Identifier: Apache-2.0

package eval

import (
	"context"
	"fmt"
	"maps"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/berth-dev/berth/core/config/mark"
	"github.com/berth-dev/berth/core/diag"
)

// Value checks and evaluates an expression. With errors the value is unknown.
func (e *Env) Value(expr hcl.Expression, use Use) (cty.Value, diag.Diagnostics) {
	if v, ok := literal(expr); ok {
		return v, nil
	}
	if ds := e.Check(expr, use); ds.HasErrors() {
		return cty.DynamicVal, ds
	}
	v, found := mark.Eval(expr, e.context(use.unknowns()))
	if found.HasErrors() {
		return cty.DynamicVal, e.Scope.World.convert(found, e.Scope)
	}
	return v, nil
}

// literal is the short way for what most attributes are: a text, number or bool without any expression.
func literal(expr hcl.Expression) (cty.Value, bool) {
	switch x := expr.(type) {
	case *hclsyntax.LiteralValueExpr:
		return x.Val, true
	case *hclsyntax.TemplateExpr:
		if len(x.Parts) == 1 {
			if l, ok := x.Parts[0].(*hclsyntax.LiteralValueExpr); ok && l.Val.Type() == cty.String {
				return l.Val, true
			}
		}
	}
	return cty.NilVal, false
}

// convert turns the library's diagnostics of evaluation into ours.
func (w *World) convert(in hcl.Diagnostics, s *Scope) diag.Diagnostics {
	return diag.Converter{
		Files: w.Sources.Files, Functions: keys(s.Functions),
		Names: []string{"var", "local", "secret", "path", "berth", "module", "each", "run", "param", "output"},
	}.Convert(in)
}

// Reveal evaluates an expression with the secrets that it needs. Marks are taken off, and what they covered joins the
// redaction set.
func (e *Env) Reveal(ctx context.Context, expr hcl.Expression, extra map[string]cty.Value) (cty.Value, error) {
	known := map[string]cty.Value{}
	v, found := mark.Eval(expr, e.context(extra))
	if found.HasErrors() {
		return cty.NilVal, e.Scope.World.convert(found, e.Scope).Err()
	}
	for {
		missing, err := e.Scope.World.resolve(ctx, v, known)
		if err != nil {
			return cty.NilVal, err
		}
		if !missing {
			break
		}
		v, err = (&resolution{known: known, memo: map[*Decl]cty.Value{}}).value(e, expr, extra)
		if err != nil {
			return cty.NilVal, err
		}
	}
	e.Scope.World.Learn(v)
	bare, _ := v.UnmarkDeep()
	if !bare.IsWhollyKnown() {
		return cty.NilVal, fmt.Errorf("%s: the value is not known even now", expr.Range())
	}
	return bare, nil
}

// resolve fetches the secrets that v is marked with and that are not known yet; it reports whether there were any.
func (w *World) resolve(ctx context.Context, v cty.Value, known map[string]cty.Value) (bool, error) {
	var need []string
	for _, o := range mark.Needs(v) {
		if _, ok := known[o]; !ok && w.Secrets[o] != nil {
			need = append(need, o)
		}
	}
	if len(need) == 0 {
		return false, nil
	}
	got, err := w.ResolveAll(ctx, need)
	if err != nil {
		return false, err
	}
	maps.Copy(known, got)
	return true, nil
}

// Learn adds what is sensitive in v to the redaction set.
func (w *World) Learn(v cty.Value) {
	if w.Redact == nil || !v.ContainsMarked() {
		return
	}
	bare, paths := v.UnmarkDeepWithPaths()
	for _, p := range paths {
		for m := range p.Marks {
			if _, ok := m.(mark.Sensitive); !ok {
				continue
			}
			part, err := p.Path.Apply(bare)
			if err != nil {
				continue
			}
			w.learnTexts(part)
		}
	}
}

func (w *World) learnTexts(v cty.Value) {
	_ = cty.Walk(v, func(_ cty.Path, leaf cty.Value) (bool, error) {
		if leaf.IsKnown() && !leaf.IsNull() && leaf.Type() == cty.String {
			w.Redact.Add(leaf.AsString())
		}
		return leaf.IsKnown(), nil
	})
}

// element finds the value of a round again; old when it is not there.
func element(coll, key, old cty.Value) cty.Value {
	bare, marks := coll.Unmark()
	if !bare.IsKnown() || bare.IsNull() {
		return old
	}
	t := bare.Type()
	switch {
	case t.IsObjectType() && t.HasAttribute(key.AsString()):
		return bare.GetAttr(key.AsString()).WithMarks(marks)
	case t.IsMapType(), t.IsListType(), t.IsTupleType():
		if bare.HasIndex(key).True() {
			return bare.Index(key).WithMarks(marks)
		}
	}
	return old
}

func convertKeepingMarks(v cty.Value, t cty.Type) cty.Value {
	if t == cty.NilType {
		return v
	}
	out, err := convert.Convert(v, t)
	if err != nil {
		return v
	}
	return out
}
