// SPDX-License-Identifier: Apache-2.0

// Package engine reaches a container engine: where it is, what it can do, its images, and what its errors mean.
package engine

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/docker/cli/cli/config"
	"github.com/docker/cli/cli/config/configfile"
	clicontext "github.com/docker/cli/cli/context"
	"github.com/docker/cli/cli/context/docker"
	"github.com/docker/cli/cli/context/store"
	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"

	"github.com/berth-dev/berth/sdk/errs"
)

// pingTimeout bounds the first word of an engine.
const pingTimeout = 20 * time.Second

// Options say which engine. Empty fields are as the docker command takes them, from its environment variables and its
// configuration.
type Options struct {
	Host      string // unix://, tcp:// or ssh://
	Context   string // of the docker command
	CertPath  string // a directory with ca.pem, cert.pem and key.pem, for tcp:// with TLS
	ConfigDir string // of the docker command
}

// Engine is a container engine that answers.
type Engine struct {
	*client.Client
	Info   system.Info
	Where  string // its address, for people
	Local  bool   // it runs on this machine and sees the same files
	Podman bool
	files  *configfile.ConfigFile // of the docker command: it knows who may pull
}

// Open finds and asks the engine.
func Open(ctx context.Context, o Options) (*Engine, error) {
	if o.ConfigDir != "" {
		config.SetDir(o.ConfigDir)
	}
	files := config.LoadDefaultConfigFile(io.Discard)
	opts, where, err := o.resolve(files)
	if err != nil {
		return nil, err
	}
	cli, err := client.New(append(opts, client.WithUserAgent("berth-driver-docker"))...)
	if err != nil {
		return nil, errs.Wrap(errs.ConfigInvalid, "reach the container engine", err)
	}
	e := &Engine{Client: cli, Where: where, files: files}
	ctx, cancel := context.WithTimeoutCause(ctx, pingTimeout, fmt.Errorf("no answer within %s", pingTimeout))
	defer cancel()
	if err := e.ask(ctx); err != nil {
		_ = cli.Close() // the first error is the one to tell
		return nil, e.unreachable(ctx, err)
	}
	return e, nil
}

func (e *Engine) ask(ctx context.Context) error {
	if _, err := e.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true}); err != nil {
		return err
	}
	info, err := e.Client.Info(ctx, client.InfoOptions{})
	if err != nil {
		return err
	}
	version, err := e.ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		return err
	}
	e.Info = info.Info
	for _, c := range version.Components {
		e.Podman = e.Podman || strings.Contains(c.Name, "Podman")
	}
	host := e.DaemonHost()
	e.Local = strings.HasPrefix(host, "unix://") && !strings.HasPrefix(e.Where, "ssh://") && !strings.Contains(e.Info.OperatingSystem, "Docker Desktop")
	return nil
}

func (e *Engine) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = fmt.Errorf("%w (last: %w)", context.Cause(ctx), err)
	}
	out := errs.New(errs.StartFailed, "no container engine answers at %s", e.Where).With("host", e.Where).
		WithHint("start Docker or Podman, or say with host or context in the driver block where it is; `docker info` shows whether it can be reached")
	if strings.Contains(err.Error(), "permission denied") {
		out.Code, out.Message = errs.PermissionDenied, "this user may not use the container engine at "+e.Where
		out.Hint = "add the user to the group that owns the socket, or use a rootless engine"
	}
	out.Err = err
	return out
}

// resolve follows the docker command: an explicit host, a context, the default.
func (o Options) resolve(files *configfile.ConfigFile) ([]client.Opt, string, error) {
	name := o.Context
	if name == "" && o.Host == "" {
		name = files.CurrentContext
	}
	if o.Host == "" && name != "" && name != "default" {
		return fromContext(name)
	}
	host := o.Host
	if host == "" {
		host = client.DefaultDockerHost
	}
	if u, err := url.Parse(host); err != nil || u.Scheme == "" {
		return nil, host, errs.New(errs.ConfigInvalid, "%q is no address of a container engine", host).
			WithHint("write unix:///path, tcp://host:port or ssh://user@host")
	}
	ep := docker.Endpoint{EndpointMeta: clicontext.EndpointMetaBase{Host: host}}
	if o.CertPath != "" {
		data, err := clicontext.TLSDataFromFiles(filepath.Join(o.CertPath, "ca.pem"), filepath.Join(o.CertPath, "cert.pem"), filepath.Join(o.CertPath, "key.pem"))
		if err != nil {
			return nil, host, errs.Wrap(errs.ConfigInvalid, "read the certificates in "+o.CertPath, err)
		}
		ep.TLSData = data
	}
	opts, err := ep.ClientOpts()
	return opts, host, errs.Wrap(errs.ConfigInvalid, "use the engine at "+host, err)
}

func fromContext(name string) ([]client.Opt, string, error) {
	dir := config.ContextStoreDir()
	s := store.New(dir, store.NewConfig(func() any { return &map[string]any{} },
		store.EndpointTypeGetter(docker.DockerEndpoint, func() any { return &docker.EndpointMeta{} })))
	meta, err := s.GetMetadata(name)
	if err != nil {
		names, _ := store.Names(s) // only for the hint
		slices.Sort(names)
		return nil, name, errs.New(errs.ConfigInvalid, "there is no docker context %q in %s", name, dir).
			WithHint("use one of %v, or make it with `docker context create`", append([]string{"default"}, names...))
	}
	base, err := docker.EndpointFromContext(meta)
	if err != nil {
		return nil, name, errs.Wrap(errs.ConfigInvalid, "read docker context "+name, err)
	}
	ep, err := docker.WithTLSData(s, name, base)
	if err != nil {
		return nil, name, errs.Wrap(errs.ConfigInvalid, "read the certificates of docker context "+name, err)
	}
	opts, err := ep.ClientOpts()
	return opts, base.Host, errs.Wrap(errs.ConfigInvalid, "use docker context "+name, err)
}

// Has says whether the engine names a security option, such as "rootless", "userns" or "selinux".
func (e *Engine) Has(option string) bool {
	return slices.ContainsFunc(e.Info.SecurityOptions, func(s string) bool {
		return s == option || s == "name="+option || strings.HasPrefix(s, "name="+option+",")
	})
}

// Storage is what the engine keeps containers with, for people: "overlay2 on extfs".
func (e *Engine) Storage() string {
	for _, s := range e.Info.DriverStatus {
		if s[0] == "Backing Filesystem" {
			return e.Info.Driver + " on " + s[1]
		}
	}
	return e.Info.Driver
}

// Arch is the processor, in Go's words.
func (e *Engine) Arch() string { return goArch(e.Info.Architecture) }

func goArch(name string) string {
	switch name {
	case "x86_64":
		return "amd64"
	case "aarch64":
		return "arm64"
	case "armv7l", "armv6l":
		return "arm"
	case "i386", "i686":
		return "386"
	}
	return name
}

// OOMFile is where processes inside read how often the kernel ended one of them for lack of memory.
func (e *Engine) OOMFile() string {
	if e.Info.CgroupVersion == "1" || e.Info.CgroupVersion == "" {
		return "/sys/fs/cgroup/memory/memory.oom_control"
	}
	return "/sys/fs/cgroup/memory.events"
}
