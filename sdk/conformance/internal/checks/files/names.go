// SPDX-License-Identifier: Apache-2.0

package files

import (
	"fmt"
	"slices"
	"strings"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

func oddNames(c *kit.C) {
	box := c.Box()
	dir := c.Dir(box)
	for _, name := range kit.Odd {
		data := []byte("the file " + name)
		kit.Put(c, box, dir+"/"+name, data)
		c.Same(fmt.Sprintf("the file %q", name), kit.Get(c, box, dir+"/"+name), data)
	}
	want := slices.Sorted(slices.Values(kit.Odd))
	if got := kit.Names(kit.List(c, box, dir, driver.ListOptions{})); !slices.Equal(got, want) {
		for _, name := range want {
			if !slices.Contains(got, name) {
				c.Errorf("%q is not in the listing", name)
			}
		}
		for _, name := range got {
			if !slices.Contains(want, name) {
				c.Errorf("%q is in the listing, and nobody made it", name)
			}
		}
	}
	for _, name := range kit.Odd {
		c.OK(box.Move(c.Ctx(), dir+"/"+name, dir+"/moved "+name, false, ""), "move %q", name)
		c.OK(box.Remove(c.Ctx(), dir+"/moved "+name, false, ""), "remove %q", name)
	}
	if got := kit.Names(kit.List(c, box, dir, driver.ListOptions{})); len(got) > 0 {
		c.Errorf("after all were removed there are %q", got)
	}
}

func longNames(c *kit.C) {
	box := c.Box()
	dir := c.Dir(box)
	for _, name := range []string{strings.Repeat("n", 255), strings.Repeat("é", 127) + "n"} {
		kit.Put(c, box, dir+"/"+name, []byte("long"))
		c.Same("a file with a name of 255 bytes", kit.Get(c, box, dir+"/"+name), []byte("long"))
	}
	_, err := box.Write(c.Ctx(), dir+"/"+strings.Repeat("n", 256), driver.WriteOptions{}, strings.NewReader("x"))
	c.Code(err, "write a file with a name of 256 bytes", errs.InvalidArgument)
}

func rawNames(c *kit.C) {
	box := c.Box()
	dir := c.Dir(box)
	for _, name := range []string{"\xff", "a\xfe\x80b", "latin-\xe4"} {
		kit.Put(c, box, dir+"/"+name, []byte(name))
		c.Same(fmt.Sprintf("the file %q", name), kit.Get(c, box, dir+"/"+name), []byte(name))
		if got := kit.Names(kit.List(c, box, dir, driver.ListOptions{})); !slices.Equal(got, []string{name}) {
			c.Errorf("the listing gives %q, want %q", got, name)
		}
		c.OK(box.Remove(c.Ctx(), dir+"/"+name, false, ""), "remove %q", name)
	}
}

func caseNames(c *kit.C) {
	box := c.Box()
	dir := c.Dir(box)
	kit.Put(c, box, dir+"/name", []byte("lower"))
	kit.Put(c, box, dir+"/Name", []byte("upper"))
	c.Same("a file beside one whose name differs by case", kit.Get(c, box, dir+"/name"), []byte("lower"))
}

func nulNames(c *kit.C) {
	box := c.Box()
	name := c.Word("f") + "\x00x"
	_, err := box.Write(c.Ctx(), name, driver.WriteOptions{}, strings.NewReader("x"))
	c.Code(err, "write a name with a NUL byte", errs.InvalidArgument)
	_, err = kit.Read(c.Ctx(), box, name, driver.ReadOptions{})
	c.Code(err, "read a name with a NUL byte", errs.InvalidArgument)
	_, err = kit.StatErr(c, box, name, false)
	c.Code(err, "stat of a name with a NUL byte", errs.InvalidArgument)
}

func pathForms(c *kit.C) {
	box := c.Box()
	dir := c.Dir(box)
	kit.Put(c, box, dir+"/f", []byte("x"))
	for _, p := range []string{"./" + dir + "/f", dir + "//f", dir + "/./f", dir + "/../" + dir + "/f", c.Options().Workspace + "/" + dir + "/f"} {
		c.Same("the file as "+p, kit.Get(c, box, p), []byte("x"))
	}
}

// outside are paths of files that every sandbox has, and that lie outside its workspace.
func outside(c *kit.C) []string {
	up := strings.Repeat("../", strings.Count(c.Options().Workspace, "/"))
	return []string{"/etc/passwd", up + "etc/passwd", "..", "../x", c.Options().Workspace + "/../x", "/", "/tmp/x"}
}

func escapes(c *kit.C) {
	box := c.Box()
	for _, p := range outside(c) {
		_, err := kit.Read(c.Ctx(), box, p, driver.ReadOptions{})
		c.Code(err, "read "+p, errs.PathEscapes)
		_, err = kit.StatErr(c, box, p, false)
		c.Code(err, "stat "+p, errs.PathEscapes)
		_, err = box.Write(c.Ctx(), p, driver.WriteOptions{Parents: true}, strings.NewReader("x"))
		c.Code(err, "write "+p, errs.PathEscapes)
		c.Code(kit.ListErr(c, box, p), "list "+p, errs.PathEscapes)
		c.Code(box.Mkdir(c.Ctx(), p, 0, true, ""), "mkdir "+p, errs.PathEscapes)
		c.Code(box.Remove(c.Ctx(), p, true, ""), "remove "+p, errs.PathEscapes)
	}
	name := c.Word("f")
	kit.Put(c, box, name, nil)
	c.Code(box.Move(c.Ctx(), name, "/tmp/"+name, false, ""), "move out of the workspace", errs.PathEscapes)
	c.Code(box.Move(c.Ctx(), "/etc/passwd", name+"2", false, ""), "move into the workspace", errs.PathEscapes)
}
