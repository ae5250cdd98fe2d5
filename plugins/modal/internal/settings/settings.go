// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"math"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/schema"
)

// Process is the driver block.
type Process struct {
	TokenID      string        `berth:"token_id"`
	TokenSecret  string        `berth:"token_secret"`
	Profile      string        `berth:"profile"`
	ConfigFile   string        `berth:"config_file"`
	ServerURL    string        `berth:"server_url"`
	Environment  string        `berth:"environment"`
	App          string        `berth:"app"`
	ImageBuilder string        `berth:"image_builder_version"`
	MaxThrottle  time.Duration `berth:"max_throttle_wait"`
}

// Config is a sandbox's config block.
type Config struct {
	Image               string            `berth:"image"`
	NamedImage          string            `berth:"named_image"`
	Registry            string            `berth:"registry"`
	RegistrySecret      string            `berth:"registry_secret"`
	DockerfileCommands  []string          `berth:"dockerfile_commands"`
	Secrets             []string          `berth:"secrets"`
	Volumes             map[string]string `berth:"volumes"`
	CPU                 float64           `berth:"cpu"`
	CPULimit            float64           `berth:"cpu_limit"`
	Memory              uint64            `berth:"memory"`
	MemoryLimit         uint64            `berth:"memory_limit"`
	Disk                uint64            `berth:"disk"`
	GPU                 string            `berth:"gpu"`
	Runtime             string            `berth:"runtime"`
	Cloud               string            `berth:"cloud"`
	Regions             []string          `berth:"regions"`
	NonPreemptible      bool              `berth:"non_preemptible"`
	Proxy               string            `berth:"proxy"`
	BlockNetwork        bool              `berth:"block_network"`
	OutboundCIDRs       *[]string         `berth:"outbound_cidrs"`
	OutboundDomains     *[]string         `berth:"outbound_domains"`
	InboundCIDRs        *[]string         `berth:"inbound_cidrs"`
	I6PN                bool              `berth:"i6pn"`
	UnencryptedPorts    []uint16          `berth:"unencrypted_ports"`
	H2Ports             []uint16          `berth:"h2_ports"`
	CustomDomain        string            `berth:"custom_domain"`
	OIDCToken           bool              `berth:"oidc_token"`
	Tags                map[string]string `berth:"tags"`
	ExperimentalOptions map[string]string `berth:"experimental_options"`
	Verbose             bool              `berth:"verbose"`
	Timeout             time.Duration     `berth:"timeout"`
	IdleTimeout         time.Duration     `berth:"idle_timeout"`
	CreateTimeout       time.Duration     `berth:"create_timeout"`
	Snapshots           string            `berth:"snapshots"`
	SnapshotTTL         time.Duration     `berth:"snapshot_ttl"`
	SnapshotTimeout     time.Duration     `berth:"snapshot_timeout"`
	ExitSnapshot        bool              `berth:"exit_snapshot"`
	InjectHeaders       []Header          `berth:"inject_header"`
}

// Header is one header that is put into requests.
type Header struct {
	Domain string `berth:"domain"`
	Name   string `berth:"name"`
	Value  string `berth:"value"`
	Secret string `berth:"secret"`
}

// Wish is what a request says beside the config block. It is kept with the sandbox.
type Wish struct {
	Limits   driver.ResourceLimits `json:"limits,omitzero"`
	Network  driver.NetworkPolicy  `json:"network,omitzero"`
	Lifetime time.Duration         `json:"lifetime,omitempty"`
}

// Decode reads a sandbox's config block and puts the request's own wishes over it.
func Decode(v schema.Value, w Wish) (*Config, error) {
	var c Config
	if err := v.Decode(SandboxSchema(), &c); err != nil {
		return nil, err
	}
	if err := c.limit(w.Limits); err != nil {
		return nil, err
	}
	if err := c.restrict(w.Network); err != nil {
		return nil, err
	}
	if w.Lifetime > 0 {
		c.Timeout = w.Lifetime
	}
	// Modal counts whole seconds.
	c.Timeout, c.IdleTimeout = up(c.Timeout), up(c.IdleTimeout)
	return &c, c.check()
}

func up(d time.Duration) time.Duration { return (d + time.Second - 1).Truncate(time.Second) }

func (c *Config) limit(l driver.ResourceLimits) error {
	if l.MemoryBytes > 0 {
		c.Memory, c.MemoryLimit = min(max(c.Memory, 128<<20), l.MemoryBytes), l.MemoryBytes
	}
	if l.CPUs > 0 {
		if c.CPU == 0 || c.CPU > l.CPUs {
			c.CPU = min(0.125, l.CPUs)
		}
		c.CPULimit = l.CPUs
	}
	for what, n := range map[string]uint64{"processes": uint64(l.Processes), "the size of files": l.FileBytes, "open files": uint64(l.OpenFiles)} {
		if n > 0 {
			return errs.New(errs.Unsupported, "Modal does not limit %s", what).WithHint("leave the limit out for this driver")
		}
	}
	return nil
}

func (c *Config) restrict(n driver.NetworkPolicy) error {
	switch n.Mode {
	case "", "default":
	case "none":
		c.BlockNetwork, c.OutboundCIDRs, c.OutboundDomains, c.InboundCIDRs = true, nil, nil, nil
	case "allow_list":
		cidrs, domains := []string{}, []string{}
		for _, a := range n.Allow {
			if p, err := netip.ParsePrefix(a); err == nil {
				cidrs = append(cidrs, p.String())
			} else if ip, err := netip.ParseAddr(a); err == nil {
				cidrs = append(cidrs, netip.PrefixFrom(ip, ip.BitLen()).String())
			} else if a == "" || strings.ContainsAny(a, "/: ") {
				return errs.New(errs.ConfigInvalid, "%q is neither an address, nor a CIDR, nor a domain", a).WithHint("Modal filters by address and by domain, not by port")
			} else {
				domains = append(domains, a)
			}
		}
		c.BlockNetwork, c.OutboundCIDRs, c.OutboundDomains = false, &cidrs, &domains
	default:
		return errs.New(errs.Unsupported, "there is no network policy %q", n.Mode).With("feature", string(driver.NetPolicy)).
			WithHint("use \"none\" or \"allow_list\"")
	}
	return nil
}

// check looks at what the schema cannot.
func (c *Config) check() error {
	if c.Image == "" && c.NamedImage == "" {
		return Wrong("image", errs.New(errs.ConfigInvalid, "no image is named"))
	}
	if c.Registry != "" && c.RegistrySecret == "" {
		return Wrong("registry", errs.New(errs.ConfigInvalid, "the registry needs credentials").WithHint("set registry_secret"))
	}
	if c.CPULimit > 0 && (c.CPULimit < c.CPU || c.CPU == 0) {
		return Wrong("cpu_limit", errs.New(errs.ConfigInvalid, "the limit %g needs a reserved cpu of at most as much, not %g", c.CPULimit, c.CPU))
	}
	if c.MemoryLimit > 0 && (c.MemoryLimit < c.Memory || c.Memory == 0) {
		return Wrong("memory_limit", errs.New(errs.ConfigInvalid, "the limit of %d bytes needs a reserved memory of at most as much, not %d", c.MemoryLimit, c.Memory))
	}
	if c.BlockNetwork && (c.OutboundCIDRs != nil || c.OutboundDomains != nil || c.InboundCIDRs != nil) {
		return Wrong("block_network", errs.New(errs.ConfigInvalid, "nothing can be allowed when the network is blocked"))
	}
	for name, list := range map[string]*[]string{"outbound_cidrs": c.OutboundCIDRs, "inbound_cidrs": c.InboundCIDRs} {
		for _, s := range deref(list) {
			if _, err := netip.ParsePrefix(s); err != nil {
				return Wrong(name, errs.New(errs.ConfigInvalid, "%q is no CIDR", s).WithHint("write \"192.0.2.0/24\", or /32 for one address"))
			}
		}
	}
	if c.BlockNetwork && (c.I6PN || len(c.InjectHeaders) > 0) {
		return Wrong("block_network", errs.New(errs.ConfigInvalid, "without a network there is no i6pn, and there are no requests to put headers into"))
	}
	if len(c.InjectHeaders) > 0 && len(deref(c.OutboundDomains)) > 0 {
		return Wrong("inject_header", errs.New(errs.ConfigInvalid, "Modal does not take inject_header together with domains that may be reached"))
	}
	for at := range c.Volumes {
		if name, _, _ := c.Volume(at); !path.IsAbs(at) || name == "" {
			return Wrong("volumes", errs.New(errs.ConfigInvalid, "%q = %q: an absolute path and a volume's name are needed", at, c.Volumes[at]))
		}
	}
	if slices.Contains(slices.Concat(c.UnencryptedPorts, c.H2Ports), 0) {
		return Wrong("unencrypted_ports", errs.New(errs.ConfigInvalid, "there is no port 0"))
	}
	return nil
}

// Volume reads what volumes says of a path.
func (c *Config) Volume(at string) (name, sub string, readOnly bool) {
	v, ro := strings.CutSuffix(c.Volumes[at], ":ro")
	name, sub, _ = strings.Cut(v, "/")
	return name, sub, ro
}

// MiB are bytes in whole MiB, rounded up.
func MiB(bytes uint64) int { return int(math.Ceil(float64(bytes) / (1 << 20))) }

func deref(list *[]string) []string {
	if list == nil {
		return nil
	}
	return *list
}

// Wrong says which attribute an error is about.
func Wrong(attribute string, e *errs.Error) error {
	e.Path = []errs.PathStep{{Attribute: attribute}}
	return e
}
