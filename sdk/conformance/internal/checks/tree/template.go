// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"strings"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/conformance/internal/suite"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/rpc"
)

func templates() []suite.Check {
	claimed := kit.Needs(driver.TreeTemplate)
	return []suite.Check{
		{Name: "template", Needs: claimed, Func: templateReused},
		{Name: "template-in-new-process", Needs: claimed, Process: true, Func: templateInNewProcess},
		{Name: "template-is-not-shared", Needs: claimed, Func: templateNotShared},
		{Name: "template-of-another-key", Needs: claimed, Func: templateOtherKey},
		{Name: "template-that-failed", Needs: claimed, Func: templateFailed},
	}
}

// from makes a sandbox whose workspace has a key, and fills it unless the driver has done so. It says which it was.
func from(c *kit.C, p *suite.Process, key string, members ...member) (box *rpc.Sandbox, reused bool) {
	box = c.FreshOn(p, func(r *driver.CreateRequest) { r.Workspace.Template = key })
	if box.WorkspacePreserved() {
		return box, true
	}
	_, err := box.Import(c.Ctx(), driver.ImportOptions{Path: ".", Template: key}, archive(c, members...))
	c.OK(err, "import what a key stands for")
	return box, false
}

// contents are what the checks put into a workspace with a key.
func contents() []member {
	return []member{dir("d/"), file("d/f", "deep"), file("top", "top"), file("big", string(kit.Pattern(300_000)))}
}

func filled(c *kit.C, box *rpc.Sandbox, what string) {
	c.Same("a file of "+what, kit.Get(c, box, "d/f"), []byte("deep"))
	c.Same("another", kit.Get(c, box, "big"), kit.Pattern(300_000))
	if got := c.Sh(box, "cat top"); got != "top" {
		c.Errorf("a command in %s read %q", what, got)
	}
}

// again makes another sandbox with a key that the driver has seen, or skips the check where it keeps no templates.
func again(c *kit.C, p *suite.Process, key string) *rpc.Sandbox {
	box, reused := from(c, p, key, contents()...)
	if !reused {
		c.Skipf("the driver was given the same key twice and wanted the contents again: it keeps no templates here")
	}
	return box
}

func templateReused(c *kit.C) {
	key := c.Word("key")
	first, reused := from(c, c.Main(), key, contents()...)
	if reused {
		c.Fatalf("a sandbox with a key that nobody has used says that it holds its workspace")
	}
	filled(c, first, "the first workspace with a key")
	second := again(c, c.Main(), key)
	filled(c, second, "the second workspace with it")
	if info := kit.Stat(c, second, "top"); info.Mode&0o777 != 0o644 || !info.ModTime.Equal(kit.When) {
		c.Errorf("a file of a workspace that was made from a template has mode %04o and time %v", info.Mode, info.ModTime)
	}
}

func templateInNewProcess(c *kit.C) {
	key := c.Word("key")
	from(c, c.Main(), key, contents()...)
	filled(c, again(c, c.Spawn(), key), "a workspace with the key, in another driver process")
}

// templateNotShared wants that each workspace is its own, whatever is done to the one that the template came from.
func templateNotShared(c *kit.C) {
	key := c.Word("key")
	first, _ := from(c, c.Main(), key, contents()...)
	second, _ := from(c, c.Main(), key, contents()...)
	kit.Put(c, first, "d/f", []byte("changed by the first"))
	c.Sh(first, "rm top; echo new > new; echo more >> big")
	filled(c, second, "a workspace whose sibling was changed")
	kit.Absent(c, second, "new")
	kit.Put(c, second, "d/f", []byte("changed by the second"))
	c.Sh(second, "rm -r d")
	c.Same("a file of the first", kit.Get(c, first, "d/f"), []byte("changed by the first"))
	third, _ := from(c, c.Main(), key, contents()...)
	filled(c, third, "a workspace that was made after two others were changed")
	kit.Absent(c, third, "new")
	c.OK(first.Destroy(c.Ctx()), "destroy the first")
	filled(c, third, "a workspace whose sibling was destroyed")
}

func templateOtherKey(c *kit.C) {
	key := c.Word("key")
	from(c, c.Main(), key, contents()...)
	box, reused := from(c, c.Main(), key+"x", file("other", "other"))
	if reused {
		c.Errorf("a sandbox with another key says that it holds its workspace")
	}
	c.Same("its file", kit.Get(c, box, "other"), []byte("other"))
	kit.Absent(c, box, "top")
}

// templateFailed wants that a key whose contents did not arrive whole stands for nothing.
func templateFailed(c *kit.C) {
	key := c.Word("key")
	box := c.Fresh(func(r *driver.CreateRequest) { r.Workspace.Template = key })
	whole := archive(c, contents()...).Bytes()
	_, err := box.Import(c.Ctx(), driver.ImportOptions{Path: ".", Template: key}, strings.NewReader(string(whole[:len(whole)/2])))
	if err == nil {
		c.Errorf("half of an archive was imported under a key")
	}
	next, reused := from(c, c.Main(), key, contents()...)
	if reused {
		c.Errorf("half of an archive serves as a template")
	}
	filled(c, next, "the workspace after it")
}
