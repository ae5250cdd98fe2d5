// SPDX-License-Identifier: Apache-2.0

// Command berth-driver-daytona makes sandboxes at Daytona, in its cloud or an installation of one's own. berth's guest
// works inside, in a raw terminal of the vendor's.
package main

import "github.com/berth-dev/berth/sdk/serve"

func main() { serve.Main(New) }
