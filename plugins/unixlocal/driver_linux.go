// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/plugins/unixlocal/internal/machine"
	"github.com/berth-dev/berth/plugins/unixlocal/internal/store"
	"github.com/berth-dev/berth/plugins/unixlocal/internal/template"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/confine"
	"github.com/berth-dev/berth/sdk/guest/confine/cgroup"
	"github.com/berth-dev/berth/sdk/schema"
)

// local makes sandboxes on this machine.
type local struct {
	log    hclog.Logger
	host   driver.Host
	starts chan struct{} // bounds how many guests start at once

	machine   func() (*machine.Machine, error)
	templates *template.Cache // nil = none are kept
	store     *store.Store
	trim      sync.Mutex // held by the one that trims the templates

	mu        sync.Mutex
	sandboxes map[string]*sandbox      // guarded by mu
	overlay   func() error             // whether templates can be mounted
	canary    func() *confine.SelfTest // what no guest may reach
}

var (
	_ driver.Configurer = (*local)(nil)
	_ driver.Validator  = (*local)(nil)
	_ driver.Lister     = (*local)(nil)
	_ driver.Drainer    = (*local)(nil)
)

// New makes the driver.
func New(log hclog.Logger) driver.Driver {
	d := &local{
		log:       log,
		starts:    make(chan struct{}, 2*runtime.GOMAXPROCS(0)),
		sandboxes: map[string]*sandbox{},
	}
	d.machine = sync.OnceValues(func() (*machine.Machine, error) { return machine.Open(d.cacheDir()) })
	d.overlay = sync.OnceValue(func() error {
		m, err := d.machine()
		if err != nil {
			return err
		}
		return m.TryOverlay(d.host.StateDir)
	})
	d.canary = sync.OnceValue(func() *confine.SelfTest { return machine.Canary(d.host.RunDir) })
	return d
}

// cacheDir is where probes and the guest program are kept; empty = nowhere.
func (d *local) cacheDir() string {
	if d.host.CacheDir != "" {
		return d.host.CacheDir
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	dir = filepath.Join(dir, "berth", "unixlocal")
	if os.MkdirAll(dir, 0o700) != nil {
		return ""
	}
	return dir
}

// Describe says what this machine's sandboxes can do.
func (d *local) Describe() driver.Description {
	desc := driver.Description{
		Name:          "unixlocal",
		Version:       version,
		ProcessConfig: processSchema(),
		SandboxConfig: sandboxSchema(),
		Platforms:     []driver.Platform{{OS: "linux", Arch: "amd64"}, {OS: "linux", Arch: "arm64"}},
		StateVersion:  1,
		Features:      features(),
	}
	m, err := d.machine()
	if err != nil {
		d.log.Warn("this machine could not be probed", "error", err)
		return desc
	}
	w := d.want(m, &config{Network: "host", Processes: 4096, FileSize: 16 << 30, OpenFiles: 4096})
	w.Root = "/workspace"
	if plan, _, err := w.Plan(); err == nil {
		desc.Isolation = plan.Report()
	}
	return desc
}

const version = "0.1.0"

func features() []driver.Feature {
	return []driver.Feature{
		driver.ProcAttach, driver.ProcPTY, driver.ProcSignal, driver.ProcList, driver.ProcUser, driver.ProcDetached, driver.ProcCwd,
		driver.FilesNative, driver.FilesRange, driver.FilesAtomic, driver.FilesRawNames, driver.FilesSymlinks,
		driver.TreeNative, driver.TreeZstd, driver.TreeHostRefs, driver.TreeTemplate,
		driver.PortForward,
		driver.LifeResume, driver.LifeStop, driver.LifeList, driver.LifeWatch,
		driver.AcctNative, driver.EnvPerExec, driver.EnvSecret, driver.NetPolicy, driver.PathGrants,
	}
}

// Configure opens the directories.
func (d *local) Configure(_ context.Context, host driver.Host, v schema.Value) []driver.Diagnostic {
	var c processConfig
	if err := v.Decode(processSchema(), &c); err != nil {
		return []driver.Diagnostic{diagnostic(err)}
	}
	d.host = host
	state := host.StateDir
	if state == "" {
		return []driver.Diagnostic{{Summary: "no state directory", Detail: "the driver was not told where to keep sandboxes"}}
	}
	var err error
	if d.store, err = store.Open(filepath.Join(state, "sandboxes")); err != nil {
		return []driver.Diagnostic{diagnostic(err)}
	}
	if host.CacheDir != "" && c.TemplateCache > 0 {
		if d.templates, err = template.Open(filepath.Join(host.CacheDir, "templates"), c.TemplateCache); err != nil {
			return []driver.Diagnostic{diagnostic(err)}
		}
	}
	return nil
}

// Validate checks a configuration against this machine.
func (d *local) Validate(_ context.Context, v schema.Value, _ bool) []driver.Diagnostic {
	c, err := decode(v, driver.ResourceLimits{}, driver.NetworkPolicy{})
	if err != nil {
		return []driver.Diagnostic{diagnostic(err)}
	}
	if c.Isolation != isolationRequired {
		return nil
	}
	m, err := d.machine()
	if err != nil {
		return []driver.Diagnostic{diagnostic(err)}
	}
	w := d.want(m, c)
	w.Root = "/workspace"
	plan, _, err := w.Plan()
	if err == nil {
		err = machine.Check(c.RequiredAxes, plan.Report(), m.Facts.Failures)
	}
	if err != nil {
		return []driver.Diagnostic{diagnostic(err)}
	}
	return nil
}

func diagnostic(err error) driver.Diagnostic {
	d := driver.DiagnosticOf(err)
	if e, ok := errors.AsType[*errs.Error](err); ok && e.Context["errno"] != "" {
		d.Detail = fmt.Sprintf("The probe failed at %q with %s. %s", e.Context["probe"], e.Context["errno"], e.Hint)
	}
	return d
}

// want begins what a sandbox of this configuration gets.
func (d *local) want(m *machine.Machine, c *config) *machine.Want {
	w := &machine.Want{
		Setup: m.Facts.Setup, Off: c.Isolation == isolationOff || m.Facts.Level == confine.LevelNone,
		Network: c.Network, Unix: c.UnixSockets, Nested: c.Nested,
		Limits:    cgroup.Limits{Processes: c.Processes, MemoryBytes: c.Memory, CPUs: c.CPUs},
		FileBytes: c.FileSize, OpenFiles: c.OpenFiles, ReadOnly: c.ReadOnlyPaths,
		Groups: m.Groups, OwnerMap: m.OwnerMap,
	}
	if c.Toolchains {
		w.Path, w.Toolchains = m.Path, m.Toolchains
	}
	return w
}
