// SPDX-License-Identifier: Apache-2.0

package files

import (
	"slices"
	"strings"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

func linksKept(c *kit.C) {
	box := c.Box()
	dir := c.Dir(box)
	c.Sh(box, "cd "+dir+"; echo target > t; ln -s t link")
	kit.Put(c, box, dir+"/link", []byte("written"))
	if info := kit.Stat(c, box, dir+"/link"); info.Type != driver.TypeSymlink || info.Target != "t" {
		c.Errorf("after a write through a link it is %v to %q", info.Type, info.Target)
	}
	c.Same("the target of a link that was written through", kit.Get(c, box, dir+"/t"), []byte("written"))
}

func linksInside(c *kit.C) {
	box := c.Box()
	dir := c.Dir(box)
	c.Sh(box, "cd "+dir+"; mkdir d; echo deep > d/f; ln -s d up; ln -s ../"+dir+"/d/f relative; ln -s "+c.Options().Workspace+"/"+dir+"/d/f absolute")
	for _, p := range []string{"/up/f", "/relative", "/absolute"} {
		c.Same("a file by the link "+p, kit.Get(c, box, dir+p), []byte("deep\n"))
	}
}

func linksEscape(c *kit.C) {
	box := c.Box()
	dir := c.Dir(box)
	word := c.Word("victim")
	c.Sh(box, "cd "+dir+"; echo victim > /tmp/"+word+"; ln -s /tmp/"+word+" out; ln -s out again; ln -s /tmp/"+word+"-new dangling")
	for _, p := range []string{"/out", "/again"} {
		_, err := kit.Read(c.Ctx(), box, dir+p, driver.ReadOptions{})
		c.Code(err, "read by a link that leads out", errs.PathEscapes)
		_, err = kit.StatErr(c, box, dir+p, true)
		c.Code(err, "stat by a link that leads out", errs.PathEscapes)
		if info := kit.Stat(c, box, dir+p); info.Type != driver.TypeSymlink {
			c.Errorf("stat of the link itself: %v", info.Type)
		}
		_, err = box.Write(c.Ctx(), dir+p, driver.WriteOptions{}, strings.NewReader("x"))
		c.Code(err, "write by a link that leads out", errs.PathEscapes)
		mode := uint32(0o777)
		c.Code(box.SetMeta(c.Ctx(), dir+p, driver.MetaChange{Mode: &mode}), "set the mode by a link that leads out", errs.PathEscapes)
	}
	_, err := box.Write(c.Ctx(), dir+"/dangling", driver.WriteOptions{}, strings.NewReader("x"))
	c.Code(err, "write by a dangling link that leads out", errs.PathEscapes)
	if got := c.Sh(box, "cat /tmp/"+word); got != "victim\n" {
		c.Errorf("a file outside the workspace was changed to %q", got)
	}
	if out := c.Exec(box, "test", "-e", "/tmp/"+word+"-new"); out.Exit.Code == 0 {
		c.Errorf("a file outside the workspace was made")
	}
}

func linksEscapeDirectory(c *kit.C) {
	box := c.Box()
	dir := c.Dir(box)
	word := c.Word("victim")
	c.Sh(box, "mkdir /tmp/"+word+"; echo victim > /tmp/"+word+"/f; ln -s /tmp/"+word+" "+dir+"/out")
	_, err := kit.Read(c.Ctx(), box, dir+"/out/f", driver.ReadOptions{})
	c.Code(err, "read by a directory that leads out", errs.PathEscapes)
	_, err = box.Write(c.Ctx(), dir+"/out/new", driver.WriteOptions{}, strings.NewReader("x"))
	c.Code(err, "write by a directory that leads out", errs.PathEscapes)
	c.Code(box.Remove(c.Ctx(), dir+"/out/f", false, ""), "remove by a directory that leads out", errs.PathEscapes)
	c.Code(box.Mkdir(c.Ctx(), dir+"/out/d/e", 0, true, ""), "mkdir by a directory that leads out", errs.PathEscapes)
	c.Code(kit.ListErr(c, box, dir+"/out"), "list by a directory that leads out", errs.PathEscapes)
	kit.Put(c, box, dir+"/f", nil)
	c.Code(box.Move(c.Ctx(), dir+"/f", dir+"/out/g", false, ""), "move by a directory that leads out", errs.PathEscapes)
	for name := range kit.List(c, box, dir, driver.ListOptions{Recursive: true}) {
		if strings.HasPrefix(name, "out/") {
			c.Errorf("a recursive listing leads out: %q", name)
		}
	}
	if got := c.Sh(box, "cat /tmp/"+word+"/f"); got != "victim\n" {
		c.Errorf("a file outside the workspace holds %q", got)
	}
}

func linksRemoved(c *kit.C) {
	box := c.Box()
	dir := c.Dir(box)
	c.Sh(box, "cd "+dir+"; mkdir d; echo kept > d/f; ln -s d/f file; ln -s d tree; ln -s d other")
	c.OK(box.Remove(c.Ctx(), dir+"/file", false, ""), "remove a link to a file")
	c.OK(box.Remove(c.Ctx(), dir+"/tree", true, ""), "remove a link to a directory, recursively")
	c.OK(box.Move(c.Ctx(), dir+"/other", dir+"/moved", false, ""), "move a link")
	c.Same("a file whose links were removed", kit.Get(c, box, dir+"/d/f"), []byte("kept\n"))
	kit.Absent(c, box, dir+"/tree")
	if info := kit.Stat(c, box, dir+"/moved"); info.Type != driver.TypeSymlink || info.Target != "d" {
		c.Errorf("a link that was moved is %v to %q", info.Type, info.Target)
	}
}

func linksLoop(c *kit.C) {
	box := c.Box()
	dir := c.Dir(box)
	c.Sh(box, "cd "+dir+"; ln -s b a; ln -s a b; mkdir d; ln -s .. d/up")
	_, err := kit.Read(c.Ctx(), box, dir+"/a", driver.ReadOptions{})
	c.Code(err, "read a link that leads to itself", errs.InvalidArgument, errs.FileNotFound)
	if got := kit.Names(kit.List(c, box, dir, driver.ListOptions{Recursive: true})); !slices.Equal(got, []string{"a", "b", "d", "d/up"}) {
		c.Errorf("a recursive listing with a link upwards gives %q", got)
	}
}
