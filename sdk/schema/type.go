// SPDX-License-Identifier: Apache-2.0

//go:build !berth_guest

package schema

import (
	"maps"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"
)

// Type is the type of an attribute.
type Type struct{ t cty.Type }

// The simple types.
var (
	String = Type{cty.String}
	Number = Type{cty.Number}
	Bool   = Type{cty.Bool}
	Any    = Type{cty.DynamicPseudoType}
)

// ListOf is a list of elements of one type.
func ListOf(e Type) Type { return Type{cty.List(e.t)} }

// SetOf is a set of elements of one type.
func SetOf(e Type) Type { return Type{cty.Set(e.t)} }

// MapOf is a map from strings to elements of one type.
func MapOf(e Type) Type { return Type{cty.Map(e.t)} }

// Object has named attributes, all required but those in optional.
func Object(attrs map[string]Type, optional ...string) Type {
	m := make(map[string]cty.Type, len(attrs))
	for k, v := range attrs {
		m[k] = v.t
	}
	if len(optional) > 0 {
		return Type{cty.ObjectWithOptionalAttrs(m, optional)}
	}
	return Type{cty.Object(m)}
}

// String is the type as a file would say it: list(string), object({ name = string, size = optional(number) }).
func (t Type) String() string { return typeText(t.t) }

func typeText(t cty.Type) string {
	switch {
	case t == cty.NilType, t == cty.DynamicPseudoType:
		return "any"
	case t.IsListType():
		return "list(" + typeText(t.ElementType()) + ")"
	case t.IsSetType():
		return "set(" + typeText(t.ElementType()) + ")"
	case t.IsMapType():
		return "map(" + typeText(t.ElementType()) + ")"
	case t.IsTupleType():
		var all []string
		for _, e := range t.TupleElementTypes() {
			all = append(all, typeText(e))
		}
		return "tuple([" + strings.Join(all, ", ") + "])"
	case t.IsObjectType():
		var all []string
		for _, name := range slices.Sorted(maps.Keys(t.AttributeTypes())) {
			text := typeText(t.AttributeType(name))
			if t.AttributeOptional(name) {
				text = "optional(" + text + ")"
			}
			all = append(all, name+" = "+text)
		}
		return "object({ " + strings.Join(all, ", ") + " })"
	default:
		return t.FriendlyName()
	}
}

// MarshalJSON gives cty's JSON form of the type.
func (t Type) MarshalJSON() ([]byte, error) { return t.t.MarshalJSON() }

// UnmarshalJSON reads cty's JSON form of a type.
func (t *Type) UnmarshalJSON(b []byte) error { return t.t.UnmarshalJSON(b) }
