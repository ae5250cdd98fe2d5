// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/berth-dev/berth/core/config/eval"
	"github.com/berth-dev/berth/core/config/mark"
	"github.com/berth-dev/berth/core/diag"
)

// maxRounds bounds what the dynamic blocks of a project can make.
const maxRounds = 20_000

var dynamicSchema = &hcl.BodySchema{
	Attributes: []hcl.AttributeSchema{{Name: "for_each", Required: true}, {Name: "iterator"}, {Name: "labels"}},
	Blocks:     []hcl.BlockHeaderSchema{{Type: "content"}},
}

// dynamic makes the blocks of `dynamic "TYPE" { for_each, iterator, labels, content {} }`.
func (b *Builder) dynamic(n *Node, blk *hcl.Block, c *compiled) {
	typ := blk.Labels[0]
	s := c.blocks[typ]
	if s == nil {
		d := diag.Errorf(diag.UnsupportedBlock, blk.LabelRanges[0], "unsupported block type %q", typ)
		var names []string
		for name := range c.blocks {
			names = append(names, name)
		}
		if near := diag.Suggest(typ, names); near != "" {
			d.Labelf("did you mean %q?", near)
			n.Misspelt[near] = true
		}
		b.Diags = append(b.Diags, d)
		return
	}
	content, found := blk.Body.Content(dynamicSchema)
	b.convert(found, dynamicSchema, blk.DefRange)
	// What the rounds give is not known when there is an error: nothing inside is missed then.
	n.Misspelt[typ] = true
	if found.HasErrors() {
		return
	}
	if len(content.Blocks) != 1 {
		b.Diags = append(b.Diags, diag.Errorf(diag.MissingArgument, blk.DefRange, "a dynamic block needs one content block").
			Labelf("write content { ... } with what each %q block holds", typ))
		return
	}
	iter := "each"
	if a := content.Attributes["iterator"]; a != nil {
		iter = hcl.ExprAsKeyword(a.Expr)
		if iter == "" {
			b.Diags = append(b.Diags, diag.Errorf(diag.WrongType, a.Expr.Range(), "iterator needs a bare name").
				Labelf("such as: iterator = item"))
			return
		}
	}
	each := content.Attributes["for_each"].Expr
	coll, ds := n.Env.Value(each, eval.Use{})
	b.Diags = append(b.Diags, ds...)
	if ds.HasErrors() {
		return
	}
	bare, marks := coll.Unmark()
	if d := iterable(bare, coll, each.Range()); d != nil {
		b.Diags = append(b.Diags, d)
		return
	}
	if !bare.IsKnown() {
		return // an error before
	}
	for it := bare.ElementIterator(); it.Next(); {
		k, v := it.Element()
		k, v = k.WithMarks(marks), v.WithMarks(marks)
		env := n.Env.With(iter, k, v, each)
		if content.Attributes["iterator"] == nil {
			// The name of the block type serves too: with dynamic blocks in one another, each is the inner one.
			env = env.With(typ, k, v, each)
		}
		round := &hcl.Block{
			Type: typ, Body: content.Blocks[0].Body, DefRange: blk.DefRange, TypeRange: blk.TypeRange,
		}
		if b.rounds++; b.rounds > maxRounds {
			if b.rounds == maxRounds+1 {
				b.Diags = append(b.Diags, diag.Errorf(diag.OutOfRange, blk.DefRange, "dynamic blocks make too many blocks").
					Labelf("at most %d in one project", maxRounds))
			}
			return
		}
		if !b.roundLabels(round, content.Attributes["labels"], len(s.Labels), typ, env) {
			return
		}
		n.Blocks = append(n.Blocks, b.Block(round, s, env))
	}
}

func iterable(bare, coll cty.Value, rng hcl.Range) *diag.Diagnostic {
	t := bare.Type()
	switch {
	case !bare.IsKnown() && mark.IsSensitive(coll):
		return diag.Errorf(diag.SecretLeak, rng, "for_each depends on a secret").
			Labelf("how many blocks there are must be known without secrets")
	case t != cty.DynamicPseudoType && !bare.CanIterateElements() && bare.IsKnown() && !bare.IsNull():
		return diag.Errorf(diag.WrongType, rng, "for_each needs a list, set, map or object").
			Labelf("this is %s", diag.FriendlyType(t))
	case bare.IsKnown() && bare.IsNull():
		return diag.Errorf(diag.NullNotAllowed, rng, "for_each is null").Labelf("use [] for no blocks")
	}
	return nil
}

// roundLabels evaluates the labels of one round.
func (b *Builder) roundLabels(round *hcl.Block, a *hcl.Attribute, want int, typ string, env *eval.Env) bool {
	if a == nil {
		if want == 0 {
			return true
		}
		b.Diags = append(b.Diags, diag.Errorf(diag.WrongLabels, round.DefRange, "labels are missing").
			Labelf("%s blocks have %d; write labels = [...]", typ, want))
		return false
	}
	v, ds := env.Value(a.Expr, eval.Use{})
	b.Diags = append(b.Diags, ds...)
	if ds.HasErrors() {
		return false
	}
	if mark.IsSensitive(v) {
		b.Diags = append(b.Diags, diag.Errorf(diag.SecretLeak, a.Expr.Range(), "secret value in a label").
			Labelf("labels are shown and stored"))
		return false
	}
	bare, _ := v.UnmarkDeep()
	list, err := convert.Convert(bare, cty.List(cty.String))
	if err != nil || !list.IsWhollyKnown() || list.IsNull() {
		b.Diags = append(b.Diags, diag.Errorf(diag.WrongType, a.Expr.Range(), "labels need a list of texts"))
		return false
	}
	for _, l := range list.AsValueSlice() {
		if l.IsNull() {
			b.Diags = append(b.Diags, diag.Errorf(diag.NullNotAllowed, a.Expr.Range(), "a label is null"))
			return false
		}
		round.Labels = append(round.Labels, l.AsString())
		round.LabelRanges = append(round.LabelRanges, a.Expr.Range())
	}
	if len(round.Labels) != want {
		b.Diags = append(b.Diags, diag.Errorf(diag.WrongLabels, a.Expr.Range(), "wrong number of labels").
			Labelf("%s blocks have %d, these are %d", typ, want, len(round.Labels)))
		return false
	}
	return true
}
