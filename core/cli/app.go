// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/core/berth"
	"github.com/berth-dev/berth/core/berth/watch"
	"github.com/berth-dev/berth/core/catalog"
	"github.com/berth-dev/berth/core/config"
	"github.com/berth-dev/berth/core/config/host"
	"github.com/berth-dev/berth/core/manifest"
	"github.com/berth-dev/berth/core/mount"
	"github.com/berth-dev/berth/core/plugin"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/state"
	"github.com/berth-dev/berth/core/value/redact"
	"github.com/berth-dev/berth/internal/version"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/handshake"
)

// shutdownTime bounds how long drivers may take to park their sandboxes at the end.
const shutdownTime = 15 * time.Second

// app is one invocation. Its parts are made when a command first needs them.
type app struct {
	IO

	flags struct {
		chdir, logLevel string
		driverBinary    []string
		noColor         bool
	}

	redactions redact.Set
	host       *host.Config
	catalog    *catalog.Catalog
	plugins    *plugin.Manager
	watch      watch.Watch
	state      state.Store
	runStore   state.Store // the same, where one is configured
	logFile    io.Closer
}

func (a *app) redact(s string) string { return a.redactions.String(s) }

func (a *app) chdir() error {
	if a.flags.chdir == "" {
		return nil
	}
	dir := a.path(a.flags.chdir)
	if fi, err := os.Stat(dir); err != nil || !fi.IsDir() {
		return usage("--chdir: there is no directory %s", dir)
	}
	a.Dir = dir
	return nil
}

// path makes a path of the command line absolute.
func (a *app) path(p string) string {
	if filepath.IsAbs(p) {
		return filepath.Clean(p)
	}
	return filepath.Join(a.Dir, p)
}

// hostConfig reads the host's configuration once.
func (a *app) hostConfig() (*host.Config, error) {
	if a.host != nil {
		return a.host, nil
	}
	flags := map[string]string{}
	if a.flags.logLevel != "" {
		flags["telemetry.log_level"] = a.flags.logLevel
	}
	cfg, ds, files := host.Load(host.Options{Getenv: a.Getenv, Flags: flags, Project: config.BlockTypes()})
	if len(ds) > 0 {
		if err := a.diagnostics(ds, files, "text", a.Err); err != nil {
			return nil, err
		}
	}
	a.host = cfg
	return cfg, nil
}

// dirs are berth's own directories of the user.
func (a *app) dirs() (cache, state string, err error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return "", "", fmt.Errorf("the home directory is not known: %w\nhint: set HOME", err)
	}
	dir := func(env, usual string) string {
		if v, ok := a.Getenv(env); ok && filepath.IsAbs(v) {
			return filepath.Join(v, "berth")
		}
		return filepath.Join(home, usual, "berth")
	}
	return dir("XDG_CACHE_HOME", ".cache"), dir("XDG_STATE_HOME", filepath.Join(".local", "state")), nil
}

// drivers finds and describes drivers.
func (a *app) drivers() (*catalog.Catalog, error) {
	if a.catalog != nil {
		return a.catalog, nil
	}
	hc, err := a.hostConfig()
	if err != nil {
		return nil, err
	}
	text, _ := a.Getenv(handshake.EnvReattach)
	attached, err := catalog.ParseAttached(text)
	if err != nil {
		return nil, err
	}
	if err := overrides(hc, a.flags.driverBinary, attached); err != nil {
		return nil, err
	}
	cache, _, err := a.dirs()
	if err != nil {
		return nil, err
	}
	cfg := catalog.Config{
		Dirs: hc.Plugins.Dirs, Verify: catalog.Verify(hc.Plugins.Verify), CacheDir: cache, Attached: attached,
		Overrides: map[string]string{},
	}
	for source, o := range hc.Plugins.DevOverrides {
		cfg.Overrides[source] = o.Path
	}
	for _, arg := range a.flags.driverBinary {
		name, path, ok := cutPair(arg)
		if !ok {
			return nil, usage("--driver-binary is %q; it is NAME=PATH", arg)
		}
		if _, err := os.Stat(a.path(path)); errors.Is(err, fs.ErrNotExist) {
			return nil, usage("--driver-binary: there is no file %s", a.path(path))
		}
		cfg.Overrides["berth/"+name] = a.path(path)
	}
	if exe, err := os.Executable(); err == nil {
		cfg.Bundle = filepath.Dir(exe)
	}
	a.catalog, err = catalog.Open(cfg)
	return a.catalog, err
}

// manager runs driver processes.
func (a *app) manager(lockDir string) (*plugin.Manager, error) {
	if a.plugins != nil {
		return a.plugins, nil
	}
	hc, err := a.hostConfig()
	if err != nil {
		return nil, err
	}
	cat, err := a.drivers()
	if err != nil {
		return nil, err
	}
	cache, state, err := a.dirs()
	if err != nil {
		return nil, err
	}
	log, err := a.logger(hc)
	if err != nil {
		return nil, err
	}
	a.plugins = plugin.NewManager(plugin.Config{
		Resolve: func(ctx context.Context, name string, req spec.DriverRequirement) (catalog.Binary, error) {
			b, err := cat.Resolve(ctx, lockDir, name, req)
			if err == nil && (b.How == catalog.Attached || b.How == catalog.Override) {
				log.Warn("driver is not the installed one", "driver", b.Source, "used", b.Path, "because", b.Reason)
			}
			return b, err
		},
		Log: log, Redact: &a.redactions, Passthrough: hc.Plugins.EnvPassthrough, CoreVersion: version.String(),
		StartTimeout: hc.Plugins.StartTimeout, IdleTimeout: &hc.Plugins.IdleTimeout,
		CacheDir: filepath.Join(cache, "drivers"), StateDir: filepath.Join(state, "drivers"), LogLevel: hc.Telemetry.LogLevel,
		Notify: a.watch.Notify,
	})
	return a.plugins, nil
}

func (a *app) logger(hc *host.Config) (hclog.Logger, error) {
	out := a.Err
	if f := hc.Telemetry.LogFile; f != "" {
		file, err := os.OpenFile(a.path(f), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, fmt.Errorf("telemetry log_file: %w\nhint: it is set by %s", err, cmp.Or(hc.Origins["telemetry.log_file"], "the host's configuration"))
		}
		a.logFile, out = file, file
	}
	return hclog.New(&hclog.LoggerOptions{
		Name: "berth", Level: hclog.LevelFromString(hc.Telemetry.LogLevel), Output: out,
		JSONFormat: hc.Telemetry.LogFormat == "json",
	}), nil
}

// close ends what was made.
func (a *app) close() error {
	var err error
	if a.plugins != nil {
		ctx, cancel := context.WithTimeoutCause(context.Background(), shutdownTime, errors.New("the drivers did not end in time"))
		defer cancel()
		err = a.plugins.Close(ctx)
	}
	if a.runStore != nil && a.runStore != a.state {
		err = errors.Join(err, a.runStore.Close())
	}
	if a.state != nil {
		err = errors.Join(err, a.state.Close())
	}
	if a.logFile != nil {
		err = errors.Join(err, a.logFile.Close())
	}
	return err
}

// projectFlags are the flags of every command that reads a project.
type projectFlags struct {
	vars            []config.Var
	allowUndeclared bool
	untrusted       bool
}

// load reads a project. Warnings are shown; with errors, so are they, and the command ends.
func (a *app) load(ctx context.Context, path string, f *projectFlags) (*config.Loaded, error) {
	l, err := a.loadAll(ctx, path, f)
	if l == nil || len(l.Diags) == 0 {
		return l, err
	}
	return l, a.diagnostics(l.Diags, l.Files, "text", a.Err)
}

func (a *app) loadAll(ctx context.Context, path string, f *projectFlags) (*config.Loaded, error) {
	path = a.path(path)
	if _, err := os.Stat(path); err != nil {
		return nil, usage("there is no file or directory %s", path)
	}
	cat, err := a.drivers()
	if err != nil {
		return nil, err
	}
	hc := a.host
	lockDir := projectDir(path)
	given := slices.Clone(f.vars)
	for i := range given {
		if given[i].File != "" {
			given[i].File = a.path(given[i].File)
		}
	}
	l, err := config.Load(ctx, config.Options{
		Path: path, Vars: given, AllowUndeclared: f.allowUndeclared, Env: a.Getenv, Version: version.String(), Untrusted: f.untrusted,
		ReadDirs: hc.Policy.AllowHostFiles, Drivers: cat.Names(), Redact: &a.redactions, SecretStore: hc.Secret,
		Schemas: func(name string) (*driver.Description, error) {
			b, err := cat.Resolve(ctx, lockDir, name, spec.DriverRequirement{})
			if err != nil {
				return nil, err
			}
			d, err := cat.Describe(ctx, b)
			return &d, err
		},
	})
	if l == nil || (err != nil && len(l.Diags) == 0) {
		return nil, err
	}
	l.Diags = append(l.Diags, forbidden(l, hc)...).Sorted()
	return l, nil
}

// projectDir is the directory of a project's files, where its lock file is.
func projectDir(path string) string {
	if fi, err := os.Stat(path); err == nil && !fi.IsDir() {
		return filepath.Dir(path)
	}
	return path
}

// bundled is a program that lies beside berth; empty = where berth lies is not known.
func bundled(name string) string {
	exe, err := os.Executable()
	if err != nil {
		return ""
	}
	return filepath.Join(filepath.Dir(exe), name)
}

// harness puts the parts together for a project.
func (a *app) harness(projectPath string) (*berth.Harness, error) {
	m, err := a.manager(projectDir(a.path(projectPath)))
	if err != nil {
		return nil, err
	}
	cache, stateDir, err := a.dirs()
	if err != nil {
		return nil, err
	}
	confined := ""
	if !a.host.Policy.AllowHostCommands {
		confined = said(a.host, "allow_host_commands")
	}
	return berth.New(berth.Config{
		Confined: confined, Trace: a.traceConfig(),
		Mounts: &mount.Host{
			Program: bundled(mount.Program), CacheDir: filepath.Join(cache, "mounts"), Environ: os.Environ(), Redact: &a.redactions,
		},
		Plugins: m, Watch: &a.watch, CacheDir: cache, RunsDir: a.host.StateStore.Dir,
		Store: func(ctx context.Context) (state.Store, error) {
			return a.stateStore(ctx, projectDir(a.path(projectPath)))
		},
		RunStore: a.runsStore, Portable: portable,
		KeyFile:       filepath.Join(stateDir, "session.key"),
		DefaultDriver: a.host.Defaults.SandboxDriver, DefaultModel: a.host.Defaults.Model,
	}), nil
}

// stateStore opens the store of a directory once: the one that the host's configuration names, else a file of the project
// or, without one, of the user.
func (a *app) stateStore(ctx context.Context, dir string) (state.Store, error) {
	if a.state != nil {
		return a.state, nil
	}
	hc, err := a.hostConfig()
	if err != nil {
		return nil, err
	}
	cfg := state.Config{Path: hc.StateStore.Path}
	if !hc.StateStore.URL.IsZero() {
		if cfg.URL, err = hc.StateStore.URL.Reveal(ctx); err != nil {
			return nil, fmt.Errorf("the url of the state store: %w", err)
		}
	}
	if cfg.Path == "" {
		_, user, err := a.dirs()
		if err != nil {
			return nil, err
		}
		if cfg.Path = filepath.Join(user, "state.db"); hasProject(dir) {
			if cfg.Path, err = projectState(dir); err != nil {
				return nil, err
			}
		}
	}
	a.state, err = state.Open(ctx, cfg)
	return a.state, err
}

// runsStore opens the store of runs once: the one that the host's configuration names, else a file beside the runs, which
// are those of all projects.
func (a *app) runsStore(ctx context.Context) (state.Store, error) {
	if a.runStore != nil {
		return a.runStore, nil
	}
	hc, err := a.hostConfig()
	if err != nil {
		return nil, err
	}
	if hc.StateStore.Path != "" || !hc.StateStore.URL.IsZero() {
		a.runStore, err = a.stateStore(ctx, a.Dir)
		return a.runStore, err
	}
	a.runStore, err = state.Open(ctx, state.Config{Path: filepath.Join(hc.StateStore.Dir, "runs.db")})
	return a.runStore, err
}

// projectState is the store in a project's own directory, which version control leaves alone.
func projectState(dir string) (string, error) {
	own := filepath.Join(dir, manifest.OwnDir)
	if err := os.MkdirAll(own, 0o700); err != nil {
		return "", fmt.Errorf("the project's state store: %w\nhint: BERTH_STATE_STORE_PATH names another file", err)
	}
	f, err := os.OpenFile(filepath.Join(own, ".gitignore"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = f.WriteString("*\n")
		err = errors.Join(err, f.Close())
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("the project's state store: %w\nhint: BERTH_STATE_STORE_PATH names another file", err)
	}
	return filepath.Join(own, "state.db"), nil
}
