// SPDX-License-Identifier: Apache-2.0

package funcs

import (
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"

	"github.com/berth-dev/berth/core/config/mark"
)

// marking are the functions that see marks.
func marking() map[string]function.Function {
	return map[string]function.Function{
		"sensitive": onValue("Marks a value as one that must not be shown.", same,
			func(v cty.Value) cty.Value {
				if mark.IsSensitive(v) {
					return v
				}
				return v.Mark(mark.Sensitive{})
			}),
		"nonsensitive": onValue("Says that a value may be shown, though it was made from sensitive ones.", same, mark.Reveal),
		"issensitive": onValue("Says whether a value must not be shown.", boolType,
			func(v cty.Value) cty.Value { return cty.BoolVal(mark.IsSensitive(v)) }),
		"ephemeralasnull": onValue("Gives null for a value that must not be stored, otherwise the value.", same, ephemeralAsNull),
		"type": onValue("Gives the type of a value as text.", stringType, func(v cty.Value) cty.Value {
			if !v.IsKnown() && v.Type() == cty.DynamicPseudoType {
				return cty.UnknownVal(cty.String)
			}
			return cty.StringVal(typeexpr.TypeString(v.Type()))
		}),
	}
}

func same(v cty.Value) cty.Type     { return v.Type() }
func boolType(cty.Value) cty.Type   { return cty.Bool }
func stringType(cty.Value) cty.Type { return cty.String }

func onValue(doc string, typ func(cty.Value) cty.Type, f func(cty.Value) cty.Value) function.Function {
	return function.New(&function.Spec{
		Description: doc,
		Params: []function.Parameter{{
			Name: "value", Type: cty.DynamicPseudoType,
			AllowNull: true, AllowUnknown: true, AllowDynamicType: true, AllowMarked: true,
		}},
		Type: func(args []cty.Value) (cty.Type, error) { return typ(args[0]), nil },
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) { return f(args[0]), nil },
	})
}

func ephemeralAsNull(v cty.Value) cty.Value {
	out, err := cty.Transform(v, func(_ cty.Path, part cty.Value) (cty.Value, error) {
		bare, marks := part.Unmark()
		if _, ok := marks[mark.Ephemeral{}]; !ok {
			return part, nil
		}
		delete(marks, mark.Ephemeral{})
		return cty.NullVal(bare.Type()).WithMarks(marks), nil
	})
	if err != nil {
		return cty.NullVal(v.Type())
	}
	return out
}
