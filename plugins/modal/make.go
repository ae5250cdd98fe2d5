// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/modal-labs/modal-client/go"

	"github.com/berth-dev/berth/plugins/modal/client"
	"github.com/berth-dev/berth/plugins/modal/internal/box"
	"github.com/berth-dev/berth/plugins/modal/internal/settings"
	"github.com/berth-dev/berth/plugins/modal/internal/vendor"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// maker makes one sandbox.
type maker struct {
	d         *hosted
	c         *settings.Config
	id        string
	record    *box.Record
	progress  func(driver.Progress)
	image     *modal.Image // nil = the configured one
	workspace *modal.Image // of the workspace alone; nil = none
	mounts    map[string]*modal.CloudBucketMount
}

// lost are the failures after which a sandbox may have been made all the same.
var lost = []client.Kind{client.Unavailable, client.TimeLimit, client.Canceled, client.Other}

// make makes the sandbox and starts its guest. adopted says that it was there, so that it is not for this create to end.
func (m *maker) make(ctx context.Context, o box.Options) (b *box.Box, adopted bool, err error) {
	app, err := m.d.c.Apps.FromName(ctx, m.record.App, &modal.AppFromNameParams{CreateIfMissing: true})
	if err != nil {
		return nil, false, vendor.Error(ctx, errs.CreateFailed, "find the app "+m.record.App, err)
	}
	params, err := m.params(ctx)
	if err != nil {
		return nil, false, err
	}
	if m.image == nil {
		if m.image, err = m.build(ctx, app); err != nil {
			return nil, false, err
		}
	}
	m.say("creating", cmp.Or(m.c.NamedImage, m.c.Image))
	if m.c.GPU != "" {
		m.say("creating", "waiting for "+m.c.GPU+", which may take up to 21 minutes")
	}
	began := time.Now()
	sb, err := m.d.c.Sandboxes.Create(client.With(ctx, client.Extra{DiskMiB: uint32(settings.MiB(m.c.Disk)), NonPreemptible: m.c.NonPreemptible}), app, m.image, params)
	if err != nil {
		adopted = client.KindOf(err) == client.Exists
		if sb, err = m.recover(ctx, err); err != nil {
			return nil, false, err
		}
	}
	m.record.Sandbox, m.record.Created, m.record.Deadline = sb.SandboxID, began, began.Add(m.c.Timeout)
	b = box.New(m.d.boxed, sb, o)
	if m.workspace != nil && !adopted {
		err = b.MountSnapshot(ctx, m.workspace)
	}
	if err == nil {
		m.say("starting", "the guest")
		err = b.Begin(ctx)
	}
	if err != nil && !adopted {
		kept := m.record.Image
		m.record.Image = "" // a stopped sandbox stays one that can be resumed
		err = abandon(ctx, b, err)
		m.record.Image = kept
	}
	return b, adopted, err
}

func (m *maker) say(phase, text string) {
	if m.progress != nil {
		m.progress(driver.Progress{Phase: phase, Message: text})
	}
}

// recover looks for the sandbox after a create that failed: the name is the core's id, and Modal has it once.
func (m *maker) recover(ctx context.Context, err error) (*modal.Sandbox, error) {
	kind := client.KindOf(err)
	cut := ctx.Err() != nil
	failed := vendor.Error(ctx, errs.CreateFailed, "create the sandbox", err)
	if kind != client.Exists && !cut && !slices.Contains(lost, kind) {
		if kind == client.NotFound {
			m.d.forgetImage(m.key()) // it may be deleted
		}
		return nil, failed
	}
	look, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), cleanTime, errors.New("out of time"))
	defer cancel()
	sb, lookErr := m.d.c.Sandboxes.FromName(look, m.record.App, m.id, nil)
	if lookErr != nil {
		return nil, failed // List finds it when it comes later
	}
	if cut {
		_, lookErr = sb.Terminate(look, nil)
		return nil, errors.Join(failed, vendor.Error(look, errs.StopFailed, "terminate the sandbox that nobody waits for", lookErr))
	}
	m.d.log.Debug("the sandbox was there already", "sandbox", m.id, "modal", sb.SandboxID, "create", err)
	return sb, nil
}

func ports(asked []uint16, c *settings.Config) []uint16 {
	all := slices.Concat(asked, c.UnencryptedPorts, c.H2Ports)
	slices.Sort(all)
	return slices.Compact(all)
}

// params are what Modal is asked for.
func (m *maker) params(ctx context.Context) (*modal.SandboxCreateParams, error) {
	c := m.c
	p := &modal.SandboxCreateParams{
		CPU: c.CPU, CPULimit: c.CPULimit, MemoryMiB: settings.MiB(c.Memory), MemoryLimitMiB: settings.MiB(c.MemoryLimit), Runtime: modal.SandboxRuntime(c.Runtime),
		GPU: c.GPU, Timeout: c.Timeout, IdleTimeout: c.IdleTimeout, Command: []string{"sleep", "infinity"}, BlockNetwork: c.BlockNetwork,
		OutboundCIDRAllowlist: allow(c.OutboundCIDRs), OutboundDomainAllowlist: allow(c.OutboundDomains), I6PN: c.I6PN, Cloud: c.Cloud,
		Regions: c.Regions, Verbose: c.Verbose, Name: m.id, Tags: m.record.Tags(m.id, c.Tags), CustomDomain: c.CustomDomain,
		IncludeOidcIdentityToken: c.OIDCToken, CloudBucketMounts: m.mounts, ExperimentalOptions: map[string]any{},
	}
	if c.InboundCIDRs != nil {
		p.InboundCIDRAllowlist = *c.InboundCIDRs
	}
	for k, v := range c.ExperimentalOptions {
		switch v {
		case "true", "false":
			p.ExperimentalOptions[k] = v == "true"
		default:
			p.ExperimentalOptions[k] = v
		}
	}
	if c.ExitSnapshot {
		p.ExperimentalOptions["enable_exit_snapshot"] = true
	}
	for _, port := range m.record.Ports {
		switch {
		case slices.Contains(c.UnencryptedPorts, port):
			p.UnencryptedPorts = append(p.UnencryptedPorts, int(port))
		case slices.Contains(c.H2Ports, port):
			p.H2Ports = append(p.H2Ports, int(port))
		default:
			p.EncryptedPorts = append(p.EncryptedPorts, int(port))
		}
	}
	return p, m.objects(ctx, p)
}

func allow(list *[]string) *modal.Allowlist {
	if list == nil {
		return nil
	}
	return &modal.Allowlist{Entries: *list}
}

// objects finds the workspace's secrets, volumes and proxies.
func (m *maker) objects(ctx context.Context, p *modal.SandboxCreateParams) error {
	for _, name := range m.c.Secrets {
		s, err := m.secret(ctx, "secrets", name)
		if err != nil {
			return err
		}
		p.Secrets = append(p.Secrets, s)
	}
	for _, at := range slices.Sorted(maps.Keys(m.c.Volumes)) {
		name, sub, readOnly := m.c.Volume(at)
		v, err := m.d.c.Volumes.FromName(ctx, name, &modal.VolumeFromNameParams{CreateIfMissing: true})
		if err != nil {
			return wrong("volumes", vendor.Error(ctx, errs.CreateFailed, "find the volume "+name, err))
		}
		opts := &modal.VolumeMountOptionsParams{ReadOnly: &readOnly}
		if sub != "" {
			opts.SubPath = &sub
		}
		if p.Volumes == nil {
			p.Volumes = map[string]*modal.Volume{}
		}
		p.Volumes[at] = v.WithMountOptions(opts)
	}
	if m.c.Proxy != "" {
		var err error
		if p.Proxy, err = m.d.c.Proxies.FromName(ctx, m.c.Proxy, nil); err != nil {
			return wrong("proxy", vendor.Error(ctx, errs.ConfigInvalid, "find the proxy "+m.c.Proxy, err))
		}
	}
	var headers []modal.ExperimentalOutboundPolicyHeaderReplacement
	for _, h := range m.c.InjectHeaders {
		r := modal.ExperimentalOutboundPolicyHeaderReplacement{Domain: h.Domain, Headers: map[string]string{h.Name: h.Value}}
		if h.Secret != "" {
			var err error
			if r.Secret, err = m.secret(ctx, "inject_header", h.Secret); err != nil {
				return err
			}
		}
		headers = append(headers, r)
	}
	if len(headers) > 0 {
		policy := modal.NewExperimentalOutboundPolicy(headers...)
		p.ExperimentalOutboundPolicy = &policy
	}
	return nil
}

func (m *maker) secret(ctx context.Context, attribute, name string) (*modal.Secret, error) {
	s, err := m.d.c.Secrets.FromName(ctx, name, nil)
	if err != nil {
		return nil, wrong(attribute, vendor.Error(ctx, errs.ConfigInvalid, "find the secret "+name, err))
	}
	return s, nil
}

func wrong(attribute string, err error) error {
	if e, ok := errors.AsType[*errs.Error](err); ok {
		return settings.Wrong(attribute, e)
	}
	return err
}

// key is what the configured image is built of, in the driver's app.
func (m *maker) key() string {
	return strings.Join(append([]string{m.c.Image, m.c.NamedImage, m.c.Registry, m.c.RegistrySecret}, m.c.DockerfileCommands...), "\x00")
}

func (d *hosted) forgetImage(key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.images, key)
}

// build gives the configured image, which Modal builds when it must. It is asked for once by each driver process.
func (m *maker) build(ctx context.Context, app *modal.App) (*modal.Image, error) {
	m.d.mu.Lock()
	img := m.d.images[m.key()]
	m.d.mu.Unlock()
	if img != nil {
		return img, nil
	}
	m.say("pulling", cmp.Or(m.c.NamedImage, m.c.Image))
	var secret *modal.Secret
	var err error
	if m.c.RegistrySecret != "" {
		if secret, err = m.secret(ctx, "registry_secret", m.c.RegistrySecret); err != nil {
			return nil, err
		}
	}
	images := m.d.c.Images
	switch {
	case m.c.NamedImage != "":
		if img, err = images.FromName(ctx, m.c.NamedImage, nil); err != nil {
			return nil, wrong("named_image", vendor.Error(ctx, errs.ConfigInvalid, "find the image "+m.c.NamedImage, err))
		}
	case strings.HasPrefix(m.c.Image, "im-"):
		if img, err = images.FromID(ctx, m.c.Image, nil); err != nil {
			return nil, wrong("image", vendor.Error(ctx, errs.ConfigInvalid, "find the image "+m.c.Image, err))
		}
	case m.c.Registry == "aws_ecr":
		img = images.FromAwsEcr(m.c.Image, secret, nil)
	case m.c.Registry == "gcp_artifact_registry":
		img = images.FromGcpArtifactRegistry(m.c.Image, secret, nil)
	default:
		img = images.FromRegistry(m.c.Image, &modal.ImageFromRegistryParams{Secret: secret})
	}
	if len(m.c.DockerfileCommands) > 0 {
		img = img.DockerfileCommands(m.c.DockerfileCommands, nil)
	}
	if img, err = img.Build(ctx, app, nil); err != nil {
		return nil, wrong("image", vendor.Error(ctx, errs.CreateFailed, "build the image "+cmp.Or(m.c.NamedImage, m.c.Image), err))
	}
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	m.d.images[m.key()] = img
	return img, nil
}
