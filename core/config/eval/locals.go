// SPDX-License-Identifier: Apache-2.0

package eval

import (
	"slices"
	"sort"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/berth-dev/berth/core/config/mark"
	"github.com/berth-dev/berth/core/diag"
)

// Module is one `module` block while the graph is solved.
type Module struct {
	Range hcl.Range
	Exprs []hcl.Expression
	// Load loads the module and sets its declaration.
	Load func() diag.Diagnostics
}

// Solve evaluates local values and loads modules in the order of their graph. Each cycle gives one error, and its
// members are unknown.
func (s *Scope) Solve(locals map[string]*hcl.Attribute, modules map[string]*Module) diag.Diagnostics {
	g := &graph{places: map[string]hcl.Range{}, needs: map[string][]string{}, index: map[string]int{}, low: map[string]int{}, on: map[string]bool{}}
	for n, a := range locals {
		s.Locals[n] = &Decl{Name: n, Value: cty.DynamicVal, Range: a.NameRange, Expr: a.Expr}
		g.places["local."+n] = a.NameRange
	}
	for n, m := range modules {
		s.Modules[n] = &Decl{Name: n, Value: cty.DynamicVal, Range: m.Range}
		g.places["module."+n] = m.Range
	}
	for n, a := range locals {
		g.needs["local."+n] = g.uses(a.Expr)
	}
	for n, m := range modules {
		for _, e := range m.Exprs {
			g.needs["module."+n] = append(g.needs["module."+n], g.uses(e)...)
		}
	}
	s.Changed()
	var ds diag.Diagnostics
	for _, group := range g.groups() {
		if len(group) > 1 || contains(g.needs[group[0]], group[0]) {
			ds = append(ds, g.cycle(group))
			continue
		}
		kind, n, _ := strings.Cut(group[0], ".")
		if kind == "module" {
			s.Changed()
			ds = append(ds, modules[n].Load()...)
			s.Changed()
			continue
		}
		v, found := s.local(locals[n].Expr, g.needs[group[0]])
		ds = append(ds, found...)
		s.Locals[n].Value = v
		s.localOrder = append(s.localOrder, n)
	}
	s.Changed()
	return ds
}

// local evaluates one local value with no more of the others than it needs, so that many stay cheap.
func (s *Scope) local(expr hcl.Expression, needs []string) (cty.Value, diag.Diagnostics) {
	env := s.Env()
	if ds := env.Check(expr, Use{}); ds.HasErrors() {
		return cty.DynamicVal, ds
	}
	others := make(map[string]cty.Value, len(needs))
	for _, key := range needs {
		if n, ok := strings.CutPrefix(key, "local."); ok {
			others[n] = s.Locals[n].Value
		}
	}
	v, found := mark.Eval(expr, env.context(map[string]cty.Value{"local": cty.ObjectVal(others)}))
	if found.HasErrors() {
		return cty.DynamicVal, s.World.convert(found, s)
	}
	return v, nil
}

// uses lists the local values and modules that an expression uses.
func (g *graph) uses(expr hcl.Expression) []string {
	var out []string
	for _, t := range expr.Variables() {
		root := t.RootName()
		if root != "local" && root != "module" {
			continue
		}
		if n, ok := step(t, 1); ok {
			if _, known := g.places[root+"."+n]; known {
				out = append(out, root+"."+n)
			}
			continue
		}
		if len(t) == 1 { // all of them
			for key := range g.places {
				if strings.HasPrefix(key, root+".") {
					out = append(out, key)
				}
			}
		}
	}
	sort.Strings(out)
	return out
}

// graph finds the strongly connected groups, what is needed first.
type graph struct {
	places map[string]hcl.Range
	needs  map[string][]string
	index  map[string]int
	low    map[string]int
	on     map[string]bool
	stack  []string
	out    [][]string
}

func (g *graph) groups() [][]string {
	for _, n := range keys(g.places) {
		if _, seen := g.index[n]; !seen {
			g.visit(n)
		}
	}
	return g.out
}

// visit is Tarjan's algorithm without recursion, so that long chains need no deep stack.
func (g *graph) visit(root string) {
	type frame struct {
		name string
		next int
	}
	enter := func(n string) frame {
		g.index[n] = len(g.index) + 1
		g.low[n] = g.index[n]
		g.stack = append(g.stack, n)
		g.on[n] = true
		return frame{name: n}
	}
	work := []frame{enter(root)}
	for len(work) > 0 {
		f := &work[len(work)-1]
		if f.next < len(g.needs[f.name]) {
			m := g.needs[f.name][f.next]
			f.next++
			if _, seen := g.index[m]; !seen {
				work = append(work, enter(m))
			} else if g.on[m] {
				g.low[f.name] = min(g.low[f.name], g.index[m])
			}
			continue
		}
		n := f.name
		work = work[:len(work)-1]
		if len(work) > 0 {
			p := work[len(work)-1].name
			g.low[p] = min(g.low[p], g.low[n])
		}
		if g.low[n] != g.index[n] {
			continue
		}
		var group []string
		for {
			m := g.stack[len(g.stack)-1]
			g.stack = g.stack[:len(g.stack)-1]
			g.on[m] = false
			group = append(group, m)
			if m == n {
				break
			}
		}
		g.out = append(g.out, group)
	}
}

// cycle describes one way round through a group.
func (g *graph) cycle(group []string) *diag.Diagnostic {
	in := map[string]bool{}
	for _, n := range group {
		in[n] = true
	}
	sort.Slice(group, func(i, j int) bool {
		a, b := g.places[group[i]], g.places[group[j]]
		if a.Filename != b.Filename {
			return a.Filename < b.Filename
		}
		return a.Start.Byte < b.Start.Byte
	})
	path := shortest(group[0], g.needs, in)
	what := "local values"
	for _, n := range path {
		if strings.HasPrefix(n, "module.") {
			what = "modules and local values"
		}
	}
	d := diag.Errorf(diag.Cycle, g.places[path[0]], "cycle between %s", what).
		Labelf("%s -> %s", strings.Join(path, " -> "), path[0])
	for _, n := range path[1:] {
		d.Relate(g.places[n], "through here")
	}
	return d
}

// shortest is the shortest way from a node back to it, inside a group.
func shortest(from string, needs map[string][]string, in map[string]bool) []string {
	before := map[string]string{}
	queue := []string{from}
	for len(queue) > 0 {
		n := queue[0]
		queue = queue[1:]
		for _, m := range needs[n] {
			if m == from {
				path := []string{n}
				for n != from {
					n = before[n]
					path = append([]string{n}, path...)
				}
				return path
			}
			if _, seen := before[m]; in[m] && !seen {
				before[m] = n
				queue = append(queue, m)
			}
		}
	}
	return []string{from}
}

func contains(list []string, s string) bool {
	return slices.Contains(list, s)
}
