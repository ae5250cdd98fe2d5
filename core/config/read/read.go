// SPDX-License-Identifier: Apache-2.0

// Package read gives the values of a checked node as Go values. It reports nothing: what is wrong was found by package
// check, and reads as the zero value here.
package read

import (
	"context"
	"encoding/json"
	"math"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/berth-dev/berth/core/config/eval"
	"github.com/berth-dev/berth/core/config/schema"
	"github.com/berth-dev/berth/core/config/tree"
	"github.com/berth-dev/berth/core/diag"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/value"
)

// Reader reads one node. The zero Reader reads a block that is not there: everything has its default.
type Reader struct{ n *tree.Node }

// New reads a node, which may be nil.
func New(n *tree.Node) Reader { return Reader{n} }

// Node is what is read.
func (r Reader) Node() *tree.Node { return r.n }

// OK reports whether there is a block at all.
func (r Reader) OK() bool { return r.n != nil }

// Has reports whether the file says the attribute.
func (r Reader) Has(name string) bool { return r.n.Attr(name) != nil }

// Pos is where the block starts.
func (r Reader) Pos() spec.Pos {
	if r.n == nil {
		return spec.Pos{}
	}
	return r.n.Pos()
}

// Block reads a nested block.
func (r Reader) Block(typ string) Reader { return Reader{r.n.Block(typ)} }

// Blocks reads the nested blocks of a type.
func (r Reader) Blocks(typ string) []Reader {
	var out []Reader
	for _, n := range r.n.All(typ) {
		out = append(out, Reader{n})
	}
	return out
}

// known gives an attribute's value without marks when it is known.
func (r Reader) known(name string) (cty.Value, bool) {
	a := r.n.Attr(name)
	if a == nil || a.Bad || a.Value == cty.NilVal {
		return cty.NilVal, false
	}
	v, _ := a.Value.UnmarkDeep()
	if !v.IsWhollyKnown() || v.IsNull() {
		return cty.NilVal, false
	}
	return v, true
}

// fallback is the default of an attribute in the schema.
func (r Reader) fallback(name string) any {
	if r.n == nil || r.n.Body == nil {
		return nil
	}
	if a := r.n.Body.Attr(name); a != nil {
		return a.Default
	}
	return nil
}

// String reads a text.
func (r Reader) String(name string) string {
	if v, ok := r.known(name); ok && v.Type() == cty.String {
		return v.AsString()
	}
	if r.Has(name) {
		return ""
	}
	s, _ := r.fallback(name).(string)
	return s
}

// StringPtr reads a text; nil when the file does not say it.
func (r Reader) StringPtr(name string) *string {
	if v, ok := r.known(name); ok && v.Type() == cty.String {
		s := v.AsString()
		return &s
	}
	return nil
}

// Bool reads true or false.
func (r Reader) Bool(name string) bool {
	if p := r.BoolPtr(name); p != nil {
		return *p
	}
	if r.Has(name) {
		return false
	}
	b, _ := r.fallback(name).(bool)
	return b
}

// BoolPtr reads true or false; nil when the file does not say it.
func (r Reader) BoolPtr(name string) *bool {
	if v, ok := r.known(name); ok && v.Type() == cty.Bool {
		b := v.True()
		return &b
	}
	return nil
}

// Float reads a number.
func (r Reader) Float(name string) float64 {
	if p := r.FloatPtr(name); p != nil {
		return *p
	}
	if r.Has(name) {
		return 0
	}
	f, _ := r.fallback(name).(float64)
	return f
}

// FloatPtr reads a number; nil when the file does not say it.
func (r Reader) FloatPtr(name string) *float64 {
	if v, ok := r.known(name); ok && v.Type() == cty.Number {
		f, _ := v.AsBigFloat().Float64()
		return &f
	}
	return nil
}

// Int reads a whole number.
func (r Reader) Int(name string) int { return int(r.Float(name)) }

// IntPtr reads a whole number; nil when the file does not say it.
func (r Reader) IntPtr(name string) *int {
	if f := r.FloatPtr(name); f != nil {
		i := int(*f)
		return &i
	}
	return nil
}

// Int64Ptr is IntPtr for the wider type.
func (r Reader) Int64Ptr(name string) *int64 {
	if f := r.FloatPtr(name); f != nil {
		i := int64(*f)
		return &i
	}
	return nil
}

// Size reads a size in bytes.
func (r Reader) Size(name string) uint64 {
	if p := r.SizePtr(name); p != nil {
		return *p
	}
	return 0
}

// SizePtr reads a size; nil when the file does not say it.
func (r Reader) SizePtr(name string) *uint64 {
	if f := r.FloatPtr(name); f != nil && *f >= 0 {
		u := uint64(*f)
		return &u
	}
	return nil
}

// Duration reads a duration.
func (r Reader) Duration(name string) time.Duration {
	if p := r.DurationPtr(name); p != nil {
		return *p
	}
	if s, ok := r.fallback(name).(string); ok && !r.Has(name) {
		d, err := time.ParseDuration(s)
		if err == nil {
			return d
		}
	}
	return 0
}

// DurationPtr reads a duration; nil when the file does not say it.
func (r Reader) DurationPtr(name string) *time.Duration {
	f := r.FloatPtr(name)
	if f == nil {
		return nil
	}
	d := time.Duration(math.MaxInt64)
	if ns := *f * float64(time.Second); ns < math.MaxInt64 {
		d = time.Duration(math.Round(ns))
	}
	return &d
}

// Strings reads a list of texts.
func (r Reader) Strings(name string) []string {
	v, ok := r.known(name)
	if !ok || !v.CanIterateElements() {
		return nil
	}
	var out []string
	for it := v.ElementIterator(); it.Next(); {
		_, e := it.Element()
		if !e.IsNull() && e.Type() == cty.String {
			out = append(out, e.AsString())
		}
	}
	return out
}

// StringMap reads a map of texts.
func (r Reader) StringMap(name string) map[string]string {
	v, ok := r.known(name)
	if !ok || !v.Type().IsMapType() || v.LengthInt() == 0 {
		return nil
	}
	out := map[string]string{}
	for it := v.ElementIterator(); it.Next(); {
		k, e := it.Element()
		if !e.IsNull() {
			out[k.AsString()] = e.AsString()
		}
	}
	return out
}

// Any reads a value of any type.
func (r Reader) Any(name string) any {
	if v, ok := r.known(name); ok {
		return eval.GoValue(v)
	}
	return nil
}

// AnyMap reads a value that is an object or a map.
func (r Reader) AnyMap(name string) map[string]any {
	m, _ := r.Any(name).(map[string]any)
	return m
}

// JSON reads the JSON Schema of a type expression.
func (r Reader) JSON(name string) json.RawMessage {
	if a := r.n.Attr(name); a != nil && !a.Bad {
		return a.JSON
	}
	return nil
}

// Target gives the node that a reference names.
func (r Reader) Target(name string) *tree.Node {
	if a := r.n.Attr(name); a != nil && len(a.Targets) > 0 {
		return a.Targets[0]
	}
	return nil
}

// Targets gives the nodes that a list of references names.
func (r Reader) Targets(name string) []*tree.Node {
	if a := r.n.Attr(name); a != nil {
		return a.Targets
	}
	return nil
}

// Text reads a text that may depend on the run.
func (r Reader) Text(name string) spec.Text {
	a := r.n.Attr(name)
	if a == nil {
		s, _ := r.fallback(name).(string)
		return spec.Text{Literal: s}
	}
	if v, ok := r.known(name); ok && v.Type() == cty.String {
		return spec.Text{Literal: v.AsString()}
	}
	return spec.Text{Expr: r.runtime(a, cty.String)}
}

// Expr reads an expression of run time; nil when the file does not say it.
func (r Reader) Expr(name string) spec.Expr {
	a := r.n.Attr(name)
	if a == nil || a.Bad {
		return nil
	}
	t := cty.NilType
	if name == "enabled" || name == "tripwire" || a.Schema.Kind == schema.BoolOrExpr {
		t = cty.Bool
	} else if a.Schema.Kind == schema.Value {
		t = a.Schema.Type
	}
	return r.runtime(a, t)
}

// Later reports whether an attribute is known at run time only.
func (r Reader) Later(name string) bool {
	a := r.n.Attr(name)
	return a != nil && a.Later && !a.Bad
}

func (r Reader) runtime(a *tree.Attr, t cty.Type) spec.Expr {
	return &eval.Runtime{Expr: a.Expr, Env: a.Env, Use: a.Use, Type: t}
}

// Secret reads a text that may be a secret; the zero Secret when the file does not say it.
func (r Reader) Secret(name string) value.Secret {
	a := r.n.Attr(name)
	if a == nil || a.Bad {
		return value.Secret{}
	}
	return secretOf(a, "")
}

// SecretMap reads a map of texts that may be secrets.
func (r Reader) SecretMap(name string) map[string]value.Secret {
	a := r.n.Attr(name)
	if a == nil || a.Bad || a.Value == cty.NilVal {
		return nil
	}
	bare, _ := a.Value.Unmark()
	if !bare.IsKnown() || bare.IsNull() || !bare.CanIterateElements() {
		return nil
	}
	out := map[string]value.Secret{}
	for it := bare.ElementIterator(); it.Next(); {
		k, _ := it.Element()
		key, _ := k.Unmark()
		out[key.AsString()] = secretOf(source(a, key.AsString()), key.AsString())
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// source is the attribute that gives a key of a map: the child's, or the parent's that it was laid over.
func source(a *tree.Attr, key string) *tree.Attr {
	for a.Base != nil {
		v, ds := a.Env.Value(a.Expr, a.Use)
		bare, _ := v.Unmark()
		if !ds.HasErrors() && bare.IsKnown() && !bare.IsNull() {
			t := bare.Type()
			if t.IsObjectType() && t.HasAttribute(key) || t.IsMapType() && bare.HasIndex(cty.StringVal(key)).True() {
				return a
			}
		}
		a = a.Base
	}
	return a
}

// secretOf makes a secret of an attribute, or of one key of it.
func secretOf(a *tree.Attr, key string) value.Secret {
	v := a.Value
	if key != "" {
		bare, _ := v.Unmark()
		if bare.IsKnown() && !bare.IsNull() && bare.CanIterateElements() {
			v = element(bare, key)
		}
	}
	if bare, marks := v.Unmark(); v != cty.NilVal && bare.IsKnown() && len(marks) == 0 && !bare.IsNull() && bare.Type() == cty.String {
		return value.PlainSecret(bare.AsString())
	}
	name := a.Name
	return value.NewOptionalSecret(name, func(ctx context.Context) (string, bool, error) {
		got, err := a.Env.Reveal(ctx, a.Expr, nil)
		if err != nil {
			return "", false, err
		}
		if key != "" {
			if got = element(got, key); got == cty.NilVal {
				return "", false, nil
			}
		}
		if got.IsNull() {
			return "", false, nil
		}
		text, ok := scalar(got)
		if !ok {
			return "", false, diag.Errorf(diag.WrongType, a.Expr.Range(), "wrong type").Labelf("%q needs a string", name)
		}
		return text, true, nil
	})
}

func element(v cty.Value, key string) cty.Value {
	if v.IsNull() || !v.IsKnown() {
		return cty.NilVal
	}
	t := v.Type()
	switch {
	case t.IsObjectType() && t.HasAttribute(key):
		return v.GetAttr(key)
	case t.IsMapType() && v.HasIndex(cty.StringVal(key)).True():
		return v.Index(cty.StringVal(key))
	}
	return cty.NilVal
}

func scalar(v cty.Value) (string, bool) {
	switch v.Type() {
	case cty.String:
		return v.AsString(), true
	case cty.Number:
		return v.AsBigFloat().Text('f', -1), true
	case cty.Bool:
		if v.True() {
			return "true", true
		}
		return "false", true
	}
	return "", false
}
