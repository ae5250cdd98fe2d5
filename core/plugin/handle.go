// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/rpc"
	"github.com/berth-dev/berth/sdk/schema"
)

// Handle is a claim on a driver process: while it is held, the process is not ended for being idle. It may be used from
// several goroutines.
type Handle struct {
	p     *process
	desc  driver.Description
	found []driver.Diagnostic
	once  sync.Once
}

// Description says what the driver is and can do.
func (h *Handle) Description() driver.Description { return h.desc }

// Configured is what the driver had to say about the configuration of its process: warnings.
func (h *Handle) Configured() []driver.Diagnostic { return h.found }

// Release gives the handle back. Sandboxes that were made through it stay. It is idempotent.
func (h *Handle) Release() { h.once.Do(h.p.release) }

// Status is how the process is.
func (h *Handle) Status() Status { return h.p.status() }

// Validate checks a sandbox configuration by meaning; nothing when the driver does not check.
func (h *Handle) Validate(ctx context.Context, config schema.Value, online bool) ([]driver.Diagnostic, error) {
	var out []driver.Diagnostic
	err := h.p.do(ctx, func(l *live) error {
		switch v := l.drv.(type) {
		case checker:
			ds, err := v.Check(ctx, config, online)
			if errs.CodeOf(err) == errs.Unsupported {
				return nil
			}
			out = ds
			return err
		case driver.Validator:
			out = v.Validate(ctx, config, online)
		}
		return nil
	})
	return out, err
}

// checker is a [driver.Validator] that can also fail.
type checker interface {
	Check(ctx context.Context, config schema.Value, online bool) ([]driver.Diagnostic, error)
}

// Create makes a sandbox. The request is kept for the sandbox's life: the caller changes nothing in it.
func (h *Handle) Create(ctx context.Context, req *driver.CreateRequest) (*Sandbox, error) {
	h.p.m.cfg.Redact.Add(slices.Collect(maps.Values(req.SecretEnv))...)
	h.p.m.cfg.Redact.Add(sensitive(h.desc.SandboxConfig, req.Config)...)
	s := &Sandbox{p: h.p, id: req.SandboxID, again: driver.ResumeRequest{
		SandboxID: req.SandboxID, Config: req.Config, Env: req.Env, SecretEnv: req.SecretEnv,
		Mounts: slices.Clone(req.Mounts), Grants: req.Grants, OrphanTTL: req.OrphanTTL,
	}}
	if req.Progress == nil {
		c := *req
		c.Progress = func(driver.Progress) {}
		req = &c
	}
	err := s.open(ctx, func(l *live) (driver.Sandbox, error) { return l.drv.Create(ctx, req) })
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Resume finds a sandbox again. The request is kept for the sandbox's life: the caller changes nothing in it.
func (h *Handle) Resume(ctx context.Context, req *driver.ResumeRequest) (*Sandbox, error) {
	h.p.m.cfg.Redact.Add(slices.Collect(maps.Values(req.SecretEnv))...)
	h.p.m.cfg.Redact.Add(sensitive(h.desc.SandboxConfig, req.Config)...)
	s := &Sandbox{p: h.p, id: req.SandboxID, again: *req}
	s.again.Mounts = slices.Clone(req.Mounts)
	if req.Progress == nil {
		c := *req
		c.Progress = func(driver.Progress) {}
		req = &c
	}
	err := s.open(ctx, func(l *live) (driver.Sandbox, error) { return l.drv.Resume(ctx, req) })
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Destroy removes a sandbox that nobody here has open, without waking it. One that is not there is no error.
func (h *Handle) Destroy(ctx context.Context, id string, st driver.State) error {
	err := h.p.do(ctx, func(l *live) error {
		if d, ok := l.drv.(*rpc.Driver); ok {
			return d.Handle(id, st).Destroy(ctx)
		}
		box, err := l.drv.Resume(ctx, &driver.ResumeRequest{SandboxID: id, State: st, Progress: func(driver.Progress) {}})
		if err != nil {
			return err
		}
		return box.Destroy(ctx)
	})
	if errors.Is(err, errs.SandboxGone) {
		return nil
	}
	return err
}

// open registers the sandbox and makes it.
func (s *Sandbox) open(ctx context.Context, make func(*live) (driver.Sandbox, error)) error {
	s.again.Progress = func(driver.Progress) {}
	if err := s.p.enter(s); err != nil {
		return err
	}
	err := s.p.do(ctx, func(l *live) error {
		box, err := make(l)
		if err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.box, s.live = box, l
		s.preserved, s.reattached = preserved(box), reattached(box)
		return nil
	})
	if err != nil {
		s.p.leave(s)
	}
	return err
}

// enter counts a sandbox, within the limit of the driver block.
func (p *process) enter(s *Sandbox) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.maxSandboxes > 0 && len(p.boxes) >= p.maxSandboxes {
		return errs.New(errs.QuotaExceeded, "driver %q has %d sandboxes, its max_sandboxes", p.name, len(p.boxes)).
			With("driver", p.name).WithHint("end a sandbox, or raise max_sandboxes in the driver block")
	}
	p.boxes[s] = struct{}{}
	p.busyLocked()
	return nil
}

func (p *process) leave(s *Sandbox) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.boxes, s)
	p.restLocked()
}

// List finds the driver's sandboxes by labels; errs.Unsupported when the driver cannot.
func (h *Handle) List(ctx context.Context, labels map[string]string) iter.Seq2[driver.Info, error] {
	return sequence(ctx, h.p, func(l *live) (iter.Seq2[driver.Info, error], error) {
		d, ok := l.drv.(driver.Lister)
		if !ok {
			return nil, unsupported(driver.LifeList)
		}
		return d.List(ctx, labels), nil
	})
}

// Snapshots lists the driver's own snapshots by labels; errs.Unsupported when it has none.
func (h *Handle) Snapshots(ctx context.Context, labels map[string]string) iter.Seq2[driver.NativeSnapshot, error] {
	return sequence(ctx, h.p, func(l *live) (iter.Seq2[driver.NativeSnapshot, error], error) {
		d, ok := l.drv.(driver.SnapshotStore)
		if !ok {
			return nil, unsupported(driver.SnapNative)
		}
		return d.Snapshots(ctx, labels), nil
	})
}

// DeleteSnapshot deletes one of the driver's own snapshots.
func (h *Handle) DeleteSnapshot(ctx context.Context, id string) error {
	return h.p.do(ctx, func(l *live) error {
		d, ok := l.drv.(driver.SnapshotStore)
		if !ok {
			return unsupported(driver.SnapNative)
		}
		return d.DeleteSnapshot(ctx, id)
	})
}

// WatchHealth reports the driver's health at once and on each change, over restarts, until ctx ends.
func (h *Handle) WatchHealth(ctx context.Context, report func(driver.Health)) error {
	for {
		l, err := h.p.get(ctx)
		if err != nil {
			return err
		}
		w, ok := l.drv.(driver.HealthWatcher)
		if ok {
			err = w.WatchHealth(ctx, report)
		}
		if !ok || errors.Is(err, errs.Unsupported) {
			report(driver.Health{Healthy: true})
			select {
			case <-ctx.Done():
			case <-l.gone:
				err = l.crash
			}
		}
		if ctx.Err() != nil {
			return errs.Wrap(errs.Canceled, "watch health", context.Cause(ctx))
		}
		if h.p.crashed(ctx, l, err) == nil {
			return err
		}
		report(driver.Health{Description: "the driver is being restarted"})
	}
}

// sequence makes an iterator that begins again when the driver dies before the first element.
func sequence[T any](ctx context.Context, p *process, open func(*live) (iter.Seq2[T, error], error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		stopped, any := false, false
		err := p.do(ctx, func(l *live) error {
			seq, err := open(l)
			if err != nil {
				return err
			}
			for v, err := range seq {
				if err != nil && !any {
					return err
				}
				any = true
				if !yield(v, err) || err != nil {
					stopped = true
					return nil
				}
			}
			return nil
		})
		if err != nil && !stopped {
			yield(zero, err)
		}
	}
}

func unsupported(f driver.Feature) error {
	return errs.New(errs.Unsupported, "this driver does not offer %s", f).With("feature", string(f))
}
