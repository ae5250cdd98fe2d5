// SPDX-License-Identifier: Apache-2.0

//go:build linux

package fakee2b

import (
	"fmt"
	"io"
	"log"
	"os"

	"github.com/berth-dev/berth/plugins/e2b/internal/fakee2b/envd"
)

// envStage makes a program that calls Main the first process of a sandbox, or its daemon.
const envStage = "FAKEE2B_STAGE"

var quiet = log.New(io.Discard, "", 0)

// Main is called first in the program that uses the fake. In a sandbox it does not return.
func Main() {
	var err error
	switch os.Getenv(envStage) {
	case "":
		return
	case "init":
		err = envd.Init(envStage)
	default:
		err = envd.Serve()
	}
	fmt.Fprintln(os.Stderr, "fakee2b:", err)
	os.Exit(1)
}
