// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"iter"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/hashicorp/go-hclog"
	"github.com/modal-labs/modal-client/go"

	"github.com/berth-dev/berth/plugins/internal/keep"
	"github.com/berth-dev/berth/plugins/internal/roster"
	"github.com/berth-dev/berth/plugins/modal/client"
	"github.com/berth-dev/berth/plugins/modal/internal/box"
	"github.com/berth-dev/berth/plugins/modal/internal/settings"
	"github.com/berth-dev/berth/plugins/modal/internal/vendor"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/schema"
)

const version = "0.1.0"

// hosted makes sandboxes at Modal.
type hosted struct {
	log   hclog.Logger
	host  driver.Host
	conf  settings.Process
	c     *client.Client // nil = not configured
	boxed *box.Host

	boxes roster.Roster[*box.Box]

	mu     sync.Mutex
	images map[string]*modal.Image // guarded by mu; that were built, by what they are built of
}

var (
	_ driver.Configurer    = (*hosted)(nil)
	_ driver.Validator     = (*hosted)(nil)
	_ driver.Lister        = (*hosted)(nil)
	_ driver.Drainer       = (*hosted)(nil)
	_ driver.SnapshotStore = (*hosted)(nil)
)

// New makes the driver.
func New(log hclog.Logger) driver.Driver {
	return &hosted{log: log, images: map[string]*modal.Image{}}
}

// Describe says what Modal's sandboxes can do.
func (d *hosted) Describe() driver.Description {
	native := []string{"native"}
	return driver.Description{
		Name: "modal", Version: version, ProcessConfig: settings.ProcessSchema(), SandboxConfig: settings.SandboxSchema(),
		StateVersion: box.StateVersion, Isolation: box.Isolation(&settings.Config{}), SecretsEnv: []string{"MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET"},
		Features: []driver.Feature{
			driver.ProcAttach, driver.ProcPTY, driver.ProcSignal, driver.ProcList, driver.ProcUser, driver.ProcDetached, driver.ProcCwd,
			driver.FilesNative, driver.FilesRange, driver.FilesAtomic, driver.FilesRawNames, driver.FilesSymlinks,
			driver.TreeNative, driver.TreeZstd, driver.SnapNative,
			driver.PortTCP, driver.PortHTTP, driver.PortForward, driver.PortPublic,
			driver.LifeResume, driver.LifeStop, driver.LifeList, driver.LifeWatch,
			driver.AcctNative, driver.EnvPerExec, driver.EnvSecret, driver.NetPolicy, driver.GPU,
		},
		Mounts: []driver.MountSupport{{Kind: "s3", Strategies: native}, {Kind: "r2", Strategies: native}, {Kind: "gcs", Strategies: native}},
		Unimplementable: []driver.Unimplementable{
			{Feature: driver.LifeDeadline, Reason: "Modal cannot prolong a sandbox's life"},
			{Feature: driver.PathGrants, Reason: "sandboxes are on Modal's machines"},
			{Feature: driver.PortDynamic, Reason: "Modal opens tunnels only when it makes a sandbox"},
			{Feature: driver.SnapMemory, Reason: "Modal ends a sandbox when it snapshots its memory"},
		},
	}
}

// Configure takes the credentials. Modal is asked when it is needed.
func (d *hosted) Configure(_ context.Context, host driver.Host, v schema.Value) []driver.Diagnostic {
	if err := v.Decode(settings.ProcessSchema(), &d.conf); err != nil {
		return []driver.Diagnostic{driver.DiagnosticOf(err)}
	}
	if err := d.conf.ReadProfile(); err != nil {
		return []driver.Diagnostic{driver.DiagnosticOf(err)}
	}
	for name, value := range map[string]string{"token_id": d.conf.TokenID, "token_secret": d.conf.TokenSecret} {
		if value == "" {
			return []driver.Diagnostic{driver.DiagnosticOf(settings.Wrong(name, errs.New(errs.ConfigInvalid, "%s is missing", name).
				WithHint("make a token in Modal's settings, and set %s = secret.NAME in the driver block, the environment variables MODAL_TOKEN_ID and MODAL_TOKEN_SECRET, or profile to one of ~/.modal.toml", name)))}
		}
	}
	if host.StateDir == "" {
		return []driver.Diagnostic{{Summary: "no state directory", Detail: "the driver was not told where to keep the labels of snapshots"}}
	}
	throttle := d.conf.MaxThrottle
	if throttle == 0 {
		throttle = -1 // never
	}
	c, err := client.New(client.Options{
		ServerURL: d.conf.ServerURL, TokenID: d.conf.TokenID, TokenSecret: d.conf.TokenSecret, Environment: d.conf.Environment,
		ImageBuilder: d.conf.ImageBuilder, MaxThrottle: throttle, Log: slog.New(sdkLog{d.log.Named("sdk")}),
	})
	if err != nil {
		return []driver.Diagnostic{driver.DiagnosticOf(errs.Wrap(errs.ConfigInvalid, "make a client for Modal", err))}
	}
	d.host, d.c = host, c
	d.boxed = &box.Host{Client: c, Log: d.log, Key: d.key, Over: d.boxes.Forget, Snapshots: keep.Snapshots(filepath.Join(host.StateDir, "snapshots"))}
	return nil
}

// key is what a sandbox's guest and this driver know. Whoever has the token can make it, on any machine.
func (d *hosted) key(id string) []byte {
	m := hmac.New(sha256.New, []byte(d.conf.TokenSecret))
	m.Write([]byte("berth guest key\x00" + id))
	return m.Sum(nil)
}

// ready says whether the driver was configured.
func (d *hosted) ready() error {
	if d.c == nil {
		return errs.New(errs.Internal, "the driver was not configured")
	}
	return nil
}

// Validate checks a configuration by itself, and online the credentials too.
func (d *hosted) Validate(ctx context.Context, v schema.Value, online bool) []driver.Diagnostic {
	_, err := settings.Decode(v, settings.Wish{})
	if err == nil && online {
		if err = d.ready(); err == nil {
			_, err = d.c.Apps.FromName(ctx, d.conf.App, nil)
			if client.KindOf(err) == client.NotFound {
				err = nil // it is made with the first sandbox
			}
			err = vendor.Error(ctx, errs.SandboxNotReady, "ask Modal for the app", err)
		}
	}
	if err != nil {
		return []driver.Diagnostic{driver.DiagnosticOf(err)}
	}
	return nil
}

// List finds sandboxes of the app that run by the core's labels, also those of other processes of this driver.
func (d *hosted) List(ctx context.Context, labels map[string]string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		if err := d.ready(); err != nil {
			yield(driver.Info{}, err)
			return
		}
		app, err := d.c.Apps.FromName(ctx, d.conf.App, nil)
		if client.KindOf(err) == client.NotFound && err != nil {
			return // nothing was made yet
		}
		if err != nil {
			yield(driver.Info{}, vendor.Error(ctx, errs.SandboxNotReady, "find the app "+d.conf.App, err))
			return
		}
		for s, err := range d.c.List(ctx, app.AppID, box.LabelTags(labels)) {
			if err != nil {
				yield(driver.Info{}, vendor.Error(ctx, errs.SandboxNotReady, "list sandboxes", err))
				return
			}
			id, root, have := box.FromTags(s.Tags)
			if id == "" {
				continue
			}
			info := driver.Info{
				SandboxID: id, Status: driver.StatusRunning, Labels: have, Created: s.Created, Deadline: s.Deadline, Root: root, OS: "linux",
				Display: map[string]string{"sandbox": s.ID, "app": d.conf.App, "server": d.conf.ServerURL},
			}
			if !yield(info, nil) {
				return
			}
		}
	}
}

// Snapshots lists the snapshots that this installation took and Modal still has: Modal lists none.
func (d *hosted) Snapshots(ctx context.Context, labels map[string]string) iter.Seq2[driver.NativeSnapshot, error] {
	return func(yield func(driver.NativeSnapshot, error) bool) {
		err := d.ready()
		var all []driver.NativeSnapshot
		if err == nil {
			all, err = d.boxed.Snapshots.All()
		}
		if err != nil {
			yield(driver.NativeSnapshot{}, err)
			return
		}
		for _, s := range all {
			if !keep.Has(s, labels) {
				continue
			}
			image, _ := box.SnapshotImage(s.ID)
			_, err := d.c.Images.FromID(ctx, image, nil)
			if err != nil && client.KindOf(err) == client.NotFound {
				if err = d.boxed.Snapshots.Forget(s.ID); err == nil {
					continue // its time was over
				}
			}
			if err != nil {
				s, err = driver.NativeSnapshot{}, vendor.Error(ctx, errs.VendorFailed, "look for the snapshot "+s.ID, err)
			}
			if !yield(s, err) || err != nil {
				return
			}
		}
	}
}

// DeleteSnapshot removes a snapshot. One that is gone already is no error.
func (d *hosted) DeleteSnapshot(ctx context.Context, id string) error {
	if err := d.ready(); err != nil {
		return err
	}
	image, _ := box.SnapshotImage(id)
	if err := d.c.Images.Delete(ctx, image, nil); err != nil && client.KindOf(err) != client.NotFound {
		return vendor.Error(ctx, errs.VendorFailed, "delete the snapshot "+id, err)
	}
	return d.boxed.Snapshots.Forget(id)
}

// Drain parks or ends every sandbox of this process.
func (d *hosted) Drain(ctx context.Context, policy driver.OrphanPolicy, report func(driver.DrainResult)) error {
	return d.boxes.Drain(ctx, policy, report)
}

// sdkLog passes what Modal's SDK says on, as news for those who debug.
type sdkLog struct{ log hclog.Logger }

// Enabled says whether anybody listens.
func (l sdkLog) Enabled(context.Context, slog.Level) bool { return l.log.IsDebug() }

// Handle passes a record on.
func (l sdkLog) Handle(_ context.Context, r slog.Record) error {
	var args []any
	r.Attrs(func(a slog.Attr) bool {
		args = append(args, a.Key, a.Value.String())
		return true
	})
	l.log.Debug(r.Message, args...)
	return nil
}

// WithAttrs passes attributes on.
func (l sdkLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	var args []any
	for _, a := range attrs {
		args = append(args, a.Key, a.Value.String())
	}
	return sdkLog{l.log.With(args...)}
}

// WithGroup leaves groups out.
func (l sdkLog) WithGroup(string) slog.Handler { return l }
