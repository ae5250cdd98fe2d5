// SPDX-License-Identifier: Apache-2.0

// Package settings is what users can say about sandboxes of Daytona.
package settings

import (
	"maps"
	"net/netip"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/berth-dev/berth/plugins/daytona/client"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/schema"
)

// Process is the driver block.
type Process struct {
	APIURL         string        `berth:"api_url"`
	APIKey         string        `berth:"api_key"`
	JWT            string        `berth:"jwt_token"`
	Organization   string        `berth:"organization_id"`
	Target         string        `berth:"target"`
	RequestTimeout time.Duration `berth:"request_timeout"`
}

// Config is a sandbox's config block.
type Config struct {
	Snapshot      string            `berth:"snapshot"`
	Image         string            `berth:"image"`
	Dockerfile    string            `berth:"dockerfile"`
	CPU           int               `berth:"cpu"`
	Memory        uint64            `berth:"memory"`
	Disk          uint64            `berth:"disk"`
	GPU           int               `berth:"gpu"`
	GPUType       []string          `berth:"gpu_type"`
	User          string            `berth:"user"`
	Target        string            `berth:"target"`
	Public        bool              `berth:"public"`
	Network       string            `berth:"network"`
	NetworkAllow  []string          `berth:"network_allow"`
	AutoStop      time.Duration     `berth:"auto_stop"`
	AutoArchive   time.Duration     `berth:"auto_archive"`
	AutoDelete    string            `berth:"auto_delete"`
	ArchiveOnStop bool              `berth:"archive_on_stop"`
	Labels        map[string]string `berth:"labels"`
	Volumes       map[string]string `berth:"volumes"`
	Linked        string            `berth:"linked_sandbox"`
	PreviewTTL    time.Duration     `berth:"preview_ttl"`
	CreateTimeout time.Duration     `berth:"create_timeout"`
	StartTimeout  time.Duration     `berth:"start_timeout"`
	StopTimeout   time.Duration     `berth:"stop_timeout"`
}

const gib = 1 << 30

// Decode reads a sandbox's config block and puts the request's own limits over it.
func Decode(v schema.Value, limits driver.ResourceLimits, network driver.NetworkPolicy) (*Config, error) {
	var c Config
	if err := v.Decode(SandboxSchema(), &c); err != nil {
		return nil, err
	}
	if limits.Processes > 0 || limits.FileBytes > 0 || limits.OpenFiles > 0 {
		return nil, errs.New(errs.Unsupported, "Daytona bounds neither processes nor files of a sandbox").WithHint("leave these limits out")
	}
	if limits.CPUs > 0 {
		c.CPU = int(limits.CPUs)
		if float64(c.CPU) < limits.CPUs { // whole ones only
			c.CPU++
		}
	}
	if limits.MemoryBytes > 0 {
		c.Memory = (limits.MemoryBytes + gib - 1) / gib * gib
	}
	switch network.Mode {
	case "", "default":
	case "none":
		c.Network, c.NetworkAllow = "none", nil
	case "allow_list":
		c.NetworkAllow = network.Allow
		if len(network.Allow) == 0 {
			c.Network = "none"
		}
	default:
		return nil, errs.New(errs.Unsupported, "Daytona has no network policy %q", network.Mode).With("feature", string(driver.NetPolicy)).
			WithHint("use \"none\" or \"allow_list\"")
	}
	return &c, c.check()
}

// check looks at what the schema cannot.
func (c *Config) check() error {
	built := c.Image != "" || c.Dockerfile != ""
	for name, said := range map[string]bool{"cpu": c.CPU > 0, "memory": c.Memory > 0, "disk": c.Disk > 0, "gpu": c.GPU > 0} {
		if said && !built {
			return Wrong(name, errs.New(errs.ConfigInvalid, "a sandbox from a snapshot has the snapshot's resources").
				WithHint("name an image instead, or a snapshot that was made with the resources wanted"))
		}
	}
	for name, n := range map[string]uint64{"memory": c.Memory, "disk": c.Disk} {
		if n%gib != 0 {
			return Wrong(name, errs.New(errs.ConfigInvalid, "%d bytes are no whole GiB", n).WithHint("write \"2GiB\""))
		}
	}
	for name, d := range map[string]time.Duration{"auto_stop": c.AutoStop, "auto_archive": c.AutoArchive} {
		if d%time.Minute != 0 {
			return Wrong(name, errs.New(errs.ConfigInvalid, "%s are no whole minutes", d).WithHint("write \"5m\""))
		}
	}
	if c.GPU > 0 && c.deleteMinutes() != 0 {
		return Wrong("gpu", errs.New(errs.ConfigInvalid, "a sandbox with graphics processors cannot outlive its stop").WithHint("set auto_delete = \"0\""))
	}
	if c.Network == "none" && len(c.NetworkAllow) > 0 {
		return Wrong("network_allow", errs.New(errs.ConfigInvalid, "network = \"none\" allows nothing").WithHint("leave one of the two out"))
	}
	for at, v := range c.Volumes {
		name, sub, _ := strings.Cut(v, ":")
		if !path.IsAbs(at) || path.Clean(at) == "/" || name == "" || strings.Contains(name, "/") || path.IsAbs(sub) {
			return Wrong("volumes", errs.New(errs.ConfigInvalid, "%q = %q: an absolute path and a volume's name are needed, with :PATH or not", at, v))
		}
	}
	for k := range c.Labels {
		if strings.HasPrefix(k, LabelPrefix) {
			return Wrong("labels", errs.New(errs.ConfigInvalid, "label %q: those that begin with %s are berth's", k, LabelPrefix))
		}
	}
	return nil
}

// Ephemeral says whether a sandbox goes as it stops.
func (c *Config) Ephemeral() bool { return c.deleteMinutes() == 0 }

// deleteMinutes is auto_delete in the vendor's words.
func (c *Config) deleteMinutes() int {
	if c.AutoDelete == "never" || c.AutoDelete == "" {
		return -1
	}
	unit := 1
	if strings.HasSuffix(c.AutoDelete, "h") {
		unit = 60
	}
	n, err := strconv.Atoi(strings.TrimRight(c.AutoDelete, "mh"))
	if err != nil { // the pattern lets digits through only; so many are never
		return -1
	}
	return n * unit
}

// The labels that berth puts on sandboxes.
const (
	LabelPrefix  = "berth.dev/"
	LabelSandbox = LabelPrefix + "sandbox" // its id
	LabelRoot    = LabelPrefix + "root"    // its workspace
	LabelFilled  = LabelPrefix + "filled"  // the workspace holds something of its owner's
	LabelCore    = LabelPrefix + "label/"  // the core's own
)

// Wish is the sandbox that the configuration asks for. Volumes are not in it yet: their ids have to be looked up.
func (c *Config) Wish(req *driver.CreateRequest, labels map[string]string, name, target string) *client.Create {
	minutes := func(d time.Duration) *int { return new(int(d / time.Minute)) }
	w := &client.Create{
		Name: name, Snapshot: c.Snapshot, CPU: c.CPU, Memory: int(c.Memory / gib), Disk: int(c.Disk / gib), GPU: c.GPU, GPUType: c.GPUType,
		User: c.User, Env: req.Env, Labels: map[string]string{}, Public: c.Public, NetworkBlockAll: c.Network == "none", Target: target,
		AutoStop: minutes(c.AutoStop), AutoArchive: minutes(c.AutoArchive), AutoDelete: new(c.deleteMinutes()), LinkedSandbox: c.Linked,
	}
	if c.Target != "" {
		w.Target = c.Target
	}
	switch {
	case req.NativeSnapshot != "":
		w.Snapshot, w.CPU, w.Memory, w.Disk, w.GPU = req.NativeSnapshot, 0, 0, 0, 0
	case c.Image != "":
		w.Build = client.FromImage(c.Image)
	case c.Dockerfile != "":
		w.Build = &client.Build{Dockerfile: c.Dockerfile}
	}
	maps.Copy(w.Labels, c.Labels)
	for _, m := range []map[string]string{labels, req.Labels} {
		for k, v := range m {
			w.Labels[LabelCore+k] = v
		}
	}
	w.Labels[LabelSandbox], w.Labels[LabelRoot] = req.SandboxID, req.Workspace.Root
	if req.NativeSnapshot != "" {
		w.Labels[LabelFilled] = "true"
	}
	w.NetworkAllowList, w.DomainAllowList = allowed(c.NetworkAllow)
	return w
}

// allowed sorts addresses from names.
func allowed(all []string) (addresses, domains string) {
	var a, d []string
	for _, s := range all {
		if ip, err := netip.ParseAddr(s); err == nil {
			s = netip.PrefixFrom(ip, ip.BitLen()).String()
		}
		if _, err := netip.ParsePrefix(s); err == nil {
			a = append(a, s)
		} else {
			d = append(d, s)
		}
	}
	return strings.Join(a, ","), strings.Join(d, ",")
}

// CoreLabels are the labels that the core gave.
func CoreLabels(labels map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range labels {
		if name, ok := strings.CutPrefix(k, LabelCore); ok {
			out[name] = v
		}
	}
	return out
}

// Wrong says which attribute an error is about.
func Wrong(attribute string, e *errs.Error) error {
	e.Path = []errs.PathStep{{Attribute: attribute}}
	return e
}
