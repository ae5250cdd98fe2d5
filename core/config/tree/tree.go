// SPDX-License-Identifier: Apache-2.0

// Package tree turns bodies of files into trees of nodes that follow the schema: dynamic blocks are expanded, labels
// are checked, names that the schema does not have are reported, and `extends` is merged. Values are not evaluated
// here; package check does that.
package tree

import (
	"sort"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/berth-dev/berth/core/config/eval"
	"github.com/berth-dev/berth/core/config/schema"
	"github.com/berth-dev/berth/core/spec"
)

// Node is one block.
type Node struct {
	Schema      *schema.Block
	Body        *schema.Body // for the labels that it has
	Type        string
	Labels      []string
	LabelRanges []hcl.Range
	TypeRange   hcl.Range
	Header      hcl.Range
	Env         *eval.Env
	Attrs       map[string]*Attr
	Blocks      []*Node
	// Misspelt are names that the body does not have but which were probably meant: their absence is not reported.
	Misspelt map[string]bool
	// Parent is the block that this one extends; nil = none.
	Parent *Node

	// Driver bodies keep what the file says until the schema is known.
	Raw       hcl.Body
	Unchecked bool // no schema was to be had
	Owner     string

	checked bool
}

// Attr is one attribute.
type Attr struct {
	Name      string
	Schema    *schema.Attr
	Expr      hcl.Expression
	NameRange hcl.Range
	Range     hcl.Range
	Env       *eval.Env
	// Base is the parent's map that this one is laid over.
	Base *Attr

	// Checked says that the fields below are set.
	Checked bool
	Bad     bool // an error was reported
	Null    bool // as if it were not there
	Later   bool // known at run time only
	Secret  bool // marked sensitive
	Value   cty.Value
	Targets []*Node  // of references
	JSON    []byte   // JSON Schema of a type expression
	Use     eval.Use // run-time names that it may use
	Names   []string // of a Names attribute
	// Arguments is what a type expression says about param.
	Arguments eval.Arguments
}

// Key is the name of a top-level node inside its module: "agent.coder".
func (n *Node) Key() string {
	if len(n.Labels) == 0 {
		return n.Type
	}
	return n.Type + "." + strings.Join(n.Labels, ".")
}

// Name is the last label.
func (n *Node) Name() string {
	if len(n.Labels) == 0 {
		return ""
	}
	return n.Labels[len(n.Labels)-1]
}

// Pos is where the node starts.
func (n *Node) Pos() spec.Pos { return eval.Pos(n.Header) }

// Attr gives an attribute that is there; nil when it is not, or is null.
func (n *Node) Attr(name string) *Attr {
	if n == nil {
		return nil
	}
	a := n.Attrs[name]
	if a == nil || a.Checked && a.Null {
		return nil
	}
	return a
}

// Block gives the first block of a type; nil when there is none.
func (n *Node) Block(typ string) *Node {
	if n == nil {
		return nil
	}
	for _, b := range n.Blocks {
		if b.Type == typ {
			return b
		}
	}
	return nil
}

// All gives the blocks of a type.
func (n *Node) All(typ string) []*Node {
	if n == nil {
		return nil
	}
	var out []*Node
	for _, b := range n.Blocks {
		if b.Type == typ {
			out = append(out, b)
		}
	}
	return out
}

// Sorted gives the attributes in the order of the file.
func (n *Node) Sorted() []*Attr {
	out := make([]*Attr, 0, len(n.Attrs))
	for _, a := range n.Attrs {
		out = append(out, a)
	}
	sort.Slice(out, func(i, j int) bool {
		a, b := out[i].NameRange, out[j].NameRange
		if a.Filename != b.Filename {
			return a.Filename < b.Filename
		}
		if a.Start.Byte != b.Start.Byte {
			return a.Start.Byte < b.Start.Byte
		}
		return out[i].Name < out[j].Name
	})
	return out
}

// Walk visits a node and everything inside it.
func (n *Node) Walk(visit func(*Node)) {
	visit(n)
	for _, b := range n.Blocks {
		b.Walk(visit)
	}
}

// Once reports true the first time only.
func (n *Node) Once() bool {
	if n.checked {
		return false
	}
	n.checked = true
	return true
}
