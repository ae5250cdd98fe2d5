// SPDX-License-Identifier: Apache-2.0

// Package bound keeps the evaluation of an expression within bounds of time and memory. A few loops in one another, or
// a text that is made of itself a few times, are enough to fill any machine, and a project may come from a stranger.
package bound

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// What one evaluation may make.
const (
	mostRounds = 250_000  // of all its loops together
	mostText   = 64 << 20 // bytes that its loops and templates put together
)

// What one value may hold.
const (
	MostText     = 16 << 20 // bytes of all its texts
	MostElements = 1_000_000
)

// budget is what is left of one evaluation.
type budget struct{ rounds, text atomic.Int64 }

// name is no identifier, so that no expression can use it.
const name = "\x00budget"

var capsule = cty.Capsule("budget", reflect.TypeFor[budget]())

// Value evaluates an expression whose file went through Prepare.
func Value(e hcl.Expression, ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	if ctx == nil {
		return e.Value(nil)
	}
	b := &budget{}
	b.rounds.Store(mostRounds)
	b.text.Store(mostText)
	child := ctx.NewChild()
	child.Variables = map[string]cty.Value{name: cty.CapsuleVal(capsule, b)}
	if _, native := e.(hclsyntax.Expression); !native && loops(e) {
		return fromJSON(e, child)
	}
	v, diags := e.Value(child)
	if diags.HasErrors() {
		return v, diags
	}
	if err := CheckSize(v); err != nil {
		return cty.DynamicVal, append(diags, tooMuch(e.Range(), err.Error())...)
	}
	return v, diags
}

// CheckSize refuses values that are too big to work with.
func CheckSize(v cty.Value) error {
	var text, elements int
	return cty.Walk(v, func(_ cty.Path, leaf cty.Value) (bool, error) {
		leaf, _ = leaf.Unmark()
		if !leaf.IsKnown() || leaf.IsNull() {
			return false, nil
		}
		elements++
		if leaf.Type() == cty.String {
			text += len(leaf.AsString())
		}
		switch {
		case text > MostText:
			return false, fmt.Errorf("the result has more than %d MiB of text", MostText>>20)
		case elements > MostElements:
			return false, fmt.Errorf("the result has more than %d elements", MostElements)
		}
		return true, nil
	})
}

// Prepare makes the loops and templates of a native body count. It must come before anything is evaluated.
func Prepare(body hcl.Body) {
	if b, ok := body.(*hclsyntax.Body); ok {
		prepare(b)
	}
}

func prepare(n hclsyntax.Node) {
	_ = hclsyntax.Walk(n, preparer{})
}

type preparer struct{}

func (preparer) Enter(hclsyntax.Node) hcl.Diagnostics { return nil }

// Exit changes a node when what is inside it has been seen.
func (preparer) Exit(n hclsyntax.Node) hcl.Diagnostics {
	switch n := n.(type) {
	case *hclsyntax.ForExpr:
		n.ValExpr = count(n.ValExpr)
		if n.CondExpr != nil {
			n.CondExpr = count(n.CondExpr)
		}
	case *hclsyntax.TemplateExpr:
		for i, p := range n.Parts {
			if _, literal := p.(*hclsyntax.LiteralValueExpr); !literal {
				n.Parts[i] = count(p)
			}
		}
	}
	return nil
}

// counted is an expression that counts. It looks like parentheses, so that whoever walks over the tree sees what is
// inside.
type counted struct{ *hclsyntax.ParenthesesExpr }

func count(e hclsyntax.Expression) hclsyntax.Expression {
	if _, ok := e.(counted); ok {
		return e
	}
	return counted{&hclsyntax.ParenthesesExpr{Expression: e, SrcRange: e.Range()}}
}

// Value counts and evaluates.
func (c counted) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	b := find(ctx)
	if b == nil {
		return c.Expression.Value(ctx)
	}
	switch left := b.rounds.Add(-1); {
	case left == -1:
		return cty.DynamicVal, tooMuch(c.Range(), fmt.Sprintf("its loops have more than %d rounds", mostRounds))
	case left < 0:
		return cty.DynamicVal, nil
	}
	v, diags := c.Expression.Value(ctx)
	if bare, _ := v.Unmark(); bare.Type() == cty.String && bare.IsKnown() && !bare.IsNull() {
		n := int64(len(bare.AsString()))
		if left := b.text.Add(-n); left < 0 {
			b.rounds.Store(math.MinInt64 / 2)
			if left+n >= 0 {
				diags = append(diags, tooMuch(c.Range(), fmt.Sprintf("it makes more than %d MiB of text", mostText>>20))...)
			}
			return cty.DynamicVal, diags
		}
	}
	return v, diags
}

func tooMuch(at hcl.Range, why string) hcl.Diagnostics {
	return hcl.Diagnostics{{
		Severity: hcl.DiagError, Summary: "Expression makes too much", Detail: "This cannot be evaluated: " + why + ".", Subject: &at,
	}}
}

func find(ctx *hcl.EvalContext) *budget {
	for ; ctx != nil; ctx = ctx.Parent() {
		if v, ok := ctx.Variables[name]; ok {
			b, _ := v.EncapsulatedValue().(*budget)
			return b
		}
	}
	return nil
}

// loops reports whether a text in JSON holds loops or many templates. The library parses it again for
// each evaluation, so that it cannot be prepared.
func loops(e hcl.Expression) bool {
	if list, diags := hcl.ExprList(e); !diags.HasErrors() {
		return slices.ContainsFunc(list, loops)
	}
	if pairs, diags := hcl.ExprMap(e); !diags.HasErrors() {
		for _, p := range pairs {
			if loops(p.Key) || loops(p.Value) {
				return true
			}
		}
		return false
	}
	s, ok := raw(e)
	return ok && (strings.Contains(s, "for") || strings.Count(s, "{") > 16)
}

// raw is a text in JSON as it stands there.
func raw(e hcl.Expression) (string, bool) {
	v, diags := e.Value(nil)
	if diags.HasErrors() || v.Type() != cty.String || v.IsNull() || !v.IsKnown() {
		return "", false
	}
	return v.AsString(), true
}

// fromJSON evaluates as the library does, with templates that count.
func fromJSON(e hcl.Expression, ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	if list, diags := hcl.ExprList(e); !diags.HasErrors() {
		vals := make([]cty.Value, len(list))
		var all hcl.Diagnostics
		for i, x := range list {
			v, diags := fromJSON(x, ctx)
			vals[i], all = v, append(all, diags...)
		}
		return cty.TupleVal(vals), all
	}
	if _, diags := hcl.ExprMap(e); !diags.HasErrors() {
		return fromObject(e, ctx)
	}
	s, ok := raw(e)
	if !ok {
		return e.Value(ctx)
	}
	start := e.Range().Start
	start.Byte++
	start.Column++
	x, diags := hclsyntax.ParseTemplate([]byte(s), e.Range().Filename, start)
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	prepare(x)
	v, more := x.Value(ctx)
	return v, append(diags, more...)
}

func fromObject(e hcl.Expression, ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	pairs, all := hcl.ExprMap(e)
	attrs := map[string]cty.Value{}
	var marks []cty.ValueMarks
	for _, p := range pairs {
		k, diags := fromJSON(p.Key, ctx)
		all = append(all, diags...)
		v, diags := fromJSON(p.Value, ctx)
		all = append(all, diags...)
		k, keyMarks := k.Unmark()
		marks = append(marks, keyMarks)
		if k.Type() != cty.String || !k.IsKnown() || k.IsNull() {
			return cty.DynamicVal.WithMarks(marks...), all
		}
		attrs[k.AsString()] = v
	}
	return cty.ObjectVal(attrs).WithMarks(marks...), all
}
