// SPDX-License-Identifier: Apache-2.0

package settings

import "github.com/berth-dev/berth/sdk/schema"

// SandboxSchema describes the config block of a sandbox.
func SandboxSchema() *schema.Schema {
	zero := new(float64)
	at := func(f float64) *float64 { return &f }
	return &schema.Schema{Version: 1, Block: schema.Block{
		Doc: "A sandbox that is a container.",
		Attributes: []schema.Attribute{
			{
				Name: "image", Type: schema.String, Default: defaultImage, Immutable: true,
				Doc:     "The image: a name with tag or digest, or an id. It needs nothing inside, not even a shell.",
				Example: `"python:3.14-slim"`,
			},
			{
				Name: "pull", Type: schema.String, Default: "missing", OneOf: []string{"missing", "always", "never"},
				Doc: "When to fetch the image: if the engine lacks it, before every new sandbox, or not at all.",
			},
			{
				Name: "platform", Type: schema.String, Default: "",
				Doc: "The processor to run on, where the engine emulates others. Empty is the engine's own.", Example: `"linux/arm64"`,
			},
			{
				Name: "guest", Type: schema.String, Default: GuestAuto, OneOf: []string{GuestAuto, GuestRequired, GuestNever},
				Doc: "Whether berth's guest works inside. \"auto\" goes on without it where it cannot run, and says so: each command is " +
					"then an exec of the engine, slower, and files need a shell in the image. \"required\" makes that an error.",
			},
			{
				Name: "user", Type: schema.String, Default: "",
				Doc: "The user of commands, by name or number, with :group or not. Empty is the image's.", Example: `"1000:1000"`,
			},
			{
				Name: "network", Type: schema.String, Default: "bridge",
				Doc: "\"none\" leaves the sandbox alone with its own loopback device, \"bridge\" gives it a way out, and a name one of " +
					"the engine's networks.",
				Example: `"none"`,
			},
			{
				Name: "publish_address", Type: schema.String, Default: "127.0.0.1",
				Doc: "The engine's address at which exposed ports are published.", Example: `"0.0.0.0"`,
			},
			{Name: "dns", Type: schema.ListOf(schema.String), Default: []string{}, Doc: "Name servers instead of the engine's.", Example: `["10.0.0.53"]`},
			{
				Name: "extra_hosts", Type: schema.ListOf(schema.String), Default: []string{},
				Doc: "More names, as NAME:ADDRESS. The address host-gateway is the engine's machine.", Example: `["proxy:10.0.0.9"]`,
			},
			{Name: "processes", Type: schema.Number, Default: 1024, Min: at(32), Doc: "How many processes and threads there may be at once."},
			{
				Name: "memory", Type: schema.Number, Unit: "bytes", Default: "4GiB", Min: zero,
				Doc: "How much memory there is, swap included. 0 sets no limit.", Example: `"512MiB"`,
			},
			{Name: "cpus", Type: schema.Number, Default: 0, Min: zero, Doc: "How many processors' time there is. 0 sets no limit.", Example: "1.5"},
			{
				Name: "disk", Type: schema.Number, Unit: "bytes", Default: 0, Min: zero,
				Doc: "How large the container's own files may become; few storage drivers can. 0 sets no limit.", Example: `"10GiB"`,
			},
			{Name: "shared_memory", Type: schema.Number, Unit: "bytes", Default: "64MiB", Min: zero, Doc: "The size of /dev/shm.", Example: `"1GiB"`},
			{Name: "file_size", Type: schema.Number, Unit: "bytes", Default: "16GiB", Min: zero, Doc: "How large one file may become. 0 sets no limit."},
			{Name: "open_files", Type: schema.Number, Default: 4096, Min: at(64), Doc: "How many files a process may have open."},
			{
				Name: "read_only_root", Type: schema.Bool, Default: false,
				Doc: "Whether the image's files cannot be changed. The workspace is then a volume, and /tmp is in memory.",
			},
			{
				Name: "tmpfs", Type: schema.MapOf(schema.String), Default: map[string]string{},
				Doc: "Directories in memory, with their sizes.", Example: `{ "/run" = "16MiB" }`,
			},
			{
				Name: "volumes", Type: schema.MapOf(schema.String), Default: map[string]string{},
				Doc: "Volumes of the engine, by the path inside. They outlive the sandbox.", Example: `{ "/root/.cache" = "pip-cache" }`,
			},
			{
				Name: "capabilities", Type: schema.ListOf(schema.String), Default: DefaultCapabilities,
				Doc: "The capabilities that root has inside; all others are dropped. An empty list leaves none, and then nobody but the " +
					"default user.",
				Example: `[]`,
			},
			{Name: "no_new_privileges", Type: schema.Bool, Default: true, Doc: "Whether set-user-ID programs give no rights. sudo needs them."},
			{
				Name: "seccomp", Type: schema.String, Default: "",
				Doc: "A seccomp profile of this machine instead of the engine's, or \"unconfined\".", Example: `"/etc/berth/seccomp.json"`,
			},
			{Name: "apparmor", Type: schema.String, Default: "", Doc: "An AppArmor profile of the engine's machine.", Example: `"berth"`},
			{
				Name: "runtime", Type: schema.String, Default: "",
				Doc: "A runtime that the engine knows, such as runsc (gVisor) or kata.", Example: `"runsc"`,
			},
			{
				Name: "devices", Type: schema.ListOf(schema.String), Default: []string{},
				Doc: "Devices of the engine's machine, as PATH or PATH:INSIDE:PERMISSIONS.", Example: `["/dev/kvm"]`,
			},
			{
				Name: "gpus", Type: schema.String, Default: "", Pattern: `^(|all|[0-9]+|device=.+)$`,
				Doc: "\"all\", a number, or \"device=ID,ID\".", Example: `"all"`,
			},
			{
				Name: "labels", Type: schema.MapOf(schema.String), Default: map[string]string{},
				Doc: "More labels of the container.", Example: `{ team = "search" }`,
			},
		},
	}}
}
