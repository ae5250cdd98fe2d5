// SPDX-License-Identifier: Apache-2.0

package box

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/plugins/docker/internal/filled"
	"github.com/berth-dev/berth/plugins/docker/internal/inside"
	"github.com/berth-dev/berth/plugins/docker/internal/plan"
	"github.com/berth-dev/berth/plugins/docker/internal/settings"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// Host is the driver that sandboxes belong to.
type Host struct {
	Log    hclog.Logger
	Guests *inside.Guests
	Calls  inside.Calls
	Key    func(id string) []byte // what a sandbox's guest and the driver know
	Owner  func() string          // this installation
	Over   func(*Box)             // told when a sandbox's value is used no more
	Filled filled.Dir             // which workspaces hold something
}

// Sandbox is a sandbox of either kind.
type Sandbox interface {
	driver.Sandbox
	driver.Stopper
	// Common is what both kinds have.
	Common() *Box
}

// Make makes the container and what works in it. Where the guest cannot run, the engine's own means take its place.
func (h *Host) Make(ctx context.Context, w *plan.Want) (Sandbox, error) {
	if w.Config.Guest == settings.GuestNever {
		return h.makeExec(ctx, w, "guest = \"never\"")
	}
	s, err := h.makeGuest(ctx, w)
	if err == nil || !cannotRun(err) || w.Config.Guest == settings.GuestRequired || ctx.Err() != nil {
		return s, err
	}
	h.Log.Warn("the guest cannot run in this container", "sandbox", w.Req.SandboxID, "image", w.Config.Image, "error", err)
	return h.makeExec(ctx, w, err.Error())
}

// noGuest marks an error that says that the guest cannot run.
type noGuest struct{ error }

func (e noGuest) Unwrap() error { return e.error }

func cannotRun(err error) bool {
	var n noGuest
	return errors.As(err, &n)
}

func (h *Host) makeGuest(ctx context.Context, w *plan.Want) (Sandbox, error) {
	m, err := h.Guests.Mount(ctx, w.Engine, w.Image.Arch, w.Image.ID)
	if errors.Is(err, errs.Unsupported) {
		return nil, noGuest{err} // there is none for this processor
	}
	if err != nil {
		return nil, err
	}
	w.Guest, w.Why = &m, ""
	b, fresh, err := h.container(ctx, w)
	if err != nil {
		return nil, err
	}
	if b.record.Exec {
		return h.begin(ctx, w, h.adoptExec(b), fresh)
	}
	s := b.withGuest()
	return h.begin(ctx, w, s, fresh)
}

// begin prepares a container, also one that an earlier create made which did not come to its end.
func (h *Host) begin(ctx context.Context, w *plan.Want, s interface {
	Sandbox
	begin(ctx context.Context, w *plan.Want) error
}, fresh bool,
) (Sandbox, error) {
	err := s.begin(ctx, w)
	switch {
	case err == nil:
		return s, nil
	case fresh:
		err = s.Common().abandon(ctx, err)
	}
	return nil, err
}

func (h *Host) makeExec(ctx context.Context, w *plan.Want, why string) (Sandbox, error) {
	w.Guest, w.Why = nil, why
	w.Req.Progress(driver.Progress{Phase: "starting", Message: "without berth's guest: " + why})
	b, fresh, err := h.container(ctx, w)
	if err != nil {
		return nil, err
	}
	if !b.record.Exec {
		return nil, errs.New(errs.ConfigInvalid, "sandbox %s was made with a guest", b.id)
	}
	return h.begin(ctx, w, h.adoptExec(b), fresh)
}

func containerName(id string) string { return "berth-" + strings.ToLower(id) }

const (
	conflictLook = 50 * time.Millisecond
	conflictTime = 10 * time.Second
)

// container makes the container, or finds the one that was made under this id.
func (h *Host) container(ctx context.Context, w *plan.Want) (b *Box, fresh bool, err error) {
	w.Req.Progress(driver.Progress{Phase: "creating", Message: w.Config.Image})
	body, rec, err := w.Body(containerName(w.Req.SandboxID))
	if err != nil {
		return nil, false, err
	}
	b = h.newBox(w.Engine, w.Req.SandboxID, rec)
	b.env, b.secretEnv, b.ttl = w.Req.Env, w.Req.SecretEnv, w.Req.OrphanTTL
	b.mounts.Keep(w.Req.Mounts)
	made, err := w.Engine.ContainerCreate(ctx, body)
	for began := time.Now(); engine.Conflict(err) && ctx.Err() == nil; time.Sleep(conflictLook) {
		got, e := Find(ctx, w.Engine, w.Req.SandboxID)
		if e != nil {
			return nil, false, e
		}
		if got != nil {
			b.st.Filled = h.Filled.Has(b.id)
			return b, false, b.took(got)
		}
		if time.Since(began) > conflictTime {
			return nil, false, errs.New(errs.CreateFailed, "another container has the name %s", body.Name)
		}
		// The engine may still be making it, for a create that was given up, or removing it.
		made, err = w.Engine.ContainerCreate(ctx, body)
	}
	if engine.Lost(err) && ctx.Err() == nil {
		if got, e := Find(ctx, w.Engine, b.id); e == nil && got != nil {
			made, err = client.ContainerCreateResult{ID: got.ID}, nil
		}
	}
	if err != nil {
		// The caller may be gone after the container was made.
		b.sweep(ctx)
		return nil, false, w.CreateError(err)
	}
	for _, warning := range made.Warnings {
		h.Log.Warn("container engine", "sandbox", b.id, "says", warning)
	}
	b.st.Container, b.imageEnv, b.labels, b.created = made.ID, w.Image.Env, plan.CoreLabels(body.Config.Labels), time.Now()
	b.st.Filled = w.Req.NativeSnapshot != ""
	return b, true, nil
}

// Find looks for the container of a sandbox; nil when there is none.
func Find(ctx context.Context, e *engine.Engine, id string) (*container.InspectResponse, error) {
	list, err := e.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", plan.LabelSandbox+"="+id)})
	if err != nil {
		return nil, engine.Error(errs.CreateFailed, "look for the sandbox's container", err)
	}
	if len(list.Items) == 0 {
		return nil, nil
	}
	got, err := e.ContainerInspect(ctx, list.Items[0].ID, client.ContainerInspectOptions{})
	if engine.NotFound(err) {
		return nil, nil
	}
	return &got.Container, engine.Error(errs.CreateFailed, "inspect the sandbox's container", err)
}
