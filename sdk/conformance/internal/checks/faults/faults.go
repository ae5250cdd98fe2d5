// SPDX-License-Identifier: Apache-2.0

// Package faults holds the checks of what happens when something dies (faults), of what is left when everything is over
// (leaks), and the measurements (perf).
package faults

import (
	"context"
	"io"
	"syscall"
	"time"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/conformance/internal/suite"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

func Group() suite.Group {
	resume := kit.Needs(driver.LifeResume)
	return suite.Group{
		Name: "faults", Doc: "a driver that dies loses nothing, and its callers are told", When: suite.WithFaults,
		Checks: []suite.Check{
			{Name: "killed-while-idle", Binary: true, Needs: resume, Func: killedIdle},
			{Name: "killed-during-create", Binary: true, Func: killedCreate},
			{Name: "killed-during-run", Binary: true, Needs: resume, Func: killedRun},
			{Name: "killed-during-write", Binary: true, Needs: resume, Func: killedWrite},
			{Name: "killed-during-read", Binary: true, Needs: resume, Func: killedRead},
			{Name: "killed-during-export", Binary: true, Needs: resume, Func: killedExport},
			{Name: "killed-during-destroy", Binary: true, Needs: resume, Func: killedDestroy},
			{Name: "killed-commands-go-on", Binary: true, Needs: kit.Needs(driver.ProcAttach, driver.LifeResume), Proves: kit.Needs(driver.ProcAttach), Func: killedCommandsGoOn},
			{Name: "nobody-comes-back", Binary: true, Needs: resume, Func: orphans},
			{Name: "core-gone-leaves-no-process", Binary: true, Func: coreGone},
		},
	}
}

// dead are the codes of a call that a crash cut off.
var dead = []errs.Code{errs.ExecTransport, errs.DriverCrashed}

func killedIdle(c *kit.C) {
	p := c.Spawn()
	box := c.FreshOn(p)
	kit.Put(c, box, "kept", []byte("kept"))
	p.Kill()
	again, err := c.Main().Resume(c.Ctx(), c.Resumption(box))
	c.OK(err, "resume after the driver was killed")
	c.Same("a file of before", kit.Get(c, again, "kept"), []byte("kept"))
	c.Sh(again, "true")
}

func killedCreate(c *kit.C) {
	for _, after := range []time.Duration{0, 2 * time.Millisecond, 10 * time.Millisecond} {
		p := c.Spawn()
		req := c.Request()
		req.Labels["abandoned"] = c.Word("a")
		done := make(chan error, 1)
		go func() {
			_, err := p.Create(c.Ctx(), req)
			done <- err
		}()
		// Whatever the driver is doing by then: every moment has to do.
		t := time.NewTimer(after)
		<-t.C
		p.Kill()
		if err := <-done; err != nil {
			c.Code(err, "a create whose driver was killed", dead...)
		}
		kit.Abandoned(c, req)
		if !c.Claims(driver.LifeList) {
			box, err := c.Main().Create(c.Ctx(), req)
			c.OK(err, "create with the same id, after the first driver was killed")
			c.OK(box.Destroy(c.Ctx()), "destroy")
		}
	}
}

func killedRun(c *kit.C) {
	p := c.Spawn()
	box := c.FreshOn(p)
	run := kit.Begin(c.Ctx(), c, box, &kit.Forever, kit.NoStreams)
	p.Kill()
	run.Wait(c)
	c.Code(run.Err, "a run whose driver was killed", dead...)
	again, err := c.Main().Resume(c.Ctx(), c.Resumption(box))
	c.OK(err, "resume")
	c.Sh(again, "true")
}

func killedWrite(c *kit.C) {
	p := c.Spawn()
	box := c.FreshOn(p)
	kit.Put(c, box, "f", []byte("old"))
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := box.Write(c.Ctx(), "f", driver.WriteOptions{}, r)
		done <- err
	}()
	_, err := w.Write(kit.Pattern(2 << 20))
	c.OK(err, "send")
	p.Kill()
	c.OK(w.CloseWithError(kit.ErrEnough), "close")
	c.Code(<-done, "a write whose driver was killed", append(dead, errs.Canceled)...)
	again, err := c.Main().Resume(c.Ctx(), c.Resumption(box))
	c.OK(err, "resume")
	c.Same("a file whose replacement was cut off", kit.Get(c, again, "f"), []byte("old"))
}

func killedRead(c *kit.C) {
	p := c.Spawn()
	box := c.FreshOn(p)
	kit.Put(c, box, "f", kit.Pattern(16<<20))
	_, r, err := box.Open(c.Ctx(), "f", driver.ReadOptions{})
	c.OK(err, "open")
	p.Kill()
	_, err = io.Copy(io.Discard, r)
	c.Code(err, "a read whose driver was killed", dead...)
	c.OK(r.Close(), "close")
	again, err := c.Main().Resume(c.Ctx(), c.Resumption(box))
	c.OK(err, "resume")
	c.Same("the file", kit.Get(c, again, "f"), kit.Pattern(16<<20))
}

func killedExport(c *kit.C) {
	p := c.Spawn()
	box := c.FreshOn(p)
	kit.Put(c, box, "f", kit.Pattern(16<<20))
	err := box.Export(c.Ctx(), driver.ExportOptions{Path: "."}, kit.Writer(func(b []byte) (int, error) {
		p.Kill()
		return len(b), nil
	}))
	c.Code(err, "an export whose driver was killed", dead...)
	_, err = c.Main().Resume(c.Ctx(), c.Resumption(box))
	c.OK(err, "resume")
}

func killedDestroy(c *kit.C) {
	p := c.Spawn()
	box := c.FreshOn(p)
	r := c.Resumption(box)
	done := make(chan error, 1)
	go func() { done <- box.Destroy(c.Ctx()) }()
	p.Kill()
	<-done //nolint:errcheck // only that it has ended counts
	c.OK(c.Driver().Handle(box.ID(), box.State()).Destroy(c.Ctx()), "destroy again, by another driver process")
	_, err := c.Main().Resume(c.Ctx(), r)
	c.Code(err, "resume after the second destroy", errs.SandboxGone)
}

func killedCommandsGoOn(c *kit.C) {
	p := c.Spawn()
	box := c.FreshOn(p)
	text := kit.Pattern(100_000)
	id := kit.Spoken(c, box, text, &driver.Command{})
	p.Kill()
	again, err := c.Main().Resume(c.Ctx(), c.Resumption(box))
	c.OK(err, "resume after the driver was killed")
	got, _ := kit.Follow(c, again, id, 0, len(text))
	c.Same("the output of a command whose driver was killed", got, text)
}

func coreGone(c *kit.C) {
	p := c.Spawn()
	box := c.FreshOn(p)
	ctx, cancel := context.WithCancelCause(c.Ctx())
	defer cancel(kit.ErrEnough)
	kit.Begin(ctx, c, box, &kit.Forever, kit.NoStreams)
	p.Program().Cut()
	kit.Ended(c, p.Program(), "its core has gone")
	if err := syscall.Kill(-p.PID, 0); err == nil {
		c.Errorf("the driver ended and left processes in its group")
	}
}
