// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"path"
	"strings"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// treeFull wants that an archive for which there is no room says so, and that what was there stays.
func treeFull(c *kit.C) {
	box, dir := kit.Small(c)
	kit.Put(c, box, path.Join(dir, "kept"), []byte("kept"))
	_, err := box.Import(c.Ctx(), driver.ImportOptions{Path: path.Join(dir, "in")}, archive(c, file("small", "small"), file("big", strings.Repeat("x", 80<<20))))
	c.Code(err, "import an archive for which there is no room", errs.NoSpace)
	c.Same("a file that the archive does not name", kit.Get(c, box, path.Join(dir, "kept")), []byte("kept"))
}
