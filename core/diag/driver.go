// SPDX-License-Identifier: Apache-2.0

package diag

import (
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// FromDriver turns a driver's findings about a configuration body into ours. Each points at the attribute that its path
// names, or at the header of the body when the file does not say that attribute.
func FromDriver(name string, in []driver.Diagnostic, body hcl.Body, header hcl.Range) Diagnostics {
	var out Diagnostics
	for _, d := range in {
		n := &Diagnostic{
			Severity: Error,
			Code:     DriverFinding,
			Summary:  strings.TrimRight(lowerFirst(d.Summary), "."),
			Subject:  PathRange(body, d.Path, header),
			URL:      d.URL,
		}
		if d.Warning {
			n.Severity = Warning
		}
		if d.Detail != "" {
			n.Notes = append(n.Notes, d.Detail)
		}
		n.Notes = append(n.Notes, "this comes from the driver \""+name+"\"")
		out = append(out, n)
	}
	return out
}

// PathRange finds the tightest range for a path into a body: an attribute, a block, or an element inside an
// attribute's expression. What the file does not say is where its parent is said; in the end that is the header.
func PathRange(body hcl.Body, path driver.Path, header hcl.Range) hcl.Range {
	if len(path) == 0 || body == nil {
		return header
	}
	native, ok := body.(*hclsyntax.Body)
	if !ok {
		attrs, _ := body.JustAttributes()
		if a := attrs[path[0].Attribute]; a != nil {
			return exprRange(a.Expr, path[1:])
		}
		return header
	}
	if a := native.Attributes[path[0].Attribute]; a != nil {
		return exprRange(a.Expr, path[1:])
	}
	var same []*hclsyntax.Block
	for _, b := range native.Blocks {
		switch {
		case b.Type == path[0].Attribute:
			same = append(same, b)
		case b.Type == "dynamic" && len(b.Labels) > 0 && b.Labels[0] == path[0].Attribute:
			return b.DefRange()
		}
	}
	b, rest := pickBlock(same, path[1:])
	if b == nil {
		return header
	}
	return PathRange(b.Body, rest, b.DefRange())
}

// pickBlock follows the step behind a block's type: an index, or the block's label.
func pickBlock(same []*hclsyntax.Block, rest driver.Path) (*hclsyntax.Block, driver.Path) {
	if len(same) == 0 {
		return nil, nil
	}
	if len(rest) == 0 {
		return same[0], nil
	}
	switch step := rest[0]; {
	case step.Index != nil:
		if i := *step.Index; i >= 0 && i < int64(len(same)) {
			return same[i], rest[1:]
		}
		return same[0], nil
	case step.Key != "":
		for _, b := range same {
			if len(b.Labels) > 0 && b.Labels[0] == step.Key {
				return b, rest[1:]
			}
		}
		return same[0], nil
	}
	return same[0], rest
}

func exprRange(e hcl.Expression, path driver.Path) hcl.Range {
	for _, step := range path {
		inner := exprStep(e, step)
		if inner == nil {
			break
		}
		e = inner
	}
	return e.Range()
}

func exprStep(e hcl.Expression, step errs.PathStep) hcl.Expression {
	if step.Index != nil {
		list, diags := hcl.ExprList(e)
		if i := *step.Index; !diags.HasErrors() && i >= 0 && i < int64(len(list)) {
			return list[i]
		}
		return nil
	}
	key := step.Key
	if key == "" {
		key = step.Attribute
	}
	pairs, diags := hcl.ExprMap(e)
	if diags.HasErrors() {
		return nil
	}
	for _, p := range pairs {
		v, diags := p.Key.Value(nil)
		if !diags.HasErrors() && v.IsKnown() && !v.IsNull() && !v.IsMarked() && v.Type() == cty.String && v.AsString() == key {
			return p.Value
		}
	}
	return nil
}
