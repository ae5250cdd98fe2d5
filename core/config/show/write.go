// SPDX-License-Identifier: Apache-2.0

package show

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"
)

// hcl is the value of an attribute in native syntax.
func (a attr) hcl() string {
	switch {
	case a.isText:
		return a.text
	case a.list:
		return "[" + strings.Join(a.refs, ", ") + "]"
	case len(a.refs) > 0:
		return a.refs[0]
	}
	return strings.TrimSpace(string(hclwrite.TokensForValue(a.value).Bytes()))
}

func writeHCL(blocks []*block, origin bool) string {
	var b strings.Builder
	for i, blk := range blocks {
		if i > 0 {
			b.WriteByte('\n')
		}
		writeBlock(&b, blk, "", origin)
	}
	return string(hclwrite.Format([]byte(b.String())))
}

func writeBlock(b *strings.Builder, blk *block, indent string, origin bool) {
	b.WriteString(indent + blk.typ)
	for _, l := range blk.labels {
		b.WriteString(" " + quote(l))
	}
	b.WriteString(" {")
	comment(b, blk.origin, origin)
	for _, a := range blk.attrs {
		b.WriteString(indent + "  " + name(a.name) + " = " + a.hcl())
		if strings.Contains(a.hcl(), "<<") && strings.Contains(a.hcl(), "\n") {
			b.WriteByte('\n') // nothing may follow the end of a heredoc
			continue
		}
		comment(b, a.origin, origin)
	}
	for _, c := range blk.blocks {
		writeBlock(b, c, indent+"  ", origin)
	}
	b.WriteString(indent + "}\n")
}

func comment(b *strings.Builder, text string, on bool) {
	if on && text != "" {
		b.WriteString(" # " + text)
	}
	b.WriteByte('\n')
}

func name(s string) string {
	if hclsyntax.ValidIdentifier(s) {
		return s
	}
	return quote(s)
}

func quote(s string) string {
	return strings.TrimSpace(string(hclwrite.TokensForValue(cty.StringVal(s)).Bytes()))
}

// object is a JSON object in order.
type object struct {
	names  []string
	values map[string]any
}

func newObject() *object { return &object{values: map[string]any{}} }

func (o *object) set(name string, v any) {
	if _, there := o.values[name]; !there {
		o.names = append(o.names, name)
	}
	o.values[name] = v
}

// MarshalJSON writes the members in the order in which they were set.
func (o *object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, n := range o.names {
		if i > 0 {
			b.WriteByte(',')
		}
		k, err := plain(n)
		if err != nil {
			return nil, err
		}
		v, err := plain(o.values[n])
		if err != nil {
			return nil, err
		}
		b.Write(k)
		b.WriteByte(':')
		b.Write(v)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// plain writes JSON without escapes for HTML.
func plain(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func writeJSON(blocks []*block, origin bool) (string, error) {
	raw, err := members(blocks, nil, "", origin)
	if err != nil {
		return "", err
	}
	text, err := plain(raw)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", "  "); err != nil {
		return "", err
	}
	return b.String() + "\n", nil
}

// members writes a body. Blocks of one type are lists of objects with one member per label, which keeps their order.
func members(blocks []*block, attrs []attr, from string, origin bool) (*object, error) {
	o := newObject()
	if origin {
		where := newObject()
		if from != "" {
			where.set("", from)
		}
		for _, a := range attrs {
			if a.origin != "" {
				where.set(a.name, a.origin)
			}
		}
		if len(where.names) > 0 {
			o.set("//", where)
		}
	}
	for _, a := range attrs {
		v, err := a.json()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", a.name, err)
		}
		o.set(a.name, v)
	}
	lists := map[string][]any{}
	var order []string
	for _, b := range blocks {
		inner, err := members(b.blocks, b.attrs, b.origin, origin)
		if err != nil {
			return nil, err
		}
		var v any = inner
		for _, label := range slices.Backward(b.labels) {
			w := newObject()
			w.set(label, v)
			v = w
		}
		if lists[b.typ] == nil {
			order = append(order, b.typ)
		}
		lists[b.typ] = append(lists[b.typ], v)
	}
	for _, typ := range order {
		if l := lists[typ]; len(l) == 1 {
			o.set(typ, l[0])
		} else {
			o.set(typ, l)
		}
	}
	return o, nil
}

// json is the value of an attribute in JSON: expressions stand in ${ }, texts have theirs escaped.
func (a attr) json() (any, error) {
	switch {
	case a.isText && a.bare:
		return a.text, nil
	case a.isText:
		return "${" + a.text + "}", nil
	case a.list:
		if a.refs == nil {
			return []string{}, nil
		}
		return a.refs, nil
	case len(a.refs) > 0:
		return a.refs[0], nil
	}
	v, err := cty.Transform(a.value, func(_ cty.Path, v cty.Value) (cty.Value, error) {
		if v.Type() == cty.String && v.IsKnown() && !v.IsNull() {
			return cty.StringVal(escape(v.AsString())), nil
		}
		return v, nil
	})
	if err != nil {
		return nil, err
	}
	raw, err := ctyjson.Marshal(v, v.Type())
	return json.RawMessage(raw), err
}

func escape(s string) string {
	return strings.NewReplacer("${", "$${", "%{", "%%{").Replace(s)
}
