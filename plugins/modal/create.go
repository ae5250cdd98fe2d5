// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"time"

	"github.com/modal-labs/modal-client/go"

	"github.com/berth-dev/berth/plugins/modal/client"
	"github.com/berth-dev/berth/plugins/modal/internal/box"
	"github.com/berth-dev/berth/plugins/modal/internal/settings"
	"github.com/berth-dev/berth/plugins/modal/internal/vendor"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// cleanTime bounds the removal of what a failed create has made.
const cleanTime = 30 * time.Second

// Create makes a sandbox.
func (d *hosted) Create(ctx context.Context, req *driver.CreateRequest) (driver.Sandbox, error) {
	if err := d.ready(); err != nil {
		return nil, err
	}
	release, err := d.boxes.Alone(ctx, req.SandboxID)
	if err != nil {
		return nil, err
	}
	defer release()
	if b := d.boxes.Known(req.SandboxID); b != nil && b.Usable() {
		return b, nil
	}
	wish := settings.Wish{Limits: req.Limits, Network: req.Network, Lifetime: req.MaxLifetime}
	c, err := settings.Decode(req.Config, wish)
	if err != nil {
		return nil, err
	}
	if len(req.Grants) > 0 {
		return nil, errs.New(errs.Unsupported, "%s is on this machine, and the sandbox on Modal's", req.Grants[0].Path).With("feature", string(driver.PathGrants)).
			WithHint("copy what is needed into the workspace with local_dir")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.CreateTimeout, errs.New(errs.CreateFailed, "the sandbox was not made within %s (create_timeout)", c.CreateTimeout))
	defer cancel()
	m := &maker{d: d, c: c, id: req.SandboxID, progress: req.Progress, record: &box.Record{
		App: d.conf.App, Root: req.Workspace.Root, User: req.RunAs, Labels: req.Labels, Ports: ports(req.Ports, c), Wish: wish, Server: d.conf.ServerURL,
	}}
	if m.mounts, err = m.buckets(ctx, req.Mounts); err != nil {
		return nil, err
	}
	image, directory := box.SnapshotImage(req.NativeSnapshot)
	if req.NativeSnapshot != "" {
		m.image, err = d.snapshot(ctx, image)
		if directory && err == nil {
			m.workspace, m.image = m.image, nil
		}
		if err != nil {
			return nil, err
		}
	}
	b, adopted, err := m.make(ctx, box.Options{
		ID: req.SandboxID, Record: m.record, Config: c, Env: req.Env, SecretEnv: req.SecretEnv, TTL: req.OrphanTTL, Preserved: req.NativeSnapshot != "",
	})
	if err != nil {
		return nil, err
	}
	if err := b.Fill(ctx, req); err != nil {
		if adopted {
			b.Park()
			return nil, err
		}
		return nil, abandon(ctx, b, err)
	}
	d.boxes.Add(b)
	return b, nil
}

// snapshot finds the image of a snapshot.
func (d *hosted) snapshot(ctx context.Context, id string) (*modal.Image, error) {
	img, err := d.c.Images.FromID(ctx, id, nil)
	if err != nil && client.KindOf(err) == client.NotFound {
		return nil, errs.New(errs.SnapshotUnusable, "Modal has no snapshot %s: it was deleted, or its time (snapshot_ttl) is over", id).With("snapshot", id)
	}
	return img, vendor.Error(ctx, errs.SnapshotRestore, "find the snapshot "+id, err)
}

// abandon ends a sandbox that a create has made which failed.
func abandon(ctx context.Context, b *box.Box, err error) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), cleanTime, errors.New("out of time"))
	defer cancel()
	return errors.Join(err, b.Destroy(ctx))
}

// Resume finds a sandbox again, or makes one that was stopped again from its files.
func (d *hosted) Resume(ctx context.Context, req *driver.ResumeRequest) (driver.Sandbox, error) {
	if err := d.ready(); err != nil {
		return nil, err
	}
	r, err := box.ReadState(req.State, req.SandboxID)
	if err != nil {
		return nil, err
	}
	release, err := d.boxes.Alone(ctx, req.SandboxID)
	if err != nil {
		return nil, err
	}
	defer release()
	if b := d.boxes.Known(req.SandboxID); b != nil {
		if b.Usable() {
			b.Renew(req.Env, req.SecretEnv)
			return b, nil
		}
		b.Park()
	}
	if r.Server != d.conf.ServerURL {
		return nil, errs.New(errs.ConfigInvalid, "sandbox %s is at %s, and the driver talks to %s", req.SandboxID, r.Server, d.conf.ServerURL).
			WithHint("set server_url in the driver block")
	}
	c, err := settings.Decode(req.Config, r.Wish)
	if err != nil {
		return nil, err
	}
	o := box.Options{
		ID: req.SandboxID, Record: r, Config: c, Env: req.Env, SecretEnv: req.SecretEnv, TTL: req.OrphanTTL, Preserved: true,
	}
	if r.Sandbox != "" {
		b, err := d.found(ctx, o)
		if err != nil {
			return nil, err
		}
		d.boxes.Add(b)
		return b, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.CreateTimeout, errs.New(errs.StartFailed, "the sandbox was not made again within %s (create_timeout)", c.CreateTimeout))
	defer cancel()
	m := &maker{d: d, c: c, id: req.SandboxID, progress: req.Progress, record: r}
	if m.mounts, err = m.buckets(ctx, req.Mounts); err != nil {
		return nil, err
	}
	if m.image, err = d.c.Images.FromID(ctx, r.Image, nil); err != nil {
		if client.KindOf(err) == client.NotFound && ctx.Err() == nil {
			return nil, errs.New(errs.SandboxGone, "the files of the stopped sandbox %s no longer exist at Modal", req.SandboxID).With("sandbox", req.SandboxID).
				WithHint("Modal keeps them for snapshot_ttl")
		}
		return nil, vendor.Error(ctx, errs.StartFailed, "find the files of the sandbox", err)
	}
	b, _, err := m.make(ctx, o)
	if err != nil {
		return nil, err
	}
	d.boxes.Add(b)
	return b, nil
}

// found connects to a sandbox that runs, and says why it does not.
func (d *hosted) found(ctx context.Context, o box.Options) (*box.Box, error) {
	sb, err := d.c.Sandboxes.FromID(ctx, o.Record.Sandbox, nil)
	if err == nil {
		err = vendor.Check(ctx, sb, o.ID, o.Config.ExitSnapshot, o.Record.Image)
	}
	if err != nil {
		return nil, err
	}
	b := box.New(d.boxed, sb, o)
	return b, b.Begin(ctx)
}
