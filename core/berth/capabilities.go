// SPDX-License-Identifier: Apache-2.0

package berth

import (
	"context"
	"fmt"
	"path"
	"strconv"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/manifest"
	"github.com/berth-dev/berth/core/mount"
	"github.com/berth-dev/berth/core/outfit"
	"github.com/berth-dev/berth/core/prompt"
	"github.com/berth-dev/berth/core/runner"
	"github.com/berth-dev/berth/core/sandbox"
	"github.com/berth-dev/berth/core/spec"
)

var treeOptions = manifest.TreeOptions{}

// outfit makes what an agent works with; s is nil for one without a sandbox.
func (r *live) outfit(ctx context.Context, a *spec.Agent, s *sandbox.Session, emit func(event.Data)) (*outfit.Outfit, error) {
	cfg := outfit.Config{Agent: a, Sandbox: r.o.Run.Sandbox, Session: s, Cwd: r.o.Run.Cwd, Vars: r.varsIn(a, s), Lists: &r.h.lists, CacheDir: r.h.cfg.CacheDir}
	if emit != nil {
		cfg.Warn = func(message, hint string) { emit(event.Warning{Message: message, Hint: hint}) }
	}
	if r.o.Project != nil {
		cfg.HostDir = r.o.Project.Dir
	}
	return outfit.New(ctx, cfg)
}

// varsIn are the names of expressions in a session; nil = there is none.
func (r *live) varsIn(a *spec.Agent, s *sandbox.Session) spec.RunVars {
	vars := r.vars(a)
	if s == nil {
		return vars
	}
	vars.SandboxID, vars.Ports = s.Info().SandboxID, map[string]string{}
	for _, p := range s.Ports() {
		vars.Ports[strconv.Itoa(int(p.Port))] = p.URL
	}
	return vars
}

// plainOutfit is what an agent without a sandbox works with.
func (r *live) plainOutfit(a *spec.Agent) *outfit.Outfit {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.plain[a.Label]
}

// instructions is the system text of an agent.
func (r *live) instructions(a *spec.Agent, s runner.Session) (string, error) {
	ws, _ := s.(*workspace)
	var in *sandbox.Session
	if ws != nil {
		in = ws.Session.Session
	}
	parts, err := agentParts(a, r.varsIn(a, in))
	if err != nil || ws == nil {
		parts.Capabilities = r.plainOutfit(a).Fragments()
		return prompt.Build(parts), err
	}
	parts.Capabilities = ws.Fragments()
	if ws.recalled != "" {
		parts.Capabilities = append(parts.Capabilities, ws.recalled)
	}
	cwd := ""
	if r.o.Run.Cwd != "" {
		cwd = path.Join(ws.Root(), r.o.Run.Cwd)
	}
	contents := ws.Contents()
	if m := contents.Manifest; len(mount.Of(m.Entries)) > 0 {
		parts.Capabilities = append(parts.Capabilities, mount.Policy(mount.Of(m.Entries), ws.Root(), m.MountCommands))
	}
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
