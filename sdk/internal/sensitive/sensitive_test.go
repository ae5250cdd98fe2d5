// SPDX-License-Identifier: Apache-2.0

package sensitive

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/msgpack"

	"github.com/berth-dev/berth/sdk/schema"
)

func TestTexts(t *testing.T) {
	inner := schema.Block{Attributes: []schema.Attribute{{Name: "key", Sensitive: true}, {Name: "name"}}}
	sch := &schema.Schema{Block: schema.Block{
		Attributes: []schema.Attribute{{Name: "token", Sensitive: true}, {Name: "all", Sensitive: true}, {Name: "open"}},
		Blocks: []schema.NestedBlock{
			{Type: "one", Nesting: schema.Single, Block: inner},
			{Type: "many", Nesting: schema.List, Block: inner},
			{Type: "named", Nesting: schema.Map, Block: inner},
		},
	}}
	pair := func(s string) cty.Value {
		return cty.ObjectVal(map[string]cty.Value{"key": cty.StringVal(s), "name": cty.StringVal("visible")})
	}
	v := cty.ObjectVal(map[string]cty.Value{
		"token": cty.StringVal("t"), "open": cty.StringVal("visible"), "unknown": cty.True,
		"all": cty.MapVal(map[string]cty.Value{"x": cty.StringVal("m1"), "y": cty.StringVal("m2")}),
		"one": pair("o"), "many": cty.ListVal([]cty.Value{pair("l1"), pair("l2")}),
		"named": cty.MapVal(map[string]cty.Value{"n": pair("n1")}),
	})
	b, err := msgpack.Marshal(v, v.Type())
	if err != nil {
		t.Fatal(err)
	}
	got, err := Texts(sch, schema.Value{MsgPack: b})
	slices.Sort(got)
	if d := cmp.Diff([]string{"l1", "l2", "m1", "m2", "n1", "o", "t"}, got); err != nil || d != "" {
		t.Errorf("%v %s", err, d)
	}
	got, err = Texts(sch, schema.Value{JSON: []byte(`{"token": "t", "one": null, "many": [{"key": "k"}]}`)})
	slices.Sort(got)
	if d := cmp.Diff([]string{"k", "t"}, got); err != nil || d != "" {
		t.Errorf("%v %s", err, d)
	}
	if _, err := Texts(sch, schema.Value{JSON: []byte(`{`)}); err == nil {
		t.Error("half a value was accepted")
	}
}
