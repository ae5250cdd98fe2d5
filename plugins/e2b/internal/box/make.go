// SPDX-License-Identifier: Apache-2.0

package box

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/berth-dev/berth/plugins/e2b/client"
	"github.com/berth-dev/berth/plugins/e2b/internal/settings"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

const (
	createAttempts = 3
	// looks are how often, with a pause that doubles, a sandbox is looked for whose making has an unclear end.
	looks     = 4
	firstLook = 100 * time.Millisecond
	cleanTime = 30 * time.Second
)

// Make makes a sandbox, or finds the one that was made under this id.
func (h *Host) Make(ctx context.Context, req *driver.CreateRequest, cfg *settings.Config, labels map[string]string) (*Box, error) {
	if err := h.settled(ctx, req.SandboxID); err != nil {
		return nil, err
	}
	info, err := h.find(ctx, req.SandboxID)
	if err != nil {
		return nil, err
	}
	fresh := info == nil
	var remote *client.Sandbox
	if fresh {
		req.Progress(driver.Progress{Phase: "creating", Message: cfg.Template})
		if info, err = h.create(ctx, req, cfg, labels); err != nil {
			return nil, err
		}
	}
	if remote, err = h.open(ctx, info, cfg.Lifetime()); err != nil {
		return nil, err
	}
	b, err := h.newBox(req.SandboxID, info, remote)
	if err != nil {
		return nil, err
	}
	b.env, b.secretEnv, b.ttl = req.Env, req.SecretEnv, req.OrphanTTL
	if err := b.begin(ctx, req); err != nil {
		if fresh {
			clean, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), cleanTime, errOver)
			defer cancel()
			err = errors.Join(err, b.Destroy(clean))
		}
		return nil, err
	}
	b.keepAlive()
	return b, nil
}

// open gives the way into a sandbox, and wakes it when it is paused. One that runs keeps its end.
func (h *Host) open(ctx context.Context, info *client.Info, timeout time.Duration) (*client.Sandbox, error) {
	if info.State != client.StatePaused {
		return h.API.Open(info)
	}
	return h.API.Connect(ctx, info.SandboxID, timeout)
}

// find looks for the sandbox of an id; nil when there is none.
func (h *Host) find(ctx context.Context, id string) (*client.Info, error) {
	for info, err := range h.API.List(ctx, client.ListOptions{Metadata: map[string]string{metaSandbox: id}}) {
		if err != nil {
			return nil, err
		}
		// The list tells no token.
		got, err := h.API.Get(ctx, info.SandboxID)
		if errors.Is(err, errs.SandboxGone) {
			continue
		}
		return got, err
	}
	return nil, nil
}

// create asks for a sandbox. Where the end is unclear it looks before it asks again.
func (h *Host) create(ctx context.Context, req *driver.CreateRequest, cfg *settings.Config, labels map[string]string) (*client.Info, error) {
	timeout := cfg.Lifetime()
	r := &Record{
		Root: req.Workspace.Root, User: cmp.Or(req.RunAs, cfg.User), Arch: cfg.Arch, Timeout: timeout, KeepAlive: cfg.KeepAlive, Public: cfg.PublicTraffic,
		Restored: req.NativeSnapshot != "",
	}
	if req.MaxLifetime > 0 {
		timeout, r.KeepAlive = req.MaxLifetime, false
	}
	metadata, err := r.metadata(req.SandboxID, cfg.Metadata, labels)
	if err != nil {
		return nil, err
	}
	want := cfg.Request(timeout, cmp.Or(req.NativeSnapshot, cfg.Template), metadata)
	for n := 1; ; n++ {
		began := time.Now()
		made, late, err := h.ask(ctx, req.SandboxID, want)
		if late {
			return nil, err
		}
		if err == nil {
			if n > 1 {
				h.removeOthers(ctx, req.SandboxID, made.ID())
			}
			info := made.Info()
			info.State, info.Metadata, info.StartedAt, info.EndAt = client.StateRunning, metadata, began, began.Add(timeout)
			info.TemplateID = want.TemplateID
			return &info, nil
		}
		e, ok := errors.AsType[*errs.Error](err)
		switch {
		case ctx.Err() != nil:
			h.sweep(ctx, req.SandboxID)
			return nil, err
		case !ok || !e.MaybeApplied:
			return nil, explainCreate(req, err)
		}
		h.Log.Warn("it is not clear whether the service made the sandbox; looking for it", "sandbox", req.SandboxID, "error", err)
		info, lost := h.look(ctx, req.SandboxID)
		if info != nil || lost != nil {
			return info, lost
		}
		if n == createAttempts {
			return nil, err
		}
	}
}

// look waits for a sandbox that may be on its way.
func (h *Host) look(ctx context.Context, id string) (*client.Info, error) {
	wait := firstLook
	for n := 1; ; n++ {
		info, err := h.find(ctx, id)
		if info != nil || err != nil || n == looks {
			return info, err
		}
		t := time.NewTimer(wait)
		wait *= 2
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			h.sweep(ctx, id)
			return nil, &errs.Error{Code: errs.Canceled, Op: "create", Err: context.Cause(ctx)}
		}
	}
}

// sweep removes what may come of a create that nobody waits for any more. What it misses List finds, and the service ends.
func (h *Host) sweep(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), cleanTime, errOver)
	defer cancel()
	info, err := h.look(ctx, id)
	if err == nil && info != nil {
		err = h.API.Kill(ctx, info.SandboxID)
	}
	if err != nil {
		h.Log.Warn("a sandbox that nobody waits for was not removed", "sandbox", id, "error", err)
	}
}

// removeOthers removes those that earlier attempts made after all.
func (h *Host) removeOthers(ctx context.Context, id, but string) {
	for info, err := range h.API.List(ctx, client.ListOptions{Metadata: map[string]string{metaSandbox: id}}) {
		if err == nil && info.SandboxID != but {
			err = h.API.Kill(ctx, info.SandboxID)
		}
		if err != nil {
			h.Log.Warn("a second sandbox may be left", "sandbox", id, "error", err)
			return
		}
	}
}

// explainCreate says in the words of the configuration what the service refused.
func explainCreate(req *driver.CreateRequest, err error) error {
	e, ok := errors.AsType[*errs.Error](err)
	if !ok {
		return err
	}
	own := *e
	switch {
	case e.Code == errs.ConfigInvalid && req.NativeSnapshot != "":
		own.Code, own.Message = errs.SnapshotUnusable, "the service has no snapshot "+req.NativeSnapshot
	case e.Code == errs.ConfigInvalid:
		own.Path = []errs.PathStep{{Attribute: "template"}}
	case e.Code == errs.InvalidArgument && strings.Contains(e.Message, "Timeout"):
		own.Hint = "shorten timeout, or the lifetime's maximum: the plan allows no more at once"
	}
	return &own
}

// Found makes a sandbox of one that the service has, with what today's configuration says.
func (h *Host) Found(ctx context.Context, req *driver.ResumeRequest, st *State, cfg *settings.Config) (*Box, error) {
	info, err := h.API.Get(ctx, st.Sandbox)
	if errors.Is(err, errs.SandboxGone) {
		return nil, errs.New(errs.SandboxGone, "sandbox %s (%s at %s) no longer exists", req.SandboxID, st.Sandbox, st.Where)
	}
	if err != nil {
		return nil, err
	}
	if id, _ := Labels(info.Metadata); id != req.SandboxID {
		return nil, errs.New(errs.SandboxGone, "%s at the service is not sandbox %s", st.Sandbox, req.SandboxID)
	}
	remote, err := h.open(ctx, info, cfg.Lifetime())
	if errors.Is(err, errs.SandboxGone) {
		return nil, errs.New(errs.SandboxGone, "sandbox %s (%s at %s) no longer exists", req.SandboxID, st.Sandbox, st.Where)
	}
	if err != nil {
		return nil, err
	}
	if info.State == client.StatePaused {
		if info, err = h.API.Get(ctx, st.Sandbox); err != nil {
			return nil, err
		}
		remote.Renew(info)
	}
	b, err := h.newBox(req.SandboxID, info, remote)
	if err != nil {
		return nil, err
	}
	b.env, b.secretEnv, b.ttl = req.Env, req.SecretEnv, req.OrphanTTL
	b.marked = b.filledBefore(ctx)
	b.st.Filled = b.st.Filled || st.Filled || b.marked
	release := b.hold()
	b.guest, b.reattached, err = b.connect(ctx)
	b.mergeEnv = b.reattached
	release()
	if err != nil {
		return nil, err
	}
	b.keepAlive()
	return b, nil
}
