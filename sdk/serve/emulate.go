// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/emul"
)

// emulate gives files and trees to sandboxes that have none of their own.
func emulate(s driver.Sandbox, grants []driver.PathGrant) (driver.FileSystem, driver.TreeIO) {
	var paths []string
	for _, g := range grants {
		paths = append(paths, g.Path)
	}
	e := emul.New(s, emul.Options{Grants: paths})
	return e, e
}
