// SPDX-License-Identifier: Apache-2.0

package life

import (
	"fmt"
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

func resumeHere(c *kit.C) {
	box := c.Fresh()
	kit.Put(c, box, "kept", []byte("kept"))
	again, err := c.Main().Resume(c.Ctx(), c.Resumption(box))
	c.OK(err, "resume")
	if !again.WorkspacePreserved() {
		c.Errorf("a resumed sandbox does not say that it holds its workspace: it would be filled again")
	}
	c.Same("a file of before", kit.Get(c, again, "kept"), []byte("kept"))
	c.Sh(again, "true")
}

func resumeAgain(c *kit.C) {
	box := c.Fresh()
	kit.Put(c, box, "kept", []byte("kept"))
	for range c.Options().Repeat {
		again, err := c.Main().Resume(c.Ctx(), c.Resumption(box))
		c.OK(err, "resume")
		c.Same("a file of before", kit.Get(c, again, "kept"), []byte("kept"))
	}
	c.Same("a file of before, by the first handle", kit.Get(c, box, "kept"), []byte("kept"))
}

func resumeInNewProcess(c *kit.C) {
	box := c.Fresh()
	kit.Put(c, box, "kept", []byte("kept"))
	again, err := c.Spawn().Resume(c.Ctx(), c.Resumption(box))
	c.OK(err, "resume in another driver process")
	if !again.WorkspacePreserved() {
		c.Errorf("a resumed sandbox does not say that it holds its workspace")
	}
	c.Same("a file of before", kit.Get(c, again, "kept"), []byte("kept"))
	kit.Put(c, again, "new", []byte("new"))
	if got := c.Sh(again, "cat new"); got != "new" {
		c.Errorf("a command in the resumed sandbox read %q", got)
	}
}

func resumeDestroyed(c *kit.C) {
	box := c.Fresh()
	r := c.Resumption(box)
	c.OK(box.Destroy(c.Ctx()), "destroy")
	_, err := c.Main().Resume(c.Ctx(), r)
	c.Code(err, "resume a destroyed sandbox", errs.SandboxGone)
}

func resumeDestroyedInNewProcess(c *kit.C) {
	box := c.Fresh()
	r := c.Resumption(box)
	c.OK(box.Destroy(c.Ctx()), "destroy")
	_, err := c.Spawn().Resume(c.Ctx(), r)
	c.Code(err, "resume a destroyed sandbox in another driver process", errs.SandboxGone)
}

func resumeMakesNothing(c *kit.C) {
	word := c.Word("none")
	box := c.Fresh(func(r *driver.CreateRequest) { r.Labels["nothing"] = word })
	r := c.Resumption(box)
	c.OK(box.Destroy(c.Ctx()), "destroy")
	p := c.Spawn()
	_, err := p.Resume(c.Ctx(), r)
	c.Code(err, "resume a destroyed sandbox", errs.SandboxGone)
	if ids := kit.Found(c, p.Driver, map[string]string{"nothing": word}); len(ids) > 0 {
		c.Errorf("a resume that failed made a sandbox: %v", ids)
	}
}

func resumeNonsense(c *kit.C) {
	for _, data := range []string{"", "nonsense", "\x00\xff", `{"id":7}`, "{}", strings.Repeat("x", 70<<10)} {
		r := &driver.ResumeRequest{SandboxID: ulid.Make().String(), State: driver.State{Version: c.Main().Desc.StateVersion, Data: []byte(data)}}
		box, err := c.Main().Resume(c.Ctx(), r)
		if err == nil {
			c.Errorf("a state of %q was resumed", data[:min(20, len(data))])
			c.OK(box.Destroy(c.Ctx()), "destroy")
			continue
		}
		c.Code(err, fmt.Sprintf("resume a state of %.20q", data), errs.InvalidArgument, errs.SandboxGone, errs.DriverIncompatible)
	}
}

func resumeOtherVersion(c *kit.C) {
	box := c.Fresh()
	r := c.Resumption(box)
	r.State.Version = 9999
	_, err := c.Main().Resume(c.Ctx(), r)
	c.Code(err, "resume a state of a later version", errs.DriverIncompatible)
}
