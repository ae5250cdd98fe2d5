// SPDX-License-Identifier: Apache-2.0

package diag

import (
	"fmt"
	"sort"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// Redacted stands where a marked value would be shown.
const Redacted = "(sensitive value)"

const mostValue = 60

// ShowValue gives a short text of a value that is safe to print: marked values are never shown, long ones are cut.
func ShowValue(v cty.Value) string {
	switch {
	case v == cty.NilVal:
		return "(no value)"
	case v.ContainsMarked():
		return Redacted
	case !v.IsKnown():
		return "(known later)"
	case v.IsNull():
		return "null"
	}
	t := v.Type()
	switch {
	case t == cty.String:
		return cutText(fmt.Sprintf("%q", v.AsString()))
	case t == cty.Number:
		return cutText(v.AsBigFloat().Text('g', -1))
	case t == cty.Bool:
		return fmt.Sprint(v.True())
	case t.IsObjectType() || t.IsMapType():
		return count(v.LengthInt(), "attribute")
	case t.IsTupleType() || t.IsListType() || t.IsSetType():
		return count(v.LengthInt(), "element")
	}
	return FriendlyType(t)
}

// FriendlyType names a type in words, with its article.
func FriendlyType(t cty.Type) string {
	switch {
	case t == cty.DynamicPseudoType:
		return "any value"
	case t == cty.String:
		return "a string"
	case t == cty.Number:
		return "a number"
	case t == cty.Bool:
		return "true or false"
	case t.IsListType(), t.IsTupleType():
		return "a list"
	case t.IsSetType():
		return "a set"
	case t.IsMapType():
		return "a map"
	case t.IsObjectType():
		return "an object"
	}
	return "another type of value"
}

func cutText(s string) string {
	r := []rune(s)
	if len(r) <= mostValue {
		return s
	}
	return string(r[:mostValue]) + ellipsis
}

// valuesOf lists the names in the failed expression with their values.
func (c Converter) valuesOf(d *hcl.Diagnostic) []Value {
	if d.Expression == nil || d.EvalContext == nil {
		return nil
	}
	seen := map[string]bool{}
	var out []Value
	for _, t := range d.Expression.Variables() {
		name := traversalText(t)
		if seen[name] {
			continue
		}
		seen[name] = true
		v, diags := t.TraverseAbs(d.EvalContext)
		if diags.HasErrors() {
			continue
		}
		text := ShowValue(v)
		if c.iterates(d, t.RootName()) {
			text = Redacted
		}
		out = append(out, Value{Name: name, Text: text})
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

// iterates reports whether a name stands for an element of a collection that may be marked. The library takes the marks
// off a collection while it goes through it and puts them on the result; until then the elements look harmless.
func (c Converter) iterates(d *hcl.Diagnostic, root string) bool {
	for ctx := d.EvalContext; ctx != nil && ctx.Parent() != nil; ctx = ctx.Parent() {
		if _, ok := ctx.Variables[root]; ok {
			return c.seesMarks(d)
		}
	}
	return false
}

// seesMarks reports whether anything around the failed expression is marked. Where that cannot be told, it is whether
// any name in scope is.
func (c Converter) seesMarks(d *hcl.Diagnostic) bool {
	root := d.EvalContext
	for root.Parent() != nil {
		root = root.Parent()
	}
	if around, ok := c.around(d); ok {
		for _, t := range around {
			v, diags := t.TraverseAbs(root)
			if !diags.HasErrors() && v.ContainsMarked() {
				return true
			}
		}
		return false
	}
	for _, v := range root.Variables {
		if v.ContainsMarked() {
			return true
		}
	}
	return false
}

// innermost finds the argument that a position is in, or the dynamic block around it, whose collection its argument
// may show.
func innermost(body *hclsyntax.Body, at hcl.Pos) hclsyntax.Node {
	for _, a := range body.Attributes {
		if a.SrcRange.ContainsPos(at) {
			return a
		}
	}
	for _, b := range body.Blocks {
		if !b.Range().ContainsPos(at) {
			continue
		}
		if b.Type == "dynamic" {
			return b
		}
		return innermost(b.Body, at)
	}
	return nil
}

// around gives every traversal in the argument, or dynamic block, that the diagnostic is in.
func (c Converter) around(d *hcl.Diagnostic) ([]hcl.Traversal, bool) {
	if d.Subject == nil || c.Files[d.Subject.Filename] == nil {
		return nil, false
	}
	body, ok := c.Files[d.Subject.Filename].Body.(*hclsyntax.Body)
	if !ok {
		return nil, false
	}
	node := innermost(body, d.Subject.Start)
	if node == nil {
		return nil, false
	}
	var out []hcl.Traversal
	_ = hclsyntax.VisitAll(node, func(n hclsyntax.Node) hcl.Diagnostics {
		if t, ok := n.(*hclsyntax.ScopeTraversalExpr); ok {
			out = append(out, t.Traversal)
		}
		return nil
	})
	return out, true
}

// hides reports whether a text of the library may quote an element of a marked collection.
func (c Converter) hides(d *hcl.Diagnostic) bool {
	if d.Expression == nil || d.EvalContext == nil {
		return false
	}
	switch d.Summary {
	case "Unknown variable", "Call to unknown function", "Unsupported attribute", "Not enough function arguments",
		"Too many function arguments":
		return false
	}
	for _, t := range d.Expression.Variables() {
		if c.iterates(d, t.RootName()) {
			return true
		}
	}
	return false
}

func traversalText(t hcl.Traversal) string {
	var b strings.Builder
	for _, step := range t {
		switch s := step.(type) {
		case hcl.TraverseRoot:
			b.WriteString(s.Name)
		case hcl.TraverseAttr:
			b.WriteString("." + s.Name)
		case hcl.TraverseIndex:
			b.WriteString("[" + ShowValue(s.Key) + "]")
		}
	}
	return b.String()
}

// redact takes every marked value that the failed expression could see out of a text of the library.
func (c Converter) redact(d *hcl.Diagnostic, text string) string {
	if d.Expression == nil || d.EvalContext == nil || text == "" {
		return text
	}
	if c.hides(d) {
		return "the reason is not shown because a value here is " + Redacted
	}
	exprs := d.Expression.Variables()
	if e, ok := d.Expression.(hclsyntax.Expression); ok {
		exprs = hclsyntax.Variables(e)
	}
	for _, t := range exprs {
		v, diags := t.TraverseAbs(d.EvalContext)
		if diags.HasErrors() {
			continue
		}
		for _, secret := range markedTexts(v) {
			text = strings.ReplaceAll(text, secret, Redacted)
			if q := strings.Trim(fmt.Sprintf("%q", secret), `"`); q != secret {
				text = strings.ReplaceAll(text, q, Redacted)
			}
		}
	}
	return text
}

// markedTexts collects the strings and numbers that are marked themselves or inside something marked.
func markedTexts(v cty.Value) []string {
	if !v.ContainsMarked() {
		return nil
	}
	plain, paths := v.UnmarkDeepWithPaths()
	var out []string
	for _, p := range paths {
		part, err := p.Path.Apply(plain)
		if err != nil {
			continue
		}
		_ = cty.Walk(part, func(_ cty.Path, leaf cty.Value) (bool, error) {
			if !leaf.IsKnown() || leaf.IsNull() {
				return false, nil
			}
			switch leaf.Type() {
			case cty.String:
				if s := leaf.AsString(); len(s) > 1 {
					out = append(out, s)
				}
			case cty.Number:
				if s := leaf.AsBigFloat().Text('f', -1); len(s) > 2 {
					out = append(out, s)
				}
			}
			return true, nil
		})
	}
	// Longer ones first, so that no tail of one is left when another is a part of it.
	sort.Slice(out, func(i, j int) bool { return len(out[i]) > len(out[j]) })
	return out
}
