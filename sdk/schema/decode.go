// SPDX-License-Identifier: Apache-2.0

//go:build !berth_guest

package schema

import (
	"errors"
	"maps"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/berth-dev/berth/sdk/errs"
)

// Decode puts a body into the struct that dst points to, after defaults were filled in and the schema's rules checked.
//
// A field takes the argument or block that its tag names: `berth:"image"`. Every argument and block of the schema
// needs a field, and every tag must name one of them: anything else is an error of the driver's author. Fields without
// a tag are left alone.
//
// A string, bool, number, slice, map with string keys, struct, pointer to one of these, or any takes what fits.
// A time.Duration takes a number of seconds. What was not said and has no default leaves the zero value, a nil pointer
// or a nil slice. A number that the field cannot hold exactly is an error.
func (v Value) Decode(s *Schema, dst any) error {
	p := reflect.ValueOf(dst)
	if p.Kind() != reflect.Pointer || p.IsNil() || p.Elem().Kind() != reflect.Struct {
		return errs.New(errs.Internal, "configuration is decoded into a pointer to a struct, not a %T", dst)
	}
	if s == nil {
		s = &Schema{}
	}
	c, err := v.Cty(s)
	if err != nil {
		return err
	}
	if !c.IsWhollyKnown() {
		return errs.New(errs.ConfigInvalid, "the configuration is not wholly known")
	}
	c, err = s.Block.WithDefaults(c, nil)
	if err != nil {
		return err
	}
	if problems := s.Block.Check(c); len(problems) > 0 {
		return problemsError(problems)
	}
	return into(nil, c, p.Elem())
}

// problemsError joins all problems; the first one gives the path.
func problemsError(problems []Problem) error {
	var all []error
	for _, p := range problems {
		e := errs.New(errs.ConfigInvalid, "%s", p.Detail)
		e.Path = p.Path
		e.Op = pathText(p.Path)
		all = append(all, e)
	}
	if len(all) == 1 {
		return all[0]
	}
	return &errs.Error{Code: errs.ConfigInvalid, Path: problems[0].Path, Err: errors.Join(all...)}
}

func pathText(path []errs.PathStep) string {
	var b strings.Builder
	for _, s := range path {
		switch {
		case s.Attribute != "":
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(s.Attribute)
		case s.Index != nil:
			b.WriteByte('[')
			b.WriteString(big.NewInt(*s.Index).String())
			b.WriteByte(']')
		default:
			b.WriteString(`["` + s.Key + `"]`)
		}
	}
	return b.String()
}

var durationType = reflect.TypeFor[time.Duration]()

func into(at []errs.PathStep, v cty.Value, dst reflect.Value) error {
	fail := func(format string, args ...any) error {
		e := errs.New(errs.ConfigInvalid, format, args...)
		e.Path, e.Op = at, pathText(at)
		return e
	}
	if v.IsNull() {
		dst.SetZero()
		return nil
	}
	t := v.Type()
	mismatch := func() error { return fail("a %s does not fit a Go %s", t.FriendlyName(), dst.Type()) }
	switch k := dst.Kind(); k {
	case reflect.Pointer:
		p := reflect.New(dst.Type().Elem())
		if err := into(at, v, p.Elem()); err != nil {
			return err
		}
		dst.Set(p)
	case reflect.Interface:
		if dst.NumMethod() > 0 {
			return mismatch()
		}
		dst.Set(reflect.ValueOf(plain(v)))
	case reflect.String:
		if t != cty.String {
			return mismatch()
		}
		dst.SetString(v.AsString())
	case reflect.Bool:
		if t != cty.Bool {
			return mismatch()
		}
		dst.SetBool(v.True())
	case reflect.Struct:
		return intoStruct(at, v, dst)
	case reflect.Map:
		return intoMap(at, v, dst, mismatch)
	case reflect.Slice:
		return intoSlice(at, v, dst, mismatch)
	default:
		if t != cty.Number {
			return mismatch()
		}
		if !setNumber(v.AsBigFloat(), dst) {
			return fail("%s does not fit a Go %s", numberText(v.AsBigFloat()), dst.Type())
		}
	}
	return nil
}

// setNumber reports whether dst is a number that holds n. The accuracy that big.Float.Uint64 reports is of no use: it
// calls 1.5 exact.
func setNumber(n *big.Float, dst reflect.Value) bool {
	if n.MantExp(nil) > 1024 {
		return false
	}
	if dst.Type() == durationType {
		nanos := new(big.Float).Mul(n, big.NewFloat(float64(time.Second)))
		f, _ := nanos.Float64()
		if math.Abs(f) >= math.MaxInt64 {
			return false
		}
		dst.SetInt(int64(math.Round(f)))
		return true
	}
	switch k := dst.Kind(); {
	case k >= reflect.Int && k <= reflect.Int64:
		i, _ := n.Int64()
		if !n.IsInt() || n.Cmp(new(big.Float).SetInt64(i)) != 0 || dst.OverflowInt(i) {
			return false
		}
		dst.SetInt(i)
	case k >= reflect.Uint && k <= reflect.Uint64:
		u, _ := n.Uint64()
		if !n.IsInt() || n.Cmp(new(big.Float).SetUint64(u)) != 0 || dst.OverflowUint(u) {
			return false
		}
		dst.SetUint(u)
	case k == reflect.Float32 || k == reflect.Float64:
		f, _ := n.Float64()
		if math.IsInf(f, 0) || dst.OverflowFloat(f) {
			return false
		}
		dst.SetFloat(f)
	default:
		return false
	}
	return true
}

func intoStruct(at []errs.PathStep, v cty.Value, dst reflect.Value) error {
	if !v.Type().IsObjectType() {
		return errs.New(errs.ConfigInvalid, "%s: a %s does not fit a Go struct", pathText(at), v.Type().FriendlyName())
	}
	left := maps.Clone(v.Type().AttributeTypes())
	for f, fv := range dst.Fields() {
		name, tagged := f.Tag.Lookup("berth")
		if !tagged {
			continue
		}
		if !f.IsExported() {
			return errs.New(errs.Internal, "%s.%s has a tag but is not exported", dst.Type(), f.Name)
		}
		if _, ok := left[name]; !ok {
			return errs.New(errs.Internal, "%s.%s is tagged %q, which is not in the schema", dst.Type(), f.Name, name)
		}
		delete(left, name)
		if err := into(append(slices.Clip(at), errs.PathStep{Attribute: name}), v.GetAttr(name), fv); err != nil {
			return err
		}
	}
	for name := range left {
		return errs.New(errs.Internal, "%s has no field for %q, which is in the schema", dst.Type(), name)
	}
	return nil
}

func intoMap(at []errs.PathStep, v cty.Value, dst reflect.Value, mismatch func() error) error {
	t := dst.Type()
	if t.Key().Kind() != reflect.String || !v.Type().IsMapType() && !v.Type().IsObjectType() {
		return mismatch()
	}
	m := reflect.MakeMapWithSize(t, v.LengthInt())
	for k, e := range v.Elements() {
		x := reflect.New(t.Elem()).Elem()
		if err := into(append(slices.Clip(at), errs.PathStep{Key: k.AsString()}), e, x); err != nil {
			return err
		}
		m.SetMapIndex(reflect.ValueOf(k.AsString()).Convert(t.Key()), x)
	}
	dst.Set(m)
	return nil
}

func intoSlice(at []errs.PathStep, v cty.Value, dst reflect.Value, mismatch func() error) error {
	t := v.Type()
	if !t.IsListType() && !t.IsSetType() && !t.IsTupleType() {
		return mismatch()
	}
	s := reflect.MakeSlice(dst.Type(), v.LengthInt(), v.LengthInt())
	i := int64(0)
	for _, e := range v.Elements() {
		if err := into(append(slices.Clip(at), errs.PathStep{Index: new(i)}), e, s.Index(int(i))); err != nil {
			return err
		}
		i++
	}
	dst.Set(s)
	return nil
}

// plain gives the natural Go form: string, bool, float64, []any, map[string]any.
func plain(v cty.Value) any {
	if v.IsNull() {
		return nil
	}
	switch t := v.Type(); {
	case t == cty.String:
		return v.AsString()
	case t == cty.Bool:
		return v.True()
	case t == cty.Number:
		f, _ := v.AsBigFloat().Float64()
		return f
	case t.IsMapType(), t.IsObjectType():
		m := map[string]any{}
		for k, e := range v.Elements() {
			m[k.AsString()] = plain(e)
		}
		return m
	default:
		s := []any{}
		for _, e := range v.Elements() {
			s = append(s, plain(e))
		}
		return s
	}
}
