// SPDX-License-Identifier: Apache-2.0

// Package host reads the configuration of the host: where drivers are, where runs are kept, how berth logs, and what
// projects may do here. It is another dialect than that of projects and never a part of one.
//
// For each attribute the first that says it wins: a flag, the environment, the user's file, the system's file, the
// default. The policy of the system's file can be made tighter by the others, never looser.
package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/berth-dev/berth/core/config/secret"
	"github.com/berth-dev/berth/core/diag"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/value"
)

// Config is what the host says.
type Config struct {
	Plugins      Plugins
	Telemetry    Telemetry
	StateStore   StateStore
	SessionStore Store // Kind is empty when there is none
	SecretStores map[string]SecretStore
	Policy       Policy
	Defaults     Defaults
	// Read are the files that were read, the system's first.
	Read []string
	// Origins says where each attribute comes from that does not have its default: a file, a variable, "flag".
	Origins map[string]string
}

// Plugins is a `plugins` block.
type Plugins struct {
	Dirs           []string
	Verify         string // lock, warn, none
	StartTimeout   time.Duration
	IdleTimeout    time.Duration
	EnvPassthrough []string
	Sources        []Source
	DevOverrides   map[string]DevOverride // by ns/name
}

// Source is a place that drivers are installed from.
type Source struct {
	Kind             string // filesystem, http
	Path             string // of filesystem
	URL, Key         string // of http
	Include, Exclude []string
	Pos              spec.Pos
}

// DevOverride runs a driver from a path, without a lock.
type DevOverride struct {
	Path string
	Pos  spec.Pos
}

// Telemetry is a `telemetry` block.
type Telemetry struct {
	LogLevel  string // trace, debug, info, warn, error, off
	LogFormat string // text, json
	LogFile   string // empty = standard error
	OTLP      *OTLP
}

// OTLP says where traces and metrics go.
type OTLP struct {
	Endpoint string
	Protocol string // http/protobuf, grpc
	Headers  map[string]value.Secret
}

// StateStore is a `state_store` block: what outlives a process.
type StateStore struct {
	Kind string       // sqlite, postgres
	Dir  string       // of run logs
	Path string       // file of sqlite; empty = in the project's .berth, or the user's state directory without a project
	URL  value.Secret // of postgres
	Pos  spec.Pos
}

// Store is a `session_store` block.
type Store struct {
	Kind string // file, sqlite, redis
	Path string // directory of file, file of sqlite
	URL  value.Secret
	Pos  spec.Pos
}

// SecretStore is a `secret_store` block: a command that prints a secret, or a file that holds one.
type SecretStore struct {
	Command []string
	File    string
	Pos     spec.Pos
	text    value.Secret
}

// Policy is what projects may do on this host.
type Policy struct {
	AllowHostCommands bool
	AllowHostFiles    []string // globs of paths beside the project
	AllowedDrivers    []string // nil = every driver
	RequireLock       bool
	AllowDevOverride  bool
	MaxBudget         spec.Budget
	Forbid            []string
}

// Defaults is what projects need not say.
type Defaults struct {
	SandboxDriver string
	Model         string
}

// Options say where to look.
type Options struct {
	Path   string // of the user's file; empty = BERTH_CONFIG, then config.hcl in the configuration directory
	System string // of the system's file; empty = /etc/berth/config.hcl
	Getenv func(string) (string, bool)
	Home   string            // empty = the user's home directory
	Flags  map[string]string // by setting, such as "telemetry.log_level"
	// Project are the block types of projects, so that one here is told where it belongs.
	Project []string
}

const systemFile = "/etc/berth/config.hcl"

// Default is the configuration without any file.
func Default(home string) *Config {
	data := filepath.Join(home, ".local", "share", "berth")
	state := filepath.Join(home, ".local", "state", "berth")
	return &Config{
		Plugins: Plugins{
			Dirs:         []string{filepath.Join(data, "plugins"), "/usr/local/lib/berth/plugins", "/usr/lib/berth/plugins"},
			Verify:       "lock",
			StartTimeout: 30 * time.Second,
			IdleTimeout:  10 * time.Minute,
			EnvPassthrough: []string{
				"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR",
			},
			DevOverrides: map[string]DevOverride{},
		},
		Telemetry:    Telemetry{LogLevel: "warn", LogFormat: "text"},
		StateStore:   StateStore{Kind: "sqlite", Dir: filepath.Join(state, "runs")},
		SecretStores: map[string]SecretStore{},
		Policy:       Policy{AllowHostCommands: true, RequireLock: true, AllowDevOverride: true},
		Origins:      map[string]string{},
	}
}

// Load reads the host's configuration. The result is never nil; with errors it holds what could be read.
func Load(o Options) (*Config, diag.Diagnostics, diag.Files) {
	if o.Getenv == nil {
		o.Getenv = os.LookupEnv
	}
	if o.Home == "" {
		// Without a home directory, paths with ~ are told as errors where they stand.
		o.Home, _ = os.UserHomeDir()
	}
	if o.System == "" {
		o.System = systemFile
	}
	l := &loader{opt: o, cfg: Default(o.Home), files: diag.Files{}, said: map[string]hcl.Range{}, places: map[string]hcl.Range{}}
	l.xdg()
	l.resolver = secret.NewResolver(secret.Config{Getenv: o.Getenv})

	l.file(o.System, false)
	l.fixPolicy()
	path, must := l.userFile()
	l.file(path, must)
	l.environment()
	l.flags()
	l.check()
	return l.cfg, l.diags, l.files
}

type loader struct {
	opt      Options
	cfg      *Config
	files    diag.Files
	diags    diag.Diagnostics
	resolver *secret.Resolver
	// said has the place of each attribute of the policy that the system's file says; they are what cannot be loosened.
	said   map[string]hcl.Range
	fixed  *Policy
	system bool // the file that is being read is the system's

	secrets   map[string]*secret.Secret // of the file that is being read
	places    map[string]hcl.Range      // of the attributes of the file that was read last
	overrides []hcl.Range
}

func (l *loader) add(d *diag.Diagnostic) { l.diags = append(l.diags, d) }

// xdg moves the defaults to where the environment says such files go.
func (l *loader) xdg() {
	if dir, ok := l.opt.Getenv("XDG_DATA_HOME"); ok && filepath.IsAbs(dir) {
		l.cfg.Plugins.Dirs[0] = filepath.Join(dir, "berth", "plugins")
	}
	if dir, ok := l.opt.Getenv("XDG_STATE_HOME"); ok && filepath.IsAbs(dir) {
		l.cfg.StateStore.Dir = filepath.Join(dir, "berth", "runs")
	}
}

// userFile gives the user's file, and whether it must exist because somebody named it.
func (l *loader) userFile() (path string, must bool) {
	if l.opt.Path != "" {
		return l.opt.Path, true
	}
	if p, ok := l.opt.Getenv("BERTH_CONFIG"); ok && p != "" {
		return p, true
	}
	if dir, ok := l.opt.Getenv("XDG_CONFIG_HOME"); ok && filepath.IsAbs(dir) {
		return filepath.Join(dir, "berth", "config.hcl"), false
	}
	if l.opt.Home == "" {
		return "", false
	}
	return filepath.Join(l.opt.Home, ".config", "berth", "config.hcl"), false
}

func (l *loader) file(path string, must bool) {
	if path == "" {
		return
	}
	l.system = path == l.opt.System
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) && !must {
		return
	}
	var raw []byte
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = errors.New("not a regular file")
	case info.Size() > diag.MostSource:
		err = errors.New("too large for a configuration")
	default:
		raw, err = os.ReadFile(path)
	}
	if err != nil {
		if p, ok := errors.AsType[*fs.PathError](err); ok {
			err = p.Err
		}
		l.add(diag.Errorf(diag.UnreadableSource, hcl.Range{}, "the host configuration %q cannot be read: %v", path, err).
			Helpf("mend the file, or the variable BERTH_CONFIG when it names the wrong one"))
		return
	}
	if l.system && runtime.GOOS != "windows" && info.Mode().Perm()&0o022 != 0 {
		l.add(diag.Warnf(diag.SecretPermissions, hcl.Range{Filename: path}, "everybody may write the system's configuration").
			Helpf("its policy binds nobody like this; run: chmod go-w %s", path))
	}
	l.cfg.Read = append(l.cfg.Read, path)
	l.parse(path, raw)
}

// Secret fetches the text of a secret store; it fits the loader of projects. Errors are *diag.Diagnostic.
func (c *Config) Secret(ctx context.Context, name string) (string, error) {
	s, ok := c.SecretStores[name]
	if !ok {
		return "", fmt.Errorf("the host configuration has no secret_store %q", name)
	}
	return s.text.Reveal(ctx)
}
