// SPDX-License-Identifier: Apache-2.0

package show

import (
	"fmt"
	"sort"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/hashicorp/hcl/v2/json"
	"github.com/zclconf/go-cty/cty"

	"github.com/berth-dev/berth/core/config/eval"
)

// source is the text of an expression as the file has it, in native syntax.
func (s *shower) source(expr hcl.Expression) string {
	if !json.IsJSONExpression(expr) {
		return s.res.World.Sources.Text(expr.Range())
	}
	if v, ds := expr.Value(nil); !ds.HasErrors() && !v.IsNull() && v.Type() == cty.String {
		return v.AsString()
	}
	return s.fromJSON(expr, nil)
}

// text is an expression in native syntax in which the names whose values are known and public are replaced by them.
func (s *shower) text(expr hcl.Expression, env *eval.Env) string {
	if json.IsJSONExpression(expr) {
		return s.fromJSON(expr, env)
	}
	return s.replaced(s.res.World.Sources.Text(expr.Range()), expr.Range(), expr.Variables(), env)
}

// replaced puts values in place of the traversals of a text that starts at a range.
func (s *shower) replaced(text string, at hcl.Range, traversals []hcl.Traversal, env *eval.Env) string {
	type edit struct {
		from, to int
		text     string
	}
	var edits []edit
	for _, t := range traversals {
		r := t.SourceRange()
		from, to := r.Start.Byte-at.Start.Byte, r.End.Byte-at.Start.Byte
		if from < 0 || to > len(text) || from > to {
			continue
		}
		if with, ok := s.value(t, env); ok {
			edits = append(edits, edit{from, to, with})
		}
	}
	sort.Slice(edits, func(i, j int) bool { return edits[i].from > edits[j].from })
	last := len(text) + 1
	for _, e := range edits {
		if e.to > last {
			continue // inside one that was replaced already
		}
		text = text[:e.from] + e.text + text[e.to:]
		last = e.from
	}
	return text
}

// value gives what stands for a traversal.
func (s *shower) value(t hcl.Traversal, env *eval.Env) (string, bool) {
	switch t.RootName() {
	case "run", "param", "output", "secret":
		return "", false
	}
	if v, ok := env.Public(t); ok {
		return strings.TrimSpace(string(hclwrite.TokensForValue(v).Bytes())), true
	}
	name := ""
	if len(t) > 1 {
		if a, ok := t[1].(hcl.TraverseAttr); ok {
			name = a.Name
		}
	}
	switch t.RootName() {
	case "local":
		s.locals[name] = true
	case "var":
		s.vars[name] = true
	default:
		if coll, key, inner, ok := env.Round(t.RootName()); ok && name == "value" {
			var out strings.Builder
			fmt.Fprintf(&out, "(%s)[%s]", s.text(coll, inner), strings.TrimSpace(string(hclwrite.TokensForValue(key).Bytes())))
			for _, step := range t[2:] {
				if a, ok := step.(hcl.TraverseAttr); ok {
					out.WriteString("." + a.Name)
				}
			}
			return out.String(), true
		}
	}
	return "", false
}

// fromJSON writes an expression of a JSON file in native syntax.
func (s *shower) fromJSON(expr hcl.Expression, env *eval.Env) string {
	if items, ds := hcl.ExprList(expr); !ds.HasErrors() {
		parts := make([]string, len(items))
		for i, e := range items {
			parts[i] = s.fromJSON(e, env)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	if pairs, ds := hcl.ExprMap(expr); !ds.HasErrors() {
		parts := make([]string, len(pairs))
		for i, p := range pairs {
			parts[i] = s.fromJSON(p.Key, env) + " = " + s.fromJSON(p.Value, env)
		}
		return "{ " + strings.Join(parts, ", ") + " }"
	}
	v, ds := expr.Value(nil)
	if ds.HasErrors() || v.IsNull() {
		return "null"
	}
	if v.Type() != cty.String {
		return strings.TrimSpace(string(hclwrite.TokensForValue(v).Bytes()))
	}
	return s.template(v.AsString(), env)
}

// template writes the text of a template as a quoted one, its expressions as they are.
func (s *shower) template(text string, env *eval.Env) string {
	if env != nil {
		if x, ds := hclsyntax.ParseTemplate([]byte(text), "", hcl.InitialPos); !ds.HasErrors() {
			text = s.replaced(text, hcl.Range{}, x.Variables(), env)
		}
	}
	tokens, _ := hclsyntax.LexTemplate([]byte(text), "", hcl.InitialPos)
	var b strings.Builder
	b.WriteByte('"')
	for _, t := range tokens {
		switch t.Type {
		case hclsyntax.TokenEOF:
		case hclsyntax.TokenStringLit:
			lit := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\r", `\r`, "\t", `\t`).Replace(string(t.Bytes))
			b.WriteString(lit)
		default:
			b.Write(t.Bytes)
		}
	}
	b.WriteByte('"')
	out := b.String()
	// A template of one expression is that expression.
	if inner, ok := strings.CutPrefix(out, `"${`); ok && strings.Count(out, "${") == 1 && strings.HasSuffix(inner, `}"`) {
		if x, ds := hclsyntax.ParseExpression([]byte(out), "", hcl.InitialPos); !ds.HasErrors() {
			if _, wrap := x.(*hclsyntax.TemplateWrapExpr); wrap {
				return strings.TrimSpace(strings.TrimSuffix(inner, `}"`))
			}
		}
	}
	return out
}
