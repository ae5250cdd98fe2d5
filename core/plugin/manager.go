// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/core/catalog"
	"github.com/berth-dev/berth/core/catalog/digest"
	"github.com/berth-dev/berth/core/plugin/launch"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/value/redact"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/handshake"
	"github.com/berth-dev/berth/sdk/schema"
)

// DefaultIdleTimeout is how long a process lives that nobody uses.
const DefaultIdleTimeout = 10 * time.Minute

// Config is for [NewManager].
type Config struct {
	// Resolve finds a driver's file; nil = there are only drivers in process.
	Resolve func(ctx context.Context, name string, req spec.DriverRequirement) (catalog.Binary, error)
	// InProcess are drivers that are part of this program, by name. They come before Resolve.
	InProcess map[string]func(hclog.Logger) driver.Driver

	Log     hclog.Logger // nil = nowhere
	Redact  *redact.Set  // gets the secrets that drivers are given; nil = a set of its own
	Digests *digest.Cache
	Notify  func(Event) // nil = not wanted; called from any goroutine, must not block

	Environ     []string // of the core; nil = os.Environ()
	Passthrough []string // further variables of it that every driver gets

	StartTimeout time.Duration  // from exec to handshake; 0 = launch.DefaultStartTimeout
	IdleTimeout  *time.Duration // of drivers that say nothing else; nil = DefaultIdleTimeout, 0 = never

	CoreVersion string
	CoreID      string
	RunDir      string // parent of the run directory; empty = berth's own, see launch.OpenRunDir
	CacheDir    string // parent of the drivers' cache directories; empty = below the run directory
	StateDir    string // likewise, for what survives; empty = below the run directory
	LogLevel    string // of drivers that say nothing else; empty = warn
	Orphans     driver.OrphanPolicy
	Labels      map[string]string
}

// Request says which driver is wanted, and with which configuration.
type Request struct {
	Name        string // of the driver
	Requirement spec.DriverRequirement
	Process     *spec.DriverProcess // nil = a process without configuration
}

// Manager runs driver processes. It may be used from several goroutines.
type Manager struct {
	cfg Config

	ctx    context.Context //nolint:containedctx // of what runs in the background; ends with the manager
	cancel context.CancelCauseFunc
	work   sync.WaitGroup

	mu     sync.Mutex
	closed bool                // guarded by mu: nothing is acquired any more
	done   bool                // guarded by mu: nothing is begun any more
	run    *launch.RunDir      // guarded by mu; nil until a process needs it
	procs  map[string]*process // guarded by mu
}

var errClosed = errors.New("the driver manager is closed")

// NewManager makes a manager. It starts nothing.
func NewManager(cfg Config) *Manager {
	if cfg.Log == nil {
		cfg.Log = hclog.NewNullLogger()
	}
	if cfg.Redact == nil {
		cfg.Redact = &redact.Set{}
	}
	if cfg.Digests == nil {
		cfg.Digests = &digest.Cache{}
	}
	if cfg.Notify == nil {
		cfg.Notify = func(Event) {}
	}
	if cfg.Environ == nil {
		cfg.Environ = os.Environ()
	}
	if cfg.LogLevel == "" {
		cfg.LogLevel = "warn"
	}
	if cfg.IdleTimeout == nil {
		cfg.IdleTimeout = new(DefaultIdleTimeout)
	}
	if cfg.Orphans == 0 {
		cfg.Orphans = driver.OrphanPark
	}
	m := &Manager{cfg: cfg, procs: map[string]*process{}}
	m.ctx, m.cancel = context.WithCancelCause(context.Background())
	return m
}

// Acquire gives a handle on the process that the request describes, and starts it if need be. The caller releases the
// handle.
func (m *Manager) Acquire(ctx context.Context, req Request) (*Handle, error) {
	p, err := m.process(ctx, req)
	if err != nil {
		return nil, err
	}
	p.retain()
	l, err := p.get(ctx)
	if err != nil {
		p.release()
		return nil, err
	}
	return &Handle{p: p, desc: l.desc, found: l.found}, nil
}

// process finds or makes the process for a request.
func (m *Manager) process(ctx context.Context, req Request) (*process, error) {
	p := &process{m: m, name: req.Name, idleTimeout: *m.cfg.IdleTimeout, logLevel: m.cfg.LogLevel, boxes: map[*Sandbox]struct{}{}}
	if d := req.Process; d != nil {
		if err := p.configure(ctx, d); err != nil {
			return nil, err
		}
	}
	p.inProcess = m.cfg.InProcess[req.Name]
	if p.inProcess == nil {
		if m.cfg.Resolve == nil {
			return nil, errs.New(errs.DriverUnknown, "there is no driver %q", req.Name).With("driver", req.Name)
		}
		b, err := m.cfg.Resolve(ctx, req.Name, req.Requirement)
		if err != nil {
			return nil, err
		}
		p.binary = b
	}
	key := p.key()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, errs.Wrap(errs.Canceled, "acquire driver", errClosed)
	}
	if have := m.procs[key]; have != nil {
		return have, nil
	}
	for _, have := range m.procs {
		if have.binary.Reattach != nil && p.binary.Reattach != nil && *have.binary.Reattach == *p.binary.Reattach {
			return nil, errs.New(errs.ConfigInvalid, "driver %q, which %s names, is wanted with two configurations, and is one process",
				p.name, handshake.EnvReattach).With("driver", p.name).WithHint("use one driver block at a time while you debug the driver")
		}
	}
	m.procs[key] = p
	return p, nil
}

// configure takes what a driver block says.
func (p *process) configure(ctx context.Context, d *spec.DriverProcess) error {
	if d.Config != nil {
		v, err := d.Config.Encode()
		if err != nil {
			return err
		}
		p.config = schema.Value{MsgPack: v.MsgPack, JSON: v.JSON}
	}
	p.env = make(map[string]string, len(d.Env))
	for name, secret := range d.Env {
		text, err := secret.Reveal(ctx)
		if err != nil {
			return errs.Wrap(errs.ConfigInvalid, "environment variable "+name+" of driver "+d.Label, err)
		}
		p.m.cfg.Redact.Add(text)
		p.env[name] = text
	}
	if d.LogLevel != "" {
		p.logLevel = d.LogLevel
	}
	if d.IdleTimeout != nil {
		p.idleTimeout = *d.IdleTimeout
	}
	p.maxSandboxes = d.MaxSandboxes
	return nil
}

// key tells one process from another.
func (p *process) key() string {
	h := sha256.New()
	field := func(s string) {
		h.Write(binary.AppendUvarint(nil, uint64(len(s))))
		h.Write([]byte(s))
	}
	field(p.name)
	field(p.binary.SHA256)
	field(string(p.config.MsgPack))
	field(string(p.config.JSON))
	names := make([]string, 0, len(p.env))
	for name := range p.env {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		field(name)
		field(p.env[name])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// spawn runs f in the background, unless the manager has ended.
func (m *Manager) spawn(f func()) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.done {
		return false
	}
	m.work.Go(f)
	return true
}

// runDir makes the core's run directory when it is first needed.
func (m *Manager) runDir() (*launch.RunDir, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, errs.Wrap(errs.Canceled, "start driver", errClosed)
	}
	if m.run == nil {
		r, err := launch.OpenRunDir(m.cfg.RunDir)
		if err != nil {
			return nil, err
		}
		m.run = r
	}
	return m.run, nil
}

// dir gives a driver's own directory below parent, or below fallback.
func (m *Manager) dir(parent, fallback, kind, name string) (string, error) {
	if parent == "" {
		parent = filepath.Join(fallback, kind)
	}
	d := filepath.Join(parent, name)
	if err := os.MkdirAll(d, 0o700); err != nil {
		return "", errs.Wrap(errs.DriverStartFailed, "make "+kind+" directory of driver "+name, err)
	}
	return d, nil
}

// Close drains and ends every process. When ctx ends first, they are ended without draining. It is idempotent, and
// nothing can be acquired afterwards.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	m.closed = true
	run := m.run
	procs := make([]*process, 0, len(m.procs))
	for _, p := range m.procs {
		procs = append(procs, p)
	}
	m.mu.Unlock()
	errsOf := make([]error, len(procs))
	var wg sync.WaitGroup
	for i, p := range procs {
		wg.Go(func() { errsOf[i] = p.shut(ctx) })
	}
	wg.Wait()
	m.cancel(errClosed)
	m.mu.Lock()
	m.done = true
	m.mu.Unlock()
	m.work.Wait()
	err := errors.Join(errsOf...)
	if run != nil {
		err = errors.Join(err, run.Close())
	}
	return err
}

// Statuses says how every process is.
func (m *Manager) Statuses() []Status {
	m.mu.Lock()
	procs := make([]*process, 0, len(m.procs))
	for _, p := range m.procs {
		procs = append(procs, p)
	}
	m.mu.Unlock()
	out := make([]Status, 0, len(procs))
	for _, p := range procs {
		out = append(out, p.status())
	}
	slices.SortFunc(out, func(a, b Status) int {
		if a.Driver != b.Driver {
			if a.Driver < b.Driver {
				return -1
			}
			return 1
		}
		return a.PID - b.PID
	})
	return out
}
