// SPDX-License-Identifier: Apache-2.0

// Command berth-driver-e2b makes sandboxes that are micro virtual machines of E2B, or of a service that speaks like it.
// berth's guest is carried in and does the work inside.
package main

import "github.com/berth-dev/berth/sdk/serve"

func main() { serve.Main(New) }
