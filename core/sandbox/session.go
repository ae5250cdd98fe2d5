// SPDX-License-Identifier: Apache-2.0

// Package sandbox opens sessions: it has a driver make a sandbox as the configuration says, fills its workspace from
// the manifest in one stream, and ends it as the policy says. A [Session] is what tools and commands work with.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/manifest"
	"github.com/berth-dev/berth/core/ops"
	"github.com/berth-dev/berth/core/plugin"
	"github.com/berth-dev/berth/core/portforward"
	"github.com/berth-dev/berth/core/sandbox/account"
	"github.com/berth-dev/berth/core/sandbox/saving"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/schema"
)

// The times when the configuration gives none.
const (
	DefaultCreateTimeout = 5 * time.Minute
	DefaultStopTimeout   = time.Minute
)

// Config says what sandbox is wanted.
type Config struct {
	ID         string // ULID; required
	Driver     *plugin.Handle
	DriverName string
	Spec       *spec.Sandbox  // nil = all defaults
	Manifest   *spec.Manifest // nil = an empty workspace
	RunAs      string         // user of the agent's commands; empty = the driver's default
	Users      []string       // others that commands may run as
	Vars       spec.RunVars
	Labels     map[string]string
	CacheDir   string
	Emit       func(event.Data) // nil = nobody looks
	Now        func() time.Time // nil = time.Now
	// Resume finds the sandbox that an earlier session of this ID left, instead of making one; nil = make one.
	Resume *driver.State
	// Fixed is what that sandbox was made with, from [Session.Fixed]; nil = not known.
	Fixed *Fixed
	// Snapshots saves the workspace and fills a new one from what was saved; nil = neither.
	Snapshots *Snapshots
	// Native is a snapshot of the driver's own that a new sandbox is made from; empty = none.
	Native string
	// OnDrift is what to do when that differs from the configuration, see [Drift]; empty = refuse what cannot be given anew.
	OnDrift string
	// Making is called just before a sandbox is made, with what it is made with; an error keeps it from being made. nil =
	// not wanted.
	Making func(*Fixed) error
	// Released is called when the session has ended; nil = not wanted.
	Released func()
	// Mount brings the manifest's mounts into the workspace, once it is filled; nil = there are none.
	Mount func(context.Context, *Session) (Mounts, error)
	// NativeMounts gives the mounts that the driver makes with the sandbox, out of what it supports; nil = there are none.
	NativeMounts func(context.Context, []driver.MountSupport) ([]driver.MountSpec, error)
	// Keep leaves the sandbox stopped at the end, whatever the policy says.
	Keep bool
	// Confined names the policy that wants commands to be kept from the host's files; empty = there is none.
	Confined string
}

// Session is a live sandbox with its workspace.
type Session struct {
	driver.Sandbox
	driver.FileSystem
	driver.TreeIO
	driver.ProcessTable

	cfg      Config
	told     ops.Observer // of what is done in nobody's name; nil = nobody is
	root     string
	info     driver.Info
	contents *manifest.Contents
	fixed    *Fixed
	saver    *saving.Loop // nil = the workspace is not saved
	saved    sync.Once    // the last time
	mounts   Mounts       // nil = there are none
	ports    []event.Port
	forwards []*portforward.Forward
}

// Open makes a sandbox. When it fails, nothing is left behind.
func Open(ctx context.Context, cfg Config) (_ *Session, err error) {
	if cfg.Spec == nil {
		cfg.Spec = &spec.Sandbox{}
	}
	if cfg.Manifest == nil {
		cfg.Manifest = &spec.Manifest{Root: spec.DefaultRoot}
	}
	if cfg.Emit == nil {
		cfg.Emit = func(event.Data) {}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	wish, what := cfg.Spec.Timeouts.Create, "create the sandbox"
	if cfg.Resume != nil {
		wish, what = cfg.Spec.Timeouts.Resume, "find the sandbox again"
	}
	ctx, cancel := limit(ctx, wish, DefaultCreateTimeout, what)
	defer cancel()

	progress := func(p driver.Progress) {
		cfg.Emit(event.SandboxProgress{Phase: p.Phase, Message: p.Message, Done: p.Done, Total: p.Total})
	}
	contents, err := manifest.Resolve(ctx, cfg.Manifest, manifest.Options{Vars: cfg.Vars, CacheDir: cfg.CacheDir, Progress: progress})
	if err != nil {
		return nil, err
	}
	req, err := request(ctx, cfg, contents, progress)
	if err != nil {
		return nil, err
	}
	saved, err := cfg.start(ctx)
	if err != nil {
		return nil, err
	}
	if saved != nil || cfg.Native != "" {
		req.Workspace.Template = "" // what it holds at first is not the manifest's
	}
	if saved != nil && has(cfg.Driver, driver.TreeTemplate) {
		req.Workspace.Template = saved.Contents()
	}
	var salt []byte
	if cfg.Fixed != nil {
		salt = cfg.Fixed.Salt
	}
	made, err := fixed(cfg.DriverName, cfg.Driver.Description().SandboxConfig, req, salt)
	if err != nil {
		return nil, err
	}
	made.see(contents)
	var drift Drift
	if cfg.Resume != nil && cfg.Fixed != nil {
		drift = cfg.Fixed.drift(made)
		if err := drift.hold(cfg.OnDrift, cfg.ID, cfg.Spec); err != nil {
			return nil, err
		}
		made = cfg.Fixed.carried(made)
	}
	if cfg.Resume == nil && cfg.Making != nil {
		if err := cfg.Making(made); err != nil {
			return nil, err
		}
	}
	if req.NativeSnapshot, err = cfg.fromNative(saved, req); err != nil {
		return nil, err
	}
	sb, err := cfg.create(ctx, req)
	if err != nil {
		return nil, cfg.lost(ctx, err)
	}
	defer func() {
		if err != nil && cfg.Resume == nil {
			clean, cancel := limit(context.WithoutCancel(ctx), cfg.Spec.Timeouts.Stop, DefaultStopTimeout, "remove the sandbox")
			defer cancel()
			err = errors.Join(err, sb.Destroy(clean))
		}
	}()
	s := &Session{Sandbox: account.New(sb, ops.Of(ctx).To, cfg.DriverName), told: ops.Of(ctx).To, cfg: cfg, root: cfg.Manifest.Root, contents: contents, fixed: made}
	var told bool
	if s.info, told = sb.Opened(); !told {
		if s.info, err = sb.Inspect(ctx); err != nil {
			return nil, err
		}
	}
	if s.info.Root != "" {
		s.root = s.info.Root // a sandbox that confines nothing has its workspace where the machine has room for it
	}
	if err := s.confined(); err != nil {
		return nil, err
	}
	if err := s.bind(); err != nil {
		return nil, err
	}
	switch {
	case saved != nil:
		if err := s.restore(ctx, saved, req.Workspace, sb.WorkspacePreserved()); err != nil {
			return nil, err
		}
	case sb.WorkspacePreserved():
	case cfg.Resume != nil:
		return nil, cfg.lost(ctx, errs.New(errs.SandboxGone, "sandbox %s is there, but its workspace is empty", cfg.ID))
	default:
		if err := s.fill(ctx, req.Workspace, false); err != nil {
			return nil, err
		}
		if err := s.own(ctx, false); err != nil {
			return nil, err
		}
	}
	if err := s.mount(ctx); err != nil {
		return nil, err
	}
	if err := s.expose(ctx); err != nil {
		s.unexpose()
		return nil, errors.Join(err, s.unmount(ctx))
	}
	s.keepSaved()
	cfg.Emit(event.SandboxReady{
		SandboxID: cfg.ID, Driver: cfg.DriverName, Root: s.root, Isolation: s.info.Isolation,
		Reattached: cfg.Resume != nil, Ports: s.ports,
	})
	if len(drift) > 0 {
		cfg.Emit(event.Warning{
			Message: fmt.Sprintf("sandbox %s was made with another configuration: %s", cfg.ID, drift),
			Hint:    `its workspace stays as it is, environment and path grants are today's; on_drift = "recreate" in the session block makes a new one`,
		})
	}
	return s, nil
}

// confined refuses a sandbox that is none, where the host's policy wants one: nothing has run in it yet.
func (s *Session) confined() error {
	if s.cfg.Confined == "" {
		return nil
	}
	for _, i := range s.info.Isolation {
		if i.Axis == "filesystem" && i.Strength == 0 {
			return errs.New(errs.PermissionDenied, "the host's policy does not let a project run programs on this machine, and driver %q would do so: files are %s (%s)",
				s.cfg.DriverName, i.Statement, i.Gap).
				WithHint("configure the sandbox to confine its commands, use another driver, or change %s", s.cfg.Confined)
		}
	}
	return nil
}

func makeOrFind(ctx context.Context, cfg Config, req *driver.CreateRequest) (*plugin.Sandbox, error) {
	if cfg.Resume == nil {
		sb, err := cfg.Driver.Create(ctx, req)
		if err != nil {
			return nil, fmt.Errorf("create a sandbox with driver %q: %w", cfg.DriverName, err)
		}
		return sb, nil
	}
	sb, err := cfg.Driver.Resume(ctx, &driver.ResumeRequest{
		SandboxID: cfg.ID, State: *cfg.Resume, Config: req.Config, Env: req.Env, SecretEnv: req.SecretEnv,
		Mounts: req.Mounts, Grants: req.Grants, OrphanTTL: req.OrphanTTL, Progress: req.Progress,
	})
	if err != nil {
		return nil, fmt.Errorf("find sandbox %s again with driver %q: %w", cfg.ID, cfg.DriverName, err)
	}
	return sb, nil
}

// bind finds what the sandbox offers beyond running commands. The SDK emulates what a driver lacks, so a gap is a
// driver that was not made with it.
func (s *Session) bind() error {
	var ok [3]bool
	s.FileSystem, ok[0] = s.Sandbox.(driver.FileSystem)
	s.TreeIO, ok[1] = s.Sandbox.(driver.TreeIO)
	s.ProcessTable, ok[2] = s.Sandbox.(driver.ProcessTable)
	if ok != [3]bool{true, true, true} {
		return errs.New(errs.Unsupported, "driver %q cannot read and write files, move trees or attach to processes", s.cfg.DriverName)
	}
	return nil
}

// request makes the driver's request from the configuration.
func request(ctx context.Context, cfg Config, contents *manifest.Contents, progress func(driver.Progress)) (*driver.CreateRequest, error) {
	m, sp := cfg.Manifest, cfg.Spec
	req := &driver.CreateRequest{
		SandboxID: cfg.ID, Labels: maps.Clone(cfg.Labels), RunAs: cfg.RunAs, Progress: progress,
		Env: map[string]string{}, SecretEnv: map[string]string{},
		Workspace:   driver.Workspace{Root: m.Root},
		MaxLifetime: firstLife(sp.Lifetime),
		Network:     driver.NetworkPolicy{Mode: sp.Network.Mode, Allow: sp.Network.Allow},
		OrphanTTL:   sp.Session.OrphanTTL,
		Limits:      driver.ResourceLimits{MemoryBytes: sp.Limits.MemoryBytes, CPUs: sp.Limits.CPUs},
	}
	if req.MaxLifetime > 0 && !has(cfg.Driver, driver.LifeDeadline) {
		return nil, errs.New(errs.Unsupported, "driver %q cannot end a sandbox at a time (max or idle of lifetime)", cfg.DriverName).
			WithHint("leave it out; a budget's wall_time bounds a run")
	}
	if sp.Config != nil {
		v, err := sp.Config.Encode()
		if err != nil {
			return nil, err
		}
		req.Config = schema.Value{MsgPack: v.MsgPack, JSON: v.JSON}
	}
	for _, p := range sp.Ports {
		req.Ports = append(req.Ports, p.Port)
	}
	for _, g := range m.Grants {
		req.Grants = append(req.Grants, driver.PathGrant{Path: g.Path, HostPath: g.HostPath, ReadOnly: g.ReadOnly, Description: g.Description})
	}
	req.Accounts = accounts(m, append([]string{cfg.RunAs}, cfg.Users...)...)
	if m.OwnByRunAs {
		req.Workspace.Owner = cfg.RunAs
	}
	for i := range m.Environment {
		if err := environment(ctx, req, &m.Environment[i], cfg.Vars); err != nil {
			return nil, err
		}
	}
	if has(cfg.Driver, driver.TreeTemplate) && len(contents.Members) > 0 {
		req.Workspace.Template = contents.Digest()
	}
	if cfg.NativeMounts != nil {
		var err error
		if req.Mounts, err = cfg.NativeMounts(ctx, cfg.support()); err != nil {
			return nil, err
		}
	}
	return req, nil
}

// firstLife is how long a sandbox lives when nobody gives it more time; 0 = as the driver likes.
func firstLife(l spec.Lifetime) time.Duration {
	if l.Idle > 0 && (l.Max == 0 || l.Idle < l.Max) {
		return l.Idle
	}
	return l.Max
}

func accounts(m *spec.Manifest, workers ...string) driver.Accounts {
	var a driver.Accounts
	seen := map[string]bool{}
	user := func(name string) {
		if name != "" && !seen[name] {
			seen[name] = true
			a.Users = append(a.Users, name)
		}
	}
	for _, u := range m.Users {
		user(u)
	}
	for _, g := range m.Groups {
		a.Groups = append(a.Groups, driver.Group{Name: g.Name, Users: g.Users})
		for _, u := range g.Users {
			user(u)
		}
	}
	for _, u := range workers {
		user(u)
	}
	return a
}

func environment(ctx context.Context, req *driver.CreateRequest, v *spec.EnvVar, vars spec.RunVars) error {
	if !v.Secret.IsZero() {
		text, found, err := v.Secret.Lookup(ctx)
		if err != nil {
			return fmt.Errorf("environment variable %s: %w", v.Name, err)
		}
		if found {
			req.SecretEnv[v.Name] = text
		}
		return nil
	}
	text, err := v.Value.Eval(vars)
	if err != nil {
		return fmt.Errorf("environment variable %s: %w", v.Name, err)
	}
	req.Env[v.Name] = text
	return nil
}

func has(d *plugin.Handle, f driver.Feature) bool {
	return slices.Contains(d.Description().Features, f)
}

// limit bounds a context; a wish of 0 means no bound.
func limit(ctx context.Context, wish *time.Duration, usual time.Duration, what string) (context.Context, context.CancelFunc) {
	d := usual
	if wish != nil {
		d = *wish
	}
	if d == 0 {
		return context.WithCancel(ctx) //nolint:forbidigo // its end has no cause: the work is done
	}
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("%s: not done within %s", what, d))
}

// Root is the workspace's root inside.
func (s *Session) Root() string { return s.root }

// Fixed is what the sandbox was made with; keep it beside the state for [Config.Fixed].
func (s *Session) Fixed() *Fixed { return s.fixed }

// Info is what is known of the sandbox.
func (s *Session) Info() driver.Info { return s.info }

// Contents are what the workspace was filled with.
func (s *Session) Contents() *manifest.Contents { return s.contents }
