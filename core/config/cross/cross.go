// SPDX-License-Identifier: Apache-2.0

// Package cross checks what lies between the blocks of a project: names of tools, what drivers and models can do,
// credentials inside sandboxes, blocks that nothing names.
package cross

import (
	"slices"
	"sort"

	"github.com/hashicorp/hcl/v2"

	"github.com/berth-dev/berth/core/config/decode"
	"github.com/berth-dev/berth/core/config/load"
	"github.com/berth-dev/berth/core/config/read"
	"github.com/berth-dev/berth/core/config/tree"
	"github.com/berth-dev/berth/core/config/workspace"
	"github.com/berth-dev/berth/core/diag"
	"github.com/berth-dev/berth/core/spec"
)

// Check checks a decoded project.
func Check(res *load.Result, dec decode.Decoded) diag.Diagnostics {
	d := &checker{res: res, p: dec.Project, made: dec.Made}
	d.all()
	return d.ds
}

type checker struct {
	res  *load.Result
	p    *spec.Project
	made map[*tree.Node]any
	ds   diag.Diagnostics
}

func (d *checker) add(x *diag.Diagnostic) { d.ds = append(d.ds, x) }

func (d *checker) all() {
	d.res.Each(func(_ *load.Module, n *tree.Node) {
		d.whichProvider(n)
		switch v := d.made[n].(type) {
		case *spec.Agent:
			d.toolNames(v, n)
			d.modelCan(v, n)
		case *spec.Run:
			d.exposure(v, n)
		case *spec.Sandbox:
			d.features(v, read.New(n))
		}
	})
	d.fallbacks()
	d.unused()
}

// used is a tool name with the place that gives it.
type used struct {
	rng hcl.Range
	by  string
}

// toolNames reports two tools of one agent that would have the same name.
func (d *checker) toolNames(a *spec.Agent, n *tree.Node) {
	have := map[string]used{}
	take := func(name, by string, rng hcl.Range) {
		if old, twice := have[name]; twice {
			d.add(diag.Errorf(diag.ToolNameCollision, rng, "two tools of agent %q are named %q", a.Label, name).
				Labelf("%s", by).Relate(old.rng, "%s", old.by).Helpf("rename one of them"))
			return
		}
		have[name] = used{rng, by}
	}
	if a.Capabilities.Shell != nil {
		for _, t := range []string{"exec_command", "write_stdin"} {
			have[t] = used{n.Header, "the capability shell has it"}
		}
	}
	if f := a.Capabilities.Filesystem; f != nil {
		if f.ApplyPatch {
			have["apply_patch"] = used{n.Header, "the capability filesystem has it"}
		}
		if f.ViewImage {
			have["view_image"] = used{n.Header, "the capability filesystem has it"}
		}
	}
	r := read.New(n)
	if at := n.Attr("tools"); at != nil {
		for i, t := range at.Targets {
			if t.Labels[0] != "hosted" {
				take(decode.ToolName(t.Name()), "a "+t.Labels[0]+" tool", read.Item(at.Expr, i))
			}
		}
	}
	for _, b := range r.Blocks("agent_tool") {
		take(b.Node().Name(), "an agent as a tool", b.Node().Header)
	}
	for _, h := range a.Handoffs {
		rng := n.Header
		for _, b := range r.Blocks("handoff") {
			if b.Pos() == h.Pos {
				rng = b.Node().Header
			}
		}
		if at := n.Attr("handoffs"); at != nil && rng == n.Header {
			rng = at.Expr.Range()
		}
		take(h.ToolName, "a handoff", rng)
	}
}

// exposure reports credentials that would be inside a sandbox which does not trust them.
func (d *checker) exposure(run *spec.Run, n *tree.Node) {
	m := run.Manifest
	if m == nil && run.Agent != nil {
		m = run.Agent.Manifest
	}
	if m == nil || run.Sandbox == nil {
		return
	}
	d.workspace(run, n, m)
	for _, e := range m.Entries {
		if e.Mount == nil || e.Mount.Strategy != "in_container" || len(e.Mount.Credentials) == 0 || slices.Contains(run.Sandbox.Trusted, e.Path) {
			continue
		}
		d.add(diag.Errorf(diag.ExposureNotTrusted, d.entryRange(e), "credentials of mount %q would be inside the sandbox", e.Path).
			Labelf("strategy in_container puts them there").
			Helpf("add %q to trusted_mount_credential_paths of sandbox %q, or use another strategy", e.Path, run.Sandbox.Label).
			Relate(n.Header, "used by this run"))
	}
}

// entryRange is the header of an entry.
func (d *checker) entryRange(e spec.Entry) hcl.Range {
	var out hcl.Range
	d.res.Each(func(_ *load.Module, n *tree.Node) {
		if n.Type != "manifest" {
			return
		}
		n.Walk(func(b *tree.Node) {
			if b.Pos() == e.Pos && slices.Contains(workspace.EntryKinds(), b.Type) {
				out = b.Header
			}
		})
	})
	return out
}

// fallbacks reports models that fall back on themselves.
func (d *checker) fallbacks() {
	labels := make([]string, 0, len(d.p.Models))
	for l := range d.p.Models {
		labels = append(labels, l)
	}
	sort.Strings(labels)
	state := map[*spec.Model]int{}
	var visit func(m *spec.Model)
	visit = func(m *spec.Model) {
		state[m] = 1
		var cut []*spec.Model
		for _, f := range m.Fallback {
			switch state[f] {
			case 0:
				visit(f)
			case 1:
				d.add(diag.Errorf(diag.Cycle, d.fallbackRange(m), "cycle between fallbacks").
					Labelf("model %q falls back on %q, which falls back on it", m.Label, f.Label))
				continue
			}
			cut = append(cut, f)
		}
		m.Fallback = cut
		state[m] = 2
	}
	for _, l := range labels {
		if m := d.p.Models[l]; state[m] == 0 {
			visit(m)
		}
	}
}

func (d *checker) fallbackRange(m *spec.Model) hcl.Range {
	for n, v := range d.made {
		if v == any(m) {
			if a := n.Attrs["fallback"]; a != nil {
				return a.Expr.Range()
			}
			return n.Header
		}
	}
	return hcl.Range{}
}

// unused reports blocks of the project that nothing names.
func (d *checker) unused() {
	named := map[*tree.Node]bool{}
	mark := func(n *tree.Node) {
		n.Walk(func(b *tree.Node) {
			for _, a := range b.Attrs {
				for _, t := range a.Targets {
					named[t] = true
				}
			}
		})
	}
	d.res.Each(func(_ *load.Module, n *tree.Node) {
		mark(n)
		for p := n.Parent; p != nil; p = p.Parent {
			named[p] = true
		}
	})
	if len(d.p.Agents) == 0 {
		return
	}
	for _, n := range d.res.Root.Nodes {
		switch n.Type {
		case "tool", "mcp_server", "guardrail", "output_schema", "manifest", "model", "snapshot_store":
			if !named[n] {
				d.add(diag.Warnf(diag.UnusedBlock, n.Header, "%s is not used", n.Key()).Labelf("nothing names it"))
			}
		}
	}
}
