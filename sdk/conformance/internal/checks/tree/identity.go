// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
)

// identity is what tells a host file from another one, see driver.PAXSourceID.
func identity(c *kit.C, path string) string {
	var st unix.Stat_t
	c.OK(unix.Lstat(path, &st), "stat %s", path)
	return fmt.Sprintf("%d:%d:%d:%d", st.Dev, st.Ino, st.Size, st.Mtim.Nano())
}
