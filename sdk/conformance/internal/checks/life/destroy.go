// SPDX-License-Identifier: Apache-2.0

package life

import (
	"sync"

	"github.com/oklog/ulid/v2"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

func destroyAgain(c *kit.C) {
	box := c.Fresh()
	for i := range c.Options().Repeat {
		c.OK(box.Destroy(c.Ctx()), "destroy, time %d", i+1)
	}
}

func destroyAtOnce(c *kit.C) {
	box := c.Fresh()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := box.Destroy(c.Ctx()); err != nil {
				c.Errorf("one of four destroys at once: %v", err)
			}
		})
	}
	all.Wait()
}

func destroyEndsCommands(c *kit.C) {
	box := c.Fresh()
	r := kit.Begin(c.Ctx(), c, box, &driver.Command{Argv: []string{"sleep", "3600"}}, driver.Streams{})
	c.OK(box.Destroy(c.Ctx()), "destroy")
	r.Wait(c)
	if r.Err == nil && r.Out.Exit.Code == 0 {
		c.Errorf("a command of 3600 s ended with exit 0 when its sandbox was destroyed")
	}
}

func destroyedIsGone(c *kit.C) {
	box := c.Fresh()
	c.OK(box.Destroy(c.Ctx()), "destroy")
	_, err := c.Try(c.Ctx(), box, &driver.Command{Argv: []string{"true"}}, driver.Streams{})
	c.Code(err, "run in a destroyed sandbox", lost...)
	_, err = box.Stat(c.Ctx(), []string{"."}, driver.StatOptions{})
	c.Code(err, "stat in a destroyed sandbox", lost...)
	_, err = box.Inspect(c.Ctx())
	c.Code(err, "inspect a destroyed sandbox", lost...)
}

func destroyInNewProcess(c *kit.C) {
	box := c.Fresh()
	p := c.Spawn()
	c.OK(p.Driver.Handle(box.ID(), box.State()).Destroy(c.Ctx()), "destroy by state in another driver process")
	_, err := c.Spawn().Resume(c.Ctx(), c.Resumption(box))
	c.Code(err, "resume after another process destroyed the sandbox", errs.SandboxGone)
}

func unknownID(c *kit.C) {
	box := c.Driver().Handle(ulid.Make().String(), driver.State{})
	_, err := c.Try(c.Ctx(), box, &driver.Command{Argv: []string{"true"}}, driver.Streams{})
	c.Code(err, "run in a sandbox that was never made", errs.SandboxUnknown)
	_, err = box.Stat(c.Ctx(), []string{"."}, driver.StatOptions{})
	c.Code(err, "stat in a sandbox that was never made", errs.SandboxUnknown)
	_, err = box.Inspect(c.Ctx())
	c.Code(err, "inspect a sandbox that was never made", errs.SandboxUnknown)
}

func emptyID(c *kit.C) {
	req := c.Request()
	req.SandboxID = ""
	_, err := c.Main().Create(c.Ctx(), req)
	c.Code(err, "create without an id", errs.InvalidArgument)
}
