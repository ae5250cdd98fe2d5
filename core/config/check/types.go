// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/berth-dev/berth/core/config/eval"
	"github.com/berth-dev/berth/core/config/tree"
	"github.com/berth-dev/berth/core/diag"
)

// typeExpr reads a type expression into a type and a JSON Schema.
func (c *Checker) typeExpr(a *tree.Attr) {
	if isNull(a.Expr) {
		a.Null = true
		return
	}
	t, d := ParseType(a.Expr, a.Env)
	if d != nil {
		c.add(d)
		a.Value = cty.NilVal
		return
	}
	a.Value = cty.UnknownVal(t.Type.WithoutOptionalAttributesDeep())
	a.JSON, a.Arguments = t.JSON, eval.Arguments{Type: t.Type, Defaults: t.Defaults}
}

// Type is a type expression.
type Type struct {
	Type cty.Type
	JSON []byte // JSON Schema; properties in the order of the file
	// Defaults are those of optional attributes; nil = none.
	Defaults *typeexpr.Defaults
	opt      bool
	value    cty.Value // of an optional attribute; NilVal = none
}

// inner gives a type's defaults to the type around it.
func inner(t cty.Type, children map[string]*typeexpr.Defaults) *typeexpr.Defaults {
	if len(children) == 0 {
		return nil
	}
	return &typeexpr.Defaults{Type: t, Children: children}
}

func child(name string, d *typeexpr.Defaults) map[string]*typeexpr.Defaults {
	if d == nil {
		return nil
	}
	return map[string]*typeexpr.Defaults{name: d}
}

// ParseType reads a type expression: string, number, bool, any, list(T), set(T), map(T), tuple([T...]),
// object({ name = T }), and inside objects optional(T, default); doc("text", T) describes.
func ParseType(expr hcl.Expression, env *eval.Env) (Type, *diag.Diagnostic) {
	p := &typeParser{env: env}
	return p.parse(expr, false, 0)
}

type typeParser struct{ env *eval.Env }

var keywords = []string{"string", "number", "bool", "any", "list", "set", "map", "tuple", "object", "optional", "doc"}

const maxTypeDepth = 64

func (p *typeParser) parse(expr hcl.Expression, inObject bool, depth int) (Type, *diag.Diagnostic) {
	if depth > maxTypeDepth {
		return Type{}, diag.Errorf(diag.WrongType, expr.Range(), "type is too deep")
	}
	if kw := hcl.ExprAsKeyword(expr); kw != "" {
		switch kw {
		case "string":
			return Type{Type: cty.String, JSON: obj("type", str("string"))}, nil
		case "number":
			return Type{Type: cty.Number, JSON: obj("type", str("number"))}, nil
		case "bool":
			return Type{Type: cty.Bool, JSON: obj("type", str("boolean"))}, nil
		case "any":
			return Type{Type: cty.DynamicPseudoType, JSON: []byte("{}")}, nil
		}
		d := diag.Errorf(diag.WrongType, expr.Range(), "no type named %q", kw)
		if has(keywords, kw) {
			return Type{}, d.Labelf("write %s", example(kw))
		}
		if near := diag.Suggest(kw, keywords); near != "" {
			d.Labelf("did you mean %q?", near)
		}
		return Type{}, d
	}
	call, ds := hcl.ExprCall(expr)
	if ds.HasErrors() {
		return Type{}, diag.Errorf(diag.WrongType, expr.Range(), "a type is needed here").
			Labelf("such as string, list(string) or object({ name = string })")
	}
	return p.call(call, expr, inObject, depth)
}

func example(kw string) string {
	switch kw {
	case "object":
		return "object({ name = string })"
	case "tuple":
		return "tuple([string, number])"
	case "optional":
		return "optional(string), inside an object"
	case "doc":
		return `doc("what it is", string)`
	}
	return kw + "(string)"
}

func (p *typeParser) call(call *hcl.StaticCall, expr hcl.Expression, inObject bool, depth int) (Type, *diag.Diagnostic) {
	args := call.Arguments
	wrong := func() *diag.Diagnostic {
		return diag.Errorf(diag.WrongType, expr.Range(), "wrong arguments for type %q", call.Name).Labelf("write %s", example(call.Name))
	}
	switch call.Name {
	case "list", "set", "map":
		if len(args) != 1 {
			return Type{}, wrong()
		}
		e, d := p.parse(args[0], false, depth+1)
		if d != nil {
			return Type{}, d
		}
		switch call.Name {
		case "list":
			return Type{Type: cty.List(e.Type), Defaults: inner(cty.List(e.Type), child("", e.Defaults)), JSON: obj("type", str("array"), "items", e.JSON)}, nil
		case "set":
			return Type{Type: cty.Set(e.Type), Defaults: inner(cty.Set(e.Type), child("", e.Defaults)), JSON: obj("type", str("array"), "items", e.JSON, "uniqueItems", []byte("true"))}, nil
		}
		return Type{Type: cty.Map(e.Type), Defaults: inner(cty.Map(e.Type), child("", e.Defaults)), JSON: obj("type", str("object"), "additionalProperties", e.JSON)}, nil
	case "tuple":
		if len(args) != 1 {
			return Type{}, wrong()
		}
		return p.tuple(args[0], wrong, depth)
	case "object":
		if len(args) != 1 {
			return Type{}, wrong()
		}
		return p.object(args[0], wrong, depth)
	case "optional":
		if !inObject {
			return Type{}, diag.Errorf(diag.WrongType, expr.Range(), "optional(...) is for attributes of objects").Labelf("it has no meaning here")
		}
		return p.optional(args, wrong, depth)
	case "doc":
		return p.doc(args, inObject, wrong, depth)
	}
	d := diag.Errorf(diag.WrongType, call.NameRange, "no type named %q", call.Name)
	if near := diag.Suggest(call.Name, keywords); near != "" {
		d.Labelf("did you mean %q?", near)
	}
	return Type{}, d
}

func (p *typeParser) tuple(arg hcl.Expression, wrong func() *diag.Diagnostic, depth int) (Type, *diag.Diagnostic) {
	items, ds := hcl.ExprList(arg)
	if ds.HasErrors() {
		return Type{}, wrong()
	}
	var types []cty.Type
	var parts [][]byte
	for _, i := range items {
		e, d := p.parse(i, false, depth+1)
		if d != nil {
			return Type{}, d
		}
		types, parts = append(types, e.Type), append(parts, e.JSON)
	}
	n := []byte(fmt.Sprint(len(items)))
	return Type{Type: cty.Tuple(types), JSON: obj("type", str("array"),
		"prefixItems", array(parts), "minItems", n, "maxItems", n)}, nil
}

func (p *typeParser) object(arg hcl.Expression, wrong func() *diag.Diagnostic, depth int) (Type, *diag.Diagnostic) {
	pairs, ds := hcl.ExprMap(arg)
	if ds.HasErrors() {
		return Type{}, wrong()
	}
	types := map[string]cty.Type{}
	var optional []string
	var props []any
	required := [][]byte{}
	values, children := map[string]cty.Value{}, map[string]*typeexpr.Defaults{}
	for _, pair := range pairs {
		name := hcl.ExprAsKeyword(pair.Key)
		if name == "" {
			v, ds := pair.Key.Value(nil)
			if ds.HasErrors() || !v.IsKnown() || v.IsNull() || v.Type() != cty.String {
				return Type{}, diag.Errorf(diag.WrongType, pair.Key.Range(), "a name is needed here")
			}
			name = v.AsString()
		}
		if _, twice := types[name]; twice {
			return Type{}, diag.Errorf(diag.DuplicateName, pair.Key.Range(), "attribute %q is there twice", name)
		}
		e, d := p.parse(pair.Value, true, depth+1)
		if d != nil {
			return Type{}, d
		}
		types[name] = e.Type
		if e.Defaults != nil {
			children[name] = e.Defaults
		}
		if e.value != cty.NilVal {
			values[name] = e.value
		}
		props = append(props, name, e.JSON)
		if e.opt {
			optional = append(optional, name)
		} else {
			required = append(required, str(name))
		}
	}
	t := cty.Object(types)
	if len(optional) > 0 {
		t = cty.ObjectWithOptionalAttrs(types, optional)
	}
	var defaults *typeexpr.Defaults
	if len(values) > 0 || len(children) > 0 {
		defaults = &typeexpr.Defaults{Type: t, DefaultValues: values, Children: children}
	}
	return Type{Type: t, Defaults: defaults, JSON: obj("type", str("object"), "properties", obj(props...),
		"required", array(required), "additionalProperties", []byte("false"))}, nil
}

func (p *typeParser) optional(args []hcl.Expression, wrong func() *diag.Diagnostic, depth int) (Type, *diag.Diagnostic) {
	if len(args) != 1 && len(args) != 2 {
		return Type{}, wrong()
	}
	e, d := p.parse(args[0], false, depth+1)
	if d != nil {
		return Type{}, d
	}
	e.opt = true
	if len(args) == 2 {
		v, ds := p.env.Value(args[1], eval.Use{})
		if ds.HasErrors() {
			return Type{}, ds[0]
		}
		bare, marks := v.UnmarkDeep()
		if len(marks) > 0 || !bare.IsWhollyKnown() {
			return Type{}, diag.Errorf(diag.WrongType, args[1].Range(), "the default must be known and public")
		}
		raw, err := ctyjson.Marshal(bare, bare.Type())
		if err != nil {
			return Type{}, diag.Errorf(diag.WrongType, args[1].Range(), "the default has no JSON form")
		}
		fits, err := convert.Convert(bare, e.Type)
		if err != nil {
			return Type{}, diag.Errorf(diag.WrongType, args[1].Range(), "the default does not fit its type").Labelf("%v", err)
		}
		e.value = fits
		e.JSON = with(e.JSON, "default", raw)
	}
	return e, nil
}

func (p *typeParser) doc(args []hcl.Expression, inObject bool, wrong func() *diag.Diagnostic, depth int) (Type, *diag.Diagnostic) {
	if len(args) != 2 {
		return Type{}, wrong()
	}
	v, ds := p.env.Value(args[0], eval.Use{})
	if ds.HasErrors() {
		return Type{}, ds[0]
	}
	if v.IsMarked() || !v.IsKnown() || v.IsNull() || v.Type() != cty.String {
		return Type{}, wrong()
	}
	e, d := p.parse(args[1], inObject, depth+1)
	if d != nil {
		return Type{}, d
	}
	e.JSON = with(e.JSON, "description", str(v.AsString()))
	return e, nil
}

func str(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		return []byte(`""`)
	}
	return b
}

// obj writes an object from names and raw values, in order.
func obj(parts ...any) []byte {
	var b bytes.Buffer
	b.WriteByte('{')
	for i := 0; i+1 < len(parts); i += 2 {
		if i > 0 {
			b.WriteByte(',')
		}
		name, _ := parts[i].(string)
		raw, _ := parts[i+1].([]byte)
		b.Write(str(name))
		b.WriteByte(':')
		b.Write(raw)
	}
	b.WriteByte('}')
	return b.Bytes()
}

func array(parts [][]byte) []byte {
	return append(append([]byte{'['}, bytes.Join(parts, []byte{','})...), ']')
}

// with adds a member at the end of an object.
func with(object []byte, name string, raw []byte) []byte {
	inner := obj(name, raw)
	if string(object) == "{}" {
		return inner
	}
	out := append([]byte{}, object[:len(object)-1]...)
	out = append(out, ',')
	return append(out, inner[1:]...)
}

// literal reads a text that must not be an expression.
func (c *Checker) literal(a *tree.Attr) {
	v, ok := Literal(a.Expr)
	if !ok {
		c.add(diag.Errorf(diag.WrongType, a.Expr.Range(), "%q needs a plain text", a.Name).
			Labelf("it is read before expressions can be evaluated"))
		a.Value = cty.UnknownVal(cty.String)
		return
	}
	a.Value = cty.StringVal(v)
}

// Literal gives a text that stands in the file as it is.
func Literal(expr hcl.Expression) (string, bool) {
	if t, ok := expr.(*hclsyntax.TemplateExpr); ok && !t.IsStringLiteral() {
		return "", false
	}
	v, ds := expr.Value(nil)
	if ds.HasErrors() || !v.IsKnown() || v.IsNull() || v.Type() != cty.String {
		return "", false
	}
	return v.AsString(), true
}

// names reads a list of bare names, or one.
func (c *Checker) names(a *tree.Attr) {
	if kw := hcl.ExprAsKeyword(a.Expr); kw != "" {
		a.Names = []string{kw}
		return
	}
	items, ds := hcl.ExprList(a.Expr)
	if ds.HasErrors() {
		c.add(diag.Errorf(diag.WrongType, a.Expr.Range(), "%q needs bare names", a.Name).Labelf("such as [a, b]"))
		return
	}
	for _, i := range items {
		kw := hcl.ExprAsKeyword(i)
		if kw == "" {
			c.add(diag.Errorf(diag.WrongType, i.Range(), "a bare name is needed here").Labelf("without quotes"))
			return
		}
		a.Names = append(a.Names, kw)
	}
}
