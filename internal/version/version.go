// SPDX-License-Identifier: Apache-2.0

// Package version says which berth this is.
package version

import (
	"runtime/debug"
	"strings"
)

// version is set by the linker.
var version string

// String is the version of this build: the release's, or that of the module, or "0.1.0-dev".
func String() string {
	if version != "" {
		return strings.TrimPrefix(version, "v")
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return strings.TrimPrefix(info.Main.Version, "v")
	}
	return "0.1.0-dev"
}
