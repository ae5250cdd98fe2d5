// SPDX-License-Identifier: Apache-2.0

package schema

import (
	"fmt"

	"github.com/zclconf/go-cty/cty"
)

// The functions below keep the tables of blocks short; each takes the name and the documentation first.

var (
	stringList = cty.List(cty.String)
	stringMap  = cty.Map(cty.String)
)

func str(name, doc string, opts ...opt) *Attr { return attr(name, doc, Value, cty.String, opts) }
func num(name, doc string, opts ...opt) *Attr {
	return attr(name, doc, Value, cty.Number, append([]opt{whole}, opts...))
}

func boolean(name, doc string, opts ...opt) *Attr {
	return attr(name, doc, Value, cty.Bool, opts)
}
func list(name, doc string, opts ...opt) *Attr { return attr(name, doc, Value, stringList, opts) }
func mapping(name, doc string, opts ...opt) *Attr {
	return attr(name, doc, Value, stringMap, opts)
}

func anything(name, doc string, opts ...opt) *Attr {
	return attr(name, doc, Value, cty.DynamicPseudoType, opts)
}

func dur(name, doc string, opts ...opt) *Attr  { return attr(name, doc, Duration, cty.Number, opts) }
func size(name, doc string, opts ...opt) *Attr { return attr(name, doc, Size, cty.Number, opts) }
func expr(name, doc string, opts ...opt) *Attr {
	return attr(name, doc, Expr, cty.DynamicPseudoType, opts)
}

func boolExpr(name, doc string, opts ...opt) *Attr {
	return attr(name, doc, BoolOrExpr, cty.Bool, opts)
}

func typeExpr(name, doc string, opts ...opt) *Attr {
	return attr(name, doc, TypeExpr, cty.DynamicPseudoType, opts)
}

func enum(name, doc string, values []string, opts ...opt) *Attr {
	a := attr(name, doc, Value, cty.String, opts)
	a.Enum = values
	return a
}

func ref(name, kind, doc string, opts ...opt) *Attr {
	a := attr(name, doc, Ref, cty.String, opts)
	a.Refs = []string{kind}
	return a
}

func refs(name, kind, doc string, opts ...opt) *Attr {
	a := attr(name, doc, Refs, stringList, opts)
	a.Refs = []string{kind}
	return a
}

func modelRef(name, doc string, opts ...opt) *Attr {
	a := attr(name, doc, RefOrString, cty.String, opts)
	a.Refs = []string{"model"}
	return a
}

func attr(name, doc string, kind Kind, t cty.Type, opts []opt) *Attr {
	a := &Attr{Name: name, Doc: doc, Kind: kind, Type: t}
	for _, o := range opts {
		o(a)
	}
	return a
}

type opt func(*Attr)

func required(a *Attr) { a.Required = true }
func secret(a *Attr)   { a.Flags |= Secret }
func runtime(a *Attr)  { a.Flags |= Runtime }
func param(a *Attr)    { a.Flags |= Param }
func output(a *Attr)   { a.Flags |= Output }
func host(a *Attr)     { a.Flags |= Host }
func whole(a *Attr)    { a.Whole = true }
func fraction(a *Attr) { a.Whole = false }
func openEnum(a *Attr) { a.OpenEnum = true }

func def(v any) opt          { return func(a *Attr) { a.Default = v } }
func defText(s string) opt   { return func(a *Attr) { a.DefText = s } }
func pattern(re string) opt  { return func(a *Attr) { a.Pattern = re } }
func example(s string) opt   { return func(a *Attr) { a.Example = s } }
func typed(t cty.Type) opt   { return func(a *Attr) { a.Type = t } }
func atLeast(lo float64) opt { return func(a *Attr) { a.Min = &lo } }
func between(lo, hi float64) opt {
	return func(a *Attr) { a.Min, a.Max = &lo, &hi }
}

// block makes a block type; parts are what add takes, labels, and functions over the block.
func block(typ, doc string, parts ...any) *Block {
	b := &Block{Type: typ, Doc: doc}
	for _, p := range parts {
		switch p := p.(type) {
		case Label:
			b.Labels = append(b.Labels, p)
		case func(*Block):
			p(b)
		default:
			add(&b.Body, p)
		}
	}
	return b
}

// single is a block that may stand once.
func single(typ, doc string, parts ...any) *Block {
	b := block(typ, doc, parts...)
	b.Max = 1
	return b
}

// body makes the extra body of a label.
func body(parts ...any) *Body {
	b := &Body{}
	for _, p := range parts {
		add(b, p)
	}
	return b
}

type (
	exactlyOne []string
	atMostOne  []string
)

func add(b *Body, p any) {
	switch p := p.(type) {
	case *Attr:
		b.Attrs = append(b.Attrs, p)
	case []*Attr:
		b.Attrs = append(b.Attrs, p...)
	case *Block:
		b.Blocks = append(b.Blocks, p)
	case []*Block:
		b.Blocks = append(b.Blocks, p...)
	case []any:
		for _, q := range p {
			add(b, q)
		}
	case exactlyOne:
		b.ExactlyOne = append(b.ExactlyOne, p)
	case atMostOne:
		b.AtMostOne = append(b.AtMostOne, p)
	default:
		panic(fmt.Sprintf("schema: a %T is no part of a body", p)) // a fault in these tables, found by every test
	}
}

func name() Label                      { return Label{Name: "name"} }
func free() Label                      { return Label{Name: "path", Free: true} }
func kind(n string, v ...string) Label { return Label{Name: n, Enum: v} }

func extends(b *Block) {
	b.Extends = true
	b.Body.Attrs = append([]*Attr{ref("extends", b.Type, "The "+b.Type+" whose settings this one starts from. Depth at most 8.",
		example(b.Type+".base"))}, b.Body.Attrs...)
	b.Body.Attrs = append(b.Body.Attrs, list("remove",
		"Blocks of the parent that are left out, each as TYPE.LABEL.", example(`["file.TASK.md"]`)))
}

func hostBlock(b *Block) { b.Flags |= Host }

func driverBody(which string) func(*Block) {
	return func(b *Block) { b.Body.Driver = which }
}

func openBody(flags Flags, doc string) func(*Block) {
	return func(b *Block) {
		b.Body.Open = true
		b.Body.Free = &Attr{Name: "*", Doc: doc, Kind: Value, Type: cty.DynamicPseudoType, Flags: flags}
	}
}

func byLabel(m map[string]*Body) func(*Block) { return func(b *Block) { b.ByLabel = m } }
