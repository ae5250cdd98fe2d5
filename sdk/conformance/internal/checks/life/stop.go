// SPDX-License-Identifier: Apache-2.0

package life

import (
	"slices"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/conformance/internal/suite"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

func stop(c *kit.C) {
	box := c.Fresh()
	r := kit.Begin(c.Ctx(), c, box, &driver.Command{Argv: []string{"sleep", "3600"}, Detached: true}, driver.Streams{})
	c.OK(box.Stop(c.Ctx(), true), "stop")
	r.Wait(c)
	if r.Err == nil && r.Out.Exit.Code == 0 {
		c.Errorf("a command of 3600 s ended with exit 0 when its sandbox was stopped")
	}
	if r.Err == nil && !r.Out.Exit.KilledByStop {
		c.Errorf("the exit of a command that the stop ended does not say so: %+v", r.Out.Exit)
	}
}

func stopAgain(c *kit.C) {
	box := c.Fresh()
	for i := range c.Options().Repeat {
		err := box.Stop(c.Ctx(), true)
		if err != nil && i > 0 && slices.Contains(append(lost, errs.SandboxNotReady), errs.CodeOf(err)) {
			continue // it says that the sandbox is not running, which is what was wanted
		}
		c.OK(err, "stop, time %d", i+1)
	}
}

func stopKeeps(c *kit.C) { stopAndResume(c, c.Main()) }

func stopKeepsInNewProcess(c *kit.C) { stopAndResume(c, c.Spawn()) }

func stopAndResume(c *kit.C, p *suite.Process) {
	box := c.Fresh()
	kit.Put(c, box, "kept", []byte("kept"))
	c.Sh(box, "mkdir d; echo more > d/more")
	c.OK(box.Stop(c.Ctx(), true), "stop")
	again, err := p.Resume(c.Ctx(), c.Resumption(box))
	c.OK(err, "resume a stopped sandbox")
	if !again.WorkspacePreserved() {
		c.Errorf("a sandbox that was stopped and resumed does not say that it holds its workspace")
	}
	if again.Reattached() {
		c.Errorf("a sandbox that was stopped and resumed says that its processes are still there")
	}
	c.Same("a file of before the stop", kit.Get(c, again, "kept"), []byte("kept"))
	if got := c.Sh(again, "cat d/more"); got != "more\n" {
		c.Errorf("a file that a command made before the stop: %q", got)
	}
}

func stopForgets(c *kit.C) {
	box := c.Fresh()
	kit.Put(c, box, "lost", []byte("lost"))
	c.OK(box.Stop(c.Ctx(), false), "stop")
	again, err := c.Main().Resume(c.Ctx(), c.Resumption(box))
	if errs.CodeOf(err) == errs.SandboxGone {
		return
	}
	c.OK(err, "resume")
	if _, err := kit.StatErr(c, again, "lost", false); err != nil && again.WorkspacePreserved() {
		c.Errorf("a sandbox that was stopped without its workspace says that it holds it")
	}
}

func stoppedRunsNothing(c *kit.C) {
	box := c.Fresh()
	c.OK(box.Stop(c.Ctx(), true), "stop")
	_, err := c.Try(c.Ctx(), box, &driver.Command{Argv: []string{"true"}}, driver.Streams{})
	c.Code(err, "run in a stopped sandbox", append(lost, errs.SandboxNotReady)...)
}

func stoppedIsDestroyed(c *kit.C) {
	box := c.Fresh()
	c.OK(box.Stop(c.Ctx(), true), "stop")
	r := c.Resumption(box)
	c.OK(box.Destroy(c.Ctx()), "destroy a stopped sandbox")
	if c.Claims(driver.LifeResume) {
		_, err := c.Main().Resume(c.Ctx(), r)
		c.Code(err, "resume after stop and destroy", errs.SandboxGone)
	}
}

func pause(c *kit.C) {
	box := c.Fresh()
	kit.Put(c, box, "kept", []byte("kept"))
	c.OK(box.Pause(c.Ctx()), "pause")
	info, err := box.Inspect(c.Ctx())
	c.OK(err, "inspect")
	if info.Status != driver.StatusPaused {
		c.Errorf("a paused sandbox has status %q", info.Status)
	}
	again, err := c.Main().Resume(c.Ctx(), c.Resumption(box))
	c.OK(err, "resume a paused sandbox")
	c.Same("a file of before the pause", kit.Get(c, again, "kept"), []byte("kept"))
	c.Sh(again, "true")
	info, err = again.Inspect(c.Ctx())
	c.OK(err, "inspect")
	if info.Status != driver.StatusRunning {
		c.Errorf("a sandbox that was paused and resumed has status %q", info.Status)
	}
}

func drainParks(c *kit.C) {
	p := c.Spawn()
	box := c.FreshOn(p)
	kit.Put(c, box, "kept", []byte("kept"))
	told := map[string]string{}
	c.OK(p.Driver.Drain(c.Ctx(), driver.OrphanPark, func(r driver.DrainResult) {
		if r.Err != nil {
			c.Errorf("drain of %s: %v", r.SandboxID, r.Err)
		}
		told[r.SandboxID] = r.Outcome
	}), "drain")
	if told[box.ID()] != "parked" {
		c.Errorf("drain told %q of the sandbox, not parked", told[box.ID()])
	}
	again, err := c.Main().Resume(c.Ctx(), c.Resumption(box))
	c.OK(err, "resume a parked sandbox in another driver process")
	c.Same("a file of before", kit.Get(c, again, "kept"), []byte("kept"))
}

func drainRefuses(c *kit.C) {
	p := c.Spawn()
	c.OK(p.Driver.Drain(c.Ctx(), driver.OrphanPark, func(driver.DrainResult) {}), "drain")
	_, err := p.Create(c.Ctx(), c.Request())
	c.Code(err, "create in a driver that was drained", errs.SandboxNotReady)
}
