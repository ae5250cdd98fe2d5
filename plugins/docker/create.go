// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"

	"github.com/moby/moby/client"

	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/plugins/docker/internal/plan"
	"github.com/berth-dev/berth/plugins/docker/internal/settings"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// Create makes a sandbox.
func (d *docker) Create(ctx context.Context, req *driver.CreateRequest) (driver.Sandbox, error) {
	if s := d.known(req.SandboxID); s != nil {
		return s, nil
	}
	c, err := settings.Decode(req.Config, req.Limits, req.Network)
	if err != nil {
		return nil, err
	}
	e, err := d.reach(ctx)
	if err != nil {
		return nil, err
	}
	if err := suits(c, e); err != nil {
		return nil, err
	}
	w := &plan.Want{Req: req, Config: c, Engine: e, Labels: d.host.Labels, Owner: d.owner()}
	if w.Image, err = d.imageFor(ctx, w); err != nil {
		return nil, err
	}
	w.User = cmp.Or(req.RunAs, c.User, w.Image.User, "0")
	s, err := d.boxed.Make(ctx, w)
	if err != nil && ctx.Err() != nil {
		// Whatever it was cut off in: the engine's client tells the cause in its own words.
		return nil, &errs.Error{Code: errs.Canceled, Op: "create the sandbox", Err: errors.Join(context.Cause(ctx), err)}
	}
	if err != nil {
		return nil, err
	}
	d.add(s)
	return s, nil
}

// imageFor gives the image of a new container: the configured one, or a snapshot.
func (d *docker) imageFor(ctx context.Context, w *plan.Want) (*engine.Image, error) {
	r := engine.ImageRequest{Name: w.Config.Image, Pull: w.Config.Pull, Platform: w.Config.Platform, Progress: w.Req.Progress}
	if snap := w.Req.NativeSnapshot; snap != "" {
		r.Name, r.Pull = snap, engine.PullNever
	}
	img, err := w.Engine.Image(ctx, r)
	if err != nil && w.Req.NativeSnapshot != "" && errors.Is(err, errs.ConfigInvalid) {
		return nil, errs.New(errs.SnapshotUnusable, "the engine at %s has no snapshot %s", w.Engine.Where, w.Req.NativeSnapshot)
	}
	if err != nil {
		return nil, err
	}
	if u := img.Labels[plan.LabelUser]; u != "" && w.Req.NativeSnapshot != "" {
		img.User = u
	}
	if img.OS != "" && img.OS != "linux" {
		return nil, errs.New(errs.Unsupported, "image %q is for %s", r.Name, img.OS).WithHint("use an image for linux")
	}
	if img.Arch != w.Engine.Arch() && w.Config.Platform == "" {
		return nil, settings.Wrong("image", errs.New(errs.ConfigInvalid, "image %q is for the processor %s, and the engine at %s runs on %s",
			r.Name, img.Arch, w.Engine.Where, w.Engine.Arch()).
			WithHint("use an image for linux/%s; where the engine emulates other processors, set platform = \"linux/%s\"", w.Engine.Arch(), img.Arch))
	}
	return img, nil
}

// Resume finds a sandbox again.
func (d *docker) Resume(ctx context.Context, req *driver.ResumeRequest) (driver.Sandbox, error) {
	var st plan.State
	if err := json.Unmarshal(req.State.Data, &st); err != nil || st.Container == "" {
		return nil, errs.New(errs.InvalidArgument, "the state of sandbox %s cannot be read", req.SandboxID)
	}
	if s := d.known(req.SandboxID); s != nil {
		if s.Common().Usable(ctx) {
			s.Common().Renew(req.Env, req.SecretEnv)
			return s, nil
		}
		s.Common().Park()
	}
	e, err := d.reach(ctx)
	if err != nil {
		return nil, err
	}
	got, err := e.ContainerInspect(ctx, st.Container, client.ContainerInspectOptions{})
	switch {
	case engine.NotFound(err) && st.Engine != "" && st.Engine != e.Info.ID:
		return nil, errs.New(errs.ConfigInvalid, "sandbox %s is on the container engine at %s, and this is the one at %s", req.SandboxID, st.Where, e.Where).
			WithHint("set host or context in the driver block to that engine")
	case engine.NotFound(err):
		return nil, errs.New(errs.SandboxGone, "the container of sandbox %s no longer exists", req.SandboxID)
	case err != nil:
		return nil, engine.Error(errs.StartFailed, "find the container again", err)
	case got.Container.Config == nil || got.Container.Config.Labels[plan.LabelSandbox] != req.SandboxID:
		return nil, errs.New(errs.SandboxGone, "container %.12s is not sandbox %s", st.Container, req.SandboxID)
	}
	s, err := d.boxed.Found(ctx, e, req, &st, &got.Container)
	if err != nil {
		return nil, err
	}
	d.add(s)
	return s, nil
}
