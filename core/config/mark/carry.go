// SPDX-License-Identifier: Apache-2.0

package mark

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/berth-dev/berth/core/config/bound"
)

// Eval evaluates an expression and keeps marks where the libraries lose them: a negation, an index, an object key or a
// loop over something unknown gives an unknown value without the marks of what it was made from, and every secret is
// unknown while a project is validated.
func Eval(e hcl.Expression, ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	v, diags := bound.Value(e, ctx)
	return carry(e, ctx, v), diags
}

// use is one name in an expression; public when it is an argument of nonsensitive.
type use struct {
	traversal hcl.Traversal
	public    bool
}

func uses(e hcl.Expression) []use {
	native, ok := e.(hclsyntax.Expression)
	if !ok {
		// Without a context a text in JSON is itself.
		v, diags := e.Value(nil)
		if !diags.HasErrors() && v.Type() == cty.String && v.IsKnown() && !v.IsNull() {
			native, diags = hclsyntax.ParseTemplate([]byte(v.AsString()), "", hcl.InitialPos)
			ok = !diags.HasErrors()
		}
	}
	if !ok {
		var out []use
		for _, t := range e.Variables() {
			out = append(out, use{traversal: t})
		}
		return out
	}
	w := &walker{}
	_ = hclsyntax.Walk(native, w)
	return w.found
}

type walker struct {
	found []use
	depth int // of calls of nonsensitive
}

func (w *walker) Enter(n hclsyntax.Node) hcl.Diagnostics {
	switch n := n.(type) {
	case *hclsyntax.FunctionCallExpr:
		if n.Name == "nonsensitive" {
			w.depth++
		}
	case *hclsyntax.ScopeTraversalExpr:
		w.found = append(w.found, use{traversal: n.Traversal, public: w.depth > 0})
	}
	return nil
}

func (w *walker) Exit(n hclsyntax.Node) hcl.Diagnostics {
	if call, ok := n.(*hclsyntax.FunctionCallExpr); ok && call.Name == "nonsensitive" {
		w.depth--
	}
	return nil
}

func carry(e hcl.Expression, ctx *hcl.EvalContext, v cty.Value) cty.Value {
	if v == cty.NilVal || ctx == nil || v.IsWhollyKnown() {
		return v
	}
	if parts, ok := carryParts(e, ctx, v); ok {
		return parts
	}
	marks := cty.ValueMarks{}
	for _, u := range uses(e) {
		from, diags := u.traversal.TraverseAbs(ctx)
		if diags.HasErrors() {
			continue
		}
		_, more := from.UnmarkDeep()
		if u.public {
			more = public(more)
		}
		for m := range more {
			marks[m] = struct{}{}
		}
	}
	if len(marks) == 0 {
		return v
	}
	out, err := cty.Transform(v, func(_ cty.Path, part cty.Value) (cty.Value, error) {
		if part.IsKnown() {
			return part, nil
		}
		return part.WithMarks(marks), nil
	})
	if err != nil {
		return v.WithMarks(marks)
	}
	return out
}

// carryParts follows what is written as an object or a list, so that one secret in it marks its own place only.
func carryParts(e hcl.Expression, ctx *hcl.EvalContext, v cty.Value) (cty.Value, bool) {
	bare, marks := v.Unmark()
	if !bare.IsKnown() || bare.IsNull() {
		return v, false
	}
	switch t := bare.Type(); {
	case t.IsObjectType():
		pairs, diags := hcl.ExprMap(e)
		if diags.HasErrors() {
			return v, false
		}
		attrs := bare.AsValueMap()
		for _, p := range pairs {
			key, diags := p.Key.Value(ctx)
			key, _ = key.Unmark()
			if diags.HasErrors() || !key.IsKnown() || key.IsNull() || key.Type() != cty.String {
				return v, false
			}
			if part, ok := attrs[key.AsString()]; ok {
				attrs[key.AsString()] = carry(p.Value, ctx, part)
			}
		}
		if len(attrs) == 0 {
			return v, true
		}
		return cty.ObjectVal(attrs).WithMarks(marks), true
	case t.IsTupleType():
		exprs, diags := hcl.ExprList(e)
		elems := bare.AsValueSlice()
		if diags.HasErrors() || len(exprs) != len(elems) {
			return v, false
		}
		if len(elems) == 0 {
			return v, true
		}
		for i, x := range exprs {
			elems[i] = carry(x, ctx, elems[i])
		}
		return cty.TupleVal(elems).WithMarks(marks), true
	}
	return v, false
}
