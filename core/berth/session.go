// SPDX-License-Identifier: Apache-2.0

package berth

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/plugin"
	"github.com/berth-dev/berth/core/runlog"
	"github.com/berth-dev/berth/core/sandbox"
	"github.com/berth-dev/berth/core/session"
	"github.com/berth-dev/berth/core/snapshot"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/state"
	"github.com/berth-dev/berth/core/state/seal"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// SandboxOptions say which sandbox of a project is wanted.
type SandboxOptions struct {
	ID       string        // of a fresh one; empty = a new id
	Sandbox  *spec.Sandbox // nil = the default driver
	Manifest *spec.Manifest
	Agent    *spec.Agent // nil = none; its run_as is the commands' user
	Vars     spec.RunVars
	Keep     bool   // leave it stopped at the end, whatever the policy says
	RunID    string // that it is for, also kept with snapshots; empty = none
	From     string // snapshot that a fresh one starts from instead of what the sandbox block says; empty = what it says
	What     string // what this process does with it, such as "exec", for whoever finds it in use
	Emit     func(event.Data)
	Native   string // the driver's own snapshot that a fresh one is made from; empty = none

	users  []string // that commands may run as, besides the agent's
	held   string   // the session that the run has had
	chosen func(id string) error
}

// Open opens the session that the sandbox's policy asks for: a fresh one, or one that is remembered. Closing it ends it
// as the policy says.
func (h *Harness) Open(ctx context.Context, p *spec.Project, o SandboxOptions) (*session.Session, error) {
	m, err := h.Sessions(ctx, p)
	if err != nil {
		return nil, err
	}
	if o.held != "" {
		rec, err := m.Current(ctx, o.held)
		if err == nil {
			o.held, err = rec.ID, o.moved(p, rec)
		}
		if err != nil && !errors.Is(err, state.ErrUnknown) {
			return nil, err
		}
	}
	w, err := h.wish(p, &o)
	if err != nil {
		return nil, err
	}
	return m.Open(ctx, w)
}

// OpenSession opens a session that is remembered, by its id, the beginning of it, or its key, for use: it is resumed with
// today's configuration of the project and leased to this process. Closing it, or [session.Session.Release], puts it back
// as it was found; [session.Session.Destroy] ends it. What says what it is for, such as "session exec"; emit may be nil.
func (h *Harness) OpenSession(ctx context.Context, p *spec.Project, text, what string, emit func(event.Data)) (*session.Session, error) {
	return h.use(ctx, p, text, SandboxOptions{What: what, Emit: emit})
}

// use opens a session that is remembered. What the options leave out is taken from the blocks that it was made of.
func (h *Harness) use(ctx context.Context, p *spec.Project, text string, o SandboxOptions) (*session.Session, error) {
	m, err := h.Sessions(ctx, p)
	if err != nil {
		return nil, err
	}
	rec, err := m.Find(ctx, text)
	if err != nil {
		return nil, err
	}
	b, err := session.Peek(rec)
	if err != nil {
		return nil, err
	}
	if err := o.Blocks(p, rec, b); err != nil {
		return nil, err
	}
	w, err := h.wish(p, &o)
	if err != nil {
		return nil, err
	}
	return m.Use(ctx, rec, w)
}

// moved takes the block of a session that was moved to another one.
func (o *SandboxOptions) moved(p *spec.Project, rec *state.Session) error {
	b, err := session.Peek(rec)
	if err != nil || !b.Moved {
		return err
	}
	return o.Blocks(p, rec, b)
}

// Blocks finds the blocks of a session in today's project.
func (o *SandboxOptions) Blocks(p *spec.Project, rec *state.Session, b *session.Body) error {
	missing := func(kind, label string) error {
		return errs.New(errs.ConfigInvalid, "session %s was made of %s %q, which the project does not have any more", rec.ID, kind, label).
			WithHint("bring the block back, or remove the session: berth session rm %s", rec.ID)
	}
	switch label := b.From.Sandbox; {
	case label != "" && p.Sandboxes[label] != nil:
		o.Sandbox = p.Sandboxes[label]
	case label != "" && label != b.Driver:
		return missing("sandbox", label)
	default:
		o.Sandbox = &spec.Sandbox{Label: label, Driver: b.Driver}
	}
	if label := b.From.Agent; label != "" && o.Agent == nil {
		if o.Agent = p.Agents[label]; o.Agent == nil {
			return missing("agent", label)
		}
	}
	if label := b.From.Manifest; label != "" {
		if o.Manifest = p.Manifests[label]; o.Manifest == nil {
			return missing("manifest", label)
		}
	}
	return nil
}

// Sessions gives the manager of a project's sessions.
func (h *Harness) Sessions(ctx context.Context, p *spec.Project) (*session.Manager, error) {
	store, err := h.cfg.Store(ctx)
	if err != nil {
		return nil, err
	}
	key, err := seal.Load(h.cfg.KeyFile)
	if err != nil {
		return nil, err
	}
	m := &session.Manager{
		Store: store, Key: key, Drivers: drivers{h, p}, Now: h.cfg.Now,
		NewID: func() string { return runlog.NewID(h.cfg.Now()) },
	}
	if p != nil {
		m.Project = p.Dir
	}
	return m, nil
}

// wish puts options into a session's words.
func (h *Harness) wish(p *spec.Project, o *SandboxOptions) (session.Wish, error) {
	o.ID = cmp.Or(o.ID, runlog.NewID(h.cfg.Now()))
	if o.Emit == nil {
		o.Emit = func(event.Data) {}
	}
	w := session.Wish{
		ID: o.ID, Held: o.held, RunID: o.RunID, Driver: h.DriverOf(o.Sandbox), What: o.What, Emit: o.Emit, Chosen: o.chosen,
	}
	if s := o.Sandbox; s != nil {
		w.Policy, w.Life, w.From.Sandbox = s.Session, s.Lifetime, s.Label
	}
	if o.Manifest != nil {
		w.From.Manifest = o.Manifest.Label
	}
	runAs := ""
	if o.Agent != nil {
		w.From.Agent, runAs = o.Agent.Label, o.Agent.RunAs
	}
	key, err := w.Policy.Key.Eval(o.Vars)
	if err != nil {
		return w, fmt.Errorf("the key of the session: %w", err)
	}
	w.Key = key
	w.Saved = func(ctx context.Context) (*snapshot.Repo, error) { return OpenSnapshots(ctx, p, o.Sandbox) }
	w.Open = func(ctx context.Context, part session.Part) (*sandbox.Session, error) {
		return h.sandbox(ctx, p, o, part, runAs)
	}
	return w, nil
}

// sandbox makes or finds a sandbox. Ending it gives the driver back too.
func (h *Harness) sandbox(ctx context.Context, p *spec.Project, o *SandboxOptions, part session.Part, runAs string) (*sandbox.Session, error) {
	mine := *o
	mine.ID, mine.From = part.ID, cmp.Or(part.From, o.From)
	snapshots, err := sessionSnapshots(ctx, p, &mine)
	if err != nil {
		return nil, err
	}
	name := h.DriverOf(o.Sandbox)
	handle, err := h.cfg.Plugins.Acquire(ctx, h.request(p, name))
	if err != nil {
		return nil, err
	}
	opened, over := h.cfg.Watch.Begin(part.ID, handle.Status().Driver, o.Emit)
	s, err := sandbox.Open(ctx, sandbox.Config{
		ID: part.ID, Driver: handle, DriverName: name, Spec: o.Sandbox, Manifest: o.Manifest, RunAs: runAs, Users: o.users, Vars: o.Vars,
		Labels: part.Labels, CacheDir: h.cfg.CacheDir, Emit: o.Emit, Now: h.cfg.Now, Keep: o.Keep,
		Mount: h.mounting(name, part.ID, o), NativeMounts: h.native(name, part.ID, o),
		Resume: part.Resume, Fixed: part.Fixed, OnDrift: part.OnDrift, Making: part.Making, Snapshots: snapshots, Native: o.Native,
		Confined: h.cfg.Confined, Released: func() { over(); handle.Release() },
	})
	if err != nil {
		over()
		handle.Release()
		return nil, err
	}
	opened(s)
	return s, nil
}

// drivers does what sessions need of drivers.
type drivers struct {
	h *Harness
	p *spec.Project
}

func (d drivers) with(ctx context.Context, name string, f func(*plugin.Handle) error) error {
	handle, err := d.h.cfg.Plugins.Acquire(ctx, d.h.request(d.p, name))
	if err != nil {
		return err
	}
	defer handle.Release()
	return f(handle)
}

// Destroy removes a sandbox.
func (d drivers) Destroy(ctx context.Context, name, id string, st driver.State) error {
	return d.with(ctx, name, func(h *plugin.Handle) error { return h.Destroy(ctx, id, st) })
}

// DeleteSnapshot removes a snapshot of a driver's own.
func (d drivers) DeleteSnapshot(ctx context.Context, name, id string) error {
	return d.with(ctx, name, func(h *plugin.Handle) error { return h.DeleteSnapshot(ctx, id) })
}

// List gives sandboxes by their labels.
func (d drivers) List(ctx context.Context, name string, labels map[string]string) (all []driver.Info, err error) {
	err = d.with(ctx, name, func(h *plugin.Handle) error {
		for info, err := range h.List(ctx, labels) {
			if err != nil {
				return err
			}
			all = append(all, info)
		}
		return nil
	})
	return all, err
}
