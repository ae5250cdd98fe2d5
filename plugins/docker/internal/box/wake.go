// SPDX-License-Identifier: Apache-2.0

package box

import (
	"context"
	"errors"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/plugins/docker/internal/inside"
	"github.com/berth-dev/berth/plugins/docker/internal/plan"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// Found makes a sandbox of its container, with what today's configuration says.
func (h *Host) Found(ctx context.Context, e *engine.Engine, req *driver.ResumeRequest, st *plan.State, got *container.InspectResponse) (Sandbox, error) {
	b := h.newBox(e, req.SandboxID, nil)
	b.env, b.secretEnv, b.ttl = req.Env, req.SecretEnv, req.OrphanTTL
	b.mounts.Keep(req.Mounts)
	if err := b.took(got); err != nil {
		return nil, err
	}
	b.st.Filled, b.st.Deadline = st.Filled || h.Filled.Has(b.id), st.Deadline
	return b.wake(ctx, got)
}

// wake makes a sandbox of a container that was found. One that is stopped is started by the first call that needs it,
// so that what is only to be removed is not started.
func (b *Box) wake(ctx context.Context, got *container.InspectResponse) (Sandbox, error) {
	st := got.State
	switch st.Status {
	case container.StateRemoving, container.StateDead:
		return nil, errs.New(errs.SandboxGone, "the container of sandbox %s is being removed", b.id)
	case container.StatePaused:
		if _, err := b.e.ContainerUnpause(ctx, b.st.Container, client.ContainerUnpauseOptions{}); err != nil {
			return nil, engine.Error(errs.StartFailed, "thaw the container", err)
		}
	case container.StateCreated, container.StateRunning, container.StateRestarting, container.StateExited:
	}
	running := st.Running || st.Restarting
	defer b.hold()()
	if running {
		b.watchDeadline()
	}
	if b.record.Exec {
		s := b.host.adoptExec(b)
		b.reattached = running
		return s, nil
	}
	s := b.withGuest()
	if !running {
		return s, nil
	}
	c, err := s.connect(ctx, nil, new(inside.LastWords))
	switch {
	case err == nil:
		b.guest, b.mergeEnv, b.reattached = c, true, true
		if err := s.remount(ctx); err != nil {
			return nil, err
		}
	case errors.Is(err, errs.Canceled):
		return nil, err
	case errors.Is(err, errs.AuthFailed):
		return nil, s.others(containerName(s.id), err)
	default:
		// It may have ended just now. The first call that needs it says what is wrong.
		b.host.Log.Warn("the container's guest does not answer", "sandbox", b.id, "error", err)
	}
	return s, nil
}
