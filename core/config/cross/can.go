// SPDX-License-Identifier: Apache-2.0

package cross

import (
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/berth-dev/berth/core/config/read"
	"github.com/berth-dev/berth/core/config/tree"
	"github.com/berth-dev/berth/core/diag"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/sdk/driver"
)

// features reports what a sandbox asks for and its driver cannot do, not even with help of the core.
func (d *checker) features(v *spec.Sandbox, r read.Reader) {
	name := d.res.DriverOf(r.Node(), v.Driver)
	desc := d.res.Drivers[name]
	if desc == nil {
		return
	}
	need := func(b read.Reader, attr string, ask bool, what string, any ...driver.Feature) {
		if !ask || slices.ContainsFunc(any, func(f driver.Feature) bool { return slices.Contains(desc.Features, f) }) {
			return
		}
		rng := b.Node().Header
		if a := b.Node().Attr(attr); a != nil {
			rng = a.Expr.Range()
		}
		x := diag.Errorf(diag.FeatureMissing, rng, "driver %q cannot do this", name).Labelf("%s", what).
			Helpf("berth driver describe %s lists what it can do", name)
		for _, u := range desc.Unimplementable {
			if slices.Contains(any, u.Feature) {
				x.Notef("%s", u.Reason)
			}
		}
		d.add(x)
	}
	if s := r.Block("snapshot"); s.OK() {
		need(s, "native", s.String("native") == "always", "it has no snapshots of its own", driver.SnapNative)
	}
	if n := r.Block("network"); n.OK() {
		need(n, "mode", n.String("mode") == "none" || n.String("mode") == "allow_list", "it cannot limit the network", driver.NetPolicy)
	}
	if s := r.Block("session"); s.OK() {
		need(s, "at_end", s.String("at_end") == "pause", "it cannot pause a sandbox", driver.LifePause)
	}
	need(r, "exposed_ports", slices.ContainsFunc(v.Ports, func(p spec.Port) bool { return p.Public }), "it cannot make ports public", driver.PortPublic)
}

// workspace reports what a run's manifest asks for and the driver of its sandbox cannot do.
func (d *checker) workspace(run *spec.Run, n *tree.Node, m *spec.Manifest) {
	box := read.New(n).Target("sandbox")
	if box == nil {
		return
	}
	name := d.res.DriverOf(box, run.Sandbox.Driver)
	desc := d.res.Drivers[name]
	if desc == nil {
		return
	}
	if len(m.Grants) > 0 && !slices.Contains(desc.Features, driver.PathGrants) {
		d.add(diag.Errorf(diag.FeatureMissing, n.Header, "driver %q cannot do this", name).
			Labelf("it cannot show host paths, and manifest %q has path_grant", m.Label))
	}
	for _, e := range m.Entries {
		if e.Mount == nil || e.Mount.Strategy == "auto" || len(desc.Mounts) == 0 {
			continue
		}
		var can []string
		for _, s := range desc.Mounts {
			if s.Kind == e.Mount.Kind {
				can = append(can, s.Strategies...)
			}
		}
		if !slices.Contains(can, e.Mount.Strategy) {
			x := diag.Errorf(diag.StrategyNotSupported, d.entryRange(e), "driver %q cannot mount %q with strategy %q", name, e.Path, e.Mount.Strategy)
			if len(can) > 0 {
				x.Labelf("for %s it has: %s", e.Mount.Kind, strings.Join(can, ", "))
			} else {
				x.Labelf("it has no strategy for %s", e.Mount.Kind)
			}
			d.add(x.Relate(n.Header, "used by this run"))
		}
	}
}

// providerOf is the service of an agent's model; nil when it is not known here.
func (d *checker) providerOf(a *spec.Agent) *spec.ModelProvider {
	c := a.Model
	switch {
	case c != nil && c.Model != nil && c.Model.Provider != nil:
		return c.Model.Provider
	case c != nil && c.Provider != nil:
		return c.Provider
	case len(d.p.Providers) == 1:
		for _, p := range d.p.Providers {
			return p
		}
	}
	return nil
}

// supports says whether a service can do something; what is not said is known by its interface.
func supports(p *spec.ModelProvider, what string) bool {
	if b, said := p.Supports[what]; said {
		return b
	}
	if p.API == "chat_completions" {
		return what != "hosted_tools" && what != "stored_prompt" && what != "compaction"
	}
	return true
}

// whichProvider reports models that name no service where there are several.
func (d *checker) whichProvider(n *tree.Node) {
	if len(d.p.Providers) < 2 {
		return
	}
	labels := make([]string, 0, len(d.p.Providers))
	for l := range d.p.Providers {
		labels = append(labels, l)
	}
	slices.Sort(labels)
	if m, ok := d.made[n].(*spec.Model); ok {
		if m.Provider == nil && n.Attrs["provider"] == nil && !n.Misspelt["provider"] {
			d.add(diag.Errorf(diag.MissingArgument, n.Header, "missing required argument").
				Labelf(`"provider" is required here: there is more than one`).Helpf("providers: %s", strings.Join(labels, ", ")))
		}
		return
	}
	c, a := (*spec.ModelChoice)(nil), n.Attr("model")
	switch v := d.made[n].(type) {
	case *spec.Agent:
		c = v.Model
	case *spec.Run:
		c = v.Model
	}
	if c != nil && a != nil && c.Model == nil && c.Provider == nil {
		d.add(diag.Errorf(diag.MissingArgument, a.Expr.Range(), "which provider has model %q?", c.Name).
			Labelf("write PROVIDER/%s, or a reference to a model block", c.Name).Helpf("providers: %s", strings.Join(labels, ", ")))
	}
}

// modelCan reports what an agent asks for and the service of its model cannot do.
func (d *checker) modelCan(a *spec.Agent, n *tree.Node) {
	p := d.providerOf(a)
	if p == nil {
		return
	}
	say := func(rng hcl.Range, what, feature string, as diag.Severity) {
		x := diag.Errorf(diag.ModelCannot, rng, "provider %q cannot do this", p.Label).Labelf("%s", what)
		x.Severity = as
		if _, said := p.Supports[feature]; !said {
			x.Helpf("if it can, say so: supports { %s = true }", feature)
		}
		for node, made := range d.made {
			if made == any(p) {
				x.Relate(node.Header, "declared here")
			}
		}
		d.add(x)
	}
	r := read.New(n)
	if at := n.Attr("tools"); at != nil && !supports(p, "hosted_tools") {
		for i, t := range at.Targets {
			if t.Labels[0] == "hosted" {
				say(read.Item(at.Expr, i), "it has no hosted tools", "hosted_tools", diag.Error)
			}
		}
	}
	if at := n.Attr("mcp_servers"); at != nil && !supports(p, "hosted_tools") {
		for i, t := range at.Targets {
			if t.Labels[0] == "hosted" {
				say(read.Item(at.Expr, i), "it has no hosted tools", "hosted_tools", diag.Error)
			}
		}
	}
	if b := r.Block("prompt"); b.OK() && !supports(p, "stored_prompt") {
		say(b.Node().Header, "it keeps no prompts", "stored_prompt", diag.Error)
	}
	if b := r.Block("capabilities").Block("compaction"); b.OK() && !supports(p, "compaction") {
		say(b.Node().Header, "it cannot compact a transcript", "compaction", diag.Warning)
	}
}
