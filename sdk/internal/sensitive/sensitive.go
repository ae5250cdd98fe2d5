// SPDX-License-Identifier: Apache-2.0

// Package sensitive finds the secrets in a configuration. It does not replace them: package redact does.
package sensitive

import (
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"
	"github.com/zclconf/go-cty/cty/msgpack"

	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/schema"
)

// Texts gives the texts in a configuration that its schema calls sensitive.
func Texts(s *schema.Schema, config schema.Value) ([]string, error) {
	if s == nil || config.MsgPack == nil && config.JSON == nil {
		return nil, nil
	}
	v, err := decode(config)
	if err != nil {
		return nil, errs.Wrap(errs.ConfigInvalid, "decode configuration", err)
	}
	var out []string
	fromBlock(&s.Block, v, &out)
	return out, nil
}

// decode reads a value by the types that its encoding shows.
func decode(v schema.Value) (cty.Value, error) {
	if v.JSON != nil {
		t, err := ctyjson.ImpliedType(v.JSON)
		if err != nil {
			return cty.NilVal, err
		}
		return ctyjson.Unmarshal(v.JSON, t)
	}
	t, err := msgpack.ImpliedType(v.MsgPack)
	if err != nil {
		return cty.NilVal, err
	}
	return msgpack.Unmarshal(v.MsgPack, t)
}

func fromBlock(b *schema.Block, v cty.Value, out *[]string) {
	if !walkable(v) || !v.Type().IsObjectType() && !v.Type().IsMapType() {
		return
	}
	for name, inner := range v.AsValueMap() {
		for i := range b.Attributes {
			if a := &b.Attributes[i]; a.Name == name && a.Sensitive {
				texts(inner, out)
			}
		}
		for i := range b.Blocks {
			if n := &b.Blocks[i]; n.Type == name {
				fromNested(n, inner, out)
			}
		}
	}
}

func fromNested(n *schema.NestedBlock, v cty.Value, out *[]string) {
	if !walkable(v) {
		return
	}
	if n.Nesting == schema.Single {
		fromBlock(&n.Block, v, out)
		return
	}
	if !v.CanIterateElements() {
		return
	}
	for it := v.ElementIterator(); it.Next(); {
		_, e := it.Element()
		fromBlock(&n.Block, e, out)
	}
}

func walkable(v cty.Value) bool { return v != cty.NilVal && v.IsKnown() && !v.IsNull() }

// texts gives every text inside a value.
func texts(v cty.Value, out *[]string) {
	switch {
	case !walkable(v):
	case v.Type() == cty.String:
		*out = append(*out, v.AsString())
	case v.CanIterateElements():
		for it := v.ElementIterator(); it.Next(); {
			_, e := it.Element()
			texts(e, out)
		}
	}
}
