// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/conformance/internal/suite"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/rpc"
)

func hostRefs() []suite.Check {
	claimed := kit.Needs(driver.TreeHostRefs)
	return []suite.Check{
		{Name: "host-refs", Needs: claimed, Func: refsArrive},
		{Name: "host-refs-changed", Needs: claimed, Func: refsChanged},
		{Name: "host-refs-through-links", Needs: claimed, Func: refsLinks},
		{Name: "host-refs-malformed", Needs: claimed, Func: refsMalformed},
		{Name: "host-refs-not-allowed", Func: refsNotAllowed},
		{Name: "host-refs-not-claimed", Unless: driver.TreeHostRefs, Func: refsNotClaimed},
	}
}

// hostDir makes a directory of this host that the driver can read.
func hostDir(c *kit.C) string {
	dir, err := os.MkdirTemp("", "berth-refs")
	c.OK(err, "make a host directory")
	c.Cleanup(func() { os.RemoveAll(dir) }) // it is below the temporary directory
	// The kernel's own name of it: no component may be a link.
	dir, err = filepath.EvalSymlinks(dir)
	c.OK(err, "find the host directory")
	return dir
}

func hostFile(c *kit.C, path string, data []byte) {
	c.OK(os.WriteFile(path, data, 0o600), "write a host file")
}

// ref is a member that names a host file as it is now.
func ref(c *kit.C, name, source string) member {
	m := file(name, "")
	m.PAXRecords = map[string]string{driver.PAXSource: source, driver.PAXSourceID: identity(c, source)}
	return m
}

// each calls f with a sandbox that nothing has run in, and with one that is in use: a driver may read the host's files
// in another way for each.
func each(c *kit.C, f func(what string, box *rpc.Sandbox)) {
	f("a fresh sandbox", c.Fresh())
	c.Sh(c.Box(), "true")
	f("a sandbox in use", c.Box())
}

func refs(at string) driver.ImportOptions {
	return driver.ImportOptions{Path: at, HostReferences: true}
}

func refsArrive(c *kit.C) {
	host := hostDir(c)
	big := kit.Pattern(3 << 20)
	hostFile(c, host+"/small", []byte("small"))
	hostFile(c, host+"/empty", nil)
	hostFile(c, host+"/big", big)
	each(c, func(what string, box *rpc.Sandbox) {
		at := c.Word("tree")
		executable := ref(c, "d/small", host+"/small")
		executable.Mode = 0o755
		_, err := box.Import(c.Ctx(), refs(at), archive(c, dir("d/"), executable, ref(c, "empty", host+"/empty"), file("carried", "carried"), ref(c, "big", host+"/big")))
		c.OK(err, "import host files into %s", what)
		c.Same("a host file that was named", kit.Get(c, box, at+"/d/small"), []byte("small"))
		c.Same("an empty one", kit.Get(c, box, at+"/empty"), nil)
		c.Same("a big one", kit.Get(c, box, at+"/big"), big)
		c.Same("a file that was carried", kit.Get(c, box, at+"/carried"), []byte("carried"))
		if info := kit.Stat(c, box, at+"/d/small"); info.Mode&0o777 != 0o755 || !info.ModTime.Equal(kit.When) {
			c.Errorf("a host file has mode %04o and time %v, not those of the archive", info.Mode, info.ModTime)
		}
		kit.Put(c, box, at+"/d/small", []byte("changed inside"))
	})
	b, err := os.ReadFile(host + "/small")
	c.OK(err, "read the host file")
	c.Same("a host file whose copy was changed inside", b, []byte("small"))
}

// refsChanged wants that a file which is not the one that was seen is refused.
func refsChanged(c *kit.C) {
	host := hostDir(c)
	each(c, func(what string, box *rpc.Sandbox) {
		for how, change := range map[string]func(path string){
			"longer": func(p string) { hostFile(c, p, []byte("was changed")) },
			"of another time": func(p string) {
				hostFile(c, p, []byte("seen"))
				c.OK(os.Chtimes(p, kit.When, kit.When), "change the time")
			},
			"another file": func(p string) {
				hostFile(c, p+".new", []byte("seen"))
				info, err := os.Stat(p)
				c.OK(err, "stat")
				c.OK(os.Chtimes(p+".new", info.ModTime(), info.ModTime()), "set the time")
				c.OK(os.Rename(p+".new", p), "replace")
			},
			"not there any more": func(p string) { c.OK(os.Remove(p), "remove") },
		} {
			path := filepath.Join(host, c.Word("f"))
			hostFile(c, path, []byte("seen"))
			m := ref(c, "f", path)
			change(path)
			at := c.Word("tree")
			_, err := box.Import(c.Ctx(), refs(at), archive(c, m))
			c.Code(err, fmt.Sprintf("import into %s of a host file that is %s by now", what, how), errs.VersionMismatch, errs.FileNotFound)
			kit.Absent(c, box, at+"/f")
		}
	})
}

// refsLinks wants that no link is followed on the way to a host file.
func refsLinks(c *kit.C) {
	host := hostDir(c)
	c.OK(os.Mkdir(host+"/real", 0o755), "mkdir")
	hostFile(c, host+"/real/f", []byte("behind a link"))
	c.OK(os.Symlink("real", host+"/way"), "link")
	c.OK(os.Symlink("real/f", host+"/file"), "link")
	each(c, func(what string, box *rpc.Sandbox) {
		for how, source := range map[string]string{"itself": host + "/file", "on the way": host + "/way/f"} {
			m := ref(c, "f", host+"/real/f")
			m.PAXRecords[driver.PAXSource] = source
			at := c.Word("tree")
			_, err := box.Import(c.Ctx(), refs(at), archive(c, m))
			c.Code(err, fmt.Sprintf("import into %s of a host file with a link %s", what, how), errs.VersionMismatch, errs.FileNotFound, errs.PathEscapes, errs.ArchiveInvalid)
			kit.Absent(c, box, at+"/f")
		}
	})
}

func refsMalformed(c *kit.C) {
	host := hostDir(c)
	hostFile(c, host+"/f", []byte("seen"))
	each(c, func(what string, box *rpc.Sandbox) {
		for how, change := range map[string]func(*member){
			"no identity":     func(m *member) { delete(m.PAXRecords, driver.PAXSourceID) },
			"a wrong one":     func(m *member) { m.PAXRecords[driver.PAXSourceID] = "1:2" },
			"a relative path": func(m *member) { m.PAXRecords[driver.PAXSource] = "f" },
			"a content too":   func(m *member) { m.body, m.Size = "mine", 4 },
		} {
			m := ref(c, "f", host+"/f")
			change(&m)
			at := c.Word("tree")
			_, err := box.Import(c.Ctx(), refs(at), archive(c, m))
			c.Code(err, fmt.Sprintf("import into %s of a host reference with %s", what, how), errs.ArchiveInvalid, errs.VersionMismatch, errs.FileNotFound)
			kit.Absent(c, box, at+"/f")
		}
	})
}

// refsNotAllowed wants that an archive cannot name host files on its own: it may come from anybody.
func refsNotAllowed(c *kit.C) {
	host := hostDir(c)
	hostFile(c, host+"/f", []byte("a secret of the host"))
	each(c, func(what string, box *rpc.Sandbox) {
		at := c.Word("tree")
		_, err := box.Import(c.Ctx(), driver.ImportOptions{Path: at}, archive(c, ref(c, "f", host+"/f")))
		if err != nil {
			c.Code(err, "import into "+what+" of an archive that names a host file, which it may not", errs.ArchiveInvalid, errs.Unsupported)
		}
		if b, err := kit.Read(c.Ctx(), box, at+"/f", driver.ReadOptions{}); err == nil && strings.Contains(string(b), "secret") {
			c.Errorf("an archive that named a host file, which it may not, was given its content in %s", what)
		}
	})
}

func refsNotClaimed(c *kit.C) {
	host := hostDir(c)
	hostFile(c, host+"/f", []byte("x"))
	box := c.Box()
	at := c.Word("tree")
	_, err := box.Import(c.Ctx(), refs(at), archive(c, ref(c, "f", host+"/f")))
	c.Code(err, "import of host files by a driver that does not claim it", errs.Unsupported)
	kit.Absent(c, box, at+"/f")
}
