// SPDX-License-Identifier: Apache-2.0

// Package schema is the configuration language as data: which blocks there are, what their labels mean, which
// attributes they take, of which type, with which default, and what each is for.
//
// The decoder, the suggestions in diagnostics, the documentation, the JSON Schema and the language server all read this
// one tree. It is immutable; [Root] gives the top.
package schema

import (
	"sort"

	"github.com/zclconf/go-cty/cty"
)

// Kind says how an attribute is read.
type Kind uint8

// The kinds.
const (
	Value       Kind = iota // evaluated and converted to Type
	Duration                // a text such as "30s", or seconds
	Size                    // a text such as "512MiB", or bytes
	Ref                     // a reference to one block
	Refs                    // a list of references
	RefOrString             // a reference, or a text
	Expr                    // evaluated at run time
	BoolOrExpr              // true, false, or evaluated at run time
	TypeExpr                // a type expression
	Literal                 // a text without any expression
	Names                   // a list of bare names
)

// Flags are properties of an attribute or block.
type Flags uint8

// The flags.
const (
	Secret  Flags = 1 << iota // may hold sensitive values
	Runtime                   // may use run.*
	Param                     // may use param.*
	Output                    // may use output
	Host                      // reaches the host: not allowed in untrusted projects
)

// Attr is one attribute.
type Attr struct {
	Name     string
	Doc      string
	Kind     Kind
	Type     cty.Type // of Value
	Required bool
	Default  any      // nil = none; a Go value: string, bool, int, float64
	DefText  string   // the default in words, when it is not a value
	Enum     []string // the texts allowed
	OpenEnum bool     // another text is a warning only
	Refs     []string // kinds of block that a reference may name
	Flags    Flags
	Min, Max *float64
	Whole    bool   // numbers must be whole
	Pattern  string // RE2; what a text, or each key of a map, must match
	Example  string // an HCL expression
	// Deprecated says what to use instead; empty = not deprecated.
	Deprecated string
	// Unit is "bytes" or "duration" for driver attributes that accept texts and numbers.
	Unit string
	// Requires are attributes that must be there too.
	Requires []string
	// Env is the environment variable that gives the default.
	Env string
	// Immutable attributes may not change when a sandbox is resumed.
	Immutable bool
}

// Has reports whether the flag is set.
func (a *Attr) Has(f Flags) bool { return a.Flags&f != 0 }

// Label is one label of a block.
type Label struct {
	Name string // what it means, for messages
	Enum []string
	Doc  string
	// Free labels may be any text (paths); others are names: letters, digits, "_" and "-".
	Free bool
}

// Block is a type of block.
type Block struct {
	Type   string
	Doc    string
	Labels []Label
	Min    int // blocks of this type that must be there
	Max    int // 0 = any number
	Flags  Flags
	Body   Body
	// ByLabel adds attributes and blocks for a value of the first label.
	ByLabel map[string]*Body
	// Unique blocks may have each label once; blocks whose labels are names always are.
	Unique bool
	// Extends allows the attribute `extends`, and `remove`.
	Extends bool
}

// Body is the inside of a block.
type Body struct {
	Attrs  []*Attr
	Blocks []*Block
	// Open bodies take any attribute; Free says what they are.
	Open bool
	Free *Attr
	// Driver says whose schema the body follows: "sandbox" or "process"; empty = this one.
	Driver string
	// ExactlyOne and AtMostOne are groups of attributes and blocks.
	ExactlyOne [][]string
	AtMostOne  [][]string
}

// Attr finds an attribute by name; nil when there is none.
func (b *Body) Attr(name string) *Attr {
	for _, a := range b.Attrs {
		if a.Name == name {
			return a
		}
	}
	return nil
}

// Block finds a nested block type; nil when there is none.
func (b *Body) Block(typ string) *Block {
	for _, n := range b.Blocks {
		if n.Type == typ {
			return n
		}
	}
	return nil
}

// For gives the body for the labels: the common part with that of the first label.
func (b *Block) For(labels []string) *Body {
	if b.ByLabel == nil || len(labels) == 0 {
		return &b.Body
	}
	extra := b.ByLabel[labels[0]]
	if extra == nil {
		return &b.Body
	}
	return merged(&b.Body, extra)
}

// LabelNames are the names of the labels.
func (b *Block) LabelNames() []string {
	out := make([]string, len(b.Labels))
	for i, l := range b.Labels {
		out[i] = l.Name
	}
	return out
}

// merged joins two bodies; what extra says about a name wins.
func merged(base, extra *Body) *Body {
	out := &Body{
		Open: base.Open || extra.Open, Free: base.Free, Driver: base.Driver,
		ExactlyOne: append(append([][]string(nil), base.ExactlyOne...), extra.ExactlyOne...),
		AtMostOne:  append(append([][]string(nil), base.AtMostOne...), extra.AtMostOne...),
	}
	if extra.Free != nil {
		out.Free = extra.Free
	}
	if extra.Driver != "" {
		out.Driver = extra.Driver
	}
	for _, a := range base.Attrs {
		if extra.Attr(a.Name) == nil {
			out.Attrs = append(out.Attrs, a)
		}
	}
	out.Attrs = append(out.Attrs, extra.Attrs...)
	for _, n := range base.Blocks {
		if extra.Block(n.Type) == nil {
			out.Blocks = append(out.Blocks, n)
		}
	}
	out.Blocks = append(out.Blocks, extra.Blocks...)
	return out
}

// Kinds are the top-level block types that references can name, sorted.
func Kinds() []string {
	var out []string
	for _, b := range Root().Blocks {
		if Referable(b.Type) {
			out = append(out, b.Type)
		}
	}
	sort.Strings(out)
	return out
}

// Referable reports whether blocks of the type can be named by references.
func Referable(typ string) bool {
	switch typ {
	case "model_provider", "model", "driver", "snapshot_store", "manifest", "sandbox", "mcp_server", "tool",
		"guardrail", "output_schema", "agent", "run":
		return true
	}
	return false
}
