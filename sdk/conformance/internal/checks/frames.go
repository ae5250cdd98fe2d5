// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"github.com/berth-dev/berth/sdk/conformance/internal/suite"
)

// The groups below have no checks yet: what a driver claims of them is reported as no_check.

func snapshots() suite.Group {
	return suite.Group{Name: "snapshot", Doc: "workspaces are saved and come back (no checks yet)"}
}

func mounts() suite.Group {
	return suite.Group{Name: "mounts", Doc: "storage is attached as it was claimed (no checks yet)"}
}
