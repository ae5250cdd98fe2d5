// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"os"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/rpc"
)

// Small is a sandbox with a directory on a file system of its own that holds at most 64 MiB: the one that the options
// name, or else a host directory that is granted. Where there is neither, the check is skipped.
func Small(c *C) (box *rpc.Sandbox, dir string) {
	if dir := c.Options().Small; dir != "" {
		return c.Fresh(), dir
	}
	if !c.Claims(driver.PathGrants) {
		c.Skipf("there is no file system that may be filled: Options.Small (--small) names none, and the driver takes no host directory")
	}
	host, err := os.MkdirTemp("/tmp", "small")
	c.OK(err, "make a host directory")
	c.Cleanup(func() {
		if err := os.RemoveAll(host); err != nil {
			c.Errorf("remove a host directory: %v", err)
		}
	})
	undo, err := mountSmall(host)
	if err != nil {
		c.Skipf("there is no file system that may be filled: Options.Small (--small) names none, and none can be mounted here: %v", err)
	}
	c.Cleanup(func() {
		if err := undo(); err != nil {
			c.Errorf("unmount a host directory: %v", err)
		}
	})
	return c.Fresh(func(r *driver.CreateRequest) { r.Grants = []driver.PathGrant{{Path: "/small", HostPath: host}} }), "/small"
}
