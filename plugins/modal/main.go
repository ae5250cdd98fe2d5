// SPDX-License-Identifier: Apache-2.0

// Command berth-driver-modal makes sandboxes at Modal.
package main

import "github.com/berth-dev/berth/sdk/serve"

func main() { serve.Main(New) }
