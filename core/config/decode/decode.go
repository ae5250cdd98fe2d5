// SPDX-License-Identifier: Apache-2.0

// Package decode turns a checked tree into the specification of a project, and checks what no single attribute shows:
// paths, users, tool names, what an agent without a sandbox may not have.
package decode

import (
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/berth-dev/berth/core/config/drivercfg"
	"github.com/berth-dev/berth/core/config/eval"
	"github.com/berth-dev/berth/core/config/load"
	"github.com/berth-dev/berth/core/config/read"
	"github.com/berth-dev/berth/core/config/tree"
	"github.com/berth-dev/berth/core/config/workspace"
	"github.com/berth-dev/berth/core/diag"
	"github.com/berth-dev/berth/core/semver"
	"github.com/berth-dev/berth/core/spec"
	sdk "github.com/berth-dev/berth/sdk/schema"
)

// Decoded is a project with the blocks that its parts come from.
type Decoded struct {
	Project *spec.Project
	Made    map[*tree.Node]any // *spec.Agent, … by their blocks
	Diags   diag.Diagnostics
}

// Project makes the specification of what was loaded.
func Project(res *load.Result, getenv func(string) (string, bool)) Decoded {
	d := &decoder{files: workspace.Reader{Redact: res.World.Redact}, runAs: map[*tree.Node][]string{}, res: res, getenv: getenv, made: map[*tree.Node]any{}, labels: map[*tree.Node]string{}}
	d.p = &spec.Project{
		Dir: res.Layout.Dir, RequiredDrivers: map[string]spec.DriverRequirement{},
		Providers: map[string]*spec.ModelProvider{}, Models: map[string]*spec.Model{}, Drivers: map[string]*spec.DriverProcess{},
		SnapshotStores: map[string]*spec.SnapshotStore{}, Manifests: map[string]*spec.Manifest{}, Sandboxes: map[string]*spec.Sandbox{},
		MCPServers: map[string]*spec.MCPServer{}, Tools: map[string]*spec.Tool{}, Guardrails: map[string]*spec.Guardrail{},
		OutputSchemas: map[string]*spec.OutputSchema{}, Agents: map[string]*spec.Agent{}, Runs: map[string]*spec.Run{},
	}
	res.Each(d.allocate)
	res.Each(d.fill)
	d.berth(read.New(res.Root.Berth))
	return Decoded{Project: d.p, Made: d.made, Diags: append(d.ds, d.files.Diags...)}
}

type decoder struct {
	res    *load.Result
	getenv func(string) (string, bool)
	p      *spec.Project
	made   map[*tree.Node]any
	labels map[*tree.Node]string
	files  workspace.Reader
	runAs  map[*tree.Node][]string // by manifest
	ds     diag.Diagnostics
}

func (d *decoder) add(x *diag.Diagnostic) { d.ds = append(d.ds, x) }

// label is the name of a node in the project: "coder", or "base.coder" in the module base.
func label(m *load.Module, n *tree.Node) string {
	if m.Name == "" {
		return n.Name()
	}
	return strings.ReplaceAll(strings.TrimPrefix(m.Name, "module."), ".module.", ".") + "." + n.Name()
}

// allocate makes the empty value of a node, so that references, also those in a circle, can point to it.
func (d *decoder) allocate(m *load.Module, n *tree.Node) {
	l := label(m, n)
	d.labels[n] = l
	two := func() string { return n.Labels[0] + "." + l }
	switch n.Type {
	case "model_provider":
		d.made[n] = put(d.p.Providers, l)
	case "model":
		d.made[n] = put(d.p.Models, l)
	case "driver":
		d.made[n] = put(d.p.Drivers, l)
	case "snapshot_store":
		d.made[n] = put(d.p.SnapshotStores, two())
	case "manifest":
		d.made[n] = put(d.p.Manifests, l)
	case "sandbox":
		d.made[n] = put(d.p.Sandboxes, l)
	case "mcp_server":
		d.made[n] = put(d.p.MCPServers, two())
	case "tool":
		d.made[n] = put(d.p.Tools, two())
	case "guardrail":
		d.made[n] = put(d.p.Guardrails, two())
	case "output_schema":
		d.made[n] = put(d.p.OutputSchemas, l)
	case "agent":
		d.made[n] = put(d.p.Agents, l)
		r := read.New(n)
		if m, user := r.Target("manifest"), r.String("run_as"); m != nil && user != "" {
			d.runAs[m] = append(d.runAs[m], user)
		}
	case "run":
		d.made[n] = put(d.p.Runs, l)
	}
}

func put[T any](m map[string]*T, key string) *T {
	v := new(T)
	m[key] = v
	return v
}

func (d *decoder) fill(m *load.Module, n *tree.Node) {
	r, l := read.New(n), label(m, n)
	switch v := d.made[n].(type) {
	case *spec.ModelProvider:
		d.provider(v, r, l)
	case *spec.Model:
		d.model(v, r, l)
	case *spec.DriverProcess:
		d.driver(v, r, l)
	case *spec.SnapshotStore:
		d.store(v, r, l)
	case *spec.Manifest:
		d.files.Manifest(v, r, l, d.runAs[n])
	case *spec.Sandbox:
		d.sandbox(v, r, l)
	case *spec.MCPServer:
		d.server(v, r, l)
	case *spec.Tool:
		d.tool(v, r, l)
	case *spec.Guardrail:
		d.guardrail(v, r, l)
	case *spec.OutputSchema:
		d.outputSchema(v, r, l)
	case *spec.Agent:
		d.agent(v, r, l)
	case *spec.Run:
		d.run(v, r, l)
	}
}

// one gives what a reference names; nil when it names nothing.
func one[T any](d *decoder, r read.Reader, name string) *T {
	v, _ := d.made[r.Target(name)].(*T)
	return v
}

func many[T any](d *decoder, r read.Reader, name string) []*T {
	var out []*T
	for _, n := range r.Targets(name) {
		if v, ok := d.made[n].(*T); ok {
			out = append(out, v)
		}
	}
	return out
}

func (d *decoder) berth(r read.Reader) {
	d.p.RequiredVersion = r.String("required_version")
	drivers := r.Block("required_drivers")
	if !drivers.OK() {
		return
	}
	for _, a := range drivers.Node().Sorted() {
		if a.Bad || a.Value == cty.NilVal {
			continue
		}
		m, ok := drivers.Any(a.Name).(map[string]any)
		if !ok {
			d.add(diag.Errorf(diag.WrongType, a.Expr.Range(), "wrong type").
				Labelf(`write { source = "namespace/name", version = ">= 0.1" }`))
			continue
		}
		req := spec.DriverRequirement{Pos: eval.Pos(a.NameRange)}
		for k, v := range m {
			text, isText := v.(string)
			switch {
			case !isText:
				d.add(diag.Errorf(diag.WrongType, a.Expr.Range(), "wrong type").Labelf("%q needs a string", k))
			case k == "source":
				req.Source = text
			case k == "version":
				req.Version = text
			default:
				bad := diag.Errorf(diag.UnsupportedArgument, a.Expr.Range(), "unsupported argument %q", k)
				if near := diag.Suggest(k, []string{"source", "version"}); near != "" {
					bad.Labelf("did you mean %q?", near)
				}
				d.add(bad)
			}
		}
		if _, err := semver.ParseConstraint(req.Version); req.Version != "" && err != nil {
			d.add(diag.Errorf(diag.PatternMismatch, a.Expr.Range(), "version of driver %q is no constraint", a.Name).Labelf("%v", err))
		}
		if ns, name, ok := strings.Cut(req.Source, "/"); req.Source != "" && (!ok || ns == "" || name == "" || strings.Contains(name, "/")) {
			d.add(diag.Errorf(diag.PatternMismatch, a.Expr.Range(), "source of driver %q is not valid", a.Name).Labelf(`write "namespace/name"`))
		}
		if req.Source == "" {
			d.add(diag.Errorf(diag.MissingArgument, a.NameRange, "missing required argument").Labelf(`"source" is required here`))
		}
		d.p.RequiredDrivers[a.Name] = req
	}
}

// driverConfig makes the configuration body of a driver.
func (d *decoder) driverConfig(r read.Reader, name string, process bool) spec.DriverConfig {
	cfg := r.Block("config")
	out := &drivercfg.Config{Node: cfg.Node(), Getenv: d.getenv, At: r.Pos()}
	if desc := d.res.Drivers[name]; desc != nil {
		out.Schema = desc.SandboxConfig
		if process {
			out.Schema = desc.ProcessConfig
		}
		if out.Schema == nil {
			out.Schema = &sdk.Schema{}
		}
	}
	return out
}
