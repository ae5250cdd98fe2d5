// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/confine/report"
	"github.com/berth-dev/berth/sdk/schema"
)

// The words of isolation.
const (
	isolationBest     = "best"
	isolationRequired = "required"
	isolationOff      = "off"
)

// processConfig is the driver block.
type processConfig struct {
	TemplateCache uint64 `berth:"template_cache"`
}

// config is a sandbox's config block.
type config struct {
	Isolation     string   `berth:"isolation"`
	RequiredAxes  []string `berth:"required_axes"`
	Network       string   `berth:"network"`
	Processes     uint32   `berth:"processes"`
	Memory        uint64   `berth:"memory"`
	CPUs          float64  `berth:"cpus"`
	FileSize      uint64   `berth:"file_size"`
	OpenFiles     uint32   `berth:"open_files"`
	ReadOnlyPaths []string `berth:"read_only_paths"`
	Toolchains    bool     `berth:"toolchains"`
	UnixSockets   bool     `berth:"allow_unix_sockets"`
	Nested        bool     `berth:"nested_sandboxes"`
}

func processSchema() *schema.Schema {
	return &schema.Schema{Version: 1, Block: schema.Block{
		Doc: "Settings of the driver process.",
		Attributes: []schema.Attribute{{
			Name: "template_cache", Type: schema.Number, Unit: "bytes", Default: "10GiB", Min: new(float64),
			Doc: "How much disk workspaces that are kept as templates may take. The longest unused go first; those in use stay. " +
				"0 keeps none.",
			Example: `"10GiB"`,
		}},
	}}
}

func sandboxSchema() *schema.Schema {
	zero := new(float64)
	return &schema.Schema{Version: 1, Block: schema.Block{
		Doc: "A sandbox on this machine, confined by the kernel.",
		Attributes: []schema.Attribute{
			{
				Name: "isolation", Type: schema.String, Default: isolationBest, Immutable: true,
				OneOf: []string{isolationBest, isolationRequired, isolationOff},
				Doc: "How much isolation there must be. \"best\" enforces all that this machine allows and says what; " +
					"\"required\" refuses to start without the axes in required_axes; \"off\" confines nothing.",
			},
			{
				Name: "required_axes", Type: schema.ListOf(schema.String), Immutable: true,
				Default: []string{report.AxisFilesystem, report.AxisKill, report.AxisLimits},
				Doc: "The axes that isolation = \"required\" insists on: filesystem, processes, kill, network, unix_sockets, user, " +
					"kernel, limits.",
				Example: `["filesystem", "kill", "network"]`,
			},
			{
				Name: "network", Type: schema.String, Default: "host", Immutable: true, OneOf: []string{"host", "none"},
				Doc: "\"host\" shares the machine's network, its loopback device included. \"none\" leaves the sandbox alone with " +
					"its own.",
			},
			{
				Name: "processes", Type: schema.Number, Default: 4096, Immutable: true, Min: new(16.0), Max: new(float64(1 << 20)),
				Doc: "How many processes and threads the sandbox may have at once.",
			},
			{
				Name: "memory", Type: schema.Number, Unit: "bytes", Default: 0, Immutable: true, Min: zero,
				Doc: "How much memory the sandbox's commands may use together; needs a cgroup. 0 sets no limit.", Example: `"4GiB"`,
			},
			{
				Name: "cpus", Type: schema.Number, Default: 0, Immutable: true, Min: zero,
				Doc: "How many processors' time the sandbox's commands may use together; needs a cgroup. 0 sets no limit.", Example: "1.5",
			},
			{
				Name: "file_size", Type: schema.Number, Unit: "bytes", Default: "16GiB", Immutable: true, Min: zero,
				Doc: "How large one file may become. 0 sets no limit.", Example: `"1GiB"`,
			},
			{
				Name: "open_files", Type: schema.Number, Default: 4096, Immutable: true, Min: new(64.0),
				Doc: "How many files a process may have open.",
			},
			{
				Name: "read_only_paths", Type: schema.ListOf(schema.String), Default: []string{},
				Doc: "More directories or files of this machine that the sandbox may read, at the same paths.", Example: `["/srv/data"]`,
			},
			{
				Name: "toolchains", Type: schema.Bool, Default: true,
				Doc: "Whether the directories of this machine's PATH can be read in the sandbox, with what their links lead to.",
			},
			{
				Name: "allow_unix_sockets", Type: schema.Bool, Default: false,
				Doc: "Whether commands may use unix sockets where nothing but Landlock confines them: those of this machine's " +
					"services are then in reach. With a private root there are none, and this changes nothing.",
			},
			{
				Name: "nested_sandboxes", Type: schema.Bool, Default: false,
				Doc: "Whether commands may make namespaces of their own, as browsers and bubblewrap do. It opens more of the " +
					"kernel, and leaves files to the private root alone; without one it changes nothing.",
			},
		},
	}}
}

// decode reads a sandbox's config block and puts the request's own limits over it.
func decode(v schema.Value, limits driver.ResourceLimits, network driver.NetworkPolicy) (*config, error) {
	var c config
	if err := v.Decode(sandboxSchema(), &c); err != nil {
		return nil, err
	}
	axes := report.Axes()
	for i, a := range c.RequiredAxes {
		if !slices.Contains(axes, a) {
			index := int64(i)
			e := errs.New(errs.ConfigInvalid, "there is no axis %q", a).WithHint("use some of %v", axes)
			e.Path = []errs.PathStep{{Attribute: "required_axes"}, {Index: &index}}
			return nil, e
		}
	}
	limits.Replace(&c.Processes, &c.Memory, &c.CPUs, &c.FileSize, &c.OpenFiles)
	switch network.Mode {
	case "", "default":
	case "none":
		c.Network = "none"
	default:
		return nil, errs.New(errs.Unsupported, "network policy %q cannot be enforced on this machine", network.Mode).
			With("feature", string(driver.NetPolicy)).WithHint("use network = \"none\" or \"host\"")
	}
	return &c, nil
}
