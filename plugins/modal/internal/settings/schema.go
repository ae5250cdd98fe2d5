// SPDX-License-Identifier: Apache-2.0

// Package settings is what users can say about Modal sandboxes.
package settings

import "github.com/berth-dev/berth/sdk/schema"

// DefaultServer is the control plane when nothing else is said.
const DefaultServer = "https://api.modal.com:443"

// ProcessSchema describes the driver block.
func ProcessSchema() *schema.Schema {
	return &schema.Schema{Version: 1, Block: schema.Block{
		Doc: "Which Modal workspace to use, and who asks.",
		Attributes: []schema.Attribute{
			{
				Name: "token_id", Type: schema.String, Default: "", Env: "MODAL_TOKEN_ID", Sensitive: true,
				Doc: "The id of a token of the workspace.", Example: "secret.modal_token_id",
			},
			{
				Name: "token_secret", Type: schema.String, Default: "", Env: "MODAL_TOKEN_SECRET", Sensitive: true,
				Doc: "The secret of the token. The keys of the guests in sandboxes are made from it.", Example: "secret.modal_token_secret",
			},
			{
				Name: "profile", Type: schema.String, Default: "",
				Doc: "A profile of Modal's configuration file on this machine, whose token is used instead. Its environment, server_url " +
					"and image_builder_version hold where the block says nothing. Who signs in by OAuth there is refused.",
				Example: `"work"`,
			},
			{
				Name: "config_file", Type: schema.String, Default: "~/.modal.toml", Env: "MODAL_CONFIG_PATH",
				Doc: "The file that profile is in.", Example: `"~/.modal.toml"`,
			},
			{
				Name: "server_url", Type: schema.String, Default: DefaultServer, Env: "MODAL_SERVER_URL", Pattern: `^https?://`,
				Doc: "The address of the control plane.", Example: `"https://api.modal.com:443"`,
			},
			{
				Name: "environment", Type: schema.String, Default: "", Env: "MODAL_ENVIRONMENT",
				Doc: "The environment of the workspace. Empty is the workspace's default.", Example: `"research"`,
			},
			{
				Name: "app", Type: schema.String, Default: "berth", Pattern: `^[A-Za-z0-9._-]{1,64}$`,
				Doc: "The app that sandboxes belong to. It is made when there is none.", Example: `"agents"`,
			},
			{
				Name: "image_builder_version", Type: schema.String, Default: "", Env: "MODAL_IMAGE_BUILDER_VERSION",
				Doc: "The version of the image builder. Empty is the environment's.", Example: `"2025.06"`,
			},
			{
				Name: "max_throttle_wait", Type: schema.Number, Unit: schema.UnitDuration, Default: "1m", Min: new(float64),
				Doc: "How long a call waits in all when Modal asks for pauses. 0 never waits.", Example: `"30s"`,
			},
		},
	}}
}

// SandboxSchema describes the config block of a sandbox.
func SandboxSchema() *schema.Schema {
	return &schema.Schema{Version: 1, Block: schema.Block{
		Doc:        "A Modal sandbox.",
		Attributes: append(append(imageAttributes(), placeAttributes()...), lifeAttributes()...),
		Blocks: []schema.NestedBlock{{
			Type: "inject_header", Nesting: schema.List, Max: 25,
			Block: schema.Block{
				Doc: "A header that Modal puts into the HTTPS requests of the sandbox to a domain. Its secret stays outside.",
				Attributes: []schema.Attribute{
					{Name: "domain", Type: schema.String, Required: true, Doc: "The domain, with *. for what is below it.", Example: `"api.example.com"`},
					{Name: "name", Type: schema.String, Required: true, Doc: "The header's name.", Example: `"Authorization"`},
					{
						Name: "value", Type: schema.String, Required: true,
						Doc: "The header's value. $KEY is a key of the secret, $$ a dollar.", Example: `"Bearer $API_TOKEN"`,
					},
					{Name: "secret", Type: schema.String, Default: "", Doc: "A named secret of the workspace.", Example: `"api-token"`},
				},
			},
		}},
	}}
}

func imageAttributes() []schema.Attribute {
	return []schema.Attribute{
		{
			Name: "image", Type: schema.String, Default: "python:3.14-slim", Immutable: true,
			Doc: "The image: a name in a registry, or the id of an image of the workspace (im-…). It needs a shell, cat, chmod, " +
				"mkdir, mv, sleep and uname, and root as its user.",
			Example: `"debian:bookworm-slim"`,
		},
		{
			Name: "named_image", Type: schema.String, Default: "", Immutable: true,
			Doc: "An image that was published in the workspace, as NAME or NAME:TAG, instead of image.", Example: `"agents:stable"`,
		},
		{
			Name: "registry", Type: schema.String, Default: "", OneOf: []string{"", "aws_ecr", "gcp_artifact_registry"},
			Doc: "How the registry of image takes credentials. Empty is by user name and password.", Example: `"aws_ecr"`,
		},
		{
			Name: "registry_secret", Type: schema.String, Default: "",
			Doc: "A named secret of the workspace with the registry's credentials.", Example: `"registry"`,
		},
		{
			Name: "dockerfile_commands", Type: schema.ListOf(schema.String), Default: []string{}, Immutable: true,
			Doc: "More lines of a Dockerfile, which Modal builds on top of the image and keeps.", Example: `["RUN pip install numpy"]`,
		},
		{
			Name: "secrets", Type: schema.ListOf(schema.String), Default: []string{},
			Doc: "Named secrets of the workspace that become environment variables of every command.", Example: `["huggingface"]`,
		},
		{
			Name: "volumes", Type: schema.MapOf(schema.String), Default: map[string]string{},
			Doc:     "Volumes of the workspace by the path inside, as NAME, NAME:ro or NAME/SUBPATH. They are made when missing, and outlive the sandbox.",
			Example: `{ "/cache" = "pip-cache" }`,
		},
	}
}

func placeAttributes() []schema.Attribute {
	zero := new(float64)
	return []schema.Attribute{
		{
			Name: "cpu", Type: schema.Number, Default: 0, Min: zero,
			Doc: "How many physical cores are reserved. 0 is Modal's default.", Example: "1.5",
		},
		{Name: "cpu_limit", Type: schema.Number, Default: 0, Min: zero, Doc: "How many it may use. 0 sets no limit.", Example: "4"},
		{
			Name: "memory", Type: schema.Number, Unit: schema.UnitBytes, Default: 0, Min: zero,
			Doc: "How much memory is reserved, in whole MiB. 0 is Modal's default.", Example: `"2GiB"`,
		},
		{
			Name: "memory_limit", Type: schema.Number, Unit: schema.UnitBytes, Default: 0, Min: zero,
			Doc: "How much it may use. 0 sets no limit.", Example: `"4GiB"`,
		},
		{Name: "disk", Type: schema.Number, Unit: schema.UnitBytes, Default: 0, Min: zero, Doc: "How large its own files may become. 0 is Modal's default.", Example: `"64GiB"`},
		{
			Name: "gpu", Type: schema.String, Default: "", Pattern: `^(|[A-Za-z0-9-]+(:[0-9]+)?)$`,
			Doc:     "A kind of GPU, with a number or not. Such sandboxes run on Modal's older backend, where they may wait up to 21 minutes for one.",
			Example: `"A100:2"`,
		},
		{Name: "runtime", Type: schema.String, Default: "", OneOf: []string{"", "gvisor", "vm"}, Doc: "What it runs in. Empty is Modal's choice.", Example: `"vm"`},
		{Name: "cloud", Type: schema.String, Default: "", Doc: "The cloud to run on.", Example: `"aws"`},
		{Name: "regions", Type: schema.ListOf(schema.String), Default: []string{}, Doc: "The regions to run in.", Example: `["eu"]`},
		{Name: "non_preemptible", Type: schema.Bool, Default: false, Doc: "Whether Modal may not move it away for others; it costs more."},
		{Name: "proxy", Type: schema.String, Default: "", Doc: "A proxy of the workspace, for a fixed address outside.", Example: `"egress"`},
		{
			Name: "block_network", Type: schema.Bool, Default: false,
			Doc: "Whether nothing outside can be reached. A network policy \"none\" is the same.",
		},
		{
			Name: "outbound_cidrs", Type: schema.ListOf(schema.String),
			Doc: "The only addresses that it may reach. An empty list forbids all.", Example: `["10.0.0.0/8"]`,
		},
		{
			Name: "outbound_domains", Type: schema.ListOf(schema.String),
			Doc: "The only domains that it may reach, with *. for what is below one. An empty list forbids all.", Example: `["*.example.com"]`,
		},
		{Name: "inbound_cidrs", Type: schema.ListOf(schema.String), Doc: "The only addresses that may reach its ports. Unset is everybody.", Example: `["203.0.113.0/24"]`},
		{Name: "i6pn", Type: schema.Bool, Default: false, Doc: "Whether sandboxes of the workspace reach each other by private IPv6. Give them one region."},
		{
			Name: "unencrypted_ports", Type: schema.ListOf(schema.Number), Default: []float64{},
			Doc: "Ports that are also reached by plain TCP, without TLS.", Example: `[5432]`,
		},
		{Name: "h2_ports", Type: schema.ListOf(schema.Number), Default: []float64{}, Doc: "Ports that are reached by HTTP/2.", Example: `[8443]`},
		{Name: "custom_domain", Type: schema.String, Default: "", Doc: "The domain below which its ports are; it is set up with Modal first.", Example: `"boxes.example.com"`},
		{Name: "oidc_token", Type: schema.Bool, Default: false, Doc: "Whether commands get MODAL_IDENTITY_TOKEN, with which clouds know the sandbox."},
		{Name: "tags", Type: schema.MapOf(schema.String), Default: map[string]string{}, Doc: "More tags of the sandbox.", Example: `{ team = "search" }`},
		{
			Name: "experimental_options", Type: schema.MapOf(schema.String), Default: map[string]string{},
			Doc: "Options that Modal does not promise to keep. true and false are taken as such.", Example: `{ some_option = "true" }`,
		},
		{Name: "verbose", Type: schema.Bool, Default: false, Doc: "Whether Modal logs more of the sandbox."},
	}
}

func lifeAttributes() []schema.Attribute {
	one := 1.0
	return []schema.Attribute{
		{
			Name: "timeout", Type: schema.Number, Unit: schema.UnitDuration, Default: "1h", Min: &one,
			Doc: "How long it may live, from its creation on; Modal cannot prolong it. lifetime in the sandbox block goes before it.", Example: `"8h"`,
		},
		{
			Name: "idle_timeout", Type: schema.Number, Unit: schema.UnitDuration, Default: 0, Min: new(float64),
			Doc: "After how long without use Modal ends it. The guest counts as use, so the time begins when its lease (orphan_ttl) is over. 0 is never.", Example: `"10m"`,
		},
		{
			Name: "create_timeout", Type: schema.Number, Unit: schema.UnitDuration, Default: "10m", Min: &one,
			Doc: "How long making it may take, its image included.", Example: `"25m"`,
		},
		{
			Name: "snapshots", Type: schema.String, Default: "filesystem", OneOf: []string{"filesystem", "directory"},
			Doc: "What Modal's own snapshots hold: all files, or the workspace alone.", Example: `"directory"`,
		},
		{
			Name: "snapshot_ttl", Type: schema.Number, Unit: schema.UnitDuration, Default: "720h", Min: new(float64),
			Doc: "How long Modal keeps snapshots, those of stopped sandboxes too. 0 is for ever.", Example: `"168h"`,
		},
		{
			Name: "snapshot_timeout", Type: schema.Number, Unit: schema.UnitDuration, Default: "5m", Min: &one,
			Doc: "How long taking a snapshot may take.", Example: `"15m"`,
		},
		{
			Name: "exit_snapshot", Type: schema.Bool, Default: false,
			Doc: "Whether Modal keeps the files of a sandbox that ends by itself. The error that says so names the snapshot.",
		},
	}
}
