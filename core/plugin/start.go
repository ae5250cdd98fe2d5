// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	"github.com/berth-dev/berth/core/plugin/launch"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/handshake"
	"github.com/berth-dev/berth/sdk/schema"
)

// launch starts and configures the driver.
func (p *process) launch(ctx context.Context) (*live, error) {
	l := &live{gone: make(chan struct{})}
	log := p.m.cfg.Log.Named("driver." + p.name)
	host := driver.Host{
		CoreVersion: p.m.cfg.CoreVersion, CoreID: p.m.cfg.CoreID, LogLevel: p.logLevel,
		Orphans: p.m.cfg.Orphans, Labels: p.m.cfg.Labels,
	}
	run, err := p.m.runDir()
	if err != nil {
		return nil, err
	}
	if host.RunDir, err = run.New(); err != nil {
		return nil, err
	}
	if host.CacheDir, err = p.m.dir(p.m.cfg.CacheDir, run.Path(), "cache", p.name); err != nil {
		return nil, err
	}
	if host.StateDir, err = p.m.dir(p.m.cfg.StateDir, run.Path(), "state", p.name); err != nil {
		return nil, err
	}
	switch {
	case p.inProcess != nil:
		l.drv = p.inProcess(log)
		l.desc = l.drv.Describe()
	case p.binary.Reattach != nil:
		err = p.attach(ctx, l, log)
	default:
		err = p.exec(ctx, l, host.RunDir, log)
	}
	if err == nil {
		err = p.setUp(ctx, l, host)
	}
	if err != nil {
		l.drop()
		return nil, err
	}
	return l, nil
}

// exec starts the process and asks what it is.
func (p *process) exec(ctx context.Context, l *live, dir string, log hclog.Logger) error {
	proc, err := launch.Start(ctx, launch.Spec{
		Name: p.name, Path: p.binary.Path, SHA256: p.binary.SHA256, Dir: dir,
		Environ: launch.Environ(p.m.cfg.Environ, p.m.cfg.Passthrough, p.env),
		Digests: p.m.cfg.Digests, Log: log, Redact: p.m.cfg.Redact, StartTimeout: p.m.cfg.StartTimeout,
		DialOptions: dialOptions(),
	})
	if err != nil {
		return err
	}
	l.proc = proc
	if err := p.ask(ctx, l, proc.Conn()); err != nil {
		return err
	}
	log.Debug("driver started", "pid", proc.PID(), "path", p.binary.Path, "sha256", proc.SHA256(), "version", l.desc.Version)
	return nil
}

// attach connects to a driver that runs already.
func (p *process) attach(ctx context.Context, l *live, log hclog.Logger) error {
	attached, err := launch.Attach(ctx, p.name, *p.binary.Reattach, dialOptions()...)
	if err != nil {
		return err
	}
	l.attached = attached
	if err := p.ask(ctx, l, attached.Conn()); err != nil {
		return err
	}
	log.Debug("attached to driver", "address", p.binary.Reattach.Addr, "version", l.desc.Version)
	return nil
}

// ask asks a new process what it is.
func (p *process) ask(ctx context.Context, l *live, conn *grpc.ClientConn) error {
	var err error
	l.drv, l.desc, err = connect(ctx, conn, func() error {
		t := time.NewTimer(goneWait)
		defer t.Stop()
		select {
		case <-l.gone:
			return l.crash
		case <-t.C:
			return nil
		}
	})
	if err == nil && l.desc.Name != p.name {
		e := errs.New(errs.DriverIncompatible, "%s calls itself %q, not %q", p.binary.Path, l.desc.Name, p.name).With("driver", p.name)
		if err = e.WithHint("name the file berth-driver-%s, or ask for driver %q", l.desc.Name, l.desc.Name); l.attached != nil {
			err = e.WithHint("correct the name in %s, or ask for driver %q", handshake.EnvReattach, l.desc.Name)
		}
	}
	return errs.Wrap(errs.DriverStartFailed, "ask driver "+p.name+" what it is", err)
}

// drop ends a life that did not become one.
func (l *live) drop() {
	switch {
	case l.proc != nil:
		l.proc.Kill()
	case l.attached != nil:
		l.attached.Close()
	}
}

// setUp gives the driver its configuration.
func (p *process) setUp(ctx context.Context, l *live, host driver.Host) error {
	config := p.config
	if config.IsZero() {
		var err error
		if config, err = unsaid(l.desc.ProcessConfig, p.m.cfg.Environ); err != nil {
			return errs.Wrap(errs.ConfigInvalid, "configure driver "+p.name, err)
		}
	}
	p.m.cfg.Redact.Add(sensitive(l.desc.ProcessConfig, config)...)
	if l.attached == nil { // else somebody may be stepping through it
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, configureTimeout,
			errs.New(errs.DriverStartFailed, "driver %q was not configured within %s", p.name, configureTimeout))
		defer cancel()
	}
	var diags []driver.Diagnostic
	switch c := l.drv.(type) {
	case setter:
		var err error
		if diags, err = c.Setup(ctx, host, l.desc.Features, config); err != nil {
			return errs.Wrap(errs.DriverStartFailed, "configure driver "+p.name, err)
		}
	case driver.Configurer:
		diags = c.Configure(ctx, host, config)
	}
	for _, d := range diags {
		if d.Warning {
			p.m.cfg.Notify(Event{Kind: Warning, Driver: p.name, Message: d.Summary})
		}
	}
	l.found = diags
	return configError(p.name, diags)
}

// unsaid is the configuration of a process that no block configures: the schema's defaults, those from the environment
// included.
func unsaid(s *schema.Schema, environ []string) (schema.Value, error) {
	if s == nil {
		return schema.Value{}, nil
	}
	v, err := schema.Value{}.Cty(s)
	if err != nil {
		return schema.Value{}, err
	}
	v, err = s.Block.WithDefaults(v, func(name string) (string, bool) {
		for _, kv := range environ {
			if value, ok := strings.CutPrefix(kv, name+"="); ok {
				return value, true
			}
		}
		return "", false
	})
	if err != nil {
		return schema.Value{}, err
	}
	return schema.Encode(s, v)
}
