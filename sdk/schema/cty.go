// SPDX-License-Identifier: Apache-2.0

//go:build !berth_guest

package schema

import (
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	ctyjson "github.com/zclconf/go-cty/cty/json"
	"github.com/zclconf/go-cty/cty/msgpack"

	"github.com/berth-dev/berth/sdk/errs"
)

// TypeOf wraps a cty type.
func TypeOf(t cty.Type) Type { return Type{t} }

// Cty gives the cty type; cty.NilType for the zero Type.
func (t Type) Cty() cty.Type { return t.t }

// IsZero reports whether the type was never set.
func (t Type) IsZero() bool { return t.t == cty.NilType }

// Cty gives the type of a decoded body: an object with one attribute per argument and per kind of block. A nil Schema
// is an empty body.
//
// A Single block is an object or null; List is a list, Set a set, and Map a map of objects. Labels are string
// attributes of the object, but for the first label of a Map, which is its key. Where an object's type is not known
// before the body is read (an attribute of type Any), lists and sets become tuples and maps objects.
func (s *Schema) Cty() cty.Type {
	if s == nil {
		return cty.EmptyObject
	}
	return s.Block.Cty()
}

// Cty gives the type of the decoded block, see [Schema.Cty].
func (b *Block) Cty() cty.Type { return cty.Object(b.attributeTypes(nil)) }

func (b *Block) attributeTypes(labels []string) map[string]cty.Type {
	m := make(map[string]cty.Type, len(b.Attributes)+len(b.Blocks)+len(labels))
	for _, l := range labels {
		m[l] = cty.String
	}
	for _, a := range b.Attributes {
		m[a.Name] = a.Type.t.WithoutOptionalAttributesDeep()
	}
	for i := range b.Blocks {
		m[b.Blocks[i].Type] = b.Blocks[i].Cty()
	}
	return m
}

// Cty gives the type of all blocks of this kind together, see [Schema.Cty].
func (n *NestedBlock) Cty() cty.Type {
	e := n.Element()
	switch {
	case n.Nesting == Single:
		return e
	case e.HasDynamicTypes():
		return cty.DynamicPseudoType
	case n.Nesting == Map:
		return cty.Map(e)
	case n.Nesting == Set:
		return cty.Set(e)
	default:
		return cty.List(e)
	}
}

// Element gives the type of one block of this kind, its labels included.
func (n *NestedBlock) Element() cty.Type {
	return cty.Object(n.Block.attributeTypes(n.ElementLabels()))
}

// ElementLabels are the labels that are attributes of one block's object.
func (n *NestedBlock) ElementLabels() []string {
	if n.Nesting == Map && len(n.Labels) > 0 {
		return n.Labels[1:]
	}
	return n.Labels
}

// Encode makes the driver's value of a decoded body. It must be wholly known and unmarked.
func Encode(s *Schema, v cty.Value) (Value, error) {
	return EncodeAs(s.Cty(), v)
}

// EncodeAs encodes a value of any type, for example the default of an attribute.
func EncodeAs(t cty.Type, v cty.Value) (Value, error) {
	if v.ContainsMarked() {
		return Value{}, errs.New(errs.ConfigInvalid, "a marked value cannot be sent to a driver")
	}
	c, err := convert.Convert(v, t)
	if err != nil {
		return Value{}, errs.Wrap(errs.ConfigInvalid, "encode configuration", err)
	}
	b, err := msgpack.Marshal(c, t)
	if err != nil {
		return Value{}, errs.Wrap(errs.ConfigInvalid, "encode configuration", err)
	}
	return Value{MsgPack: b}, nil
}

// IsZero reports whether the value is an empty body.
func (v Value) IsZero() bool { return len(v.MsgPack) == 0 && len(v.JSON) == 0 }

// Cty decodes the value by its schema. A zero Value, or null, is a body in which nothing was said.
func (v Value) Cty(s *Schema) (cty.Value, error) {
	t := s.Cty()
	c, err := v.As(t)
	if err == nil && c.IsNull() {
		return emptyOf(s), nil
	}
	return c, err
}

// As decodes a value of any type.
func (v Value) As(t cty.Type) (cty.Value, error) {
	switch {
	case v.IsZero():
		return cty.NullVal(t), nil
	case len(v.MsgPack) > 0 && len(v.JSON) > 0:
		return cty.NilVal, errs.New(errs.ConfigInvalid, "a value has two encodings")
	case len(v.MsgPack) > 0:
		return conforming(msgpack.Unmarshal(v.MsgPack, t))(t)
	default:
		return conforming(ctyjson.Unmarshal(v.JSON, t))(t)
	}
}

// conforming makes sure that the value has the type: the decoders let an empty map pass for any object.
func conforming(v cty.Value, err error) func(cty.Type) (cty.Value, error) {
	return func(t cty.Type) (cty.Value, error) {
		if err != nil {
			return cty.NilVal, configError(err)
		}
		c, err := convert.Convert(v, t)
		return c, configError(err)
	}
}

func emptyOf(s *Schema) cty.Value {
	if s == nil {
		return cty.EmptyObjectVal
	}
	m := map[string]cty.Value{}
	for _, a := range s.Block.Attributes {
		m[a.Name] = cty.NullVal(a.Type.t.WithoutOptionalAttributesDeep())
	}
	for i := range s.Block.Blocks {
		m[s.Block.Blocks[i].Type] = cty.NullVal(s.Block.Blocks[i].Cty())
	}
	return cty.ObjectVal(m)
}

// configError turns what cty says into ours, with the path into the body.
func configError(err error) error {
	if err == nil {
		return nil
	}
	e := errs.New(errs.ConfigInvalid, "%s", err)
	if p, ok := err.(cty.PathError); ok { //nolint:errorlint // cty returns the value itself, never wrapped
		e.Path = PathOf(p.Path)
	}
	return e
}

// PathOf turns a cty path into steps. A step through a set is left out: its elements have no position.
func PathOf(p cty.Path) []errs.PathStep {
	steps := make([]errs.PathStep, 0, len(p))
	for _, s := range p {
		switch s := s.(type) {
		case cty.GetAttrStep:
			steps = append(steps, errs.PathStep{Attribute: s.Name})
		case cty.IndexStep:
			switch {
			case !s.Key.IsKnown() || s.Key.IsNull():
			case s.Key.Type() == cty.String:
				steps = append(steps, errs.PathStep{Key: s.Key.AsString()})
			case s.Key.Type() == cty.Number:
				i, _ := s.Key.AsBigFloat().Int64()
				steps = append(steps, errs.PathStep{Index: &i})
			}
		}
	}
	return steps
}
