// SPDX-License-Identifier: Apache-2.0

package funcs

import (
	"errors"
	"fmt"
	"slices"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
)

func anything(name string) function.Parameter {
	return function.Parameter{Name: name, Type: cty.DynamicPseudoType}
}

var sumFunc = function.New(&function.Spec{
	Description: "Adds up the numbers of a list or set.",
	Params:      []function.Parameter{{Name: "list", Type: cty.List(cty.Number)}},
	Type:        function.StaticReturnType(cty.Number),
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		if args[0].LengthInt() == 0 {
			return cty.NilVal, function.NewArgErrorf(0, "must not be empty")
		}
		total := cty.Zero
		for _, v := range args[0].Elements() {
			if v.IsNull() {
				return cty.NilVal, function.NewArgErrorf(0, "must not contain null")
			}
			total = total.Add(v)
		}
		return total, nil
	},
})

var (
	allTrueFunc = truth("Says whether no element is false.", false)
	anyTrueFunc = truth("Says whether some element is true.", true)
)

// truth looks for one element that settles the answer.
func truth(doc string, settles bool) function.Function {
	return function.New(&function.Spec{
		Description:  doc,
		Params:       []function.Parameter{{Name: "list", Type: cty.List(cty.Bool)}},
		Type:         function.StaticReturnType(cty.Bool),
		RefineResult: notNull,
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			unknown := false
			for _, v := range args[0].Elements() {
				switch {
				case !v.IsKnown():
					unknown = true
				case !v.IsNull() && v.True() == settles, v.IsNull() && !settles:
					return cty.BoolVal(settles), nil
				}
			}
			if unknown {
				return cty.UnknownVal(cty.Bool), nil
			}
			return cty.BoolVal(!settles), nil
		},
	})
}

var coalesceFunc = function.New(&function.Spec{
	Description: "Gives the first of its arguments that is neither null nor an empty text.",
	VarParam: &function.Parameter{
		Name: "vals", Type: cty.DynamicPseudoType, AllowNull: true, AllowUnknown: true, AllowDynamicType: true,
	},
	Type: func(args []cty.Value) (cty.Type, error) {
		types := make([]cty.Type, len(args))
		for i, v := range args {
			types[i] = v.Type()
		}
		t, _ := convert.UnifyUnsafe(types)
		if t == cty.NilType {
			return cty.NilType, errors.New("all arguments must have the same type")
		}
		return t, nil
	},
	Impl: func(args []cty.Value, t cty.Type) (cty.Value, error) {
		for _, v := range args {
			v, err := convert.Convert(v, t)
			switch {
			case err != nil:
				return cty.NilVal, err
			case !v.IsKnown():
				return cty.UnknownVal(t), nil
			case v.IsNull(), v.Type() == cty.String && v.AsString() == "":
				continue
			}
			return v, nil
		}
		return cty.NilVal, errors.New("every argument is null or an empty text")
	},
})

var lengthFunc = function.New(&function.Spec{
	Description: "Counts the elements of a collection, or the characters of a text.",
	Params:      []function.Parameter{{Name: "value", Type: cty.DynamicPseudoType, AllowDynamicType: true, AllowUnknown: true}},
	Type: func(args []cty.Value) (cty.Type, error) {
		t := args[0].Type()
		if t == cty.String || t == cty.DynamicPseudoType || t.IsObjectType() || t.IsTupleType() || t.IsCollectionType() {
			return cty.Number, nil
		}
		return cty.NilType, function.NewArgErrorf(0, "must be a collection or a text")
	},
	RefineResult: func(b *cty.RefinementBuilder) *cty.RefinementBuilder {
		return b.NotNull().NumberRangeLowerBound(cty.Zero, true)
	},
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		switch t := args[0].Type(); {
		case t == cty.DynamicPseudoType:
			return cty.UnknownVal(cty.Number), nil
		case t == cty.String:
			return stdlib.Strlen(args[0])
		case t.IsObjectType():
			return cty.NumberIntVal(int64(len(t.AttributeTypes()))), nil
		}
		return args[0].Length(), nil
	},
})

var indexFunc = function.New(&function.Spec{
	Description: "Gives the place of a value in a list.",
	Params:      []function.Parameter{anything("list"), anything("value")},
	Type: func(args []cty.Value) (cty.Type, error) {
		if t := args[0].Type(); !t.IsListType() && !t.IsTupleType() {
			return cty.NilType, function.NewArgErrorf(0, "must be a list")
		}
		return cty.Number, nil
	},
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		for i, v := range args[0].AsValueSlice() {
			eq, err := stdlib.Equal(v, args[1])
			switch {
			case err != nil:
				return cty.NilVal, err
			case !eq.IsKnown():
				return cty.UnknownVal(cty.Number), nil
			case eq.True():
				return cty.NumberIntVal(int64(i)), nil
			}
		}
		return cty.NilVal, errors.New("the list has no such value")
	},
})

var lookupFunc = function.New(&function.Spec{
	Description: "Gives the value of a key in a map or object, or a default.",
	Params:      []function.Parameter{anything("map"), text("key")},
	VarParam: &function.Parameter{
		Name: "default", Type: cty.DynamicPseudoType, AllowNull: true, AllowUnknown: true, AllowDynamicType: true,
	},
	Type: func(args []cty.Value) (cty.Type, error) {
		if len(args) > 3 {
			return cty.NilType, errors.New("takes two or three arguments")
		}
		t := args[0].Type()
		switch {
		case t.IsMapType():
			return t.ElementType(), nil
		case t.IsObjectType():
			key := args[1]
			switch {
			case !key.IsKnown():
				return cty.DynamicPseudoType, nil
			case t.HasAttribute(key.AsString()):
				return t.AttributeType(key.AsString()), nil
			case len(args) == 3:
				return args[2].Type(), nil
			}
			return cty.NilType, noKey(key)
		}
		return cty.NilType, function.NewArgErrorf(0, "must be a map or an object")
	},
	Impl: func(args []cty.Value, t cty.Type) (cty.Value, error) {
		key := args[1].AsString()
		if args[0].Type().IsObjectType() {
			if args[0].Type().HasAttribute(key) {
				return args[0].GetAttr(key), nil
			}
		} else if args[0].HasIndex(args[1]).True() {
			return args[0].Index(args[1]), nil
		}
		if len(args) == 3 {
			return convert.Convert(args[2], t)
		}
		return cty.NilVal, noKey(args[1])
	},
})

func noKey(key cty.Value) error {
	return fmt.Errorf("there is no key %q and no default", key.AsString())
}

var matchKeysFunc = function.New(&function.Spec{
	Description: "Gives the values whose key, at the same place of another list, is one of those searched.",
	Params: []function.Parameter{
		{Name: "values", Type: cty.List(cty.DynamicPseudoType)},
		{Name: "keys", Type: cty.List(cty.DynamicPseudoType)},
		{Name: "search", Type: cty.List(cty.DynamicPseudoType)},
	},
	Type: func(args []cty.Value) (cty.Type, error) { return args[0].Type(), nil },
	Impl: func(args []cty.Value, t cty.Type) (cty.Value, error) {
		values, keys := args[0].AsValueSlice(), args[1].AsValueSlice()
		if len(values) != len(keys) {
			return cty.NilVal, errors.New("values and keys must be of the same length")
		}
		search := args[2].AsValueSlice()
		var out []cty.Value
		for i, k := range keys {
			for _, s := range search {
				eq, err := stdlib.Equal(k, s)
				if err != nil {
					return cty.NilVal, err
				}
				if !eq.IsKnown() {
					return cty.UnknownVal(t), nil
				}
				if eq.True() {
					out = append(out, values[i])
					break
				}
			}
		}
		if len(out) == 0 {
			return cty.ListValEmpty(t.ElementType()), nil
		}
		return cty.ListVal(out), nil
	},
})

var oneFunc = function.New(&function.Spec{
	Description: "Gives the only element of a list or set, or null when it is empty.",
	Params:      []function.Parameter{anything("list")},
	Type: func(args []cty.Value) (cty.Type, error) {
		t := args[0].Type()
		switch {
		case t.IsListType() || t.IsSetType():
			return t.ElementType(), nil
		case t.IsTupleType():
			switch elems := t.TupleElementTypes(); len(elems) {
			case 0:
				return cty.DynamicPseudoType, nil
			case 1:
				return elems[0], nil
			default:
				return cty.NilType, function.NewArgErrorf(0, "must have at most one element")
			}
		}
		return cty.NilType, function.NewArgErrorf(0, "must be a list or a set")
	},
	Impl: func(args []cty.Value, t cty.Type) (cty.Value, error) {
		elems := args[0].AsValueSlice()
		switch len(elems) {
		case 0:
			return cty.NullVal(t), nil
		case 1:
			return elems[0], nil
		}
		return cty.NilVal, function.NewArgErrorf(0, "must have at most one element")
	},
})

// setProductFunc refuses products that are a mistake or an attack before they are made.
var setProductFunc = function.New(&function.Spec{
	Description: stdlib.SetProductFunc.Description(),
	VarParam:    stdlib.SetProductFunc.VarParam(),
	Type:        func(args []cty.Value) (cty.Type, error) { return stdlib.SetProductFunc.ReturnTypeForValues(args) },
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		n := len(args)
		for _, a := range args {
			a, _ = a.Unmark()
			if !a.IsKnown() || a.IsNull() {
				continue
			}
			if n *= a.LengthInt(); n > mostElements {
				return cty.NilVal, fmt.Errorf("the result has more than %d elements", mostElements)
			}
		}
		return stdlib.SetProductFunc.Call(args)
	},
})

var transposeFunc = function.New(&function.Spec{
	Description: "Turns a map of lists round: each element becomes a key.",
	Params:      []function.Parameter{{Name: "map", Type: cty.Map(cty.List(cty.String))}},
	Type:        function.StaticReturnType(cty.Map(cty.List(cty.String))),
	Impl: func(args []cty.Value, t cty.Type) (cty.Value, error) {
		if !args[0].IsWhollyKnown() {
			return cty.UnknownVal(t), nil
		}
		keys := map[string][]string{}
		for k, list := range args[0].Elements() {
			if list.IsNull() {
				continue
			}
			for _, v := range list.Elements() {
				if v.IsNull() {
					return cty.NilVal, function.NewArgErrorf(0, "must not contain null")
				}
				keys[v.AsString()] = append(keys[v.AsString()], k.AsString())
			}
		}
		if len(keys) == 0 {
			return cty.MapValEmpty(cty.List(cty.String)), nil
		}
		out := map[string]cty.Value{}
		for v, ks := range keys {
			slices.Sort(ks)
			list := make([]cty.Value, len(ks))
			for i, k := range ks {
				list[i] = cty.StringVal(k)
			}
			out[v] = cty.ListVal(list)
		}
		return cty.MapVal(out), nil
	},
})
