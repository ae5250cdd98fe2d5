// SPDX-License-Identifier: Apache-2.0

package berth

import (
	"context"
	"fmt"
	"path"
	"strconv"

	"github.com/berth-dev/berth/core/capability/filesystem"
	"github.com/berth-dev/berth/core/capability/shell"
	"github.com/berth-dev/berth/core/manifest"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/prompt"
	"github.com/berth-dev/berth/core/runner"
	"github.com/berth-dev/berth/core/sandbox"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/tool"
)

var treeOptions = manifest.TreeOptions{}

// capabilities are what an agent can do in its sandbox.
type capabilities struct {
	shell *shell.Shell
	files *filesystem.Filesystem
}

func newCapabilities(s *sandbox.Session, r *spec.Run) capabilities {
	var c capabilities
	caps, sp := r.Agent.Capabilities, r.Sandbox
	if caps.Shell != nil {
		cfg := shell.Config{Spec: caps.Shell, Dir: r.Cwd, User: r.Agent.RunAs}
		if sp != nil {
			cfg.Timeout = deref(sp.Timeouts.Exec)
			cfg.MaxProcesses = deref(sp.Limits.Processes)
			cfg.OutputBytes = int(deref(sp.Limits.OutputBytes))
		}
		c.shell = shell.New(s, cfg)
	}
	if caps.Filesystem != nil {
		c.files = filesystem.New(s, filesystem.Config{Spec: caps.Filesystem, Dir: r.Cwd, User: r.Agent.RunAs})
	}
	return c
}

func (c capabilities) tools(support model.Support) []tool.Tool {
	var out []tool.Tool
	if c.files != nil {
		out = append(out, c.files.Tools(support)...)
	}
	if c.shell != nil {
		out = append(out, c.shell.Tools(support)...)
	}
	return out
}

func (c capabilities) fragments() []string {
	var out []string
	if c.files != nil {
		out = append(out, c.files.Instructions())
	}
	if c.shell != nil {
		out = append(out, c.shell.Instructions())
	}
	return out
}

func (c capabilities) end(ctx context.Context) error {
	if c.shell == nil {
		return nil
	}
	return c.shell.Close(ctx)
}

// instructions is the system text of the run's agent.
func (r *live) instructions(s runner.Session) (string, error) {
	ws, _ := s.(*workspace)
	vars := r.vars()
	if ws != nil {
		vars.SandboxID, vars.Ports = ws.Info().SandboxID, map[string]string{}
		for _, p := range ws.Ports() {
			vars.Ports[strconv.Itoa(int(p.Port))] = p.URL
		}
	}
	parts, err := agentParts(r.o.Run.Agent, vars)
	if err != nil || ws == nil {
		return prompt.Build(parts), err
	}
	parts.Capabilities = ws.fragments()
	cwd := ""
	if r.o.Run.Cwd != "" {
		cwd = path.Join(ws.Root(), r.o.Run.Cwd)
	}
	contents := ws.Contents()
	parts.Sandbox = &prompt.Sandbox{Root: ws.Root(), Cwd: cwd, Tree: contents.Tree(treeOptions), Isolation: ws.Info().Isolation}
	for _, g := range contents.Manifest.Grants {
		parts.Sandbox.Grants = append(parts.Sandbox.Grants, prompt.Grant{Path: g.Path, Description: g.Description, ReadOnly: g.ReadOnly})
	}
	return prompt.Build(parts), nil
}

// agentParts are the parts of the instructions that need no sandbox.
func agentParts(a *spec.Agent, vars spec.RunVars) (prompt.Parts, error) {
	parts := prompt.Parts{}
	if a.Sandboxed {
		parts.Base = prompt.Base
	}
	if a.BaseInstructions != nil {
		text, err := a.BaseInstructions.Eval(vars)
		if err != nil {
			return parts, fmt.Errorf("agent %q: base_instructions: %w", a.Label, err)
		}
		parts.Base = text
	}
	text, err := a.Instructions.Eval(vars)
	if err != nil {
		return parts, fmt.Errorf("agent %q: instructions: %w", a.Label, err)
	}
	parts.Agent = text
	return parts, nil
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
