// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/ops"
	"github.com/berth-dev/berth/core/plugin"
	"github.com/berth-dev/berth/core/snapshot"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// SaveNative has the driver save the sandbox with its own means, for another one to begin with; errs.Unsupported when it has none.
func (s *Session) SaveNative(ctx context.Context) (string, error) {
	native, ok := s.Sandbox.(driver.NativeSnapshotter)
	if !ok || !has(s.cfg.Driver, driver.SnapNative) {
		return "", errs.New(errs.Unsupported, "driver %q has no snapshots of its own", s.cfg.DriverName)
	}
	n, err := native.Snapshot(ctx, "", false, map[string]string{"berth.session": s.cfg.ID})
	if err != nil {
		return "", fmt.Errorf("driver %q: take its own snapshot: %w", s.cfg.DriverName, err)
	}
	return n.ID, nil
}

// ForgetNative removes a snapshot of the driver's. What was made from it stays.
func (s *Session) ForgetNative(ctx context.Context, id string) error {
	return s.cfg.Driver.DeleteSnapshot(ctx, id)
}

// beside has the driver take a snapshot of its own beside the portable one, where the policy wants it; nil = none. With auto
// there is one where nothing is left out, since a driver leaves nothing out.
func (s *Session) beside(ctx context.Context, excludes, last bool) (*snapshot.Native, error) {
	p := s.cfg.Snapshots.Policy
	if p == nil || p.Native == "never" || (p.Native != "always" && (excludes || !last)) {
		return nil, nil
	}
	id, err := s.SaveNative(ctx)
	switch {
	case errors.Is(err, errs.Unsupported) && p.Native != "always":
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &snapshot.Native{Driver: s.cfg.DriverName, ID: id, Salt: s.fixed.Salt, Made: s.fixed.sum()}, nil
}

// sum is the same for sandboxes that are made with the same, and says nothing without the salt.
func (f *Fixed) sum() string {
	m := hmac.New(sha256.New, f.Salt)
	for _, name := range slices.Sorted(maps.Keys(f.Values)) {
		fmt.Fprintf(m, "%q=%q\n", name, f.Values[name])
	}
	return hex.EncodeToString(m.Sum(nil))
}

// outdate removes the driver's own snapshot beside the one before: of those that nobody asked for, the newest is enough.
func (s *Session) outdate(ctx context.Context, rec *snapshot.Record) {
	if rec.Native == nil || rec.Parent == "" || s.cfg.Snapshots.Policy.Native == "always" {
		return
	}
	// One that is gone, or was renamed meanwhile, has nothing that could be removed.
	if before, err := s.cfg.Snapshots.Repo.Get(ctx, rec.Parent); err == nil && before.Native != nil {
		s.removeNative(ctx, *before.Native)
	}
}

// removeNative removes a snapshot of the driver's.
func (s *Session) removeNative(ctx context.Context, n snapshot.Native) {
	err := errs.New(errs.Unsupported, "it is of driver %q", n.Driver)
	if n.Driver == s.cfg.DriverName {
		if derr := s.ForgetNative(ctx, n.ID); derr == nil {
			return
		} else if !errors.As(derr, &err) {
			err = errs.New(errs.Internal, "%v", derr)
		}
	}
	s.cfg.Emit(event.Warning{Message: fmt.Sprintf("the snapshot %s of driver %q was not removed: %v", n.ID, n.Driver, err)})
}

// fromNative chooses the driver's own snapshot that a sandbox is made from: the one that is asked for, or the one beside what
// the workspace is restored from, if the sandbox would be made with the same.
func (c *Config) fromNative(saved *snapshot.Record, req *driver.CreateRequest) (string, error) {
	if c.Native != "" || saved == nil || saved.Native == nil {
		return c.Native, nil
	}
	n, p := saved.Native, c.Snapshots.Policy
	if n.Driver != c.DriverName || n.Made == "" || (p != nil && p.Native == "never") || !has(c.Driver, driver.SnapNative) {
		return "", nil
	}
	f, err := fixed(c.DriverName, c.Driver.Description().SandboxConfig, req, n.Salt)
	if err != nil || f.sum() != n.Made {
		return "", err
	}
	return n.ID, nil
}

// create makes the sandbox. When the driver has lost its own snapshot, the portable one is enough.
func (c *Config) create(ctx context.Context, req *driver.CreateRequest) (*plugin.Sandbox, error) {
	kind := ops.SandboxCreate
	if c.Resume != nil {
		kind = ops.SandboxResume
	}
	ctx, end, err := ops.Begin(ctx, nil, ops.Op{Kind: kind, Sandbox: c.ID, Driver: c.DriverName, Detail: map[string]any{
		"network": req.Network.Mode, "ports": req.Ports, "grants": granted(req), "env": slices.Sorted(maps.Keys(req.Env)), "secret_env": slices.Sorted(maps.Keys(req.SecretEnv)),
	}})
	if err != nil {
		return nil, err
	}
	sb, err := c.createOnce(ctx, req)
	end(ops.End{Err: err})
	return sb, err
}

// granted are the host's paths that a sandbox is given.
func granted(req *driver.CreateRequest) []string {
	var all []string
	for _, g := range req.Grants {
		all = append(all, g.HostPath)
	}
	return all
}

func (c *Config) createOnce(ctx context.Context, req *driver.CreateRequest) (*plugin.Sandbox, error) {
	sb, err := makeOrFind(ctx, *c, req)
	if err != nil && c.Native == "" && req.NativeSnapshot != "" && errors.Is(err, errs.SnapshotUnusable) {
		req.NativeSnapshot = ""
		return makeOrFind(ctx, *c, req)
	}
	return sb, err
}
