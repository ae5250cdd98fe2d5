// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"slices"
	"sort"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/berth-dev/berth/core/config/check"
	"github.com/berth-dev/berth/core/config/drivercfg"
	"github.com/berth-dev/berth/core/config/eval"
	"github.com/berth-dev/berth/core/config/schema"
	"github.com/berth-dev/berth/core/config/tree"
	"github.com/berth-dev/berth/core/diag"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	sdk "github.com/berth-dev/berth/sdk/schema"
)

// maxExtends bounds chains of extends.
const maxExtends = 8

// link merges `extends`, reads the bodies of drivers, and checks everything.
func (l *loader) link() {
	x := &extender{loader: l, state: map[*tree.Node]int{}, done: map[*tree.Node]*tree.Node{}, drivers: map[*tree.Node]string{}}
	l.each(l.res.Root, func(m *Module) {
		for i, n := range m.Nodes {
			m.Nodes[i] = x.resolve(n, nil)
		}
	})
	l.each(l.res.Root, func(m *Module) {
		if m.Berth != nil {
			l.checker.Node(m.Berth)
		}
		for _, n := range m.Nodes {
			l.checker.Node(n)
		}
	})
}

func (l *loader) each(m *Module, f func(*Module)) {
	f(m)
	for _, c := range m.Children {
		l.each(c, f)
	}
}

type extender struct {
	*loader
	state   map[*tree.Node]int // 1 = in work, 2 = done
	done    map[*tree.Node]*tree.Node
	drivers map[*tree.Node]string
}

// resolve gives a node with its parents merged in. chain are the nodes that wait for it.
func (x *extender) resolve(n *tree.Node, chain []*tree.Node) *tree.Node {
	switch x.state[n] {
	case 2:
		return x.done[n]
	case 1:
		x.cycle(n, chain)
		return n
	}
	x.state[n] = 1
	out := x.merged(n, chain)
	x.state[n] = 2
	x.done[n] = out
	x.state[out], x.done[out] = 2, out
	x.res.Registry.Replace(n.Env.Scope.Module, out)
	return out
}

func (x *extender) merged(n *tree.Node, chain []*tree.Node) *tree.Node {
	a := n.Attrs["extends"]
	var parent *tree.Node
	if a != nil && a.Schema.Kind == schema.Ref && n.Schema.Extends {
		x.checker.Attr(n, a, eval.Use{})
		if len(a.Targets) == 1 {
			parent = a.Targets[0]
		}
	} else {
		a = nil
	}
	if parent != nil && len(chain) >= maxExtends {
		x.add(diag.Errorf(diag.ExtendsProblem, a.Expr.Range(), "extends is too deep").Labelf("at most %d levels are allowed", maxExtends))
		parent = nil
	}
	if parent != nil {
		before := len(x.res.Diags)
		parent = x.resolve(parent, append(chain, n))
		if x.res.Diags[before:].HasErrors() {
			parent = nil
		}
	}
	if parent != nil && len(n.Schema.Labels) > 1 && n.Labels[0] != parent.Labels[0] {
		x.add(diag.Errorf(diag.ExtendsProblem, a.Expr.Range(), "%s extends one of another kind", n.Key()).
			Labelf("%s is no %s %s", parent.Key(), n.Labels[0], spoken(n.Type)).Relate(parent.Header, "declared here"))
		parent = nil
	}
	x.driverBodies(n, parent)
	if parent == nil {
		if a != nil && len(a.Targets) == 0 || x.state[n] == 1 && a != nil {
			n.Misspelt = everything(n) // what the parent would have given is not missed
		}
		return n
	}
	return x.build.Merge(n, parent)
}

// everything names all that a node could have, so that nothing is reported as missing.
func everything(n *tree.Node) map[string]bool {
	out := map[string]bool{}
	for _, a := range n.Body.Attrs {
		out[a.Name] = true
	}
	for _, b := range n.Body.Blocks {
		out[b.Type] = true
	}
	return out
}

func (x *extender) cycle(n *tree.Node, chain []*tree.Node) {
	start := 0
	for i, c := range chain {
		if c == n {
			start = i
		}
	}
	chain = chain[start:]
	var names []string
	for _, c := range chain {
		names = append(names, c.Key())
	}
	d := diag.Errorf(diag.ExtendsProblem, n.Attrs["extends"].Expr.Range(), "%s extends itself", n.Key()).
		Labelf("%s -> %s", strings.Join(names, " -> "), n.Key())
	for _, c := range chain[1:] {
		d.Relate(c.Attrs["extends"].Expr.Range(), "through here")
	}
	x.add(d)
}

// driverBodies reads the config block of a sandbox or driver with the driver's schema.
func (x *extender) driverBodies(n *tree.Node, parent *tree.Node) {
	if n.Type != "sandbox" && n.Type != "driver" {
		return
	}
	label, rng := x.driverName(n, parent)
	x.drivers[n] = label
	if label == "" {
		for _, c := range n.All("config") {
			c.Unchecked = true
		}
		return
	}
	name := label
	if n.Type == "sandbox" {
		name = x.uses(label, n.Env.Scope.Module)
	}
	desc, ok := x.describe(name, label, rng, n)
	for _, c := range n.All("config") {
		c.Owner = name
		if !ok {
			c.Unchecked = true
			continue
		}
		s := desc.SandboxConfig
		if n.Type == "driver" {
			s = desc.ProcessConfig
		}
		if s == nil {
			s = &sdk.Schema{}
		}
		x.build.Fill(c, drivercfg.Body(&s.Block, x.opt.Env))
		c.Walk(func(inner *tree.Node) { inner.Owner = name })
	}
	if ok && n.Type == "sandbox" && n.Block("config") == nil && parent == nil {
		x.emptyConfig(n, desc, name)
	}
}

// emptyConfig reports what a driver needs when there is no config block at all.
func (x *extender) emptyConfig(n *tree.Node, desc *driver.Description, name string) {
	if desc.SandboxConfig == nil || n.Misspelt["config"] {
		return
	}
	var need []string
	for _, a := range drivercfg.Body(&desc.SandboxConfig.Block, x.opt.Env).Attrs {
		if a.Required {
			need = append(need, a.Name)
		}
	}
	if len(need) > 0 {
		sort.Strings(need)
		x.add(diag.Errorf(diag.MissingArgument, n.Header, "missing required block").
			Labelf("driver %q needs config { %s = ... }", name, strings.Join(need, " = ..., ")))
	}
}

// driverName is the driver that a node names, or its parent does.
func (x *extender) driverName(n, parent *tree.Node) (string, hcl.Range) {
	attr := "driver"
	if n.Type == "driver" {
		attr = "uses"
	}
	if a := n.Attrs[attr]; a != nil {
		text, ok := check.Literal(a.Expr)
		if !ok {
			return "", a.Expr.Range() // reported when the attribute is checked
		}
		return text, a.Expr.Range()
	}
	if n.Type == "driver" {
		return n.Name(), n.LabelRanges[0]
	}
	if parent != nil {
		name, _ := x.driverName(parent, nil)
		return name, n.Header
	}
	return "", n.Header
}

// uses is the driver behind the label of a driver block; the label itself when there is no such block.
func (x *extender) uses(label, scope string) string {
	d := x.res.Registry.Find(scope, "driver."+label)
	if d == nil {
		return label
	}
	name, _ := x.driverName(d, nil)
	return name
}

// describe asks for a driver's description, once per name.
func (x *extender) describe(name, label string, rng hcl.Range, n *tree.Node) (*driver.Description, bool) {
	if d, known := x.res.Drivers[name]; known {
		return d, d != nil
	}
	declared := x.required(n.Env.Scope.Module)
	if x.opt.Schemas == nil {
		x.res.Drivers[name] = nil
		if x.opt.Drivers != nil && !has(x.opt.Drivers, name) && !has(declared, name) {
			x.unknown(label, rng, n, declared)
			return nil, false
		}
		x.add(diag.Warnf(diag.SchemaUnavailable, rng, "the settings of driver %q are not checked", name).Labelf("its schema is not at hand"))
		return nil, false
	}
	d, err := x.opt.Schemas(name)
	if err == nil && d != nil {
		x.res.Drivers[name] = d
		return d, true
	}
	x.res.Drivers[name] = nil
	switch {
	case !has(declared, name) && (errors.Is(err, errs.DriverUnknown) || x.opt.Drivers != nil && !has(x.opt.Drivers, name)):
		x.unknown(label, rng, n, declared)
	default:
		w := diag.Warnf(diag.SchemaUnavailable, rng, "the settings of driver %q are not checked", name).Labelf("its schema is not at hand").
			Helpf("run: berth init")
		if err != nil {
			w.Notef("%v", err)
		}
		x.add(w)
	}
	return nil, false
}

func (x *extender) unknown(label string, rng hcl.Range, n *tree.Node, declared []string) {
	names := append(append([]string(nil), declared...), x.opt.Drivers...)
	for _, key := range x.res.Registry.Names(n.Env.Scope.Module, "driver") {
		if n.Type == "sandbox" {
			names = append(names, strings.TrimPrefix(key, "driver."))
		}
	}
	sort.Strings(names)
	var uniq []string
	for i, s := range names {
		if i == 0 || s != names[i-1] {
			uniq = append(uniq, s)
		}
	}
	d := diag.Errorf(diag.UnknownDriver, rng, "no driver named %q", label)
	if near := diag.Suggest(label, uniq); near != "" {
		d.Labelf("did you mean %q?", near)
	}
	if len(uniq) > 0 {
		d.Helpf("installed or required drivers: %s", strings.Join(uniq, ", "))
	}
	d.Helpf("add it to berth { required_drivers } and run: berth init")
	x.add(d)
}

// required are the names in required_drivers of a module, and of the project.
func (x *extender) required(scope string) []string {
	var out []string
	x.each(x.res.Root, func(m *Module) {
		if m.Name != scope && m.Name != "" || m.Berth == nil {
			return
		}
		if r := m.Berth.Block("required_drivers"); r != nil {
			for name := range r.Attrs {
				out = append(out, name)
			}
		}
	})
	sort.Strings(out)
	return out
}

func has(list []string, s string) bool {
	return slices.Contains(list, s)
}
