// SPDX-License-Identifier: Apache-2.0

// Package show writes a loaded project as it will really be used: merged, with `extends` and dynamic blocks done and
// defaults filled in. What it writes can be read again and gives the same project. Sensitive values stay expressions.
package show

import (
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/berth-dev/berth/core/config/eval"
	"github.com/berth-dev/berth/core/config/load"
	"github.com/berth-dev/berth/core/config/mark"
	"github.com/berth-dev/berth/core/config/schema"
	"github.com/berth-dev/berth/core/config/tree"
	"github.com/berth-dev/berth/core/config/vars"
	"github.com/berth-dev/berth/core/diag"
)

// Options say what to write.
type Options struct {
	JSON   bool
	Origin bool   // where each line comes from
	Block  string // only this block, such as "agent.coder"; empty = all
}

// Project writes a loaded project.
func Project(res *load.Result, opt Options) (string, error) {
	s := &shower{res: res, opt: opt, locals: map[string]bool{}, vars: map[string]bool{}}
	blocks := s.project()
	if opt.Block != "" {
		var only []*block
		for _, b := range blocks {
			if b.key() == opt.Block {
				only = append(only, b)
			}
		}
		if len(only) == 0 {
			return "", fmt.Errorf("no block %q; write it as KIND.NAME, such as agent.coder", opt.Block)
		}
		blocks = only
	}
	var out string
	if opt.JSON {
		var err error
		if out, err = writeJSON(blocks, opt.Origin); err != nil {
			return "", err
		}
	} else {
		out = writeHCL(blocks, opt.Origin)
		if opt.Origin && opt.Block == "" {
			out = s.origins() + out
		}
	}
	return res.World.Redact.String(out), nil
}

// origins says in comments where the value of each variable comes from.
func (s *shower) origins() string {
	names := make([]string, 0, len(s.res.Root.Values))
	for n := range s.res.Root.Values {
		names = append(names, n)
	}
	sort.Strings(names)
	var b strings.Builder
	for _, n := range names {
		v := s.res.Root.Values[n]
		from := v.Origin
		if v.Range.Filename != "" && from != "default" {
			from = place(v.Range)
		}
		fmt.Fprintf(&b, "# var.%s = %s, from %s\n", n, diag.ShowValue(v.Value), from)
	}
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
	return b.String()
}

// block is one block on its way out.
type block struct {
	typ    string
	labels []string
	attrs  []attr
	blocks []*block
	origin string
}

func (b *block) key() string { return strings.Join(append([]string{b.typ}, b.labels...), ".") }

// attr is one attribute. Exactly one of value, refs, and text is used.
type attr struct {
	name   string
	value  cty.Value // unmarked and known
	refs   []string
	list   bool // refs is a list
	text   string
	isText bool
	bare   bool // text is a type or names: in JSON a plain text, without ${ }
	origin string
}

type shower struct {
	res *load.Result
	opt Options
	// locals and vars are those that expressions which stay still use.
	locals, vars map[string]bool
}

func (s *shower) project() []*block {
	root := s.res.Root
	var out []*block
	if root.Berth != nil {
		out = append(out, s.node(root.Berth))
	}
	for _, m := range root.Modules {
		out = append(out, s.node(m))
	}
	for _, n := range root.Nodes {
		out = append(out, s.node(n))
	}
	// What the expressions need comes first; writing it can ask for more.
	var before []*block
	var secrets []*block
	for _, b := range root.Blocks {
		if b.Type == "secret" {
			if n := root.SecretNodes[b.Labels[0]]; n != nil {
				secrets = append(secrets, s.node(n))
			}
		}
	}
	if l := s.localBlock(); l != nil {
		before = append(before, l)
	}
	before = append(s.variableBlocks(), before...)
	for _, b := range root.Blocks {
		if b.Type == "function" {
			before = append(before, s.function(b))
		}
	}
	return append(append(before, secrets...), out...)
}

// localBlock writes the local values that expressions still use.
func (s *shower) localBlock() *block {
	b := &block{typ: "locals"}
	done := map[string]bool{}
	for {
		var next []string
		for n := range s.locals {
			if !done[n] {
				next = append(next, n)
			}
		}
		if len(next) == 0 {
			break
		}
		sort.Strings(next)
		for _, n := range next {
			done[n] = true
			d := s.res.Root.Scope.Locals[n]
			if d == nil || d.Expr == nil {
				continue
			}
			text := s.text(d.Expr, s.res.Root.Scope.Env())
			b.attrs = append(b.attrs, attr{name: n, text: text, isText: true, origin: place(d.Range)})
		}
	}
	if len(b.attrs) == 0 {
		return nil
	}
	return b
}

// variableBlocks writes the sensitive variables that expressions still use. Their values are not written.
func (s *shower) variableBlocks() []*block {
	names := make([]string, 0, len(s.vars))
	for n := range s.vars {
		names = append(names, n)
	}
	sort.Strings(names)
	var out []*block
	for _, n := range names {
		v := s.res.Root.Vars[n]
		if v == nil {
			continue
		}
		b := &block{typ: "variable", labels: []string{n}, origin: place(v.Header)}
		b.attrs = append(b.attrs, attr{name: "type", text: vars.TypeText(v.Type), isText: true, bare: true})
		for name, on := range map[string]bool{"sensitive": v.Sensitive, "ephemeral": v.Ephemeral, "nullable": v.Nullable} {
			if on {
				b.attrs = append(b.attrs, attr{name: name, value: cty.True})
			}
		}
		if len(v.Env) > 0 {
			var l []cty.Value
			for _, e := range v.Env {
				l = append(l, cty.StringVal(e))
			}
			b.attrs = append(b.attrs, attr{name: "env", value: cty.ListVal(l)})
		}
		sort.Slice(b.attrs, func(i, j int) bool { return b.attrs[i].name < b.attrs[j].name })
		out = append(out, b)
	}
	return out
}

func (s *shower) function(b *hcl.Block) *block {
	out := &block{typ: "function", labels: b.Labels, origin: place(b.DefRange)}
	attrs, _ := b.Body.JustAttributes()
	for _, n := range []string{"params", "variadic_param", "result"} {
		a := attrs[n]
		if a == nil {
			continue
		}
		x := attr{name: n, origin: place(a.NameRange)}
		if n == "result" {
			x.text, x.isText = s.text(a.Expr, s.res.Root.Scope.Env()), true
		} else if items, ds := hcl.ExprList(a.Expr); !ds.HasErrors() {
			x.list = true
			for _, i := range items {
				x.refs = append(x.refs, hcl.ExprAsKeyword(i))
			}
		} else {
			x.refs = []string{hcl.ExprAsKeyword(a.Expr)}
		}
		out.attrs = append(out.attrs, x)
	}
	return out
}

func place(r hcl.Range) string {
	if r.Filename == "" {
		return ""
	}
	return fmt.Sprintf("%s:%d", r.Filename, r.Start.Line)
}

// node writes a block with its defaults.
func (s *shower) node(n *tree.Node) *block {
	b := &block{typ: n.Type, labels: n.Labels, origin: place(n.Header)}
	done := map[string]bool{}
	group := exclusive(n)
	for _, a := range n.Body.Attrs {
		done[a.Name] = true
		if a.Name == "extends" || a.Name == "remove" || n.Type == "approvals" && a.Name == "rules" {
			continue
		}
		if at := n.Attr(a.Name); at != nil {
			b.attrs = append(b.attrs, s.attr(at))
			continue
		}
		if v, ok := fallback(a); ok && !group[a.Name] {
			b.attrs = append(b.attrs, attr{name: a.Name, value: v, origin: "default"})
		}
	}
	for _, at := range n.Sorted() {
		if !done[at.Name] && !at.Null {
			b.attrs = append(b.attrs, s.attr(at))
		}
	}
	for _, c := range n.Blocks {
		b.blocks = append(b.blocks, s.node(c))
	}
	return b
}

// exclusive names attributes whose default must not be written: it would conflict with, or need, something else.
func exclusive(n *tree.Node) map[string]bool {
	out := map[string]bool{}
	for _, g := range append(append([][]string(nil), n.Body.ExactlyOne...), n.Body.AtMostOne...) {
		for _, name := range g {
			out[name] = true
		}
	}
	for _, a := range n.Body.Attrs {
		if len(a.Requires) > 0 {
			out[a.Name] = true
		}
	}
	if n.Type == "guardrail" {
		for _, name := range []string{"require", "target"} {
			out[name] = true
		}
	}
	return out
}

func fallback(a *schema.Attr) (cty.Value, bool) {
	if a.Default == nil {
		return cty.NilVal, false
	}
	switch d := a.Default.(type) {
	case []string:
		if len(d) == 0 {
			return cty.EmptyTupleVal, true
		}
	case cty.Value:
		return d, true
	}
	v := eval.CtyValue(a.Default)
	return v, v.IsWhollyKnown() && !v.IsNull()
}

func (s *shower) attr(a *tree.Attr) attr {
	out := attr{name: a.Name, origin: origins(a)}
	switch a.Schema.Kind {
	case schema.Ref, schema.Refs, schema.RefOrString:
		if len(a.Targets) > 0 || a.Schema.Kind == schema.Refs {
			out.list = a.Schema.Kind == schema.Refs
			for _, t := range a.Targets {
				out.refs = append(out.refs, s.reference(t))
			}
			return out
		}
	case schema.TypeExpr:
		out.text, out.isText, out.bare = s.source(a.Expr), true, true
		return out
	case schema.Duration:
		if v, ok := known(a); ok && v.Type() == cty.Number {
			out.value = duration(v)
			return out
		}
	default: // shown as it is
	}
	if v, ok := known(a); ok {
		out.value = v
		return out
	}
	out.text, out.isText = s.text(a.Expr, a.Env), true
	if a.Base != nil {
		out.text = fmt.Sprintf("merge(%s, %s)", s.attr(a.Base).hcl(), out.text)
	}
	return out
}

// reference writes a node as a reference from the project's own files.
func (s *shower) reference(n *tree.Node) string {
	if m := n.Env.Scope.Module; m != "" {
		return m + "." + n.Key()
	}
	return n.Key()
}

// known gives the value of an attribute that is wholly known and not sensitive.
func known(a *tree.Attr) (cty.Value, bool) {
	if a.Value == cty.NilVal || a.Bad || a.Schema.Kind == schema.Expr {
		return cty.NilVal, false
	}
	if mark.IsSensitive(a.Value) {
		return cty.NilVal, false
	}
	v, _ := a.Value.UnmarkDeep()
	return v, v.IsWhollyKnown()
}

func origins(a *tree.Attr) string {
	var out strings.Builder
	out.WriteString(place(a.NameRange))
	for b := a.Base; b != nil; b = b.Base {
		out.WriteString(", " + place(b.NameRange))
	}
	return out.String()
}

// duration writes seconds as a duration where that is exact.
func duration(v cty.Value) cty.Value {
	f, _ := v.AsBigFloat().Float64()
	d := time.Duration(f * float64(time.Second))
	if d.Seconds() != f {
		return v
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return cty.StringVal(text)
}
