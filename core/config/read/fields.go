// SPDX-License-Identifier: Apache-2.0

package read

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/berth-dev/berth/core/config/schema"
	"github.com/berth-dev/berth/core/value"
)

// Item is the place of one element of a list; that of the list when it is not written out.
func Item(e hcl.Expression, i int) hcl.Range {
	items, ds := hcl.ExprList(e)
	if ds.HasErrors() || i >= len(items) {
		return e.Range()
	}
	return items[i].Range()
}

// Path reads a host path, made absolute from the directory of the file; "" when the file does not say it.
func (r Reader) Path(name string) string {
	p := r.String(name)
	if p == "" {
		return ""
	}
	if rest, ok := strings.CutPrefix(p, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	if filepath.IsAbs(p) {
		return filepath.Clean(p)
	}
	dir := ""
	if a := r.n.Attr(name); a != nil {
		dir = a.Env.Scope.Dir
	}
	return filepath.Join(dir, filepath.FromSlash(p))
}

// Fields reads the attributes of a block, with their defaults, but for those that are skipped: texts, numbers, bools,
// lists and maps; secrets and expressions of run time as value.Secret, map[string]value.Secret and spec.Expr.
func (r Reader) Fields(skip ...string) map[string]any {
	out := map[string]any{}
	if !r.OK() {
		return out
	}
	skipped := map[string]bool{}
	for _, s := range skip {
		skipped[s] = true
	}
	for _, a := range r.n.Body.Attrs {
		if skipped[a.Name] {
			continue
		}
		if v := r.one(a); v != nil {
			out[a.Name] = v
		}
	}
	if r.n.Body.Open {
		for name, a := range r.n.Attrs {
			if r.n.Body.Attr(name) == nil {
				if v := r.one(a.Schema); v != nil {
					out[name] = v
				}
			}
		}
	}
	return out
}

func (r Reader) one(a *schema.Attr) any {
	at := r.n.Attr(a.Name)
	if at == nil {
		return a.Default
	}
	switch {
	case at.Bad:
		return nil
	case a.Kind == schema.Expr:
		return r.Expr(a.Name)
	case a.Kind == schema.BoolOrExpr && at.Later:
		return r.Expr(a.Name)
	case a.Has(schema.Secret) && a.Type == cty.String && at.Secret:
		return r.Secret(a.Name)
	case a.Has(schema.Secret) && a.Type.IsMapType() && !(at.Later && (a.Has(schema.Runtime) || a.Has(schema.Param)) && !at.Secret):
		return r.SecretMap(a.Name)
	case at.Secret:
		return r.Secret(a.Name)
	case at.Later:
		return r.Expr(a.Name)
	case a.Kind == schema.Duration:
		return r.Duration(a.Name)
	case a.Kind == schema.Size:
		return r.Size(a.Name)
	case a.Type.IsListType() && a.Type.ElementType() == cty.String:
		return r.Strings(a.Name)
	case a.Type.IsMapType() && a.Type.ElementType() == cty.String:
		return r.StringMap(a.Name)
	}
	return r.Any(a.Name)
}

// Nested reads a whole block and the blocks in it as a map; the first label is "label".
func (r Reader) Nested() map[string]any {
	if !r.OK() {
		return nil
	}
	out := r.Fields()
	for _, b := range r.n.Blocks {
		inner := New(b).Nested()
		if len(b.Labels) > 0 {
			inner["label"] = b.Labels[0]
		}
		out[b.Type] = inner
	}
	return out
}

// Credentials reads a credentials block; nil when there is none.
func (r Reader) Credentials() map[string]value.Secret {
	if !r.OK() {
		return nil
	}
	out := map[string]value.Secret{}
	for name := range r.n.Attrs {
		if name == "ambient" {
			continue
		}
		if s := r.Secret(name); !s.IsZero() {
			out[name] = s
		}
	}
	return out
}
