// SPDX-License-Identifier: Apache-2.0

package check

import (
	"math/big"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/berth-dev/berth/core/config/funcs"
	"github.com/berth-dev/berth/core/config/schema"
	"github.com/berth-dev/berth/core/config/tree"
	"github.com/berth-dev/berth/core/diag"
)

type patterns map[string]*regexp.Regexp

// match compiles a pattern of a schema once. One that does not compile matches everything: it is the driver's fault
// and not the user's.
func (p *patterns) match(pattern, text string) bool {
	if *p == nil {
		*p = patterns{}
	}
	re, known := (*p)[pattern]
	if !known {
		re, _ = regexp.Compile(pattern)
		(*p)[pattern] = re
	}
	return re == nil || re.MatchString(text)
}

// converted converts a value to a type and reports what does not fit.
func (c *Checker) converted(a *tree.Attr, v cty.Value, t cty.Type) (cty.Value, bool) {
	out, err := convert.Convert(v, t)
	if err == nil {
		return out, true
	}
	rng, name := a.Expr.Range(), a.Name
	want := t
	var pe cty.PathError
	if asPathError(err, &pe) && len(pe.Path) > 0 {
		inner, where := tightest(a.Expr, pe.Path, a.Env)
		if where != "" {
			rng, name = inner.Range(), a.Name+where
			if w, ok := typeAt(t, pe.Path); ok {
				want = w
			}
		}
	}
	d := diag.Errorf(diag.WrongType, rng, "wrong type")
	d.Labelf("%q needs %s", name, needed(want))
	if plain, _ := v.UnmarkDeep(); (want.IsObjectType() || want.IsMapType()) && plain.Type().IsObjectType() {
		d.Notef("%s", err.Error())
	}
	c.add(d)
	return cty.NilVal, false
}

func asPathError(err error, pe *cty.PathError) bool {
	e, ok := err.(cty.PathError) //nolint:errorlint // cty gives the value itself.
	if ok {
		*pe = e
	}
	return ok
}

// typeAt follows a path into a type.
func typeAt(t cty.Type, path cty.Path) (cty.Type, bool) {
	for _, s := range path {
		switch s := s.(type) {
		case cty.GetAttrStep:
			if !t.IsObjectType() || !t.HasAttribute(s.Name) {
				return t, false
			}
			t = t.AttributeType(s.Name)
		case cty.IndexStep:
			if !t.IsCollectionType() {
				return t, false
			}
			t = t.ElementType()
		}
	}
	return t, true
}

func needed(t cty.Type) string {
	switch {
	case t.IsListType() && t.ElementType() == cty.String:
		return "a list of texts: [\"...\"]"
	case t.IsMapType() && t.ElementType() == cty.String:
		return "a map of texts: { name = \"...\" }"
	}
	return diag.FriendlyType(t)
}

// unit turns a text such as "30s" or "512MiB" into its number.
func (c *Checker) unit(a *tree.Attr, v cty.Value) (cty.Value, bool) {
	bytes := a.Schema.Kind == schema.Size || a.Schema.Unit == "bytes"
	if !bytes && a.Schema.Kind != schema.Duration && a.Schema.Unit != "duration" {
		return v, true
	}
	bare, marks := v.Unmark()
	if !bare.IsKnown() {
		return cty.UnknownVal(cty.Number).WithMarks(marks), true
	}
	if bare.Type() == cty.Number {
		if bare.AsBigFloat().Sign() < 0 || bytes && !bare.AsBigFloat().IsInt() {
			c.badUnit(a, bytes, "")
			return v, false
		}
		return v, true
	}
	if bare.Type() != cty.String {
		c.badUnit(a, bytes, "")
		return v, false
	}
	text := bare.AsString()
	if bytes {
		n, err := funcs.ParseBytes(text)
		if err != nil {
			c.badUnit(a, bytes, err.Error())
			return v, false
		}
		return cty.NumberUIntVal(n).WithMarks(marks), true
	}
	d, err := funcs.ParseDuration(text)
	if err != nil {
		c.badUnit(a, bytes, err.Error())
		return v, false
	}
	sec := new(big.Float).SetInt64(int64(d))
	sec.Quo(sec, big.NewFloat(1e9))
	return cty.NumberVal(sec).WithMarks(marks), true
}

func (c *Checker) badUnit(a *tree.Attr, bytes bool, why string) {
	d := diag.Errorf(diag.BadDuration, a.Expr.Range(), "%q needs a duration", a.Name)
	if bytes {
		d = diag.Errorf(diag.BadDuration, a.Expr.Range(), "%q needs a size", a.Name)
	}
	switch {
	case why != "":
		d.Labelf("%s", why)
	case bytes:
		d.Labelf(`such as "512MiB", or a number of bytes`)
	default:
		d.Labelf(`such as "30s" or "1h30m", or a number of seconds`)
	}
	c.add(d)
}

// limits checks words, patterns and ranges of a value whose marks are off.
func (c *Checker) limits(a *tree.Attr, v cty.Value) {
	if !v.IsKnown() || v.IsNull() {
		return
	}
	s := a.Schema
	t := v.Type()
	switch {
	case t == cty.String:
		c.text(a, a.Expr.Range(), a.Name, v.AsString())
	case t == cty.Number:
		c.number(a, v.AsBigFloat())
	case t.IsMapType() || t.IsObjectType():
		if s.Pattern == "" || t.IsObjectType() {
			return
		}
		for it := v.ElementIterator(); it.Next(); {
			k, _ := it.Element()
			if c.patterns.match(s.Pattern, k.AsString()) {
				continue
			}
			rng := a.Expr.Range()
			if inner, where := tightest(a.Expr, cty.IndexPath(k), a.Env); where != "" {
				rng = inner.Range()
			}
			c.add(diag.Errorf(diag.PatternMismatch, rng, "%q is not a valid name in %q", k.AsString(), a.Name).
				Labelf("names must match %s", s.Pattern))
		}
	case t.IsListType() || t.IsSetType():
		if t.ElementType() != cty.String || len(s.Enum) == 0 && s.Pattern == "" {
			return
		}
		i := int64(0)
		for it := v.ElementIterator(); it.Next(); {
			_, e := it.Element()
			if e.IsKnown() && !e.IsNull() {
				rng := a.Expr.Range()
				if inner, where := tightest(a.Expr, cty.IndexIntPath(int(i)), a.Env); where != "" {
					rng = inner.Range()
				}
				c.text(a, rng, a.Name, e.AsString())
			}
			i++
		}
	}
}

func (c *Checker) text(a *tree.Attr, rng hcl.Range, name, text string) {
	s := a.Schema
	shown := text
	if a.Secret {
		shown = diag.Redacted
	}
	if len(s.Enum) > 0 && !has(s.Enum, text) {
		d := diag.Errorf(diag.NotOneOf, rng, "%q cannot be %q", name, diag.Printable(shown))
		if s.OpenEnum {
			d.Severity = diag.Warning
			d.Summary = `"` + name + `" is usually not "` + diag.Printable(shown) + `"`
		}
		if near := diag.Suggest(text, s.Enum); near != "" {
			d.Labelf("did you mean %q?", near)
		} else {
			d.Labelf("one of: %s", strings.Join(s.Enum, ", "))
		}
		c.add(d)
	}
	if s.Pattern != "" && !c.patterns.match(s.Pattern, text) {
		c.add(diag.Errorf(diag.PatternMismatch, rng, "%q has a wrong form", name).Labelf("it must match %s", s.Pattern))
	}
}

func (c *Checker) number(a *tree.Attr, f *big.Float) {
	s := a.Schema
	if f.IsInf() {
		c.add(diag.Errorf(diag.OutOfRange, a.Expr.Range(), "%q is out of range", a.Name).Labelf("it is infinite"))
		return
	}
	if s.Whole && !f.IsInt() {
		c.add(diag.Errorf(diag.OutOfRange, a.Expr.Range(), "%q needs a whole number", a.Name).Labelf("this is %s", f.Text('g', 10)))
		return
	}
	v, _ := f.Float64()
	low, high := s.Min != nil && v < *s.Min, s.Max != nil && v > *s.Max
	if !low && !high {
		if s.Whole || s.Kind == schema.Size || s.Kind == schema.Duration {
			const most = 1 << 53
			if v > most || v < -most {
				c.add(diag.Errorf(diag.OutOfRange, a.Expr.Range(), "%q is out of range", a.Name).Labelf("the number is too large"))
			}
		}
		return
	}
	d := diag.Errorf(diag.OutOfRange, a.Expr.Range(), "%q is out of range", a.Name)
	switch {
	case s.Min != nil && s.Max != nil:
		d.Labelf("from %g to %g", *s.Min, *s.Max)
	case low:
		d.Labelf("at least %g", *s.Min)
	default:
		d.Labelf("at most %g", *s.Max)
	}
	c.add(d)
}

func has(list []string, s string) bool {
	return slices.Contains(list, s)
}
