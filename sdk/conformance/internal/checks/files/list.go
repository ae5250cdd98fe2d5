// SPDX-License-Identifier: Apache-2.0

package files

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

func versions(c *kit.C) {
	box := c.Box()
	name := c.Word("f")
	kit.Put(c, box, name, []byte("same length 1"))
	one := kit.Stat(c, box, name).Version
	if again := kit.Stat(c, box, name).Version; again != one {
		c.Errorf("the version of a file that nobody changes goes from %q to %q", one, again)
	}
	kit.Get(c, box, name)
	if again := kit.Stat(c, box, name).Version; again != one {
		c.Errorf("reading a file changes its version")
	}
	kit.Put(c, box, name, []byte("same length 2"))
	two := kit.Stat(c, box, name).Version
	if two == one {
		c.Errorf("a write does not change the version")
	}
	c.Sh(box, "printf 'same length 3' > "+name)
	if three := kit.Stat(c, box, name).Version; three == two {
		c.Errorf("what a command writes does not change the version")
	}
}

func statFile(c *kit.C) {
	box := c.Box()
	name := c.Word("f")
	kit.Put(c, box, name, []byte("12345"))
	info := kit.Stat(c, box, name)
	if info.Path != name || info.Type != driver.TypeRegular || info.Size != 5 || info.User == "" || info.Group == "" || time.Since(info.ModTime).Abs() > kit.Long {
		c.Errorf("stat of a new file of 5 bytes: %+v", info)
	}
	if info := kit.Stat(c, box, "."); info.Type != driver.TypeDirectory {
		c.Errorf("stat of the workspace: %+v", info)
	}
}

func statMany(c *kit.C) {
	box := c.Box()
	dir := c.Dir(box)
	var paths []string
	for i := range 300 {
		paths = append(paths, fmt.Sprintf("%s/%d", dir, i))
	}
	kit.Put(c, box, paths[7], []byte("7"))
	kit.Put(c, box, paths[299], []byte("299"))
	rs, err := box.Stat(c.Ctx(), paths, driver.StatOptions{})
	c.OK(err, "stat 300 paths")
	if len(rs) != len(paths) {
		c.Fatalf("%d answers for %d paths", len(rs), len(paths))
	}
	for i, r := range rs {
		switch {
		case i == 7 || i == 299:
			if r.Err != nil || r.Info.Path != paths[i] {
				c.Errorf("answer %d: %+v", i, r)
			}
		case errs.CodeOf(r.Err) != errs.FileNotFound:
			c.Errorf("answer %d for a file that is not there: %v", i, r.Err)
		}
	}
}

func statMissing(c *kit.C) { kit.Absent(c, c.Box(), c.Word("none")) }

func kinds(c *kit.C) {
	box := c.Box()
	dir := c.Dir(box)
	c.Sh(box, "cd "+dir+" && echo > file && mkdir dir && mkfifo fifo && ln -s file link && ln -s nowhere dangling")
	all := kit.List(c, box, dir, driver.ListOptions{})
	for name, want := range map[string]driver.FileType{
		"file": driver.TypeRegular, "dir": driver.TypeDirectory, "fifo": driver.TypeFIFO, "link": driver.TypeSymlink, "dangling": driver.TypeSymlink,
	} {
		if got := kit.Stat(c, box, dir+"/"+name); got.Type != want {
			c.Errorf("stat of the %s: type %v, want %v", name, got.Type, want)
		}
		if all[name].Type != want {
			c.Errorf("the %s in a listing: type %v, want %v", name, all[name].Type, want)
		}
	}
	if got := kit.Stat(c, box, dir+"/link").Target; got != "file" {
		c.Errorf("the target of a link to file is %q", got)
	}
	if info, err := kit.StatErr(c, box, dir+"/link", true); err != nil || info.Type != driver.TypeRegular {
		c.Errorf("stat that follows a link: %v, %v", info.Type, err)
	}
	_, err := kit.StatErr(c, box, dir+"/dangling", true)
	c.Code(err, "stat that follows a dangling link", errs.FileNotFound)
}

func noRegular(c *kit.C) {
	box := c.Box()
	dir := c.Dir(box)
	c.Sh(box, "mkfifo "+dir+"/fifo")
	_, err := kit.Read(c.Ctx(), box, dir+"/fifo", driver.ReadOptions{})
	c.Code(err, "read a FIFO", errs.NotRegular)
	_, err = kit.Read(c.Ctx(), box, dir, driver.ReadOptions{})
	c.Code(err, "read a directory", errs.IsDirectory)
}

func missing(c *kit.C) {
	box := c.Box()
	_, err := kit.Read(c.Ctx(), box, c.Word("none"), driver.ReadOptions{})
	c.Code(err, "read a file that is not there", errs.FileNotFound)
	mode := uint32(0o600)
	c.Code(box.SetMeta(c.Ctx(), c.Word("none"), driver.MetaChange{Mode: &mode}), "set the mode of a file that is not there", errs.FileNotFound)
}

func fileAsDirectory(c *kit.C) {
	box := c.Box()
	name := c.Word("f")
	kit.Put(c, box, name, []byte("x"))
	below := name + "/below"
	want := []errs.Code{errs.NotDirectory, errs.FileNotFound}
	_, err := kit.Read(c.Ctx(), box, below, driver.ReadOptions{})
	c.Code(err, "read below a file", want...)
	_, err = kit.StatErr(c, box, below, false)
	c.Code(err, "stat below a file", want...)
	_, err = box.Write(c.Ctx(), below, driver.WriteOptions{}, strings.NewReader("x"))
	c.Code(err, "write below a file", want...)
	_, err = box.Write(c.Ctx(), below, driver.WriteOptions{Parents: true}, strings.NewReader("x"))
	c.Code(err, "write below a file, with parents", errs.NotDirectory, errs.FileExists)
	c.Same("the file", kit.Get(c, box, name), []byte("x"))
}

func listDir(c *kit.C) {
	box := c.Box()
	dir := c.Dir(box)
	c.Sh(box, "mkdir "+dir+"/sub; echo 12 > "+dir+"/a; echo > "+dir+"/.hidden; echo > "+dir+"/sub/deep")
	all := kit.List(c, box, dir, driver.ListOptions{})
	if got := kit.Names(all); !slices.Equal(got, []string{".hidden", "a", "sub"}) {
		c.Errorf("a listing gives %q", got)
	}
	if all["a"].Size != 3 || all["a"].Type != driver.TypeRegular || all["sub"].Type != driver.TypeDirectory {
		c.Errorf("a listing says %+v and %+v", all["a"], all["sub"])
	}
	empty := c.Dir(box)
	if got := kit.Names(kit.List(c, box, empty, driver.ListOptions{})); len(got) > 0 {
		c.Errorf("the listing of an empty directory gives %q", got)
	}
}

func listRecursive(c *kit.C) {
	box := c.Box()
	dir := c.Dir(box)
	c.Sh(box, "cd "+dir+"; mkdir a; mkdir a/b; echo > a/b/c; echo > d")
	if got := kit.Names(kit.List(c, box, dir, driver.ListOptions{Recursive: true})); !slices.Equal(got, []string{"a", "a/b", "a/b/c", "d"}) {
		c.Errorf("a recursive listing gives %q", got)
	}
}

func listExclude(c *kit.C) {
	box := c.Box()
	dir := c.Dir(box)
	c.Sh(box, "cd "+dir+"; mkdir keep; mkdir skip; echo > keep/a.log; echo > keep/a.txt; echo > skip/b; echo > c.log")
	if got := kit.Names(kit.List(c, box, dir, driver.ListOptions{Recursive: true, Exclude: []string{"*.log", "skip/"}})); !slices.Equal(got, []string{"keep", "keep/a.txt"}) {
		c.Errorf("a listing without *.log and skip/ gives %q", got)
	}
}

func listLimit(c *kit.C) {
	box := c.Box()
	dir := c.Dir(box)
	c.Sh(box, "cd "+dir+"; for_me=1; echo > a; echo > b; echo > c; echo > d; echo > e")
	if got := kit.Names(kit.List(c, box, dir, driver.ListOptions{Limit: 3})); len(got) != 3 {
		c.Errorf("a listing of at most 3 gives %q", got)
	}
}

func listMany(c *kit.C) {
	box := c.Box()
	dir := c.Dir(box)
	c.Sh(box, "cd "+dir+"; i=0; while [ $i -lt 10000 ]; do : > file-with-a-long-name-$i; i=$((i+1)); done")
	all := kit.List(c, box, dir, driver.ListOptions{})
	if len(all) != 10000 {
		c.Errorf("a listing of 10000 files gives %d", len(all))
	}
	c.OK(box.Remove(c.Ctx(), dir, true, ""), "remove 10000 files")
	kit.Absent(c, box, dir)
}

func listErrors(c *kit.C) {
	box := c.Box()
	name := c.Word("f")
	c.Code(kit.ListErr(c, box, name), "list a directory that is not there", errs.FileNotFound)
	kit.Put(c, box, name, nil)
	c.Code(kit.ListErr(c, box, name), "list a file", errs.NotDirectory)
}
