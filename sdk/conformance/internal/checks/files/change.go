// SPDX-License-Identifier: Apache-2.0

package files

import (
	"fmt"
	"path"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

func mkdirs(c *kit.C) {
	box := c.Box()
	name := c.Word("d")
	c.OK(box.Mkdir(c.Ctx(), name, 0, false, ""), "mkdir")
	if info := kit.Stat(c, box, name); info.Type != driver.TypeDirectory || info.Mode&0o777 != 0o755 {
		c.Errorf("a new directory: %+v", info)
	}
	name = c.Word("d")
	c.OK(box.Mkdir(c.Ctx(), name, 0o700, false, ""), "mkdir with mode 0700")
	if mode := kit.Stat(c, box, name).Mode & 0o777; mode != 0o700 {
		c.Errorf("a directory made with mode 0700 has %04o", mode)
	}
}

func mkdirParents(c *kit.C) {
	box := c.Box()
	name := c.Word("d")
	for range c.Options().Repeat {
		c.OK(box.Mkdir(c.Ctx(), name+"/e/f", 0, true, ""), "mkdir with parents, also when it is there")
	}
	if out := c.Exec(box, "test", "-d", name+"/e/f"); out.Exit.Code != 0 {
		c.Errorf("a command does not see the directories")
	}
}

func mkdirErrors(c *kit.C) {
	box := c.Box()
	dir := c.Dir(box)
	c.Code(box.Mkdir(c.Ctx(), dir, 0, false, ""), "mkdir of what is there", errs.FileExists)
	c.Code(box.Mkdir(c.Ctx(), dir+"/no/such", 0, false, ""), "mkdir in a directory that is not there", errs.FileNotFound)
	kit.Put(c, box, dir+"/f", nil)
	c.Code(box.Mkdir(c.Ctx(), dir+"/f", 0, false, ""), "mkdir over a file", errs.FileExists)
	c.Code(box.Mkdir(c.Ctx(), dir+"/f/g", 0, true, ""), "mkdir below a file", errs.NotDirectory, errs.FileExists)
}

func remove(c *kit.C) {
	box := c.Box()
	dir := c.Dir(box)
	kit.Put(c, box, dir+"/f", nil)
	c.OK(box.Remove(c.Ctx(), dir+"/f", false, ""), "remove a file")
	kit.Absent(c, box, dir+"/f")
	c.OK(box.Remove(c.Ctx(), dir, false, ""), "remove an empty directory")
	kit.Absent(c, box, dir)
}

func removeTree(c *kit.C) {
	box := c.Box()
	dir := c.Dir(box)
	c.Sh(box, "cd "+dir+"; mkdir a; mkdir a/b; echo > a/b/c; echo > d")
	for range c.Options().Repeat {
		c.OK(box.Remove(c.Ctx(), dir, true, ""), "remove a tree, also when it is gone")
	}
	kit.Absent(c, box, dir)
}

func removeErrors(c *kit.C) {
	box := c.Box()
	dir := c.Dir(box)
	kit.Put(c, box, dir+"/f", nil)
	c.Code(box.Remove(c.Ctx(), dir+"/none", false, ""), "remove a file that is not there", errs.FileNotFound)
	c.Code(box.Remove(c.Ctx(), dir, false, ""), "remove a directory that is not empty", errs.DirectoryNotEmpty)
	kit.Stat(c, box, dir+"/f")
}

func removeRoot(c *kit.C) {
	box := c.Box()
	name := c.Word("f")
	kit.Put(c, box, name, nil)
	for _, root := range []string{".", c.Options().Workspace, c.Options().Workspace + "/", ""} {
		c.Code(box.Remove(c.Ctx(), root, true, ""), fmt.Sprintf("remove the workspace as %q", root), errs.InvalidArgument, errs.PermissionDenied, errs.PathEscapes)
	}
	kit.Stat(c, box, name)
}

func move(c *kit.C) {
	box := c.Box()
	dir := c.Dir(box)
	kit.Put(c, box, dir+"/a", []byte("a"))
	c.OK(box.Move(c.Ctx(), dir+"/a", dir+"/b", false, ""), "move a file")
	kit.Absent(c, box, dir+"/a")
	c.Same("a file that was moved", kit.Get(c, box, dir+"/b"), []byte("a"))
	other := c.Dir(box)
	c.OK(box.Move(c.Ctx(), dir, other+"/moved", false, ""), "move a directory")
	kit.Absent(c, box, dir)
	c.Same("a file in a directory that was moved", kit.Get(c, box, other+"/moved/b"), []byte("a"))
}

func moveReplace(c *kit.C) {
	box := c.Box()
	dir := c.Dir(box)
	kit.Put(c, box, dir+"/a", []byte("a"))
	kit.Put(c, box, dir+"/b", []byte("b"))
	c.Code(box.Move(c.Ctx(), dir+"/a", dir+"/b", false, ""), "move over a file", errs.FileExists)
	c.Same("the file", kit.Get(c, box, dir+"/b"), []byte("b"))
	c.OK(box.Move(c.Ctx(), dir+"/a", dir+"/b", true, ""), "move and replace")
	kit.Absent(c, box, dir+"/a")
	c.Same("the file", kit.Get(c, box, dir+"/b"), []byte("a"))
}

func moveErrors(c *kit.C) {
	box := c.Box()
	dir := c.Dir(box)
	kit.Put(c, box, dir+"/f", nil)
	c.Code(box.Move(c.Ctx(), dir+"/none", dir+"/x", false, ""), "move a file that is not there", errs.FileNotFound)
	c.Code(box.Move(c.Ctx(), dir+"/f", dir+"/no/such", false, ""), "move into a directory that is not there", errs.FileNotFound)
	c.Code(box.Move(c.Ctx(), dir, dir+"/below", false, ""), "move a directory into itself", errs.InvalidArgument)
	kit.Stat(c, box, dir+"/f")
}

func setMode(c *kit.C) {
	box := c.Box()
	name := c.Word("f")
	kit.Put(c, box, name, nil)
	for _, mode := range []uint32{0o600, 0o751, 0o400} {
		c.OK(box.SetMeta(c.Ctx(), name, driver.MetaChange{Mode: &mode}), "set mode %04o", mode)
		if got := kit.Stat(c, box, name).Mode & 0o7777; got != mode {
			c.Errorf("mode %04o was set, it is %04o", mode, got)
		}
	}
}

func setModeTree(c *kit.C) {
	box := c.Box()
	dir := c.Dir(box)
	c.Sh(box, "mkdir "+dir+"/d; echo > "+dir+"/d/f")
	mode := uint32(0o750)
	c.OK(box.SetMeta(c.Ctx(), dir, driver.MetaChange{Mode: &mode, Recursive: true}), "set the mode of a tree")
	for _, name := range []string{"", "/d", "/d/f"} {
		if got := kit.Stat(c, box, dir+name).Mode & 0o777; got != mode {
			c.Errorf("the mode of a tree was set to 0750, that of %s is %04o", path.Join("tree", name), got)
		}
	}
}

func setTime(c *kit.C) {
	box := c.Box()
	name := c.Word("f")
	kit.Put(c, box, name, []byte("x"))
	c.OK(box.SetMeta(c.Ctx(), name, driver.MetaChange{ModTime: kit.When}), "set the time")
	if got := kit.Stat(c, box, name).ModTime; !got.Equal(kit.When) {
		c.Errorf("the time %v was set, it is %v", kit.When, got)
	}
}
