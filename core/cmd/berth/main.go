// SPDX-License-Identifier: Apache-2.0

// Command berth gives an agent a computer. See `berth help`.
package main

import (
	"os"

	"github.com/berth-dev/berth/core/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], cli.OS()))
}
