// SPDX-License-Identifier: Apache-2.0

// Package outfit puts together what one agent has to work with: the capabilities of its sandbox and the tools that the
// project gives it. It makes them and ends them; it decides about no call.
package outfit

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-dev/berth/core/capability/filesystem"
	"github.com/berth-dev/berth/core/capability/shell"
	"github.com/berth-dev/berth/core/hostproc"
	"github.com/berth-dev/berth/core/manifest"
	"github.com/berth-dev/berth/core/mcp"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/sandbox"
	"github.com/berth-dev/berth/core/skill"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/tool"
	"github.com/berth-dev/berth/core/tool/declared"
)

// Config says for whom an outfit is.
type Config struct {
	Agent   *spec.Agent   // required
	Sandbox *spec.Sandbox // whose limits count; nil = the defaults
	Session *sandbox.Session
	Cwd     string // in the sandbox, where commands start; empty = the workspace root
	HostDir string // of the project: where commands of the host start
	Vars    spec.RunVars
	// Warn tells a person what is amiss and does not end the run; nil = nobody looks, and the model is told.
	Warn     func(message, hint string)
	CacheDir string // for repositories of skills
	// Lists keeps tool lists of MCP servers; nil = nothing is kept.
	Lists *mcp.Cache
}

// Outfit is what an agent has. Without a session it has what needs none.
type Outfit struct {
	shell    *shell.Shell
	files    *filesystem.Filesystem
	declared []tool.Tool
	servers  *mcp.Servers
	skills   *skill.Set // nil = there are none
	cfg      Config
	notes    []string // what is amiss, where no person looks
}

// New makes an outfit. The caller closes it.
func New(ctx context.Context, cfg Config) (*Outfit, error) {
	o := &Outfit{cfg: cfg}
	a := cfg.Agent
	if cfg.Session != nil {
		o.capabilities()
		if err := o.learn(ctx); err != nil {
			return nil, err
		}
	}
	env := declared.Env{Host: hostproc.Host{Dir: cfg.HostDir}, Dir: cfg.Cwd, User: a.RunAs, Vars: cfg.Vars}
	if cfg.Session != nil {
		env.Sandbox = cfg.Session
	}
	for _, t := range a.Tools {
		offered, err := spec.Enabled(t.Enabled, cfg.Vars)
		if err != nil {
			return nil, fmt.Errorf("tool %s.%s: %w", t.Kind, t.Label, err)
		}
		if !offered {
			continue
		}
		made, err := declared.New(t, env)
		if err != nil {
			return nil, err
		}
		o.declared = append(o.declared, made)
	}
	if err := o.connect(ctx); err != nil {
		return nil, err
	}
	return o, nil
}

// maxFindings is how many faults of skills are told.
const maxFindings = 20

// learn finds the agent's skills and puts them into the workspace.
func (o *Outfit) learn(ctx context.Context) error {
	cfg := &o.cfg
	sc := cfg.Agent.Capabilities.Skills
	if sc == nil {
		return nil
	}
	var err error
	if o.skills, err = skill.Open(ctx, sc, manifest.Options{CacheDir: cfg.CacheDir, Vars: cfg.Vars}); err != nil {
		return err
	}
	for i, f := range o.skills.Findings {
		if cfg.Warn == nil {
			break
		}
		if i == maxFindings {
			cfg.Warn(fmt.Sprintf("there are %d more findings about skills", len(o.skills.Findings)-i), "berth skill check tells them all")
			break
		}
		cfg.Warn(fmt.Sprintf("%s: %s", f.Path, f.Message), "")
	}
	return o.skills.Place(ctx, cfg.Session, cfg.Agent.RunAs)
}

// connect reaches the agent's servers.
func (o *Outfit) connect(ctx context.Context) error {
	cfg := &o.cfg
	if len(cfg.Agent.MCPServers) == 0 {
		return nil
	}
	mc := mcp.Config{
		Servers: cfg.Agent.MCPServers, Host: hostproc.Host{Dir: cfg.HostDir}, Dir: cfg.Cwd, User: cfg.Agent.RunAs, Warn: cfg.Warn, Cache: cfg.Lists,
	}
	if cfg.Session != nil {
		mc.Sandbox = cfg.Session
	}
	if mc.Warn == nil {
		mc.Warn = func(message, _ string) { o.notes = append(o.notes, "Note: "+message) }
	}
	for _, t := range o.Tools(model.Support{}) {
		mc.Taken = append(mc.Taken, t.Spec().Name)
	}
	var err error
	o.servers, err = mcp.Connect(ctx, mc)
	return err
}

func (o *Outfit) capabilities() {
	cfg := &o.cfg
	caps, sp := cfg.Agent.Capabilities, cfg.Sandbox
	if caps.Shell != nil {
		sc := shell.Config{Spec: caps.Shell, Dir: cfg.Cwd, User: cfg.Agent.RunAs}
		if sp != nil {
			sc.Timeout = deref(sp.Timeouts.Exec)
			sc.MaxProcesses = deref(sp.Limits.Processes)
			sc.OutputBytes = int(deref(sp.Limits.OutputBytes))
		}
		o.shell = shell.New(cfg.Session, sc)
	}
	if caps.Filesystem != nil {
		o.files = filesystem.New(cfg.Session, filesystem.Config{Spec: caps.Filesystem, Dir: cfg.Cwd, User: cfg.Agent.RunAs})
	}
}

// Plan is the part of an outfit that can be described without a sandbox. Its tools cannot be called.
func Plan(ctx context.Context, a *spec.Agent) (*Outfit, error) {
	o := &Outfit{cfg: Config{Agent: a}}
	if sc := a.Capabilities.Skills; sc != nil && a.Sandboxed {
		var err error
		if o.skills, err = skill.Open(ctx, sc, manifest.Options{Offline: true}); err != nil {
			return nil, err
		}
	}
	if a.Sandboxed {
		if s := a.Capabilities.Shell; s != nil {
			o.shell = shell.New(nil, shell.Config{Spec: s})
		}
		if f := a.Capabilities.Filesystem; f != nil {
			o.files = filesystem.New(nil, filesystem.Config{Spec: f})
		}
	}
	for _, t := range a.Tools {
		if t.Kind != "command" && t.Kind != "http" {
			continue // refused when it would be needed
		}
		made, err := declared.Plan(t)
		if err != nil {
			return nil, err
		}
		o.declared = append(o.declared, made)
	}
	return o, nil
}

// Tools gives the tools, in the form that the provider can take.
func (o *Outfit) Tools(support model.Support) []tool.Tool {
	var out []tool.Tool
	if o.files != nil {
		out = append(out, o.files.Tools(support)...)
	}
	if o.shell != nil {
		out = append(out, o.shell.Tools(support)...)
	}
	out = append(out, o.skills.Tools(o.cfg.Session, o.cfg.Agent.RunAs)...)
	return append(append(out, o.declared...), o.servers.Tools()...)
}

// Fragments are what the model is told about what it has.
func (o *Outfit) Fragments() []string {
	if o == nil {
		return nil
	}
	var out []string
	if o.files != nil {
		out = append(out, o.files.Instructions())
	}
	if o.shell != nil {
		out = append(out, o.shell.Instructions())
	}
	root := ""
	if o.cfg.Session != nil {
		root = o.cfg.Session.Root()
	}
	if text := o.skills.Instructions(root); text != "" {
		out = append(out, text)
	}
	return append(out, o.notes...)
}

// Close ends what runs.
func (o *Outfit) Close(ctx context.Context) error {
	err := o.servers.Close(ctx)
	if o.shell == nil {
		return err
	}
	return errors.Join(err, o.shell.Close(ctx))
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
