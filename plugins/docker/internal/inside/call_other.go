// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package inside

import (
	"net"
	"os"
)

func short(d *os.File) string { return d.Name() }

// callerOf knows nobody: containers are in a virtual machine here, and cannot call.
func callerOf(*net.UnixConn) int { return 0 }
