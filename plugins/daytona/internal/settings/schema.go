// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"github.com/berth-dev/berth/plugins/daytona/client"
	"github.com/berth-dev/berth/sdk/schema"
)

// ProcessSchema describes the driver block.
func ProcessSchema() *schema.Schema {
	return &schema.Schema{Version: 1, Block: schema.Block{
		Doc: "Which installation of Daytona to use, and as whom.",
		Attributes: []schema.Attribute{
			{
				Name: "api_url", Type: schema.String, Default: client.DefaultURL, Env: "DAYTONA_API_URL",
				Doc:     "The address of the API. Name that of your own installation here; it ends in /api.",
				Example: `"https://daytona.example.com/api"`,
			},
			{
				Name: "api_key", Type: schema.String, Sensitive: true, Env: "DAYTONA_API_KEY", ConflictsWith: []string{"jwt_token"},
				Doc: "The API key.", Example: `secret.daytona`,
			},
			{
				Name: "jwt_token", Type: schema.String, Sensitive: true, Env: "DAYTONA_JWT_TOKEN",
				Doc: "A JSON web token instead of an API key. It needs organization_id.", Example: `secret.daytona_jwt`,
			},
			{
				Name: "organization_id", Type: schema.String, Default: "", Env: "DAYTONA_ORGANIZATION_ID",
				Doc:     "The organization to work for, where the credentials belong to several. An API key belongs to one.",
				Example: `"8f6c1c9e-3a5b-4d53-9b57-0a7a1c1d2e3f"`,
			},
			{
				Name: "target", Type: schema.String, Default: "", Env: "DAYTONA_TARGET",
				Doc: "The region for sandboxes that name none. Empty is the organization's.", Example: `"eu"`,
			},
			{
				Name: "request_timeout", Type: schema.Number, Unit: "duration", Default: "60s", Min: new(1.0),
				Doc: "How long one attempt at a call of the API may take. What moves files or waits for a sandbox has its own times.",
			},
		},
	}}
}

// SandboxSchema describes the config block of a sandbox.
func SandboxSchema() *schema.Schema {
	const maxArchive = 30 * 24 * 3600
	zero := new(float64)
	return &schema.Schema{Version: 1, Block: schema.Block{
		Doc: "A sandbox of Daytona. It is made from a snapshot, or from an image that is built into one first.",
		Attributes: []schema.Attribute{
			{
				Name: "snapshot", Type: schema.String, Immutable: true, ConflictsWith: []string{"image", "dockerfile"},
				Doc: "The snapshot to make it from. Empty is the region's own. Its resources are the sandbox's.", Example: `"python-3-14"`,
			},
			{
				Name: "image", Type: schema.String, Immutable: true, ConflictsWith: []string{"dockerfile"},
				Doc: "The image to make it from. The first sandbox waits until it is built.", Example: `"python:3.14-slim"`,
			},
			{
				Name: "dockerfile", Type: schema.String, Immutable: true,
				Doc: "The text of a Dockerfile to make it from. It copies nothing: there is no build context.", Example: `file("Dockerfile")`,
			},
			{
				Name: "cpu", Type: schema.Number, Default: 0, Min: zero, Immutable: true,
				Doc: "Processors, whole ones. With image or dockerfile only. 0 is the vendor's choice, 1.", Example: "2",
			},
			{
				Name: "memory", Type: schema.Number, Unit: "bytes", Default: 0, Min: zero, Immutable: true,
				Doc: "Memory, in whole GiB. With image or dockerfile only. 0 is the vendor's choice, 1 GiB.", Example: `"4GiB"`,
			},
			{
				Name: "disk", Type: schema.Number, Unit: "bytes", Default: 0, Min: zero, Immutable: true,
				Doc: "Disk, in whole GiB. With image or dockerfile only. 0 is the vendor's choice, 3 GiB.", Example: `"10GiB"`,
			},
			{
				Name: "gpu", Type: schema.Number, Default: 0, Min: zero, Immutable: true,
				Doc: "Graphics processors. With image or dockerfile only, and auto_delete = 0: such a sandbox cannot be stopped.", Example: "1",
			},
			{
				Name: "gpu_type", Type: schema.ListOf(schema.String), Default: []string{}, Immutable: true,
				Doc: "The kinds of graphics processors that will do.", Example: `["H100"]`,
			},
			{
				Name: "user", Type: schema.String, Default: "", Immutable: true,
				Doc: "The user of the sandbox, for its whole life. Empty is the vendor's, daytona, who may use sudo in the vendor's images. " +
					"With \"root\" commands can run as other users, and accounts can be made.",
				Example: `"root"`,
			},
			{
				Name: "target", Type: schema.String, Default: "", Immutable: true,
				Doc: "The region. Empty is that of the driver block.", Example: `"us"`,
			},
			{
				Name: "public", Type: schema.Bool, Default: false, Immutable: true,
				Doc: "Whether everybody who knows the address of a port sees what it serves.",
			},
			{
				Name: "network", Type: schema.String, Default: "", OneOf: []string{"", "none"}, Immutable: true,
				Doc: "\"none\" blocks everything that goes out. Empty is the vendor's policy.", Example: `"none"`,
			},
			{
				Name: "network_allow", Type: schema.ListOf(schema.String), Default: []string{}, Immutable: true,
				Doc:     "Addresses (CIDR blocks) and domain names that may be reached; everything else is blocked.",
				Example: `["10.0.0.0/8", "pypi.org"]`,
			},
			{
				Name: "auto_stop", Type: schema.Number, Unit: "duration", Default: "15m", Min: zero, Immutable: true,
				Doc: "How long without activity until Daytona stops the sandbox: its processes end, its files stay. Whole minutes; 0 is never. " +
					"While a command runs or the sandbox is used, berth keeps it. A driver that died does not.",
				Example: `"1h"`,
			},
			{
				Name: "auto_archive", Type: schema.Number, Unit: "duration", Default: "168h", Min: zero, Max: new(float64(maxArchive)), Immutable: true,
				Doc: "How long stopped until its files move to cheaper storage, from where a start takes longer. Whole minutes; 0 is as late as " +
					"it can be, 30 days.",
			},
			{
				Name: "auto_delete", Type: schema.String, Default: "never", Pattern: `^(never|0|[0-9]+(m|h))$`, Immutable: true,
				Doc: "How long stopped until it is deleted with its files: \"never\", minutes or hours. \"0\" deletes it as it stops.", Example: `"720h"`,
			},
			{
				Name: "archive_on_stop", Type: schema.Bool, Default: false,
				Doc: "Whether a sandbox that berth stops is archived at once.",
			},
			{
				Name: "labels", Type: schema.MapOf(schema.String), Default: map[string]string{}, Immutable: true,
				Doc: "More labels.", Example: `{ team = "search" }`,
			},
			{
				Name: "volumes", Type: schema.MapOf(schema.String), Default: map[string]string{}, Immutable: true,
				Doc: "Daytona's volumes, by the path inside, as NAME or NAME:PATH-IN-VOLUME. One that is not there is made. They outlive the " +
					"sandbox, and are slow: no locks, and a file is written from its beginning to its end.",
				Example: `{ "/mnt/data" = "datasets:raw" }`,
			},
			{
				Name: "linked_sandbox", Type: schema.String, Default: "", Immutable: true,
				Doc: "The id of a sandbox to be linked with. It needs auto_delete = \"0\".", Example: `"0c7e2b0e-0e5c-4d5e-9b3b-2f8d1b6a7c11"`,
			},
			{
				Name: "preview_ttl", Type: schema.Number, Unit: "duration", Default: "1h", Min: new(1.0), Max: new(86400.0),
				Doc: "How long the address of a public port holds. It is made anew when it is asked for after four fifths of that.",
			},
			{
				Name: "create_timeout", Type: schema.Number, Unit: "duration", Default: "10m", Min: new(1.0),
				Doc: "How long a sandbox may take to be made, with the build of its image.",
			},
			{
				Name: "start_timeout", Type: schema.Number, Unit: "duration", Default: "10m", Min: new(1.0),
				Doc: "How long a sandbox may take to start again; from the archive it takes longest.",
			},
			{
				Name: "stop_timeout", Type: schema.Number, Unit: "duration", Default: "2m", Min: new(1.0),
				Doc: "How long a sandbox may take to stop, or to begin to go.",
			},
		},
	}}
}
