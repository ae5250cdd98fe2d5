// SPDX-License-Identifier: Apache-2.0

package berth

import (
	"context"
	"path"

	"github.com/berth-dev/berth/core/manifest"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/outfit"
	"github.com/berth-dev/berth/core/prompt"
	"github.com/berth-dev/berth/core/spec"
)

// Plan is what a run would do.
type Plan struct {
	Agent       string          `json:"agent"`
	Driver      string          `json:"driver,omitempty"`
	Root        string          `json:"root,omitempty"`
	Steps       []manifest.Step `json:"steps,omitempty"`
	HostPaths   []string        `json:"host_paths,omitempty"`
	Environment []string        `json:"environment,omitempty"` // names
	Tools       []string        `json:"tools"`
	// Instructions is what the model is told. Facts that only a sandbox has are missing.
	Instructions string `json:"instructions"`
	// HostPathsNote says what becomes of the host paths, as the end of a sentence.
	HostPathsNote string `json:"host_paths_note,omitempty"`
	// Unavailable is what the files ask for and this version cannot do.
	Unavailable []string `json:"unavailable,omitempty"`
}

// Plan says what a run would do. It reads local sources, fetches nothing and makes no sandbox.
func (h *Harness) Plan(ctx context.Context, p *spec.Project, r *spec.Run) (*Plan, error) {
	out := &Plan{Agent: r.Agent.Label}
	if err := available(r); err != nil {
		out.Unavailable = append(out.Unavailable, err.Error())
	}
	vars := spec.RunVars{Input: r.Input, Vars: r.Vars, Agent: r.Agent.Label, StartedAt: h.cfg.Now()}
	parts, err := agentParts(r.Agent, vars)
	if err != nil {
		return nil, err
	}
	kit, err := outfit.Plan(ctx, r.Agent)
	if err != nil {
		return nil, err
	}
	for _, t := range kit.Tools(model.Support{CustomTools: true, ImageToolOutput: true}) {
		out.Tools = append(out.Tools, t.Spec().Name)
	}
	for _, t := range r.Agent.AgentTools {
		out.Tools = append(out.Tools, t.Name)
	}
	for _, h := range r.Agent.Handoffs {
		out.Tools = append(out.Tools, h.ToolName)
	}
	if !r.Agent.Sandboxed {
		out.Instructions = prompt.Build(parts)
		return out, nil
	}
	m := manifestOf(r, r.Agent)
	contents, err := manifest.Resolve(ctx, m, manifest.Options{Vars: vars, Offline: true})
	if err != nil {
		return nil, err
	}
	m = contents.Manifest
	out.Driver, out.Root, out.Steps = h.DriverOf(r.Sandbox), m.Root, contents.Plan()
	out.hostPaths(m)
	for _, v := range m.Environment {
		out.Environment = append(out.Environment, v.Name)
	}
	parts.Capabilities = kit.Fragments()
	parts.Sandbox = &prompt.Sandbox{Root: m.Root, Cwd: path.Join(m.Root, r.Cwd), Tree: contents.Tree(treeOptions)}
	for _, g := range m.Grants {
		parts.Sandbox.Grants = append(parts.Sandbox.Grants, prompt.Grant{Path: g.Path, Description: g.Description, ReadOnly: g.ReadOnly})
	}
	out.Instructions = prompt.Build(parts)
	return out, nil
}

func (p *Plan) hostPaths(m *spec.Manifest) {
	p.HostPathsNote = "are copied into the sandbox of driver " + p.Driver + ", which may be on another machine"
	if p.Driver == DefaultDriver {
		p.HostPathsNote = "are copied into the sandbox, on this machine"
	}
	for _, s := range p.Steps {
		if s.Kind == spec.EntryLocalDir || s.Kind == spec.EntryLocalFile {
			p.HostPaths = append(p.HostPaths, s.From)
		}
	}
	for _, g := range m.Grants {
		from, access := g.HostPath, " (granted, read and write)"
		if from == "" {
			from = g.Path
		}
		if g.ReadOnly {
			access = " (granted, read only)"
		}
		p.HostPaths = append(p.HostPaths, from+access)
	}
}
