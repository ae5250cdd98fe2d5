// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"iter"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/plugins/daytona/client"
	"github.com/berth-dev/berth/plugins/daytona/internal/box"
	"github.com/berth-dev/berth/plugins/daytona/internal/settings"
	"github.com/berth-dev/berth/plugins/internal/keep"
	"github.com/berth-dev/berth/plugins/internal/roster"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/schema"
	"github.com/berth-dev/berth/sdk/vendorhttp"
)

const version = "0.1.0"

// daytona makes sandboxes at Daytona.
type daytona struct {
	log    hclog.Logger
	boxed  *box.Host
	client *client.Client // nil = not configured, or without credentials
	why    error          // there is no client
	secret []byte         // the keys of guests are made from it
	boxes  roster.Roster[*box.Box]
}

var (
	_ driver.Configurer    = (*daytona)(nil)
	_ driver.Validator     = (*daytona)(nil)
	_ driver.Lister        = (*daytona)(nil)
	_ driver.Drainer       = (*daytona)(nil)
	_ driver.SnapshotStore = (*daytona)(nil)
)

// New makes the driver.
func New(log hclog.Logger) driver.Driver {
	return &daytona{log: log, why: errs.New(errs.Internal, "the driver was not configured")}
}

// Describe says what sandboxes at Daytona can do.
func (d *daytona) Describe() driver.Description {
	return driver.Description{
		Name: "daytona", Version: version, ProcessConfig: settings.ProcessSchema(), SandboxConfig: settings.SandboxSchema(),
		StateVersion: box.StateVersion, Features: slices.Clone(settings.Features), Isolation: settings.Isolation(&settings.Config{}),
		SecretsEnv: []string{"DAYTONA_API_KEY", "DAYTONA_JWT_TOKEN"}, Docs: "https://www.daytona.io/docs/",
		Unimplementable: []driver.Unimplementable{
			{Feature: driver.SnapMemory, Reason: "Daytona's containers save files only"},
			{Feature: driver.PathGrants, Reason: "the sandbox is not on this machine"},
			{Feature: driver.TreeHostRefs, Reason: "the sandbox is not on this machine"},
		},
	}
}

// Configure prepares the client. The vendor is asked when it is needed.
func (d *daytona) Configure(_ context.Context, host driver.Host, v schema.Value) []driver.Diagnostic {
	var c settings.Process
	if err := v.Decode(settings.ProcessSchema(), &c); err != nil {
		return []driver.Diagnostic{driver.DiagnosticOf(err)}
	}
	if host.StateDir == "" {
		return []driver.Diagnostic{{Summary: "no state directory", Detail: "the driver was not told where to keep the keys of sandboxes"}}
	}
	if c.JWT != "" && c.Organization == "" {
		return []driver.Diagnostic{driver.DiagnosticOf(settings.Wrong("organization_id", errs.New(errs.ConfigInvalid, "a JSON web token needs the organization")))}
	}
	var err error
	if d.secret, err = keep.Secret(host.StateDir); err != nil {
		return []driver.Diagnostic{driver.DiagnosticOf(err)}
	}
	// Without credentials there is still something to describe and to validate.
	d.client, d.why = client.New(client.Options{
		URL: c.APIURL, Token: cmp.Or(c.APIKey, c.JWT), Organization: c.Organization, Quiet: true, Timeout: c.RequestTimeout, Observe: d.observe,
	})
	if d.why != nil && !errors.Is(d.why, errs.AuthFailed) {
		return []driver.Diagnostic{driver.DiagnosticOf(settings.Wrong("api_url", errs.New(errs.ConfigInvalid, "%v", d.why)))}
	}
	d.boxed = &box.Host{
		Log: d.log, Client: d.client, API: c.APIURL, Target: c.Target, Labels: host.Labels, Key: d.key, Over: d.boxes.Forget,
		Snapshots: keep.Snapshots(filepath.Join(host.StateDir, "snapshots")),
	}
	return nil
}

// observe logs what was asked of the vendor.
func (d *daytona) observe(a vendorhttp.Attempt) {
	level := hclog.Trace
	if a.Wait > 0 {
		level = hclog.Debug
	}
	d.log.Log(level, "daytona", "op", a.Op, "method", a.Method, "path", a.Path, "status", a.Status, "attempt", a.Number, "took", a.Took,
		"request", a.RequestID, "error", a.Err, "again_in", a.Wait)
}

// key is what a sandbox's guest and this installation know.
func (d *daytona) key(id string) []byte {
	m := hmac.New(sha256.New, d.secret)
	m.Write([]byte(id))
	return m.Sum(nil)
}

// Validate checks a configuration by itself, and online against the vendor.
func (d *daytona) Validate(ctx context.Context, v schema.Value, online bool) []driver.Diagnostic {
	c, err := settings.Decode(v, driver.ResourceLimits{}, driver.NetworkPolicy{})
	if err == nil && online {
		if err = d.why; err == nil {
			err = d.client.Check(ctx)
		}
		if err == nil && c.Snapshot != "" {
			if _, e := d.client.Snapshot(ctx, c.Snapshot); client.NotFound(e) {
				err = settings.Wrong("snapshot", errs.New(errs.ConfigInvalid, "there is no snapshot %q", c.Snapshot))
			} else {
				err = e
			}
		}
	}
	if err != nil {
		return []driver.Diagnostic{driver.DiagnosticOf(err)}
	}
	return nil
}

// Create makes a sandbox.
func (d *daytona) Create(ctx context.Context, req *driver.CreateRequest) (driver.Sandbox, error) {
	if d.why != nil {
		return nil, d.why
	}
	c, err := settings.Decode(req.Config, req.Limits, req.Network)
	if err != nil {
		return nil, err
	}
	switch {
	case len(req.Grants) > 0:
		return nil, errs.New(errs.Unsupported, "the sandbox is not on this machine: its paths cannot be made visible there").
			With("feature", string(driver.PathGrants)).WithHint("copy the files into the workspace")
	case len(req.Mounts) > 0:
		return nil, errs.New(errs.Unsupported, "this driver mounts nothing but volumes of Daytona").WithHint("see volumes in the sandbox's config")
	}
	done, err := d.boxes.Alone(ctx, req.SandboxID)
	if err != nil {
		return nil, err
	}
	defer done()
	if b := d.boxes.Known(req.SandboxID); b != nil {
		return b, nil
	}
	b, err := d.boxed.Make(ctx, c, req)
	if err != nil {
		return nil, err
	}
	d.boxes.Add(b)
	return b, nil
}

// Resume finds a sandbox again.
func (d *daytona) Resume(ctx context.Context, req *driver.ResumeRequest) (driver.Sandbox, error) {
	if d.why != nil {
		return nil, d.why
	}
	var st box.State
	if err := json.Unmarshal(req.State.Data, &st); err != nil || st.ID == "" {
		return nil, errs.New(errs.InvalidArgument, "the state of sandbox %s cannot be read", req.SandboxID)
	}
	c, err := settings.Decode(req.Config, driver.ResourceLimits{}, driver.NetworkPolicy{})
	if err != nil {
		return nil, err
	}
	if b := d.boxes.Known(req.SandboxID); b != nil {
		if b.Usable() {
			b.Renew(req.Env, req.SecretEnv)
			return b, nil
		}
		b.Park()
	}
	v, err := d.client.Sandbox(ctx, st.ID)
	switch {
	case errors.Is(err, errs.SandboxGone) && st.API != d.boxed.API:
		return nil, errs.New(errs.ConfigInvalid, "sandbox %s is at %s, and this is %s", req.SandboxID, st.API, d.boxed.API).
			WithHint("set api_url in the driver block to that address")
	case err != nil:
		return nil, err
	case v.State.Gone():
		return nil, errs.New(errs.SandboxGone, "sandbox %s was deleted", req.SandboxID)
	case v.Labels[settings.LabelSandbox] != req.SandboxID:
		return nil, errs.New(errs.SandboxGone, "%s at Daytona is not sandbox %s", st.ID, req.SandboxID)
	}
	b, err := d.boxed.Found(ctx, c, req, &st, v)
	if err != nil {
		return nil, err
	}
	d.boxes.Add(b)
	return b, nil
}

// List finds sandboxes by the core's labels, also those of other installations of berth.
func (d *daytona) List(ctx context.Context, labels map[string]string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		if d.why != nil {
			yield(driver.Info{}, d.why)
			return
		}
		want := map[string]string{}
		for k, v := range labels {
			want[settings.LabelCore+k] = v
		}
		for s, err := range d.client.Sandboxes(ctx, want) {
			if err != nil {
				yield(driver.Info{}, err)
				return
			}
			id := s.Labels[settings.LabelSandbox]
			if id == "" || s.State.Gone() {
				continue
			}
			info := driver.Info{
				SandboxID: id, Labels: settings.CoreLabels(s.Labels), Created: s.CreatedAt, Status: box.Status(s.State), Root: s.Labels[settings.LabelRoot],
				OS: "linux", Display: map[string]string{"sandbox": s.ID, "name": s.Name, "state": string(s.State), "target": s.Target},
			}
			if !yield(info, nil) {
				return
			}
		}
	}
}

// Drain parks or ends every sandbox of this process.
func (d *daytona) Drain(ctx context.Context, policy driver.OrphanPolicy, report func(driver.DrainResult)) error {
	return d.boxes.Drain(ctx, policy, report)
}

// Snapshots lists berth's snapshots at the vendor. The vendor keeps no labels of them: those that another installation
// took have none.
func (d *daytona) Snapshots(ctx context.Context, labels map[string]string) iter.Seq2[driver.NativeSnapshot, error] {
	return func(yield func(driver.NativeSnapshot, error) bool) {
		if d.why != nil {
			yield(driver.NativeSnapshot{}, d.why)
			return
		}
		for s, err := range d.client.Snapshots(ctx) {
			if err != nil {
				yield(driver.NativeSnapshot{}, err)
				return
			}
			if !settings.IsSnapshot(s) {
				continue
			}
			kept := d.boxed.Snapshots.Of(s.Name)
			if keep.Has(kept, labels) && !yield(settings.Native(s, kept.Labels), nil) {
				return
			}
		}
	}
}

// snapshotTimeout bounds the removal of one.
const snapshotTimeout = 2 * time.Minute

// DeleteSnapshot removes a snapshot, by its name.
func (d *daytona) DeleteSnapshot(ctx context.Context, name string) error {
	if d.why != nil {
		return d.why
	}
	ctx, cancel := context.WithTimeoutCause(ctx, snapshotTimeout, errs.New(errs.VendorFailed, "the snapshot was not deleted within %s", snapshotTimeout))
	defer cancel()
	s, err := d.client.Snapshot(ctx, name)
	if client.NotFound(err) {
		return d.boxed.Snapshots.Forget(name)
	}
	if err == nil {
		if !settings.IsSnapshot(s) {
			return errs.New(errs.InvalidArgument, "%q is no snapshot of berth's", name)
		}
		err = d.client.DeleteSnapshot(ctx, s.ID)
	}
	if err != nil {
		return err
	}
	return d.boxed.Snapshots.Forget(name)
}
