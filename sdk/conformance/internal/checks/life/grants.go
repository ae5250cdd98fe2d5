// SPDX-License-Identifier: Apache-2.0

package life

import (
	"bytes"
	"os"
	"path/filepath"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// granted makes a directory of this host with a file in it that sandboxes may reach, whoever they run as.
func granted(c *kit.C) string {
	dir, err := os.MkdirTemp("/tmp", "granted")
	c.OK(err, "make a host directory")
	c.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			c.Errorf("remove a host directory: %v", err)
		}
	})
	c.OK(os.Chmod(dir, 0o777), "chmod") // the sandbox is another user
	c.OK(os.WriteFile(filepath.Join(dir, "there"), []byte("there"), 0o644), "write")
	return dir
}

func grants(c *kit.C) {
	dir := granted(c)
	box := c.Fresh(func(r *driver.CreateRequest) { r.Grants = []driver.PathGrant{{Path: "/granted", HostPath: dir}} })
	if got := c.Sh(box, "cat /granted/there"); got != "there" {
		c.Errorf("a file of a granted directory, in a command: %q", got)
	}
	c.Same("a file of a granted directory", kit.Get(c, box, "/granted/there"), []byte("there"))
	kit.Put(c, box, "/granted/new", []byte("new"))
	b, err := os.ReadFile(filepath.Join(dir, "new"))
	c.OK(err, "read on the host what the sandbox wrote")
	c.Same("what the sandbox wrote", b, []byte("new"))
}

func grantsReadOnly(c *kit.C) {
	dir := granted(c)
	box := c.Fresh(func(r *driver.CreateRequest) {
		r.Grants = []driver.PathGrant{{Path: "/granted", HostPath: dir, ReadOnly: true}}
	})
	c.Same("a file of a granted directory", kit.Get(c, box, "/granted/there"), []byte("there"))
	_, err := box.Write(c.Ctx(), "/granted/there", driver.WriteOptions{}, bytes.NewReader([]byte("changed")))
	c.Code(err, "write into a directory that was granted read-only", errs.ReadOnly, errs.PermissionDenied)
	if out := c.Exec(box, "sh", "-c", "echo changed > /granted/there"); out.Exit.Code == 0 {
		c.Errorf("a command wrote into a directory that was granted read-only")
	}
	b, err := os.ReadFile(filepath.Join(dir, "there"))
	c.OK(err, "read on the host")
	c.Same("the granted file", b, []byte("there"))
}
