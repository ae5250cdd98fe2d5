// SPDX-License-Identifier: Apache-2.0

//go:build !berth_guest

package schema

import (
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	"github.com/zclconf/go-cty/cty/gocty"

	"github.com/berth-dev/berth/sdk/errs"
)

// Problem is a value that the schema does not allow.
type Problem struct {
	Path    []errs.PathStep
	Summary string
	Detail  string
}

// Check finds everything that the schema forbids in a decoded body: missing arguments, values outside their bounds,
// arguments that exclude or need each other, too few or too many blocks. Values that are unknown or null are not
// looked into. Types were checked when the body was decoded.
func (b *Block) Check(v cty.Value) []Problem {
	return b.check(nil, v)
}

// WithDefaults fills what the body did not say: from the environment that getenv reads (nil = none), then from
// [Attribute.Default]. Empty lists of blocks stay empty.
func (b *Block) WithDefaults(v cty.Value, getenv func(string) (string, bool)) (cty.Value, error) {
	if v.IsNull() || !v.IsKnown() {
		return v, nil
	}
	m := v.AsValueMap()
	for i := range b.Attributes {
		a := &b.Attributes[i]
		if x, ok := m[a.Name]; !ok || !x.IsNull() {
			continue
		}
		d, err := a.fallback(getenv)
		if err != nil {
			return cty.NilVal, err
		}
		m[a.Name] = d
	}
	for i := range b.Blocks {
		n := &b.Blocks[i]
		x, ok := m[n.Type]
		if !ok || x.IsNull() || !x.IsKnown() {
			continue
		}
		filled, err := n.withDefaults(x, getenv)
		if err != nil {
			return cty.NilVal, err
		}
		m[n.Type] = filled
	}
	return cty.ObjectVal(m), nil
}

func (n *NestedBlock) withDefaults(v cty.Value, getenv func(string) (string, bool)) (cty.Value, error) {
	if n.Nesting == Single {
		return n.Block.WithDefaults(v, getenv)
	}
	if v.LengthInt() == 0 {
		return v, nil
	}
	var list []cty.Value
	named := map[string]cty.Value{}
	for k, e := range v.Elements() {
		e, err := n.Block.WithDefaults(e, getenv)
		if err != nil {
			return cty.NilVal, err
		}
		if n.Nesting == Map {
			named[k.AsString()] = e
		} else {
			list = append(list, e)
		}
	}
	dynamic := n.Element().HasDynamicTypes()
	switch {
	case n.Nesting == Map && dynamic:
		return cty.ObjectVal(named), nil
	case n.Nesting == Map:
		return cty.MapVal(named), nil
	case dynamic:
		return cty.TupleVal(list), nil
	case n.Nesting == Set:
		return cty.SetVal(list), nil
	default:
		return cty.ListVal(list), nil
	}
}

func (a *Attribute) fallback(getenv func(string) (string, bool)) (cty.Value, error) {
	t := a.Type.t.WithoutOptionalAttributesDeep()
	if a.Env != "" && getenv != nil {
		if s, ok := getenv(a.Env); ok {
			v, err := a.Value(s)
			if err != nil {
				return cty.NilVal, errs.New(errs.ConfigInvalid, "environment variable %s: %s", a.Env, err)
			}
			return v, nil
		}
	}
	if a.Default == nil {
		return cty.NullVal(t), nil
	}
	v, err := a.Value(a.Default)
	if err != nil {
		return cty.NilVal, errs.New(errs.ConfigInvalid, "default of %s: %s", a.Name, err)
	}
	return v, nil
}

// Value turns a Go value (a string, bool, number, time.Duration, slice, map, or a cty.Value) into one of the
// attribute's type, texts with a unit included.
func (a *Attribute) Value(x any) (cty.Value, error) {
	t := a.Type.t
	switch y := x.(type) {
	case cty.Value:
		if a.Unit != "" && y.IsKnown() && !y.IsNull() && y.Type() == cty.String {
			return a.Value(y.AsString())
		}
	case string:
		if a.Unit != "" {
			f, err := ParseUnit(a.Unit, y)
			if err != nil {
				return cty.NilVal, err
			}
			x = f
		}
	case time.Duration:
		if a.Unit != UnitDuration {
			return cty.NilVal, errs.New(errs.ConfigInvalid, "a duration needs the unit %q", UnitDuration)
		}
		x = y.Seconds()
	}
	v, err := toCty(x)
	if err != nil {
		return cty.NilVal, err
	}
	v, err = convert.Convert(v, t)
	if err != nil {
		return cty.NilVal, configError(err)
	}
	return v, nil
}

// toCty turns plain Go values into cty values: maps become objects and slices tuples, to be converted afterwards.
func toCty(x any) (cty.Value, error) {
	switch y := x.(type) {
	case nil:
		return cty.NullVal(cty.DynamicPseudoType), nil
	case cty.Value:
		return y, nil
	case []any:
		return tuple(y)
	case []string:
		return tuple(y)
	case map[string]any:
		return object(y)
	case map[string]string:
		return object(y)
	}
	t, err := gocty.ImpliedType(x)
	if err != nil {
		return cty.NilVal, errs.New(errs.ConfigInvalid, "a %T is not a configuration value", x)
	}
	v, err := gocty.ToCtyValue(x, t)
	return v, configError(err)
}

func tuple[T any](in []T) (cty.Value, error) {
	out := make([]cty.Value, len(in))
	for i, e := range in {
		v, err := toCty(e)
		if err != nil {
			return cty.NilVal, err
		}
		out[i] = v
	}
	return cty.TupleVal(out), nil
}

func object[T any](in map[string]T) (cty.Value, error) {
	out := make(map[string]cty.Value, len(in))
	for k, e := range in {
		v, err := toCty(e)
		if err != nil {
			return cty.NilVal, err
		}
		out[k] = v
	}
	return cty.ObjectVal(out), nil
}

func (b *Block) check(at []errs.PathStep, v cty.Value) []Problem {
	if v.IsNull() || !v.IsKnown() {
		return nil
	}
	v, _ = v.Unmark()
	var out []Problem
	said := func(name string) bool {
		x := v.GetAttr(name)
		return !x.IsKnown() || !x.IsNull()
	}
	for i := range b.Attributes {
		a := &b.Attributes[i]
		here := append(slices.Clip(at), errs.PathStep{Attribute: a.Name})
		add := func(summary, detail string, args ...any) {
			out = append(out, Problem{Path: here, Summary: summary, Detail: fmt.Sprintf(detail, args...)})
		}
		if !said(a.Name) {
			if a.Required {
				add("Missing argument", "The argument %q is required.", a.Name)
			}
			continue
		}
		for _, c := range a.ConflictsWith {
			if said(c) && c > a.Name {
				add("Arguments exclude each other", "Only one of %q and %q may be set.", a.Name, c)
			}
		}
		for _, r := range a.Requires {
			if !said(r) {
				add("Missing argument", "%q needs %q to be set too.", a.Name, r)
			}
		}
		if d := a.violation(v.GetAttr(a.Name)); d != "" {
			add("Value not allowed", "%s", d)
		}
	}
	for i := range b.Blocks {
		out = append(out, b.Blocks[i].check(at, v.GetAttr(b.Blocks[i].Type))...)
	}
	return out
}

// violation says what is wrong with a value, "" when nothing is. Sensitive values are not shown.
func (a *Attribute) violation(v cty.Value) string {
	v, _ = v.Unmark()
	if !v.IsKnown() || v.IsNull() {
		return ""
	}
	shown := func() string {
		if a.Sensitive {
			return "The value"
		}
		if v.Type() == cty.Number {
			return numberText(v.AsBigFloat())
		}
		return fmt.Sprintf("%q", v.AsString())
	}
	switch v.Type() {
	case cty.String:
		s := v.AsString()
		if len(a.OneOf) > 0 && !slices.Contains(a.OneOf, s) {
			return fmt.Sprintf("%s is not one of %s.", shown(), quoted(a.OneOf))
		}
		if a.Pattern != "" {
			re, err := regexp.Compile(a.Pattern)
			if err != nil {
				return fmt.Sprintf("The schema's pattern for %q is not a regular expression: %s.", a.Name, err)
			}
			if !re.MatchString(s) {
				return fmt.Sprintf("%s does not match %s.", shown(), a.Pattern)
			}
		}
	case cty.Number:
		n := v.AsBigFloat()
		if a.Min != nil && n.Cmp(big.NewFloat(*a.Min)) < 0 {
			return fmt.Sprintf("%s is less than %v.", shown(), *a.Min)
		}
		if a.Max != nil && n.Cmp(big.NewFloat(*a.Max)) > 0 {
			return fmt.Sprintf("%s is more than %v.", shown(), *a.Max)
		}
	}
	return ""
}

func (n *NestedBlock) check(at []errs.PathStep, v cty.Value) []Problem {
	here := append(slices.Clip(at), errs.PathStep{Attribute: n.Type})
	v, _ = v.Unmark()
	if !v.IsKnown() {
		return nil
	}
	count := 0
	switch {
	case v.IsNull():
	case n.Nesting == Single:
		count = 1
	default:
		count = v.LengthInt()
	}
	var out []Problem
	if count < int(n.Min) {
		out = append(out, Problem{here, "Missing block", fmt.Sprintf("At least %d %q block(s) are needed, not %d.", n.Min, n.Type, count)})
	}
	if n.Max > 0 && count > int(n.Max) {
		out = append(out, Problem{here, "Too many blocks", fmt.Sprintf("At most %d %q block(s) are allowed, not %d.", n.Max, n.Type, count)})
	}
	if count == 0 {
		return out
	}
	if n.Nesting == Single {
		return append(out, n.Block.check(here, v)...)
	}
	i := int64(0)
	for k, e := range v.Elements() {
		step := errs.PathStep{Index: new(i)}
		if n.Nesting == Map {
			step = errs.PathStep{Key: k.AsString()}
		}
		i++
		out = append(out, n.Block.check(append(slices.Clip(here), step), e)...)
	}
	return out
}

// numberText shows a number; one with a vast exponent would take for ever to write out.
func numberText(n *big.Float) string {
	if e := n.MantExp(nil); e > 1024 || e < -1024 {
		return "a number out of all bounds"
	}
	if n.IsInt() {
		return n.Text('f', 0)
	}
	return n.Text('g', 10)
}

func quoted(words []string) string {
	q := make([]string, len(words))
	for i, w := range words {
		q[i] = fmt.Sprintf("%q", w)
	}
	return strings.Join(q, ", ")
}
