// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"iter"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/plugins/e2b/client"
	"github.com/berth-dev/berth/plugins/e2b/internal/box"
	"github.com/berth-dev/berth/plugins/e2b/internal/settings"
	"github.com/berth-dev/berth/plugins/internal/keep"
	"github.com/berth-dev/berth/plugins/internal/roster"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/schema"
	"github.com/berth-dev/berth/sdk/vendorhttp"
)

const version = "0.1.0"

// e2b makes sandboxes at the service.
type e2b struct {
	log   hclog.Logger
	host  driver.Host
	boxed *box.Host // nil = not configured, for want of a key: said when it is needed
	boxes roster.Roster[*box.Box]
}

var (
	_ driver.Configurer    = (*e2b)(nil)
	_ driver.Validator     = (*e2b)(nil)
	_ driver.Lister        = (*e2b)(nil)
	_ driver.Drainer       = (*e2b)(nil)
	_ driver.SnapshotStore = (*e2b)(nil)
)

// New makes the driver.
func New(log hclog.Logger) driver.Driver {
	return &e2b{log: log}
}

// Describe says what the service's sandboxes can do, with berth's guest in them.
func (d *e2b) Describe() driver.Description {
	return driver.Description{
		Name: "e2b", Version: version, ProcessConfig: settings.ProcessSchema(), SandboxConfig: settings.SandboxSchema(),
		StateVersion: box.StateVersion, Isolation: box.Isolation(), SecretsEnv: []string{"E2B_API_KEY"},
		Features: []driver.Feature{
			driver.ProcAttach, driver.ProcPTY, driver.ProcSignal, driver.ProcList, driver.ProcUser, driver.ProcDetached, driver.ProcCwd,
			driver.FilesNative, driver.FilesRange, driver.FilesAtomic, driver.FilesRawNames, driver.FilesSymlinks,
			driver.TreeNative, driver.TreeZstd, driver.SnapNative,
			driver.PortTCP, driver.PortHTTP, driver.PortForward, driver.PortDynamic, driver.PortPublic,
			driver.LifeResume, driver.LifeStop, driver.LifePause, driver.LifeDeadline, driver.LifeList, driver.LifeWatch,
			driver.AcctNative, driver.EnvPerExec, driver.EnvSecret, driver.NetPolicy,
		},
		Unimplementable: []driver.Unimplementable{{Feature: driver.PathGrants, Reason: "the sandbox is on another machine"}},
	}
}

// Configure takes the key. The service is asked when it is needed.
func (d *e2b) Configure(_ context.Context, host driver.Host, v schema.Value) []driver.Diagnostic {
	var c settings.Process
	if err := v.Decode(settings.ProcessSchema(), &c); err != nil {
		return []driver.Diagnostic{driver.DiagnosticOf(err)}
	}
	if host.StateDir == "" {
		return []driver.Diagnostic{{Summary: "no state directory", Detail: "the driver was not told where to keep the labels of snapshots"}}
	}
	d.host = host
	if c.APIKey == "" {
		return nil // a file can be checked without one
	}
	api, err := client.New(client.Options{
		APIKey: c.APIKey, Domain: c.Domain, APIURL: c.APIURL, SandboxURL: c.SandboxURL, UserAgent: "berth-driver-e2b/" + version,
		Timeout: time.Duration(c.Timeout * float64(time.Second)), Attempts: c.Attempts, Observe: d.observe,
	})
	if err != nil {
		return []driver.Diagnostic{driver.DiagnosticOf(err)}
	}
	// Every driver of the team, and nobody else, knows what is made of its key: a sandbox can be taken up from any machine.
	key := func(id string) []byte {
		m := hmac.New(sha256.New, []byte(c.APIKey))
		m.Write([]byte("berth guest " + id))
		return m.Sum(nil)
	}
	d.boxed = &box.Host{Log: d.log, API: api, Where: c.Domain, Key: key, Over: d.boxes.Forget, Snapshots: keep.Snapshots(filepath.Join(host.StateDir, "snapshots"))}
	return nil
}

// observe logs what the service is asked.
func (d *e2b) observe(a vendorhttp.Attempt) {
	args := []any{"method", a.Method, "path", a.Path, "status", a.Status, "took", a.Took, "request_id", a.RequestID}
	switch {
	case a.Wait > 0:
		d.log.Warn("the service is asked again", append(args, "attempt", a.Number, "in", a.Wait, "error", a.Err)...)
	default:
		d.log.Debug("the service was asked", args...)
	}
}

func (d *e2b) ready() (*box.Host, error) {
	if d.boxed == nil {
		return nil, errs.New(errs.AuthFailed, "there is no API key").WithHint("set api_key in the driver block, or E2B_API_KEY in berth's environment")
	}
	return d.boxed, nil
}

// Validate checks a configuration by itself, and online whether the key is taken and the template is there.
func (d *e2b) Validate(ctx context.Context, v schema.Value, online bool) []driver.Diagnostic {
	c, err := settings.Decode(v, driver.NetworkPolicy{})
	if err != nil {
		return []driver.Diagnostic{driver.DiagnosticOf(err)}
	}
	if !online {
		return nil
	}
	h, err := d.ready()
	if err != nil {
		return []driver.Diagnostic{driver.DiagnosticOf(err)}
	}
	all, err := h.API.Templates(ctx)
	if err != nil {
		return []driver.Diagnostic{driver.DiagnosticOf(err)}
	}
	known := slices.ContainsFunc(all, func(t client.Template) bool {
		return t.TemplateID == c.Template || slices.Contains(t.Names, c.Template) || slices.Contains(t.Aliases, c.Template)
	})
	if !known && c.Template != "base" {
		// It may be public, and another team's.
		return []driver.Diagnostic{{
			Warning: true, Summary: "the key's team has no template " + c.Template, Detail: "it has to be a public one of another team, or a snapshot",
			Path: driver.Path{{Attribute: "template"}},
		}}
	}
	return nil
}

// Create makes a sandbox.
func (d *e2b) Create(ctx context.Context, req *driver.CreateRequest) (driver.Sandbox, error) {
	release, err := d.boxes.Alone(ctx, req.SandboxID)
	if err != nil {
		return nil, err
	}
	defer release()
	if b := d.boxes.Known(req.SandboxID); b != nil {
		return b, nil
	}
	c, err := settings.Decode(req.Config, req.Network)
	if err != nil {
		return nil, err
	}
	if err := cannot(req); err != nil {
		return nil, err
	}
	h, err := d.ready()
	if err != nil {
		return nil, err
	}
	labels := maps.Clone(d.host.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, req.Labels)
	b, err := h.Make(ctx, req, c, labels)
	if err != nil && ctx.Err() != nil {
		// Whatever it was cut off in.
		return nil, &errs.Error{Code: errs.Canceled, Op: "create the sandbox", Err: errors.Join(context.Cause(ctx), err)}
	}
	if err != nil {
		return nil, err
	}
	d.boxes.Add(b)
	return b, nil
}

// cannot refuses what the service has no means for.
func cannot(req *driver.CreateRequest) error {
	switch l := req.Limits; {
	case len(req.Mounts) > 0:
		return errs.New(errs.Unsupported, "this driver mounts no storage").With("feature", "mounts")
	case len(req.Grants) > 0:
		return errs.New(errs.Unsupported, "the sandbox is on another machine and sees no path of this one").With("feature", string(driver.PathGrants))
	case l != driver.ResourceLimits{}:
		return errs.New(errs.Unsupported, "limits belong to the template at this service").WithHint("build a template with the processors and the memory that are wanted")
	}
	return nil
}

// Resume finds a sandbox again.
func (d *e2b) Resume(ctx context.Context, req *driver.ResumeRequest) (driver.Sandbox, error) {
	release, err := d.boxes.Alone(ctx, req.SandboxID)
	if err != nil {
		return nil, err
	}
	defer release()
	st, err := box.ReadState(req.SandboxID, req.State)
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
	c, err := settings.Decode(req.Config, driver.NetworkPolicy{})
	if err != nil {
		return nil, err
	}
	h, err := d.ready()
	if err != nil {
		return nil, err
	}
	b, err := h.Found(ctx, req, st, c)
	if err != nil {
		return nil, err
	}
	d.boxes.Add(b)
	return b, nil
}

// List finds sandboxes by the core's labels, also those of other processes of this driver, and of other machines.
func (d *e2b) List(ctx context.Context, labels map[string]string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		h, err := d.ready()
		if err != nil {
			yield(driver.Info{}, err)
			return
		}
		for s, err := range h.API.List(ctx, client.ListOptions{Metadata: box.Wanted(labels)}) {
			if err != nil {
				yield(driver.Info{}, err)
				return
			}
			info := driver.Info{
				Status: box.Status(s.State), Created: s.StartedAt, Deadline: s.EndAt, OS: "linux",
				Display: map[string]string{"sandbox": s.SandboxID, "service": h.Where, "template": s.TemplateID},
			}
			if info.SandboxID, info.Labels = box.Labels(s.Metadata); info.SandboxID != "" && !yield(info, nil) {
				return
			}
		}
	}
}

// Drain parks or ends every sandbox of this process.
func (d *e2b) Drain(ctx context.Context, policy driver.OrphanPolicy, report func(driver.DrainResult)) error {
	err := d.boxes.Drain(ctx, policy, report)
	if d.boxed != nil {
		err = errors.Join(err, d.boxed.Settle(ctx))
	}
	return err
}

// Snapshots lists the team's snapshots. The service keeps no labels with them: those that another installation took have none.
func (d *e2b) Snapshots(ctx context.Context, labels map[string]string) iter.Seq2[driver.NativeSnapshot, error] {
	return func(yield func(driver.NativeSnapshot, error) bool) {
		h, err := d.ready()
		if err != nil {
			yield(driver.NativeSnapshot{}, err)
			return
		}
		for s, err := range h.API.Snapshots(ctx, "") {
			if err != nil {
				yield(driver.NativeSnapshot{}, err)
				return
			}
			kept := h.Snapshots.Of(s.ID)
			kept.Created = cmp.Or(s.CreatedAt, kept.Created)
			if keep.Has(kept, labels) && !yield(kept, nil) {
				return
			}
		}
	}
}

// DeleteSnapshot removes a snapshot. One that is gone already is no error.
func (d *e2b) DeleteSnapshot(ctx context.Context, id string) error {
	h, err := d.ready()
	if err != nil {
		return err
	}
	if err := h.API.DeleteSnapshot(ctx, id); err != nil {
		return err
	}
	return h.Snapshots.Forget(id)
}
