// SPDX-License-Identifier: Apache-2.0

// Command berth-driver-docker makes sandboxes that are containers of a Docker engine, or of Podman. berth's guest is the
// container's first process and does the work inside.
package main

import "github.com/berth-dev/berth/sdk/serve"

func main() { serve.Main(New) }
