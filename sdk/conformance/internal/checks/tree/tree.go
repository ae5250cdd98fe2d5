// SPDX-License-Identifier: Apache-2.0

// Package tree holds the checks of the group tree: archives in and out.
package tree

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/conformance/internal/suite"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/rpc"
)

func Group() suite.Group {
	native := kit.Needs(driver.TreeNative)
	checks := []suite.Check{
		{Name: "import", Func: treeImport},
		{Name: "export", Func: treeExport},
		{Name: "export-exclude", Func: treeExclude},
		{Name: "round-trip", Tools: []string{"ln"}, Func: treeRound},
		{Name: "round-trip-hard-links", Tools: []string{"hard"}, Func: treeHardLinks},
		{Name: "import-twice", Func: treeTwice},
		{Name: "import-replace", Func: treeReplace},
		{Name: "import-10000", Func: treeMany},
		{Name: "import-long-names", Func: treeLongNames},
		{Name: "import-odd-names", Func: treeOddNames},
		{Name: "import-nothing", Func: treeNothing},
		{Name: "import-nonsense", Func: treeNonsense},
		{Name: "import-cut-off", Func: treeCut},
		{Name: "import-escapes", Func: treeEscapes},
		{Name: "import-through-a-link", Func: treeThroughLink},
		{Name: "import-bounded", Func: treeBounded},
		{Name: "import-outside", Func: treeOutside},
		{Name: "import-without-room", Func: treeFull},
		{Name: "export-missing", Func: treeMissing},
		{Name: "export-special-files", Tools: []string{"mkfifo"}, Func: treeSpecial},
	}
	checks = append(checks, compressed()...)
	checks = append(checks, hostRefs()...)
	checks = append(checks, templates()...)
	for i := range checks {
		if checks[i].Proves == nil && checks[i].Needs == nil {
			checks[i].Proves = native
		}
	}
	return suite.Group{
		Name: "tree", Doc: "trees go in and out whole, compressed, by reference and from templates, and hostile archives get nowhere",
		Checks: checks,
	}
}

// member is one entry of an archive; a body without a type is a file, a name that ends with a slash is a directory.
type member struct {
	tar.Header
	body string
}

func file(name, body string) member {
	return member{tar.Header{Name: name, Mode: 0o644, Typeflag: tar.TypeReg, Size: int64(len(body)), ModTime: kit.When}, body}
}

func dir(name string) member {
	return member{tar.Header{Name: name, Mode: 0o755, Typeflag: tar.TypeDir, ModTime: kit.When}, ""}
}

func linkTo(name, target string, kind byte) member {
	return member{tar.Header{Name: name, Linkname: target, Mode: 0o777, Typeflag: kind, ModTime: kit.When}, ""}
}

func archive(c *kit.C, members ...member) *bytes.Buffer {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range members {
		m.Format = tar.FormatPAX
		c.OK(w.WriteHeader(&m.Header), "write archive")
		_, err := io.WriteString(w, m.body)
		c.OK(err, "write archive")
	}
	c.OK(w.Close(), "write archive")
	return &b
}

func load(c *kit.C, box *rpc.Sandbox, path string, members ...member) driver.ImportResult {
	r, err := box.Import(c.Ctx(), driver.ImportOptions{Path: path}, archive(c, members...))
	c.OK(err, "import")
	return r
}

// exported gives what an export holds, by name.
func exported(c *kit.C, box *rpc.Sandbox, opts driver.ExportOptions) map[string]member {
	var b bytes.Buffer
	c.OK(box.Export(c.Ctx(), opts, &b), "export")
	return members(c, &b)
}

// members reads an archive that was exported.
func members(c *kit.C, archive io.Reader) map[string]member {
	out := map[string]member{}
	for r := tar.NewReader(archive); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		c.OK(err, "read an exported archive")
		if h.Typeflag == tar.TypeXGlobalHeader {
			out["skipped "+h.PAXRecords[driver.PAXSkippedPath]] = member{*h, h.PAXRecords[driver.PAXSkippedReason]}
			continue
		}
		body, err := io.ReadAll(r)
		c.OK(err, "read an exported file")
		name := strings.TrimSuffix(strings.TrimPrefix(h.Name, "./"), "/")
		if name != "" && name != "." {
			out[name] = member{*h, string(body)}
		}
	}
}

func treeImport(c *kit.C) {
	box := c.Box()
	at := c.Word("tree")
	r := load(c, box, at, dir("d/"), file("d/f", "deep"), file("top", "top"), dir("empty/"))
	if r.Members < 2 || len(r.Skipped) > 0 {
		c.Errorf("the import of four members says %+v", r)
	}
	c.Same("an imported file", kit.Get(c, box, at+"/d/f"), []byte("deep"))
	if got := c.Sh(box, "cat "+at+"/top"); got != "top" {
		c.Errorf("a command reads of an imported file %q", got)
	}
	if info := kit.Stat(c, box, at+"/top"); info.Mode&0o777 != 0o644 || !info.ModTime.Equal(kit.When) {
		c.Errorf("an imported file has mode %04o and time %v", info.Mode, info.ModTime)
	}
	if kit.Stat(c, box, at+"/empty").Type != driver.TypeDirectory {
		c.Errorf("an empty directory was not imported")
	}
}

func treeExport(c *kit.C) {
	box := c.Box()
	at := c.Dir(box)
	c.OK(box.Mkdir(c.Ctx(), at+"/d", 0, false, ""), "mkdir")
	_, err := box.Write(c.Ctx(), at+"/d/f", driver.WriteOptions{Mode: 0o750, ModTime: kit.When}, strings.NewReader("content"))
	c.OK(err, "write")
	got := exported(c, box, driver.ExportOptions{Path: at})
	f := got["d/f"]
	if f.body != "content" || f.Mode&0o777 != 0o750 || !f.ModTime.Equal(kit.When) || got["d"].Typeflag != tar.TypeDir {
		c.Errorf("an export holds %q: %+v", slices.Sorted(maps.Keys(got)), f)
	}
}

func treeExclude(c *kit.C) {
	box := c.Box()
	at := c.Dir(box)
	c.Sh(box, "cd "+at+"; mkdir keep; mkdir skip; echo > keep/a.log; echo > keep/a.txt; echo > skip/b")
	if got := slices.Sorted(maps.Keys(exported(c, box, driver.ExportOptions{Path: at, Exclude: []string{"*.log", "skip/"}}))); !slices.Equal(got, []string{"keep", "keep/a.txt"}) {
		c.Errorf("an export without *.log and skip/ holds %q", got)
	}
}

func treeRound(c *kit.C) {
	box := c.Box()
	at := c.Dir(box)
	c.Sh(box, "cd "+at+"; mkdir a; mkdir empty; echo 1 > a/f; ln -s f a/link; ln -s /nowhere dangling; ln -s .. up")
	kit.Put(c, box, at+"/bytes", kit.Pattern(300_000))
	var b bytes.Buffer
	c.OK(box.Export(c.Ctx(), driver.ExportOptions{Path: at}, &b), "export")
	to := c.Word("copy")
	_, err := box.Import(c.Ctx(), driver.ImportOptions{Path: to}, &b)
	c.OK(err, "import what was exported")
	was, is := kit.List(c, box, at, driver.ListOptions{Recursive: true}), kit.List(c, box, to, driver.ListOptions{Recursive: true})
	if !slices.Equal(kit.Names(was), kit.Names(is)) {
		c.Errorf("of %q came back %q", kit.Names(was), kit.Names(is))
	}
	for name, a := range was {
		if b := is[name]; a.Type != b.Type || a.Mode != b.Mode || a.Target != b.Target || a.Type == driver.TypeRegular && a.Size != b.Size {
			c.Errorf("%s was %+v and came back as %+v", name, a, b)
		}
	}
	c.Same("a file after the round trip", kit.Get(c, box, to+"/bytes"), kit.Pattern(300_000))
}

func treeHardLinks(c *kit.C) {
	box := c.Box()
	at := c.Dir(box)
	c.Sh(box, "cd "+at+"; echo both > a; ln a b")
	var b bytes.Buffer
	c.OK(box.Export(c.Ctx(), driver.ExportOptions{Path: at}, &b), "export")
	to := c.Word("copy")
	_, err := box.Import(c.Ctx(), driver.ImportOptions{Path: to}, &b)
	c.OK(err, "import what was exported")
	c.Same("one name of a file with two", kit.Get(c, box, to+"/a"), []byte("both\n"))
	c.Same("the other", kit.Get(c, box, to+"/b"), []byte("both\n"))
}

func treeTwice(c *kit.C) {
	box := c.Box()
	at := c.Word("tree")
	load(c, box, at, file("a", "old"), file("b", "kept"))
	load(c, box, at, file("a", "new"))
	c.Same("a file that came twice", kit.Get(c, box, at+"/a"), []byte("new"))
	c.Same("a file that the second archive lacks", kit.Get(c, box, at+"/b"), []byte("kept"))
}

func treeReplace(c *kit.C) {
	box := c.Box()
	at := c.Word("tree")
	load(c, box, at, file("a", "old"), file("b", "gone"))
	_, err := box.Import(c.Ctx(), driver.ImportOptions{Path: at, Replace: true}, archive(c, file("a", "new")))
	c.OK(err, "import and replace")
	if got := kit.Names(kit.List(c, box, at, driver.ListOptions{})); !slices.Equal(got, []string{"a"}) {
		c.Errorf("a directory that was replaced holds %q", got)
	}
}

func treeMany(c *kit.C) {
	box := c.Box()
	at := c.Word("tree")
	var all []member
	for i := range 10_000 {
		all = append(all, file(fmt.Sprintf("%d/%d", i%100, i), "x"))
	}
	load(c, box, at, all...)
	n := 0
	for _, info := range kit.List(c, box, at, driver.ListOptions{Recursive: true}) {
		if info.Type == driver.TypeRegular {
			n++
		}
	}
	if n != 10_000 {
		c.Errorf("of 10000 files %d were imported", n)
	}
	if got := len(exported(c, box, driver.ExportOptions{Path: at})); got != 10_100 {
		c.Errorf("of 10000 files in 100 directories %d members were exported", got)
	}
	c.OK(box.Remove(c.Ctx(), at, true, ""), "remove")
}

func treeLongNames(c *kit.C) {
	box := c.Box()
	at := c.Word("tree")
	long := strings.Repeat("directory-with-a-long-name/", 12) + strings.Repeat("n", 200)
	load(c, box, at, file(long, "long"))
	c.Same("a file with a path of 500 bytes", kit.Get(c, box, at+"/"+long), []byte("long"))
	if got := exported(c, box, driver.ExportOptions{Path: at}); got[long].body != "long" {
		c.Errorf("a file with a path of 500 bytes is not in the export")
	}
}

func treeOddNames(c *kit.C) {
	box := c.Box()
	at := c.Word("tree")
	var all []member
	for _, name := range kit.Odd {
		all = append(all, file(name, "the file "+name))
	}
	load(c, box, at, all...)
	got := exported(c, box, driver.ExportOptions{Path: at})
	for _, name := range kit.Odd {
		if got[name].body != "the file "+name {
			c.Errorf("the file %q came back as %q", name, got[name].body)
		}
	}
}

func treeNothing(c *kit.C) {
	box := c.Box()
	at := c.Word("tree")
	load(c, box, at)
	if got := kit.Names(kit.List(c, box, at, driver.ListOptions{})); len(got) > 0 {
		c.Errorf("an empty archive made %q", got)
	}
}

func treeNonsense(c *kit.C) {
	_, err := c.Box().Import(c.Ctx(), driver.ImportOptions{Path: c.Word("tree")}, bytes.NewReader(kit.Pattern(5000)))
	c.Code(err, "import what is no archive", errs.ArchiveInvalid)
}

func treeCut(c *kit.C) {
	b := archive(c, file("a", strings.Repeat("a", 100_000)), file("b", "b"))
	_, err := c.Box().Import(c.Ctx(), driver.ImportOptions{Path: c.Word("tree")}, io.LimitReader(b, 50_000))
	c.Code(err, "import an archive that is cut off", errs.ArchiveInvalid)
}

// refused imports a hostile archive: it is refused, or what is hostile is left out by name.
func refused(c *kit.C, what string, members ...member) {
	box := c.Fresh()
	r, err := box.Import(c.Ctx(), driver.ImportOptions{Path: "in"}, archive(c, members...))
	if err != nil {
		c.Code(err, "import of "+what, errs.ArchiveInvalid, errs.PathEscapes, errs.NotDirectory)
	} else if len(r.Skipped) == 0 {
		c.Logf("the import of %s was taken", what)
	}
	for _, p := range []string{"/tmp/evil", c.Options().Workspace + "/evil"} {
		if out := c.Exec(box, "test", "-e", p); out.Exit.Code == 0 {
			c.Errorf("%s wrote outside its directory: %s", what, p)
		}
	}
}

func treeEscapes(c *kit.C) {
	refused(c, "an absolute path", file("/tmp/evil", "evil"))
	refused(c, "a path with ..", file("../evil", "evil"), file("a/../../evil", "evil"))
	refused(c, "a path with many ..", file(strings.Repeat("../", 20)+"tmp/evil", "evil"))
}

func treeThroughLink(c *kit.C) {
	refused(c, "a link and a file behind it", linkTo("out", "/tmp", tar.TypeSymlink), file("out/evil", "evil"))
	refused(c, "a link upwards and a file behind it", linkTo("up", "..", tar.TypeSymlink), file("up/evil", "evil"))
	refused(c, "a link to a file that it then writes", linkTo("f", "/tmp/evil", tar.TypeSymlink), file("f", "evil"))
	refused(c, "a hard link out", linkTo("h", "../../etc/passwd", tar.TypeLink), file("h", "evil"))
}

func treeBounded(c *kit.C) {
	box := c.Box()
	for what, limits := range map[string]driver.TreeLimits{
		"members": {MaxMembers: 5}, "input": {MaxInputBytes: 2000}, "content": {MaxExtractedBytes: 500},
	} {
		var all []member
		for i := range 20 {
			all = append(all, file(fmt.Sprint(i), strings.Repeat("x", 100)))
		}
		_, err := box.Import(c.Ctx(), driver.ImportOptions{Path: c.Word("tree"), Limits: limits}, archive(c, all...))
		c.Code(err, "import past the bound of "+what, errs.ArchiveLimit)
	}
}

func treeOutside(c *kit.C) {
	_, err := c.Box().Import(c.Ctx(), driver.ImportOptions{Path: "/tmp/elsewhere"}, archive(c, file("f", "x")))
	c.Code(err, "import outside the workspace", errs.PathEscapes)
	c.Code(c.Box().Export(c.Ctx(), driver.ExportOptions{Path: "/etc"}, io.Discard), "export from outside the workspace", errs.PathEscapes)
}

func treeMissing(c *kit.C) {
	c.Code(c.Box().Export(c.Ctx(), driver.ExportOptions{Path: c.Word("none")}, io.Discard), "export what is not there", errs.FileNotFound)
}

func treeSpecial(c *kit.C) {
	box := c.Box()
	at := c.Dir(box)
	c.Sh(box, "cd "+at+"; mkfifo fifo; echo kept > f")
	got := exported(c, box, driver.ExportOptions{Path: at})
	if got["f"].body != "kept\n" {
		c.Errorf("beside a FIFO a file is not exported")
	}
	if _, told := got["skipped fifo"]; !told {
		if _, there := got["fifo"]; !there {
			c.Errorf("a FIFO was left out, and nothing says so: %q", slices.Sorted(maps.Keys(got)))
		}
	}
}
