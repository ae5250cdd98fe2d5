// SPDX-License-Identifier: Apache-2.0

package box

import (
	"cmp"
	"context"
	"errors"
	"path"
	"strings"
	"time"

	"github.com/berth-dev/berth/plugins/daytona/client"
	"github.com/berth-dev/berth/plugins/daytona/internal/settings"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/forward"
)

const (
	// createTries bounds how often a create is sent again whose answer was lost.
	createTries = 4
	// cleanTime bounds the removal of what a failed create has made, and sweepTime the wait for it to come about.
	cleanTime = time.Minute
	sweepTime = 2 * time.Second
	// firstLook and longestLook are the waits between looks.
	firstLook   = 25 * time.Millisecond
	longestLook = time.Second
)

// Name is what a sandbox is called at the vendor: whoever knows its id finds it.
func Name(id string) string { return "berth-" + strings.ToLower(id) }

// Make makes a sandbox, or finds the one that was made under this id.
func (h *Host) Make(ctx context.Context, cfg *settings.Config, req *driver.CreateRequest) (*Box, error) {
	if !path.IsAbs(req.Workspace.Root) {
		return nil, errs.New(errs.InvalidArgument, "the workspace %q is no absolute path", req.Workspace.Root)
	}
	wish := cfg.Wish(req, h.Labels, Name(req.SandboxID), h.Target)
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.CreateTimeout,
		errs.New(errs.CreateFailed, "the sandbox was not made within %s", cfg.CreateTimeout).WithHint("set create_timeout higher; images take long to build"))
	defer cancel()
	if err := h.mountVolumes(ctx, cfg, wish); err != nil {
		return nil, err
	}
	req.Progress(driver.Progress{Phase: "creating", Message: cmp.Or(wish.Snapshot, cfg.Image, "the region's snapshot")})
	s, fresh, err := h.obtain(ctx, wish, req.SandboxID)
	if err != nil {
		if ctx.Err() != nil || fresh {
			h.sweep(ctx, wish.Name, req.SandboxID)
		}
		return nil, early(ctx, h.unusable(ctx, req.NativeSnapshot, err))
	}
	b := h.newBox(req.SandboxID, cfg)
	b.env, b.secretEnv, b.ttl, b.vendor = req.Env, req.SecretEnv, req.OrphanTTL, s
	b.st = State{
		ID: s.ID, Name: s.Name, API: h.API, Root: req.Workspace.Root, RunAs: req.RunAs, Lifetime: req.MaxLifetime,
		Filled: s.Labels[settings.LabelFilled] != "",
	}
	b.mergeEnv = !fresh
	if err := b.ready(ctx, req); err != nil {
		if fresh {
			h.remove(ctx, s.ID)
		}
		release := b.hold()
		b.detach()
		b.leave()
		release()
		return nil, early(ctx, err)
	}
	return b, nil
}

// early gives why a call ended before its time, when it did.
func early(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	if e, ok := errors.AsType[*errs.Error](context.Cause(ctx)); ok {
		return errors.Join(e, err)
	}
	return &errs.Error{Code: errs.Canceled, Op: "create the sandbox", Err: errors.Join(context.Cause(ctx), err)}
}

// mountVolumes looks the volumes up, and makes those that are not there.
func (h *Host) mountVolumes(ctx context.Context, cfg *settings.Config, wish *client.Create) error {
	for at, v := range cfg.Volumes {
		name, sub, _ := strings.Cut(v, ":")
		vol, err := h.Client.EnsureVolume(ctx, name)
		if err != nil {
			return errs.Wrap(errs.MountFailed, "volume "+name, err)
		}
		wish.Volumes = append(wish.Volumes, client.VolumeMount{VolumeID: vol.ID, MountPath: at, Subpath: sub})
	}
	return nil
}

// obtain makes the vendor's sandbox. The name makes it one, however often it is asked for: when an answer is lost, what
// was made is found by it. fresh says that nobody else can have used it.
func (h *Host) obtain(ctx context.Context, wish *client.Create, id string) (s *client.Sandbox, fresh bool, err error) {
	pause := firstLook
	for try := 1; ; try++ {
		s, err = h.Client.Create(ctx, wish)
		if err == nil {
			return s, true, nil
		}
		e, _ := errors.AsType[*errs.Error](err) // the client gives no other
		lost := e != nil && e.MaybeApplied
		if lost {
			fresh = true // if it is there, this call has made it
		}
		if !lost && !client.Conflict(err) {
			return nil, fresh, settings.Refused(err)
		}
		got, lookErr := h.Client.Sandbox(ctx, wish.Name)
		switch {
		case lookErr == nil && got.Labels[settings.LabelSandbox] != id:
			return nil, false, errs.New(errs.CreateFailed, "another sandbox has the name %s", wish.Name)
		case lookErr == nil && !got.State.Gone():
			return got, fresh, nil
		case lookErr != nil && !errors.Is(lookErr, errs.SandboxGone):
			return nil, fresh, errors.Join(err, lookErr)
		}
		// It was not made, or is on its way out with the name.
		if lost && try >= createTries {
			return nil, fresh, errs.Wrap(errs.CreateFailed, "create a sandbox", err)
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, fresh, err
		}
		pause = min(2*pause, longestLook)
	}
}

// ready waits for a sandbox, starts the guest and prepares the workspace.
func (b *Box) ready(ctx context.Context, req *driver.CreateRequest) error {
	release := b.hold()
	defer func() { release() }()
	said := client.State("")
	v, err := b.host.Client.Await(ctx, b.st.ID, func(s *client.Sandbox) {
		if s.State != said {
			said = s.State
			req.Progress(driver.Progress{Phase: string(s.State), Message: s.Name})
		}
	})
	if err != nil {
		return err
	}
	b.vendor = v
	switch v.State {
	case client.StateError, client.StateBuildFailed:
		e := errs.New(errs.CreateFailed, "Daytona could not make the sandbox (%s): %s", v.State, v.ErrorReason)
		if v.State == client.StateBuildFailed {
			return settings.Wrong("image", e)
		}
		return e
	case client.StateStarted:
	default: // made before, and stopped since
		if err := b.start(ctx); err != nil {
			return err
		}
	}
	if b.st.Lifetime > 0 {
		b.setDeadline(time.Now().Add(b.st.Lifetime))
	}
	req.Progress(driver.Progress{Phase: "connecting", Message: b.st.Name})
	if err := b.connect(ctx); err != nil {
		return err
	}
	c := b.guest
	if len(req.Accounts.Users)+len(req.Accounts.Groups) > 0 {
		if err := b.ensureAccounts(ctx, req.Accounts); err != nil {
			return err
		}
	}
	ws := req.Workspace
	mode := ws.Mode
	if mode == 0 {
		mode = 0o755
	}
	change := driver.MetaChange{Mode: &mode}
	if owner := cmp.Or(ws.Owner, req.RunAs); owner != "" && b.facts.UID == "0" {
		owner = forward.WithGroup(owner)
		change.Owner = &owner
		if ws.Group != "" {
			change.Group = &ws.Group
		}
	} else if ws.Owner != "" && ws.Owner != b.facts.User && ws.Owner != b.facts.UID {
		return b.onlyRoot("give the workspace to " + ws.Owner)
	}
	return c.SetMeta(ctx, b.st.Root, change)
}

// remove deletes what a failed create has made. What is left all the same is found by List.
func (h *Host) remove(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), cleanTime, errors.New("out of time"))
	defer cancel()
	err := h.Client.Settled(ctx, func() error { return h.Client.Delete(ctx, id) })
	if err != nil && !errors.Is(err, errs.SandboxGone) {
		h.Log.Warn("a sandbox that nobody waits for was not removed", "id", id, "error", err)
	}
}

// sweep removes a sandbox whose making failed from here, and may come about there.
func (h *Host) sweep(ctx context.Context, name, id string) {
	look, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), cleanTime, errors.New("out of time"))
	defer cancel()
	for began := time.Now(); ; time.Sleep(longestLook / 10) {
		s, err := h.Client.Sandbox(look, name)
		if err == nil && s.Labels[settings.LabelSandbox] == id && !s.State.Gone() {
			h.remove(ctx, s.ID)
			return
		}
		if err != nil && !errors.Is(err, errs.SandboxGone) || time.Since(began) > sweepTime {
			return
		}
	}
}

// Found makes a sandbox of one that is there, with what today's configuration says. One that is stopped is started by the
// first call that needs it, so that what is only to be removed is not started.
func (h *Host) Found(ctx context.Context, cfg *settings.Config, req *driver.ResumeRequest, st *State, v *client.Sandbox) (*Box, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.StartTimeout, errs.New(errs.StartFailed, "the sandbox did not start within %s", cfg.StartTimeout).
		WithHint("set start_timeout higher; from the archive it takes long"))
	defer cancel()
	b := h.newBox(req.SandboxID, cfg)
	b.env, b.secretEnv, b.ttl, b.st, b.mergeEnv = req.Env, req.SecretEnv, req.OrphanTTL, *st, true
	v, err := h.Client.Await(ctx, v.ID, nil)
	if err != nil {
		return nil, early(ctx, err)
	}
	if v.State.Gone() {
		return nil, errs.New(errs.SandboxGone, "sandbox %s was deleted", b.id)
	}
	b.vendor = v
	b.st.Filled = b.st.Filled || v.Labels[settings.LabelFilled] != ""
	if v.State != client.StateStarted {
		return b, nil
	}
	defer b.hold()()
	if !b.st.Deadline.IsZero() {
		b.setDeadline(b.st.Deadline)
	}
	err = b.attach(ctx)
	switch {
	case err == nil:
		b.reattached = true
	case errors.Is(err, errs.Canceled), errors.Is(err, errs.SandboxGone), errors.Is(err, errs.AuthFailed) && !fromGuest(err):
		return nil, early(ctx, err)
	default:
		// It may have ended just now. The first call that needs it says what is wrong.
		h.Log.Debug("no guest answers in the sandbox", "sandbox", b.id, "error", err)
	}
	return b, nil
}
