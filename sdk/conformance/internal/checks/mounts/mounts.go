// SPDX-License-Identifier: Apache-2.0

// Package mounts will hold the checks of the group mounts.
package mounts

import "github.com/berth-dev/berth/sdk/conformance/internal/suite"

// Group is what a driver claims of mounts; it has no checks yet.
func Group() suite.Group {
	return suite.Group{Name: "mounts", Doc: "storage is attached as it was claimed (no checks yet)"}
}
