// SPDX-License-Identifier: Apache-2.0

// Package drivercfg reads the configuration bodies of drivers: it turns a driver's schema into one of the language, so
// that a body is read, checked, extended and shown like any other block, and encodes what was read for the driver.
package drivercfg

import (
	"context"
	"sort"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/berth-dev/berth/core/config/schema"
	"github.com/berth-dev/berth/core/config/tree"
	"github.com/berth-dev/berth/core/diag"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/sdk/driver"
	sdk "github.com/berth-dev/berth/sdk/schema"
)

// Body turns a driver's block into one of the language. An argument that the environment gives is not required.
func Body(b *sdk.Block, getenv func(string) (string, bool)) *schema.Body {
	out := &schema.Body{}
	for i := range b.Attributes {
		out.Attrs = append(out.Attrs, attribute(&b.Attributes[i], getenv))
	}
	pairs := map[[2]string]bool{}
	for _, a := range b.Attributes {
		for _, other := range a.ConflictsWith {
			pair := []string{a.Name, other}
			sort.Strings(pair)
			if key := [2]string{pair[0], pair[1]}; !pairs[key] {
				pairs[key] = true
				out.AtMostOne = append(out.AtMostOne, pair)
			}
		}
	}
	for i := range b.Blocks {
		out.Blocks = append(out.Blocks, nested(&b.Blocks[i], getenv))
	}
	return out
}

func attribute(a *sdk.Attribute, getenv func(string) (string, bool)) *schema.Attr {
	t := a.Type.Cty()
	if t == cty.NilType {
		t = cty.DynamicPseudoType
	}
	out := &schema.Attr{
		Name: a.Name, Doc: a.Doc, Kind: schema.Value, Type: t, Required: a.Required, Default: a.Default,
		Enum: a.OneOf, Pattern: a.Pattern, Min: a.Min, Max: a.Max, Unit: a.Unit, Env: a.Env, Requires: a.Requires,
		Immutable: a.Immutable, Example: a.Example,
	}
	if a.Sensitive {
		out.Flags |= schema.Secret
	}
	if a.Required && a.Env != "" && getenv != nil {
		if _, ok := getenv(a.Env); ok {
			out.Required = false
		}
	}
	if a.Default != nil {
		out.Required = false
	}
	if d := a.Deprecated; d != nil {
		out.Deprecated = d.Message
		if d.Replacement != "" {
			out.Deprecated = "use " + d.Replacement
		}
	}
	return out
}

func nested(n *sdk.NestedBlock, getenv func(string) (string, bool)) *schema.Block {
	out := &schema.Block{Type: n.Type, Doc: n.Block.Doc, Min: int(n.Min), Max: int(n.Max), Unique: n.Nesting == sdk.Map, Body: *Body(&n.Block, getenv)}
	if n.Nesting == sdk.Single {
		out.Max = 1
	}
	labels := n.Labels
	if n.Nesting == sdk.Map && len(labels) == 0 {
		labels = []string{"name"}
	}
	for _, l := range labels {
		out.Labels = append(out.Labels, schema.Label{Name: l, Free: true})
	}
	return out
}

// Config is a checked body. It is a [spec.DriverConfig].
type Config struct {
	Node   *tree.Node // nil = nothing was said
	Schema *sdk.Schema
	Getenv func(string) (string, bool)
	At     spec.Pos // when Node is nil
}

var _ spec.DriverConfig = (*Config)(nil)

// Pos is where the body starts.
func (c *Config) Pos() spec.Pos {
	if c.Node == nil {
		return c.At
	}
	return c.Node.Pos()
}

// Encode fetches the secrets of the body, fills in defaults and gives the driver's value.
func (c *Config) Encode() (spec.DriverValue, error) {
	if c.Schema == nil {
		return spec.DriverValue{}, c.unchecked()
	}
	v, err := object(c.Node, &c.Schema.Block, nil, reveal)
	if err != nil {
		return spec.DriverValue{}, err
	}
	if v, err = convert.Convert(v, c.Schema.Cty()); err != nil {
		return spec.DriverValue{}, c.fault(err)
	}
	if v, err = c.Schema.Block.WithDefaults(v, c.Getenv); err != nil {
		return spec.DriverValue{}, c.fault(err)
	}
	out, err := sdk.Encode(c.Schema, v)
	if err != nil {
		return spec.DriverValue{}, c.fault(err)
	}
	return spec.DriverValue{MsgPack: out.MsgPack, JSON: out.JSON}, nil
}

// Findings are what a driver found in the body, at the places that it names.
func (c *Config) Findings(driverName string, found []driver.Diagnostic) diag.Diagnostics {
	if c.Node == nil {
		at := hcl.Pos{Line: c.At.Line, Column: c.At.Column}
		return diag.FromDriver(driverName, found, nil, hcl.Range{Filename: c.At.File, Start: at, End: at})
	}
	return diag.FromDriver(driverName, found, c.Node.Raw, c.Node.Header)
}

func (c *Config) unchecked() error {
	if c.Node == nil || c.Node.Raw == nil {
		return nil
	}
	return diag.Errorf(diag.SchemaUnavailable, c.Node.Header, "the driver's schema was not available when the project was loaded").
		Helpf("install the driver, then run: berth init")
}

func (c *Config) fault(err error) error {
	d := diag.Errorf(diag.DriverFinding, hcl.Range{}, "the configuration of the driver cannot be encoded").Labelf("%v", err)
	if c.Node != nil {
		d.Subject = c.Node.Header
	}
	return d
}

// object builds the object of a block. Labels of blocks that stand more than once are its attributes.
func object(n *tree.Node, b *sdk.Block, labels map[string]string, get func(*tree.Attr, *sdk.Attribute) (cty.Value, error)) (cty.Value, error) {
	vals := map[string]cty.Value{}
	for name, text := range labels {
		vals[name] = cty.StringVal(text)
	}
	for i := range b.Attributes {
		a := &b.Attributes[i]
		vals[a.Name] = cty.NullVal(a.Type.Cty().WithoutOptionalAttributesDeep())
		if at := n.Attr(a.Name); at != nil {
			v, err := get(at, a)
			if err != nil {
				return cty.NilVal, err
			}
			vals[a.Name] = v
		}
	}
	for i := range b.Blocks {
		v, err := blocks(n.All(b.Blocks[i].Type), &b.Blocks[i], get)
		if err != nil {
			return cty.NilVal, err
		}
		vals[b.Blocks[i].Type] = v
	}
	return cty.ObjectVal(vals), nil
}

func blocks(nodes []*tree.Node, s *sdk.NestedBlock, get func(*tree.Attr, *sdk.Attribute) (cty.Value, error)) (cty.Value, error) {
	keyed := map[string]cty.Value{}
	list := []cty.Value{}
	for _, n := range nodes {
		labels := map[string]string{}
		have := n.Labels
		if s.Nesting == sdk.Map && len(have) > 0 {
			have = have[1:]
		}
		for i, l := range s.ElementLabels() {
			if i < len(have) {
				labels[l] = have[i]
			}
		}
		v, err := object(n, &s.Block, labels, get)
		if err != nil {
			return cty.NilVal, err
		}
		if s.Nesting == sdk.Map && len(n.Labels) > 0 {
			keyed[n.Labels[0]] = v
		}
		list = append(list, v)
	}
	switch {
	case s.Nesting == sdk.Map:
		return cty.ObjectVal(keyed), nil
	case s.Nesting != sdk.Single:
		return cty.TupleVal(list), nil
	case len(list) == 0:
		return cty.NullVal(s.Cty()), nil
	}
	return list[0], nil
}

// reveal gives an attribute's value with its secrets.
func reveal(a *tree.Attr, s *sdk.Attribute) (cty.Value, error) {
	if a.Value != cty.NilVal && a.Value.IsWhollyKnown() && !a.Value.ContainsMarked() {
		return a.Value, nil
	}
	v, err := a.Env.Reveal(context.Background(), a.Expr, nil)
	if err != nil {
		return cty.NilVal, err
	}
	if v.IsNull() {
		return cty.NullVal(s.Type.Cty().WithoutOptionalAttributesDeep()), nil
	}
	if v, err = s.Value(v); err != nil {
		return cty.NilVal, diag.Errorf(diag.WrongType, a.Expr.Range(), "wrong type").Labelf("%q needs %s", a.Name, diag.FriendlyType(s.Type.Cty()))
	}
	if !v.Type().IsMapType() || v.IsNull() {
		return v, nil
	}
	return overlay(a, s, v)
}

// overlay lays a map over the parent's and leaves out what is null.
func overlay(a *tree.Attr, s *sdk.Attribute, v cty.Value) (cty.Value, error) {
	elems := map[string]cty.Value{}
	if a.Base != nil && !a.Base.Null {
		base, err := reveal(a.Base, s)
		if err != nil {
			return cty.NilVal, err
		}
		if !base.IsNull() {
			elems = base.AsValueMap()
		}
	}
	for k, e := range v.AsValueMap() {
		if elems == nil {
			elems = map[string]cty.Value{}
		}
		elems[k] = e
		if e.IsNull() {
			delete(elems, k)
		}
	}
	if len(elems) == 0 {
		return cty.MapValEmpty(v.Type().ElementType()), nil
	}
	return cty.MapVal(elems), nil
}
