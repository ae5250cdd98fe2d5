// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/berth-dev/berth/core/config/eval"
	"github.com/berth-dev/berth/core/config/schema"
	"github.com/berth-dev/berth/core/diag"
)

// Builder makes nodes and collects what is wrong.
type Builder struct {
	Files diag.Files
	Diags diag.Diagnostics

	bodies map[bodyKey]*compiled
	rounds int // of dynamic blocks
}

type bodyKey struct {
	block *schema.Block
	body  *schema.Body
	label string
}

// compiled is a body in the forms that reading it needs.
type compiled struct {
	body   *schema.Body
	hcl    *hcl.BodySchema
	attrs  map[string]*schema.Attr
	blocks map[string]*schema.Block
}

func compile(body *schema.Body) *compiled {
	c := &compiled{body: body, hcl: &hcl.BodySchema{}, attrs: map[string]*schema.Attr{}, blocks: map[string]*schema.Block{}}
	for _, a := range body.Attrs {
		c.attrs[a.Name] = a
		c.hcl.Attributes = append(c.hcl.Attributes, hcl.AttributeSchema{Name: a.Name})
	}
	for _, b := range body.Blocks {
		c.blocks[b.Type] = b
		c.hcl.Blocks = append(c.hcl.Blocks, hcl.BlockHeaderSchema{Type: b.Type, LabelNames: b.LabelNames()})
	}
	return c
}

func (b *Builder) compiled(key bodyKey, get func() *schema.Body) *compiled {
	if b.bodies == nil {
		b.bodies = map[bodyKey]*compiled{}
	}
	if c := b.bodies[key]; c != nil {
		return c
	}
	c := compile(get())
	b.bodies[key] = c
	return c
}

// Top reads the top-level blocks of a file.
func (b *Builder) Top(body hcl.Body, isJSON bool) hcl.Blocks {
	root := schema.Root()
	c := b.compiled(bodyKey{body: root}, func() *schema.Body { return root })
	content, found := body.Content(c.hcl)
	before := len(b.Diags)
	b.convert(found, c.hcl, hcl.Range{})
	for _, d := range b.Diags[before:] {
		b.hostBlock(d)
	}
	var out hcl.Blocks
	for _, blk := range content.Blocks {
		if !comment(blk) {
			out = append(out, blk)
		}
	}
	return out
}

// hostBlock says it better when a block of the host's configuration stands in a project.
func (b *Builder) hostBlock(d *diag.Diagnostic) {
	if d.Code != diag.UnsupportedBlock && d.Code != diag.UnsupportedArgument {
		return
	}
	f := b.Files[d.Subject.Filename]
	if f == nil || d.Subject.End.Byte > len(f.Bytes) {
		return
	}
	typ := strings.Trim(string(f.Bytes[d.Subject.Start.Byte:d.Subject.End.Byte]), `"`)
	switch typ {
	case "plugins", "telemetry", "state_store", "session_store", "secret_store", "policy", "defaults":
		d.Code = diag.WrongFileKind
		d.Summary = "block \"" + typ + "\" is not part of a project"
		d.Label = "it belongs to the configuration of the host"
		d.Helpf("put it into $XDG_CONFIG_HOME/berth/config.hcl")
	}
}

func comment(b *hcl.Block) bool {
	return slices.Contains(b.Labels, "//")
}

func (b *Builder) convert(found hcl.Diagnostics, s *hcl.BodySchema, header hcl.Range) {
	if len(found) == 0 {
		return
	}
	b.Diags = append(b.Diags, diag.Converter{Files: b.Files, Schema: s, Header: header}.Convert(found)...)
}

// Block makes the node of a block.
func (b *Builder) Block(blk *hcl.Block, s *schema.Block, env *eval.Env) *Node {
	n := &Node{
		Schema: s, Type: blk.Type, Labels: blk.Labels, LabelRanges: blk.LabelRanges, TypeRange: blk.TypeRange,
		Header: blk.DefRange, Env: env, Attrs: map[string]*Attr{}, Misspelt: map[string]bool{},
	}
	b.labels(n)
	label := ""
	if s.ByLabel != nil && len(n.Labels) > 0 {
		label = n.Labels[0]
	}
	c := b.compiled(bodyKey{block: s, label: label}, func() *schema.Body { return s.For(n.Labels) })
	n.Body = c.body
	if n.Body.Driver != "" {
		n.Raw = blk.Body
		return n
	}
	b.fill(n, blk.Body, c)
	return n
}

// Fill reads the body of a driver's block with the driver's schema.
func (b *Builder) Fill(n *Node, body *schema.Body) {
	c := b.compiled(bodyKey{body: body}, func() *schema.Body { return body })
	n.Body = body
	b.fill(n, n.Raw, c)
}

func (b *Builder) labels(n *Node) {
	for i, l := range n.Schema.Labels {
		if i >= len(n.Labels) {
			return
		}
		text, rng := n.Labels[i], n.Header
		if i < len(n.LabelRanges) {
			rng = n.LabelRanges[i]
		}
		switch {
		case len(l.Enum) > 0 && !has(l.Enum, text):
			d := diag.Errorf(diag.NotOneOf, rng, "no %s of %s named %q", l.Name, n.Type, text)
			if near := diag.Suggest(text, l.Enum); near != "" {
				d.Labelf("did you mean %q?", near)
			} else {
				d.Labelf("one of: %s", strings.Join(l.Enum, ", "))
			}
			b.Diags = append(b.Diags, d)
		case len(l.Enum) == 0 && !l.Free && !hclsyntax.ValidIdentifier(text):
			b.Diags = append(b.Diags, diag.Errorf(diag.PatternMismatch, rng, "%q is not a name", text).
				Labelf("names have letters, digits, - and _, and start with a letter"))
		}
	}
}

func (b *Builder) fill(n *Node, body hcl.Body, c *compiled) {
	withDynamic := *c.hcl
	withDynamic.Blocks = append(slices.Clip(withDynamic.Blocks),
		hcl.BlockHeaderSchema{Type: "dynamic", LabelNames: []string{"type"}})
	use := &withDynamic
	if len(c.blocks) == 0 {
		use = c.hcl
	}
	var content *hcl.BodyContent
	var found hcl.Diagnostics
	if c.body.Open {
		var rest hcl.Body
		content, rest, found = body.PartialContent(use)
		b.convert(found, c.hcl, n.Header)
		free, more := rest.JustAttributes()
		b.convert(more, c.hcl, n.Header)
		for name, a := range free {
			b.attr(n, a, named(c.body.Free, name))
		}
	} else {
		content, found = body.Content(use)
		b.misspelt(n, found, c)
		b.convert(found, c.hcl, n.Header)
	}
	for name, a := range content.Attributes {
		b.attr(n, a, c.attrs[name])
	}
	for _, blk := range content.Blocks {
		switch {
		case comment(blk):
		case blk.Type == "dynamic" && c.blocks["dynamic"] == nil:
			b.dynamic(n, blk, c)
		default:
			n.Blocks = append(n.Blocks, b.Block(blk, c.blocks[blk.Type], n.Env))
		}
	}
	b.counts(n, c)
}

// named is the schema of a free attribute under its own name.
func named(free *schema.Attr, name string) *schema.Attr {
	a := *free
	a.Name = name
	return &a
}

func (b *Builder) attr(n *Node, a *hcl.Attribute, s *schema.Attr) {
	n.Attrs[a.Name] = &Attr{Name: a.Name, Schema: s, Expr: a.Expr, NameRange: a.NameRange, Range: a.Range, Env: n.Env}
}

// misspelt remembers what was probably meant by names that the body does not have.
func (b *Builder) misspelt(n *Node, found hcl.Diagnostics, c *compiled) {
	for _, d := range found {
		if d.Subject == nil {
			continue
		}
		switch d.Summary {
		case "Unsupported argument", "Unsupported block type", "Extraneous JSON object property":
		default:
			continue
		}
		f := b.Files[d.Subject.Filename]
		if f == nil || d.Subject.End.Byte > len(f.Bytes) {
			continue
		}
		given := strings.Trim(string(f.Bytes[d.Subject.Start.Byte:d.Subject.End.Byte]), `"`)
		var names []string
		for name := range c.attrs {
			names = append(names, name)
		}
		for typ := range c.blocks {
			names = append(names, typ)
		}
		if has(names, given) {
			n.Misspelt[given] = true
		} else if near := diag.Suggest(given, names); near != "" {
			n.Misspelt[near] = true
		}
	}
}

// unique reports whether blocks of a type may have each label once.
func unique(s *schema.Block) bool {
	for _, l := range s.Labels {
		if l.Free && !s.Unique {
			return false
		}
	}
	return len(s.Labels) > 0 && s.Max != 1
}

// counts reports blocks that stand too often.
func (b *Builder) counts(n *Node, c *compiled) {
	first := map[string]*Node{}
	count := map[string]int{}
	for _, blk := range n.Blocks {
		s := c.blocks[blk.Type]
		if unique(s) {
			old := first[blk.Key()]
			if old != nil {
				b.Diags = append(b.Diags, diag.Errorf(diag.DuplicateName, blk.Header, "second %s named %q", blk.Type, blk.Name()).
					Labelf("names must be unique in a block").Relate(old.Header, "first one here"))
				continue
			}
			first[blk.Key()] = blk
			continue
		}
		count[blk.Type]++
		if first[blk.Type] == nil {
			first[blk.Type] = blk
		}
		if s.Max > 0 && count[blk.Type] == s.Max+1 {
			many := "one"
			if s.Max > 1 {
				many = "that many"
			}
			b.Diags = append(b.Diags, diag.Errorf(diag.BlockTooOften, blk.Header, "block %q stands too often", blk.Type).
				Labelf("only %s is allowed here", many).Relate(first[blk.Type].Header, "first one here"))
		}
	}
}

func has(list []string, s string) bool {
	return slices.Contains(list, s)
}
