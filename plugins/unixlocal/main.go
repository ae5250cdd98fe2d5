// SPDX-License-Identifier: Apache-2.0

// Command berth-driver-unixlocal makes sandboxes on this machine: a guest that the kernel confines.
package main

import "github.com/berth-dev/berth/sdk/serve"

func main() { serve.Main(New) }
