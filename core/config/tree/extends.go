// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"strings"

	"github.com/berth-dev/berth/core/config/schema"
	"github.com/berth-dev/berth/core/diag"
)

// Merge lays child over parent: attributes of the child replace those of the parent, maps are merged by key, single
// blocks are merged, labelled blocks are merged by their labels. Neither is changed.
func (b *Builder) Merge(child, parent *Node) *Node {
	out := *child
	out.Parent = parent
	out.Attrs = mergeAttrs(child, parent)
	base := b.without(parent, child)
	out.Blocks = mergeBlocks(child, base, b)
	if len(child.Misspelt) == 0 {
		out.Misspelt = parent.Misspelt
	}
	return &out
}

func mergeAttrs(child, parent *Node) map[string]*Attr {
	out := make(map[string]*Attr, len(child.Attrs)+len(parent.Attrs))
	for name, a := range parent.Attrs {
		if name != "extends" && name != "remove" && !displaced(child, name) {
			out[name] = a
		}
	}
	for name, a := range child.Attrs {
		if base := out[name]; base != nil && a.Schema.Kind == schema.Value && a.Schema.Type.IsMapType() {
			over := *a
			over.Base = base
			a = &over
		}
		out[name] = a
	}
	return out
}

// displaced reports whether the child says another member of a group of which only one may be said.
func displaced(child *Node, name string) bool {
	for _, groups := range [][][]string{child.Body.ExactlyOne, child.Body.AtMostOne} {
		for _, g := range groups {
			if !has(g, name) {
				continue
			}
			for _, other := range g {
				if other != name && (child.Attrs[other] != nil || child.Block(other) != nil) {
					return true
				}
			}
		}
	}
	return false
}

func mergeBlocks(child *Node, base []*Node, b *Builder) []*Node {
	var out []*Node
	used := map[*Node]bool{}
	for _, p := range base {
		if displaced(child, p.Type) {
			continue
		}
		c := counterpart(child, p)
		switch {
		case c == nil && replaced(child, p):
		case c == nil:
			out = append(out, p)
		case p.Body != c.Body && p.Body.Driver == "" && c.Raw == nil && !sameLabels(p, c):
			used[c] = true
			out = append(out, c)
		default:
			used[c] = true
			out = append(out, b.merge(c, p))
		}
	}
	var own []*Node
	for _, c := range child.Blocks {
		if !used[c] {
			own = append(own, c)
		}
	}
	if prepend(child) {
		return append(own, out...)
	}
	return append(out, own...)
}

// merge merges two blocks of one type inside an extended one.
func (b *Builder) merge(child, parent *Node) *Node {
	if child.Raw != nil && child.Unchecked || parent.Raw != nil && parent.Unchecked || child.Owner != parent.Owner {
		return child
	}
	out := *child
	out.Attrs = mergeAttrs(child, parent)
	out.Blocks = mergeBlocks(child, parent.Blocks, b)
	return &out
}

// counterpart is the child's block that a block of the parent is merged with: the one with the same labels, or the
// only one.
func counterpart(child, p *Node) *Node {
	for _, c := range child.Blocks {
		if c.Type != p.Type {
			continue
		}
		if p.Schema.Max == 1 || len(p.Labels) > 0 && sameLabels(c, p) {
			return c
		}
	}
	return nil
}

// replaced reports whether the child has blocks without labels that stand for all of the parent's.
func replaced(child, p *Node) bool { return len(p.Labels) == 0 && child.Block(p.Type) != nil }

func sameLabels(a, b *Node) bool {
	return strings.Join(a.Labels, "\x00") == strings.Join(b.Labels, "\x00")
}

// prepend reports whether the child's rules come before the parent's.
func prepend(n *Node) bool {
	a := n.Attrs["rules"]
	if n.Type != "approvals" || a == nil {
		return false
	}
	v, ds := a.Env.Value(a.Expr, a.Use)
	bare, _ := v.Unmark()
	return !ds.HasErrors() && bare.IsKnown() && !bare.IsNull() && diag.ShowValue(bare) == `"prepend"`
}

// without gives the parent's blocks without those that the child removes.
func (b *Builder) without(parent, child *Node) []*Node {
	a := child.Attrs["remove"]
	if a == nil {
		return parent.Blocks
	}
	v, ds := a.Env.Value(a.Expr, a.Use)
	if ds.HasErrors() || !v.CanIterateElements() || v.IsMarked() {
		return parent.Blocks // reported when the attribute is checked
	}
	gone := map[string]bool{}
	var names []string
	for _, p := range parent.Blocks {
		names = append(names, p.Key())
	}
	for it := v.ElementIterator(); it.Next(); {
		_, e := it.Element()
		bare, _ := e.Unmark()
		if !bare.IsKnown() || bare.IsNull() || bare.Type().FriendlyName() != "string" {
			continue
		}
		name := bare.AsString()
		gone[name] = true
		if !has(names, name) {
			d := diag.Errorf(diag.ExtendsProblem, a.Expr.Range(), "%s has no block %q to remove", parent.Key(), name)
			if near := diag.Suggest(name, names); near != "" {
				d.Labelf("did you mean %q?", near)
			}
			b.Diags = append(b.Diags, d.Relate(parent.Header, "the parent"))
		}
	}
	var out []*Node
	for _, p := range parent.Blocks {
		if !gone[p.Key()] {
			out = append(out, p)
		}
	}
	return out
}
