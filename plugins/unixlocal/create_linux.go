// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/berth-dev/berth/plugins/unixlocal/internal/machine"
	"github.com/berth-dev/berth/plugins/unixlocal/internal/store"
	"github.com/berth-dev/berth/plugins/unixlocal/internal/template"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/confine/rootfs"
)

func itoa(n int) string { return strconv.Itoa(n) }

// Create makes a sandbox.
func (d *local) Create(ctx context.Context, req *driver.CreateRequest) (driver.Sandbox, error) {
	if d.store == nil {
		return nil, errs.New(errs.Internal, "the driver was not configured")
	}
	if s := d.known(req.SandboxID); s != nil {
		return s, nil
	}
	c, err := decode(req.Config, req.Limits, req.Network)
	if err != nil {
		return nil, err
	}
	if req.NativeSnapshot != "" {
		return nil, errs.New(errs.Unsupported, "this driver takes no snapshots of its own").With("feature", string(driver.SnapNative))
	}
	grants, err := machine.HostMounts(req.Grants, req.Mounts, req.Workspace.Root)
	if err != nil {
		return nil, err
	}
	m, err := d.machine()
	if err != nil {
		return nil, err
	}
	w := d.want(m, c)
	w.Root, w.Accounts, w.RunAs, w.Grants = req.Workspace.Root, req.Accounts, req.RunAs, grants
	if w.Setup, err = m.SetupFor(w); err != nil {
		return nil, err
	}
	if c.Isolation == isolationRequired {
		plan, _, err := w.Plan()
		if err == nil {
			err = machine.Check(c.RequiredAxes, plan.Report(), m.Facts.Failures)
		}
		if err != nil {
			return nil, err
		}
	}
	x, err := d.make(req, w)
	if errors.Is(err, errs.FileExists) {
		// An earlier process of this driver began to make it.
		return d.again(ctx, req)
	}
	if err != nil {
		return nil, err
	}
	s := newSandbox(&sandbox{d: d, x: x, m: m, config: c, want: w, ttl: req.OrphanTTL, env: req.Env, secret: req.SecretEnv})
	s.mounts.Keep(req.Mounts)
	if err := s.begin(ctx, req.Workspace.Template); err != nil {
		_ = s.Destroy(context.WithoutCancel(ctx)) // the first error is the one to tell
		return nil, err
	}
	d.mu.Lock()
	d.sandboxes[req.SandboxID] = s
	d.mu.Unlock()
	return s, nil
}

func (d *local) known(id string) *sandbox {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sandboxes[id]
}

// again answers a create that was answered before, or was interrupted.
func (d *local) again(ctx context.Context, req *driver.CreateRequest) (driver.Sandbox, error) {
	x, err := d.store.Open(req.SandboxID, "")
	if err != nil {
		return nil, err
	}
	if x.Record.Guest.PID == 0 && !x.Alive() {
		old := newSandbox(&sandbox{d: d, x: x})
		if old.m, err = d.machine(); err != nil {
			return nil, err
		}
		if err := old.Destroy(ctx); err != nil {
			return nil, err
		}
		return d.Create(ctx, req)
	}
	return d.resume(ctx, x, &driver.ResumeRequest{
		SandboxID: req.SandboxID, Config: req.Config, Env: req.Env, SecretEnv: req.SecretEnv, Grants: req.Grants,
		Mounts: req.Mounts, OrphanTTL: req.OrphanTTL,
	})
}

// make makes the directories.
func (d *local) make(req *driver.CreateRequest, w *machine.Want) (*store.Session, error) {
	rec := store.Record{
		ID: req.SandboxID, Labels: machine.Merge(d.host.Labels, req.Labels), Network: w.Network, Off: w.Off, Setup: w.Setup,
		Accounts: req.Accounts, RunAs: req.RunAs, Workspace: req.Workspace,
		Limits: store.Limits{
			Processes: w.Limits.Processes, Memory: w.Limits.MemoryBytes, CPUs: w.Limits.CPUs, FileSize: w.FileBytes, OpenFiles: w.OpenFiles,
		},
	}
	uid, gid := machine.Owner(w.Setup, w.Off)
	if !w.Setup.Namespaces.Mount && !w.Off && uid != os.Getuid() {
		var err error
		if rec.Files, err = d.store.Outside(req.SandboxID, gid); err != nil {
			return nil, err
		}
	}
	x, err := d.store.Create(rec)
	if err != nil {
		return nil, err
	}
	w.Files = x.Record.Files
	mode := os.FileMode(req.Workspace.Mode & 0o777)
	if mode == 0 {
		mode = 0o755
	}
	err = errors.Join(
		store.MakeDir(filepath.Join(w.Files, "work"), mode, uid, gid),
		store.MakeDir(filepath.Join(w.Files, "home"), 0o755, uid, gid),
		store.MakeDir(filepath.Join(w.Files, "tmp"), os.ModeSticky|0o777, uid, gid),
	)
	if err != nil {
		_ = x.Remove(store.RemoveAll) // the first error is the one to tell
		return nil, errs.Wrap(errs.CreateFailed, "make the sandbox's directories", err)
	}
	x.Record.Root = w.Inside().Root
	return x, nil
}

// begin starts the guest, unless the workspace is yet to be materialised as a template: then the first call that needs
// the guest starts it.
func (s *sandbox) begin(ctx context.Context, key string) error {
	if key != "" && s.canTemplate() {
		s.key = key
		if t, err := s.d.templates.Find(s.templateName(key)); err == nil {
			if err := s.layOver(t); err != nil {
				return err
			}
		} else {
			return s.x.Save()
		}
	}
	_, err := s.live(ctx)
	return err
}

// canTemplate says whether a workspace can be laid over a template here.
func (s *sandbox) canTemplate() bool {
	return s.d.templates != nil && !s.want.Off && s.want.Setup.Namespaces.Mount && !machine.NeedsUsers(s.want.Accounts, s.want.RunAs) &&
		s.d.overlay() == nil
}

func (s *sandbox) templateName(key string) string {
	uid, gid := machine.Owner(s.want.Setup, s.want.Off)
	return template.Name(key, itoa(uid)+":"+itoa(gid))
}

// layOver makes the workspace a layer over a template.
func (s *sandbox) layOver(t *template.Template) error {
	uid, gid := machine.Owner(s.want.Setup, s.want.Off)
	upper, work := filepath.Join(s.want.Files, "upper"), filepath.Join(s.want.Files, "overlay")
	err := errors.Join(store.MakeDir(upper, 0o755, uid, gid), store.MakeDir(work, 0o700, uid, gid), like(upper, t.Tree))
	if mode := os.FileMode(s.x.Record.Workspace.Mode & 0o777); mode != 0 {
		err = errors.Join(err, os.Chmod(upper, mode))
	}
	if err != nil {
		_ = t.Close() // it is not used
		return errs.Wrap(errs.CreateFailed, "make the sandbox's directories", err)
	}
	s.template = t
	s.want.Overlay = &rootfs.Overlay{Lower: t.Tree, Upper: upper, Work: work}
	s.x.Record.Template, s.x.Record.Filled = t.Name, true
	return nil
}

// like gives a directory the mode and the time of another: the top of a layer hides that of the one below.
func like(dir, other string) error {
	st, err := os.Stat(other)
	if err != nil {
		return err
	}
	return errors.Join(os.Chmod(dir, st.Mode()&(os.ModePerm|os.ModeSticky)), os.Chtimes(dir, time.Time{}, st.ModTime()))
}

// Resume finds a sandbox again.
func (d *local) Resume(ctx context.Context, req *driver.ResumeRequest) (driver.Sandbox, error) {
	if d.store == nil {
		return nil, errs.New(errs.Internal, "the driver was not configured")
	}
	x, err := d.store.Resume(req.SandboxID, req.State)
	if err != nil {
		return nil, err
	}
	return d.resume(ctx, x, req)
}

func (d *local) resume(ctx context.Context, x *store.Session, req *driver.ResumeRequest) (driver.Sandbox, error) {
	if s := d.known(x.Record.ID); s != nil {
		if s.usable() {
			s.setEnvironment(req.Env, req.SecretEnv)
			return s, nil
		}
		s.letGo()
	}
	r := x.Record
	c, err := decode(req.Config, driver.ResourceLimits{
		Processes: r.Limits.Processes, MemoryBytes: r.Limits.Memory, CPUs: r.Limits.CPUs, FileBytes: r.Limits.FileSize, OpenFiles: r.Limits.OpenFiles,
	}, driver.NetworkPolicy{})
	if err != nil {
		return nil, err
	}
	c.Network = r.Network
	m, err := d.machine()
	if err != nil {
		return nil, err
	}
	grants, err := machine.HostMounts(req.Grants, req.Mounts, r.Workspace.Root)
	if err != nil {
		return nil, err
	}
	w := d.want(m, c)
	w.Root, w.Accounts, w.RunAs, w.Grants, w.Files, w.Off = r.Workspace.Root, r.Accounts, r.RunAs, grants, r.Files, r.Off
	// The owners on disk are those of the setup that made the workspace.
	w.Setup = r.Setup
	s := newSandbox(&sandbox{
		d: d, x: x, m: m, config: c, want: w, ttl: req.OrphanTTL, env: req.Env, secret: req.SecretEnv, touched: true, mergeEnv: true,
	})
	s.mounts.Keep(req.Mounts)
	if x.Alive() {
		if err := s.reattach(ctx); err == nil {
			if err := s.remount(ctx); err != nil {
				return nil, err
			}
			return d.add(s), nil
		} else if !errors.Is(err, errs.SandboxGone) {
			return nil, err
		}
	}
	s.mergeEnv = false
	if err := s.restore(); err != nil {
		return nil, err
	}
	if _, err := s.live(ctx); err != nil {
		return nil, err
	}
	return d.add(s), nil
}

func (d *local) add(s *sandbox) *sandbox {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sandboxes[s.x.Record.ID] = s
	return s
}

// restore prepares a workspace that is still there for another guest.
func (s *sandbox) restore() error {
	r := s.x.Record
	dir := "work"
	if r.Template != "" {
		dir = "upper"
	}
	if _, err := os.Stat(filepath.Join(r.Files, dir)); err != nil {
		return errs.New(errs.SandboxGone, "the workspace of sandbox %s is gone", r.ID)
	}
	if r.Template == "" {
		return nil
	}
	if s.d.templates == nil {
		return errs.New(errs.SandboxGone, "the workspace of sandbox %s began from a template, and no templates are kept", r.ID)
	}
	t, err := s.d.templates.Find(r.Template)
	if err != nil {
		return errs.New(errs.SandboxGone, "the template that sandbox %s began from is gone", r.ID)
	}
	s.template = t
	s.want.Overlay = &rootfs.Overlay{Lower: t.Tree, Upper: filepath.Join(r.Files, "upper"), Work: filepath.Join(r.Files, "overlay")}
	return nil
}
