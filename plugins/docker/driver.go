// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"iter"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/moby/moby/client"

	"github.com/berth-dev/berth/plugins/docker/internal/box"
	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/plugins/docker/internal/filled"
	"github.com/berth-dev/berth/plugins/docker/internal/inside"
	"github.com/berth-dev/berth/plugins/docker/internal/plan"
	"github.com/berth-dev/berth/plugins/docker/internal/settings"
	"github.com/berth-dev/berth/plugins/internal/keep"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/schema"
)

const version = "0.1.0"

// docker makes sandboxes that are containers.
type docker struct {
	log    hclog.Logger
	host   driver.Host
	where  engine.Options
	secret []byte // the sandboxes' keys are made from it
	guests inside.Guests
	boxed  *box.Host

	opening sync.Mutex // held while the engine is asked
	mu      sync.Mutex
	engine  *engine.Engine         // guarded by mu; nil = not asked yet
	boxes   map[string]box.Sandbox // guarded by mu
}

var (
	_ driver.Configurer    = (*docker)(nil)
	_ driver.Validator     = (*docker)(nil)
	_ driver.Lister        = (*docker)(nil)
	_ driver.Drainer       = (*docker)(nil)
	_ driver.SnapshotStore = (*docker)(nil)
)

// New makes the driver.
func New(log hclog.Logger) driver.Driver {
	d := &docker{log: log, boxes: map[string]box.Sandbox{}}
	d.boxed = &box.Host{Log: log, Guests: &d.guests, Key: d.key, Owner: d.owner, Over: d.forget}
	return d
}

// Describe says what containers can do.
func (d *docker) Describe() driver.Description {
	plain := &plan.Record{Facts: plan.Facts{Network: "bridge", Capabilities: settings.DefaultCapabilities, Processes: 1024, Memory: 4 << 30}}
	return driver.Description{
		Name: "docker", Version: version, ProcessConfig: settings.ProcessSchema(), SandboxConfig: settings.SandboxSchema(),
		StateVersion: plan.StateVersion, Isolation: plan.Isolation(plain),
		Features: []driver.Feature{
			driver.ProcAttach, driver.ProcPTY, driver.ProcSignal, driver.ProcList, driver.ProcUser, driver.ProcDetached, driver.ProcCwd,
			driver.FilesNative, driver.FilesRange, driver.FilesAtomic, driver.FilesRawNames, driver.FilesSymlinks,
			driver.TreeNative, driver.TreeZstd, driver.SnapNative,
			driver.PortTCP, driver.PortHTTP, driver.PortForward, driver.PortDynamic, driver.PortPublic,
			driver.LifeResume, driver.LifeStop, driver.LifePause, driver.LifeDeadline, driver.LifeList, driver.LifeWatch,
			driver.AcctNative, driver.EnvPerExec, driver.EnvSecret, driver.NetPolicy, driver.GPU, driver.PathGrants,
		},
		Unimplementable: []driver.Unimplementable{{Feature: driver.SnapMemory, Reason: "container engines save files only"}},
	}
}

// Configure prepares the directories. The engine is asked when it is needed.
func (d *docker) Configure(_ context.Context, host driver.Host, v schema.Value) []driver.Diagnostic {
	var c settings.Process
	if err := v.Decode(settings.ProcessSchema(), &c); err != nil {
		return []driver.Diagnostic{driver.DiagnosticOf(err)}
	}
	if host.StateDir == "" {
		return []driver.Diagnostic{{Summary: "no state directory", Detail: "the driver was not told where to keep the keys of sandboxes"}}
	}
	d.host, d.guests.StateDir, d.boxed.Filled = host, host.StateDir, filled.Dir(filepath.Join(host.StateDir, "filled"))
	d.where = engine.Options{Host: c.Host, Context: c.Context, CertPath: c.CertPath, ConfigDir: c.ConfigDir}
	var err error
	if d.secret, err = keep.Secret(host.StateDir); err != nil {
		return []driver.Diagnostic{driver.DiagnosticOf(err)}
	}
	return nil
}

// key is what a sandbox's guest and this driver know.
func (d *docker) key(id string) []byte {
	m := hmac.New(sha256.New, d.secret)
	m.Write([]byte(id))
	return m.Sum(nil)
}

// owner names this installation, and tells nothing of its secret.
func (d *docker) owner() string { return hex.EncodeToString(d.key("owner")[:8]) }

// reach gives the engine, asked once.
func (d *docker) reach(ctx context.Context) (*engine.Engine, error) {
	if d.secret == nil {
		return nil, errs.New(errs.Internal, "the driver was not configured")
	}
	d.opening.Lock()
	defer d.opening.Unlock()
	d.mu.Lock()
	e := d.engine
	d.mu.Unlock()
	if e != nil {
		return e, nil
	}
	e, err := engine.Open(ctx, d.where)
	if err != nil {
		return nil, err
	}
	d.log.Debug("container engine", "at", e.Where, "version", e.Info.ServerVersion, "api", e.ClientVersion(), "podman", e.Podman)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.engine = e
	return e, nil
}

// Validate checks a configuration by itself, and online against the engine.
func (d *docker) Validate(ctx context.Context, v schema.Value, online bool) []driver.Diagnostic {
	c, err := settings.Decode(v, driver.ResourceLimits{}, driver.NetworkPolicy{})
	if err != nil {
		return []driver.Diagnostic{driver.DiagnosticOf(err)}
	}
	if !online {
		return nil
	}
	e, err := d.reach(ctx)
	if err == nil {
		err = suits(c, e)
	}
	if err != nil {
		return []driver.Diagnostic{driver.DiagnosticOf(err)}
	}
	return nil
}

// suits checks what the engine would refuse, or accept and not do.
func suits(c *settings.Config, e *engine.Engine) error {
	if e.Info.OSType != "" && e.Info.OSType != "linux" {
		return errs.New(errs.Unsupported, "the engine at %s makes %s containers", e.Where, e.Info.OSType).WithHint("switch it to Linux containers")
	}
	if _, ok := e.Info.Runtimes[c.Runtime]; c.Runtime != "" && !ok && len(e.Info.Runtimes) > 0 {
		have := slices.Sorted(maps.Keys(e.Info.Runtimes))
		return settings.Wrong("runtime", errs.New(errs.ConfigInvalid, "the engine at %s has no runtime %q", e.Where, c.Runtime).WithHint("it has %s", strings.Join(have, ", ")))
	}
	if n := e.Info.NCPU; c.CPUs > float64(n) && n > 0 {
		return settings.Wrong("cpus", errs.New(errs.ConfigInvalid, "%g processors are more than the engine's %d", c.CPUs, n))
	}
	return nil
}

// List finds sandboxes by the core's labels, also those of other processes of this driver.
func (d *docker) List(ctx context.Context, labels map[string]string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		e, err := d.reach(ctx)
		if err != nil {
			yield(driver.Info{}, err)
			return
		}
		f := client.Filters{}.Add("label", plan.LabelSandbox)
		for k, v := range labels {
			f.Add("label", plan.LabelPrefix+k+"="+v)
		}
		list, err := e.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: f})
		if err != nil {
			yield(driver.Info{}, engine.Error(errs.Internal, "list containers", err))
			return
		}
		for _, c := range list.Items {
			info := driver.Info{
				SandboxID: c.Labels[plan.LabelSandbox], Labels: plan.CoreLabels(c.Labels), Created: time.Unix(c.Created, 0), Status: plan.Status(c.State),
				Display: map[string]string{"container": c.ID[:12], "image": c.Image},
			}
			if owner := c.Labels[plan.LabelOwner]; owner != "" && owner != d.owner() {
				info.Display["owner"] = "another installation"
			}
			if r, err := plan.ReadRecord(c.Labels); err == nil {
				info.Root = r.Root
			}
			if info.SandboxID != "" && !yield(info, nil) {
				return
			}
		}
	}
}

// Drain parks or ends every sandbox of this process.
func (d *docker) Drain(ctx context.Context, policy driver.OrphanPolicy, report func(driver.DrainResult)) error {
	d.mu.Lock()
	all := slices.Collect(maps.Values(d.boxes))
	d.mu.Unlock()
	var failed []error
	for _, s := range all {
		r := driver.DrainResult{SandboxID: s.Common().ID()}
		switch policy {
		case driver.OrphanDestroy:
			r.Outcome, r.Err = "destroyed", s.Destroy(ctx)
		case driver.OrphanStop:
			r.Outcome, r.Err = "stopped", s.Stop(ctx, true)
		default:
			r.Outcome = "parked"
			s.Common().Park()
		}
		if r.Err != nil {
			r.Outcome = "failed"
			failed = append(failed, r.Err)
		}
		report(r)
	}
	return errors.Join(failed...)
}

func (d *docker) known(id string) box.Sandbox {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.boxes[id]
}

func (d *docker) add(s box.Sandbox) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.boxes[s.Common().ID()] = s
}

func (d *docker) forget(b *box.Box) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.boxes[b.ID()]; s != nil && s.Common() == b {
		delete(d.boxes, b.ID())
	}
}
