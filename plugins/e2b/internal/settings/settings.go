// SPDX-License-Identifier: Apache-2.0

// Package settings is what users can say about E2B sandboxes.
package settings

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/berth-dev/berth/plugins/e2b/client"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/schema"
)

// What happens when a sandbox's time is over.
const (
	OnTimeoutPause = "pause"
	OnTimeoutKill  = "kill"
)

// Process is the driver block.
type Process struct {
	APIKey     string  `berth:"api_key"`
	Domain     string  `berth:"domain"`
	APIURL     string  `berth:"api_url"`
	SandboxURL string  `berth:"sandbox_url"`
	Timeout    float64 `berth:"request_timeout"`
	Attempts   int     `berth:"attempts"`
}

// Config is a sandbox's config block.
type Config struct {
	Template      string            `berth:"template"`
	Timeout       float64           `berth:"timeout"`
	KeepAlive     bool              `berth:"keep_alive"`
	OnTimeout     string            `berth:"on_timeout"`
	PauseMemory   bool              `berth:"pause_memory"`
	AutoResume    bool              `berth:"auto_resume"`
	Secure        bool              `berth:"secure"`
	User          string            `berth:"user"`
	Arch          string            `berth:"arch"`
	Internet      bool              `berth:"internet"`
	AllowOut      []string          `berth:"allow_out"`
	DenyOut       []string          `berth:"deny_out"`
	PublicTraffic bool              `berth:"public_traffic"`
	RequestHost   string            `berth:"request_host"`
	EgressProxy   string            `berth:"egress_proxy"`
	ProxyUser     string            `berth:"egress_proxy_username"`
	ProxyPassword string            `berth:"egress_proxy_password"`
	Volumes       map[string]string `berth:"volumes"`
	Metadata      map[string]string `berth:"metadata"`
	Identities    map[string]string `berth:"identity_tokens"`
	InjectHeaders []Header          `berth:"inject_header"`
}

// Header is one header that is put into requests.
type Header struct {
	Domain string `berth:"domain"`
	Name   string `berth:"name"`
	Value  string `berth:"value"`
}

// The service's own bounds.
const (
	maxDomains, maxHeaders, maxHeaderName, maxHeaderValue = 10, 20, 64, 2048
	maxIdentities                                         = 5
)

// ProcessSchema describes the driver block.
func ProcessSchema() *schema.Schema {
	one, ten := 1.0, 10.0
	return &schema.Schema{Version: 1, Block: schema.Block{
		Doc: "Which service to use, and as whom. The team is the one that the key belongs to.",
		Attributes: []schema.Attribute{
			{
				Name: "api_key", Type: schema.String, Default: "", Env: "E2B_API_KEY", Sensitive: true,
				Doc: "The team's API key.", Example: `secret.e2b`,
			},
			{
				Name: "domain", Type: schema.String, Default: client.DefaultDomain, Env: "E2B_DOMAIN",
				Doc: "The service's domain, for one that is hosted elsewhere.", Example: `"sandboxes.example.com"`,
			},
			{
				Name: "api_url", Type: schema.String, Default: "", Env: "E2B_API_URL",
				Doc: "The control plane's address. Empty is https://api.DOMAIN.", Example: `"https://e2b.internal.example:8443"`,
			},
			{
				Name: "sandbox_url", Type: schema.String, Default: "", Env: "E2B_SANDBOX_URL",
				Doc: "One address at which every sandbox is reached, by headers. Empty is the domain's own way.", Example: `"https://sandboxes.internal.example"`,
			},
			{
				Name: "request_timeout", Type: schema.Number, Unit: "duration", Default: 60, Min: &one,
				Doc: "How long one attempt at a call of the service may take. Commands are not bound by it.", Example: `"30s"`,
			},
			{
				Name: "attempts", Type: schema.Number, Default: 5, Min: &one, Max: &ten,
				Doc: "How often a call is tried that failed before anything was done, or that does no harm twice.",
			},
		},
	}}
}

// SandboxSchema describes the config block of a sandbox.
func SandboxSchema() *schema.Schema {
	least := 15.0
	return &schema.Schema{Version: 1, Block: schema.Block{
		Doc: "A sandbox that is a micro virtual machine. Processors, memory and disk belong to the template.",
		Attributes: []schema.Attribute{
			{
				Name: "template", Type: schema.String, Default: "base", Immutable: true,
				Doc: "The template: an id, a name, or NAMESPACE/NAME:TAG.", Example: `"acme/build:stable"`,
			},
			{
				Name: "timeout", Type: schema.Number, Unit: "duration", Default: 300, Min: &least,
				Doc: "How long the sandbox lives without its driver. The service refuses more than the plan allows. A lifetime with " +
					"a maximum goes before it.",
				Example: `"10m"`,
			},
			{
				Name: "keep_alive", Type: schema.Bool, Default: true,
				Doc: "Whether the driver moves the sandbox's end while it holds it, every third of the timeout. Without it, and with a " +
					"lifetime that has a maximum, the end stays where it is.",
			},
			{
				Name: "on_timeout", Type: schema.String, Default: OnTimeoutPause, OneOf: []string{OnTimeoutPause, OnTimeoutKill},
				Doc: "What happens when the time is over: the sandbox is paused and can be resumed, or it is removed.",
			},
			{
				Name: "pause_memory", Type: schema.Bool, Default: true,
				Doc: "Whether a sandbox that is paused at its end keeps its memory, and with it its processes, or its files only.",
			},
			{
				Name: "auto_resume", Type: schema.Bool, Default: false,
				Doc: "Whether traffic wakes a paused sandbox. What comes from the driver counts as traffic too.",
			},
			{Name: "secure", Type: schema.Bool, Default: true, Doc: "Whether what is inside is reached with the sandbox's own token only."},
			{
				Name: "user", Type: schema.String, Default: "user",
				Doc: "The user of commands and files, by name or number. It has to exist in the template.", Example: `"root"`,
			},
			{
				Name: "arch", Type: schema.String, Default: "amd64", OneOf: []string{"amd64", "arm64"},
				Doc: "The processor of the service's machines.",
			},
			{Name: "internet", Type: schema.Bool, Default: true, Doc: "Whether the sandbox reaches the internet at all."},
			{
				Name: "allow_out", Type: schema.ListOf(schema.String), Default: []string{},
				Doc: "What the sandbox reaches although deny_out says otherwise: addresses, ranges, and names if deny_out holds 0.0.0.0/0.", Example: `["pypi.org", "10.1.0.0/16"]`,
			},
			{
				Name: "deny_out", Type: schema.ListOf(schema.String), Default: []string{},
				Doc: "Addresses and ranges that the sandbox does not reach.", Example: `["0.0.0.0/0"]`,
			},
			{
				Name: "public_traffic", Type: schema.Bool, Default: false, Immutable: true,
				Doc: "Whether anybody who knows its address reaches a port of the sandbox. Without it a request needs a token in a header.",
			},
			{
				Name: "request_host", Type: schema.String, Default: "",
				Doc: "The Host that servers inside see. Empty is the address's own.", Example: `"localhost:${PORT}"`,
			},
			{
				Name: "egress_proxy", Type: schema.String, Default: "",
				Doc: "A proxy that all traffic of the sandbox goes through. The service has to have enabled it.", Example: `"socks5://proxy.example:1080"`,
			},
			{Name: "egress_proxy_username", Type: schema.String, Default: "", Doc: "The user at the proxy.", Requires: []string{"egress_proxy"}},
			{
				Name: "egress_proxy_password", Type: schema.String, Default: "", Sensitive: true, Doc: "The password at the proxy.",
				Requires: []string{"egress_proxy"},
			},
			{
				Name: "volumes", Type: schema.MapOf(schema.String), Default: map[string]string{},
				Doc: "Volumes of the service to attach, by path inside. The service has to have enabled them.", Example: `{ "/data" = "datasets" }`,
			},
			{
				Name: "metadata", Type: schema.MapOf(schema.String), Default: map[string]string{},
				Doc: "More metadata of the sandbox, for the service's lists. Names that begin with berth_ are the driver's own.", Example: `{ team = "search" }`,
			},
			{
				Name: "identity_tokens", Type: schema.MapOf(schema.String), Default: map[string]string{},
				Doc:     "Tokens by which others know the sandbox: the audience of each, by its name. Five at most. The service has to have enabled them.",
				Example: `{ registry = "registry.example.com" }`,
			},
		},
		Blocks: []schema.NestedBlock{{
			Type: "inject_header", Nesting: schema.List, Max: maxDomains * maxHeaders,
			Block: schema.Block{
				Doc: "A header that the service puts into requests of the sandbox to a domain. The sandbox does not see it: a secret stays outside. " +
					"Ten domains at most, with twenty headers each. The template's daemon has to be 0.5.13 or later.",
				Attributes: []schema.Attribute{
					{Name: "domain", Type: schema.String, Required: true, Doc: "The domain.", Example: `"api.example.com"`},
					{Name: "name", Type: schema.String, Required: true, Doc: "The header's name.", Example: `"Authorization"`},
					{Name: "value", Type: schema.String, Required: true, Sensitive: true, Doc: "The header's value.", Example: `secret.api`},
				},
			},
		}},
	}}
}

// Decode reads a sandbox's config block and puts the request's own network over it.
func Decode(v schema.Value, network driver.NetworkPolicy) (*Config, error) {
	var c Config
	if err := v.Decode(SandboxSchema(), &c); err != nil {
		return nil, err
	}
	switch network.Mode {
	case "", "default":
	case "none":
		c.Internet, c.AllowOut, c.DenyOut = false, nil, nil
	case "allow_list":
		c.AllowOut, c.DenyOut = network.Allow, []string{everything}
	default:
		return nil, errs.New(errs.Unsupported, "there is no network policy %q", network.Mode).With("feature", string(driver.NetPolicy))
	}
	return &c, c.check()
}

const everything = "0.0.0.0/0"

// check looks at what the schema cannot, so that the service need not be asked.
func (c *Config) check() error {
	for _, d := range c.DenyOut {
		if !address(d) {
			return wrong("deny_out", errs.New(errs.ConfigInvalid, "%q is no address or range", d).WithHint("names can only be allowed, not denied"))
		}
	}
	for _, a := range c.AllowOut {
		if !address(a) && !slices.Contains(c.DenyOut, everything) {
			return wrong("allow_out", errs.New(errs.ConfigInvalid, "the name %q can only be allowed where everything else is denied", a).
				WithHint("add deny_out = [%q]", everything))
		}
	}
	if c.AutoResume && (c.OnTimeout != OnTimeoutPause || !c.PauseMemory) {
		return wrong("auto_resume", errs.New(errs.ConfigInvalid, "only a sandbox that is paused with its memory wakes on traffic").
			WithHint("set on_timeout = \"pause\" and pause_memory = true"))
	}
	rules := c.rules()
	if len(rules) > maxDomains {
		return wrong("inject_header", errs.New(errs.ConfigInvalid, "headers for %d domains: the service takes %d", len(rules), maxDomains))
	}
	for domain, r := range rules {
		if len(r[0].Transform.Headers) > maxHeaders {
			return wrong("inject_header", errs.New(errs.ConfigInvalid, "%d headers for %s: the service takes %d", len(r[0].Transform.Headers), domain, maxHeaders))
		}
	}
	for _, h := range c.InjectHeaders {
		if len(h.Name) > maxHeaderName || len(h.Value) > maxHeaderValue {
			return wrong("inject_header", errs.New(errs.ConfigInvalid, "the header %.64s for %s is too long: a name has %d bytes at most, a value %d",
				h.Name, h.Domain, maxHeaderName, maxHeaderValue))
		}
	}
	if len(c.Identities) > maxIdentities {
		return wrong("identity_tokens", errs.New(errs.ConfigInvalid, "%d identity tokens: the service makes %d", len(c.Identities), maxIdentities))
	}
	for k := range c.Metadata {
		if strings.HasPrefix(k, MetaPrefix) {
			return wrong("metadata", errs.New(errs.ConfigInvalid, "%q begins with %s, as the driver's own metadata does", k, MetaPrefix))
		}
	}
	for p, name := range c.Volumes {
		if !strings.HasPrefix(p, "/") || name == "" {
			return wrong("volumes", errs.New(errs.ConfigInvalid, "%q = %q: an absolute path and a volume's name are needed", p, name))
		}
	}
	return nil
}

// MetaPrefix begins the driver's own metadata.
const MetaPrefix = "berth_"

func address(s string) bool {
	_, e1 := netip.ParseAddr(s)
	_, e2 := netip.ParsePrefix(s)
	return e1 == nil || e2 == nil
}

func wrong(attribute string, e *errs.Error) error {
	e.Path = []errs.PathStep{{Attribute: attribute}}
	return e
}

// Lifetime is how long the sandbox lives without its driver.
func (c *Config) Lifetime() time.Duration { return time.Duration(c.Timeout * float64(time.Second)) }

// Request is what the service is asked for.
func (c *Config) Request(timeout time.Duration, template string, metadata map[string]string) *client.CreateRequest {
	r := &client.CreateRequest{
		TemplateID: template, Timeout: int((timeout + time.Second - 1) / time.Second), AutoPause: c.OnTimeout == OnTimeoutPause, Secure: c.Secure,
		AllowInternetAccess: &c.Internet, Metadata: metadata,
		Network: &client.Network{AllowPublicTraffic: &c.PublicTraffic, AllowOut: c.AllowOut, DenyOut: c.DenyOut, MaskRequestHost: c.RequestHost, Rules: c.rules()},
	}
	if len(c.Identities) > 0 {
		r.Identity = &client.Identity{Tokens: map[string]client.IdentityToken{}}
		for name, audience := range c.Identities {
			r.Identity.Tokens[name] = client.IdentityToken{Audience: audience, Type: "JWT-SVID"}
		}
	}
	if r.AutoPause && !c.PauseMemory {
		r.AutoPauseMemory = &c.PauseMemory
	}
	if c.AutoResume {
		r.AutoResume = &client.AutoResume{Enabled: true}
	}
	if c.EgressProxy != "" {
		r.Network.EgressProxy = &client.EgressProxy{Address: c.EgressProxy, Username: c.ProxyUser, Password: c.ProxyPassword}
	}
	for path, name := range c.Volumes {
		r.VolumeMounts = append(r.VolumeMounts, client.VolumeMount{Name: name, Path: path})
	}
	return r
}

// rules are the headers by their domains; the last of a name counts.
func (c *Config) rules() map[string][]client.Rule {
	if len(c.InjectHeaders) == 0 {
		return nil
	}
	out := map[string][]client.Rule{}
	for _, h := range c.InjectHeaders {
		if out[h.Domain] == nil {
			out[h.Domain] = []client.Rule{{Transform: client.Transform{Headers: map[string]string{}}}}
		}
		out[h.Domain][0].Transform.Headers[h.Name] = h.Value
	}
	return out
}
