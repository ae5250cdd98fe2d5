// SPDX-License-Identifier: Apache-2.0

// Package snapshots will hold the checks of the group snapshot.
package snapshots

import "github.com/berth-dev/berth/sdk/conformance/internal/suite"

// Group is what a driver claims of snapshots; it has no checks yet.
func Group() suite.Group {
	return suite.Group{Name: "snapshot", Doc: "workspaces are saved with the kind's own means and come back (no checks yet)"}
}
