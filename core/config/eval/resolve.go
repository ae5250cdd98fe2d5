// SPDX-License-Identifier: Apache-2.0

package eval

import (
	"context"
	"errors"
	"sort"
	"sync"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/berth-dev/berth/core/config/mark"
	"github.com/berth-dev/berth/core/diag"
)

// ResolveAll fetches secrets by key, all at the same time. The error lists every one that cannot be had.
func (w *World) ResolveAll(ctx context.Context, names []string) (map[string]cty.Value, error) {
	sort.Strings(names)
	vals := make([]cty.Value, len(names))
	errs := make([]error, len(names))
	var wg sync.WaitGroup
	for i, n := range names {
		wg.Go(func() { vals[i], errs[i] = w.Resolver.Value(ctx, w.Secrets[n]) })
	}
	wg.Wait()
	var ds diag.Diagnostics
	out := map[string]cty.Value{}
	for i, n := range names {
		if errs[i] == nil {
			out[n] = vals[i]
			continue
		}
		var d *diag.Diagnostic
		if !errors.As(errs[i], &d) {
			return nil, errs[i]
		}
		ds = append(ds, d)
	}
	return out, ds.Err()
}

// resolution evaluates expressions again with secrets known. Only what an expression needs is evaluated, each
// declaration once.
type resolution struct {
	known map[string]cty.Value
	memo  map[*Decl]cty.Value
}

func (r *resolution) value(e *Env, expr hcl.Expression, extra map[string]cty.Value) (cty.Value, error) {
	s := e.Scope
	roots := map[string]map[string]*Decl{"var": s.Vars, "local": s.Locals, "secret": s.Secrets, "module": s.Modules}
	need := map[string]map[string]cty.Value{"var": {}, "local": {}, "secret": {}, "module": {}}
	rounds := map[string]bool{}
	for _, t := range expr.Variables() {
		root := t.RootName()
		decls := roots[root]
		if decls == nil {
			rounds[root] = true
			continue
		}
		names := []string{}
		if n, ok := step(t, 1); ok {
			names = append(names, n)
		} else {
			names = keys(decls) // all of them, as an object
		}
		for _, n := range names {
			d := decls[n]
			if d == nil {
				continue
			}
			v, err := r.decl(s, root, n, d)
			if err != nil {
				return cty.NilVal, err
			}
			need[root][n] = v
		}
	}
	vals := make([]cty.Value, len(e.iters))
	for i, it := range e.iters {
		vals[i] = it.value
		if !rounds[it.name] || !affected(it.value, r.known) {
			continue
		}
		coll, err := r.value(it.env, it.expr, nil)
		if err != nil {
			return cty.NilVal, err
		}
		vals[i] = element(coll, it.key, it.value)
	}
	v, found := mark.Eval(expr, e.over(s.build(need["var"], need["local"], need["secret"], need["module"]), vals, extra))
	if found.HasErrors() {
		return cty.NilVal, s.World.convert(found, s).Err()
	}
	return v, nil
}

func (r *resolution) decl(s *Scope, root, name string, d *Decl) (cty.Value, error) {
	if root == "secret" {
		if v, ok := r.known[s.Key("secret."+name)]; ok {
			return v, nil
		}
		return d.Value, nil
	}
	if !affected(d.Value, r.known) {
		return d.Value, nil
	}
	if v, ok := r.memo[d]; ok {
		return v, nil
	}
	v := d.Value
	var err error
	switch {
	case d.Outputs != nil:
		vals := make(map[string]cty.Value, len(d.Outputs))
		for n, o := range d.Outputs {
			if vals[n], err = r.decl(s, root, n, o); err != nil {
				return cty.NilVal, err
			}
		}
		v = cty.ObjectVal(vals)
	case d.Expr != nil:
		env := d.Env
		if env == nil {
			env = s.Env()
		}
		if v, err = r.value(env, d.Expr, nil); err != nil {
			return cty.NilVal, err
		}
		v = convertKeepingMarks(v, d.Type)
	}
	r.memo[d] = v
	return v, nil
}
