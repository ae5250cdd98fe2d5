// SPDX-License-Identifier: Apache-2.0

// Package settings is what users can say about container sandboxes.
package settings

import (
	"net/netip"
	"os"
	"path"
	"strings"

	"github.com/docker/go-units"

	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/schema"
)

// The words of guest.
const (
	GuestAuto     = "auto"
	GuestRequired = "required"
	GuestNever    = "never"
)

// defaultImage has a shell, Python and the tools that agents reach for first.
const defaultImage = "python:3.14-slim"

// DefaultCapabilities are what a root user inside needs to install packages and to act for other users. Everything else
// is dropped.
var DefaultCapabilities = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETGID", "SETUID"}

// Process is the driver block.
type Process struct {
	Host      string `berth:"host"`
	Context   string `berth:"context"`
	CertPath  string `berth:"cert_path"`
	ConfigDir string `berth:"config_dir"`
}

// Config is a sandbox's config block.
type Config struct {
	Image           string            `berth:"image"`
	Pull            string            `berth:"pull"`
	Platform        string            `berth:"platform"`
	Guest           string            `berth:"guest"`
	User            string            `berth:"user"`
	Network         string            `berth:"network"`
	PublishAddress  string            `berth:"publish_address"`
	DNS             []string          `berth:"dns"`
	ExtraHosts      []string          `berth:"extra_hosts"`
	Processes       uint32            `berth:"processes"`
	Memory          uint64            `berth:"memory"`
	CPUs            float64           `berth:"cpus"`
	Disk            uint64            `berth:"disk"`
	SharedMemory    uint64            `berth:"shared_memory"`
	FileSize        uint64            `berth:"file_size"`
	OpenFiles       uint32            `berth:"open_files"`
	ReadOnlyRoot    bool              `berth:"read_only_root"`
	Tmpfs           map[string]string `berth:"tmpfs"`
	Volumes         map[string]string `berth:"volumes"`
	Capabilities    []string          `berth:"capabilities"`
	NoNewPrivileges bool              `berth:"no_new_privileges"`
	Seccomp         string            `berth:"seccomp"`
	AppArmor        string            `berth:"apparmor"`
	Runtime         string            `berth:"runtime"`
	Devices         []string          `berth:"devices"`
	GPUs            string            `berth:"gpus"`
	Labels          map[string]string `berth:"labels"`
}

// ProcessSchema describes the driver block.
func ProcessSchema() *schema.Schema {
	return &schema.Schema{Version: 1, Block: schema.Block{
		Doc: "Which container engine to use. Without any of it: the one that the docker command uses.",
		Attributes: []schema.Attribute{
			{
				Name: "host", Type: schema.String, Default: "", Env: "DOCKER_HOST",
				Doc:     "The engine's address: unix://, tcp:// or ssh://.",
				Example: `"ssh://build@builder.example"`,
			},
			{
				Name: "context", Type: schema.String, Default: "", Env: "DOCKER_CONTEXT",
				Doc: "A context of the docker command. An explicit host goes before it.", Example: `"builder"`,
			},
			{
				Name: "cert_path", Type: schema.String, Default: "", Env: "DOCKER_CERT_PATH",
				Doc: "The directory with ca.pem, cert.pem and key.pem for a tcp:// host.", Example: `"/etc/berth/docker"`,
			},
			{
				Name: "config_dir", Type: schema.String, Default: "", Env: "DOCKER_CONFIG",
				Doc: "The docker command's configuration directory: contexts, and who may pull. Empty is ~/.docker.", Example: `"/etc/berth/docker"`,
			},
		},
	}}
}

// Decode reads a sandbox's config block and puts the request's own limits over it.
func Decode(v schema.Value, limits driver.ResourceLimits, network driver.NetworkPolicy) (*Config, error) {
	var c Config
	if err := v.Decode(SandboxSchema(), &c); err != nil {
		return nil, err
	}
	limits.Replace(&c.Processes, &c.Memory, &c.CPUs, &c.FileSize, &c.OpenFiles)
	switch network.Mode {
	case "", "default":
	case "none":
		c.Network = "none"
	default:
		return nil, errs.New(errs.Unsupported, "network policy %q cannot be enforced by a container engine", network.Mode).
			With("feature", string(driver.NetPolicy)).
			WithHint("use \"none\", or network = \"NAME\" of an internal network that a filtering proxy is on")
	}
	return &c, c.check()
}

// check looks at what the schema cannot.
func (c *Config) check() error {
	if c.Image == "" {
		return Wrong("image", errs.New(errs.ConfigInvalid, "no image is named"))
	}
	if strings.HasPrefix(c.Network, "container:") || c.Network == "host" {
		return Wrong("network", errs.New(errs.ConfigInvalid, "a sandbox does not share the network %q", c.Network).
			WithHint("use \"none\", \"bridge\" or the name of a network"))
	}
	if _, err := netip.ParseAddr(c.PublishAddress); err != nil {
		return Wrong("publish_address", errs.New(errs.ConfigInvalid, "%q is no IP address", c.PublishAddress))
	}
	for _, d := range c.DNS {
		if _, err := netip.ParseAddr(d); err != nil {
			return Wrong("dns", errs.New(errs.ConfigInvalid, "%q is no IP address", d))
		}
	}
	for _, h := range c.ExtraHosts {
		if !strings.Contains(h, ":") {
			return Wrong("extra_hosts", errs.New(errs.ConfigInvalid, "%q is not of the form NAME:ADDRESS", h))
		}
	}
	for target, size := range c.Tmpfs {
		if _, err := units.RAMInBytes(size); err != nil || !path.IsAbs(target) {
			return Wrong("tmpfs", errs.New(errs.ConfigInvalid, "%q = %q: an absolute path and a size such as \"64MiB\" are needed", target, size))
		}
	}
	for target, v := range c.Volumes {
		name, option, _ := strings.Cut(v, ":")
		if !path.IsAbs(target) || name == "" || strings.Contains(name, "/") || (option != "" && option != "ro" && option != "rw") {
			return Wrong("volumes", errs.New(errs.ConfigInvalid, "%q = %q: an absolute path and a volume's name are needed, with :ro or not", target, v).
				WithHint("host paths are made visible with path grants"))
		}
	}
	if c.Seccomp != "" && c.Seccomp != "unconfined" {
		if _, err := os.Stat(c.Seccomp); err != nil {
			return Wrong("seccomp", errs.New(errs.ConfigInvalid, "the seccomp profile %q cannot be read", c.Seccomp))
		}
	}
	if c.Platform != "" {
		if p := engine.Platform(c.Platform); p.OS != "linux" || p.Architecture == "" {
			return Wrong("platform", errs.New(errs.ConfigInvalid, "%q is no platform of sandboxes", c.Platform).WithHint("write \"linux/amd64\" or \"linux/arm64\""))
		}
	}
	return nil
}

// Wrong says which attribute an error is about.
func Wrong(attribute string, e *errs.Error) error {
	e.Path = []errs.PathStep{{Attribute: attribute}}
	return e
}
