// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"context"
	"sync"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

func detachedGoesOn(c *kit.C) {
	box := c.Box()
	ctx, cancel := context.WithCancelCause(c.Ctx())
	name := c.Word("go")
	run := kit.Begin(ctx, c, box, &driver.Command{Argv: []string{"sh", "-c", "until test -e " + name + "; do sleep 0.02; done; echo went on"}, Detached: true}, driver.Streams{})
	cancel(kit.ErrEnough)
	run.Wait(c)
	c.Code(run.Err, "run, cancelled", errs.Canceled)
	kit.Put(c, box, name, nil)
	var out bytes.Buffer
	exit, err := box.Attach(c.Ctx(), run.ID, 0, driver.Streams{Stdout: &out})
	c.OK(err, "attach to a detached command")
	if exit.Code != 0 || out.String() != "went on\n" {
		c.Errorf("a detached command whose caller had gone: %+v, %q", exit, out.String())
	}
}

func attachReplays(c *kit.C) {
	box := c.Box()
	text := kit.Pattern(300_000)
	id := kit.Spoken(c, box, text, &driver.Command{})
	got, gaps := kit.Follow(c, box, id, 0, len(text))
	c.Same("the replay", got, text)
	if len(gaps) > 0 {
		c.Errorf("gaps in a replay of 300 KB: %v", gaps)
	}
}

func attachOffset(c *kit.C) {
	box := c.Box()
	text := kit.Pattern(100_000)
	id := kit.Spoken(c, box, text, &driver.Command{})
	got, _ := kit.Follow(c, box, id, 77_777, len(text)-77_777)
	c.Same("the replay from offset 77777", got, text[77_777:])
}

func attachAfterEnd(c *kit.C) {
	box := c.Box()
	id := c.Word("p")
	c.Command(box, &driver.Command{ID: id, Argv: []string{"sh", "-c", "echo out; exit 4"}, Detached: true}, nil)
	for range 2 {
		var out bytes.Buffer
		exit, err := box.Attach(c.Ctx(), id, 0, driver.Streams{Stdout: &out})
		c.OK(err, "attach to a process that has ended")
		if exit.Code != 4 || out.String() != "out\n" {
			c.Errorf("a process that has ended, attached to: %+v, %q", exit, out.String())
		}
	}
}

func attachTwice(c *kit.C) {
	box := c.Box()
	text := kit.Pattern(50_000)
	id := kit.Spoken(c, box, text, &driver.Command{})
	outs := make([]bytes.Buffer, 2)
	both := make(chan struct{}, 2)
	var all sync.WaitGroup
	for i := range outs {
		all.Go(func() {
			_, err := box.Attach(c.Ctx(), id, 0, driver.Streams{Stdout: kit.Writer(func(p []byte) (int, error) {
				outs[i].Write(p)
				if outs[i].Len() == len(text) {
					both <- struct{}{}
				}
				return len(p), nil
			})})
			if err != nil {
				c.Errorf("attach %d of 2: %v", i+1, err)
			}
		})
	}
	for range outs {
		select {
		case <-both:
		case <-c.Ctx().Done():
			c.Fatalf("two callers attached, and not both got everything: %d and %d bytes of %d", outs[0].Len(), outs[1].Len(), len(text))
		}
	}
	c.OK(box.Signal(c.Ctx(), id, driver.Signal{Name: "KILL"}), "signal KILL")
	all.Wait()
	for i := range outs {
		c.Same("the output for one of two callers", outs[i].Bytes(), text)
	}
}

func attachGap(c *kit.C) {
	box := c.Box()
	text := kit.Pattern(2 << 20)
	id := kit.Spoken(c, box, text, &driver.Command{ReplayBytes: 64 << 10})
	var from, to uint64
	var out bytes.Buffer
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err := box.Attach(c.Ctx(), id, 0, driver.Streams{
			OnGap: func(g driver.Gap) { from, to = g.From, g.To },
			Stdout: kit.Writer(func(p []byte) (int, error) {
				out.Write(p)
				if to+uint64(out.Len()) == uint64(len(text)) {
					if err := box.Signal(c.Ctx(), id, driver.Signal{Name: "KILL"}); err != nil {
						c.Errorf("signal KILL: %v", err)
					}
				}
				return len(p), nil
			}),
		})
		if err != nil {
			c.Errorf("attach: %v", err)
		}
	}()
	select {
	case <-done:
	case <-c.Ctx().Done():
		c.Fatalf("the end of the output did not come: gap %d…%d, then %d bytes", from, to, out.Len())
	}
	if from != 0 || to == 0 {
		c.Errorf("of 2 MiB with 64 KiB kept, the gap is %d…%d", from, to)
	}
	if to <= uint64(len(text)) {
		c.Same("what came after the gap", out.Bytes(), text[to:])
	}
}

func attachUnknown(c *kit.C) {
	_, err := c.Box().Attach(c.Ctx(), c.Word("none"), 0, driver.Streams{})
	c.Code(err, "attach to a process that is not there", errs.ProcessUnknown)
}

func attachNewProcess(c *kit.C) {
	p := c.Spawn()
	box := c.FreshOn(p)
	text := kit.Pattern(200_000)
	id := kit.Spoken(c, box, text, &driver.Command{})
	r := c.Resumption(box)
	c.OK(p.End(), "end the driver process")
	again, err := c.Spawn().Resume(c.Ctx(), r)
	c.OK(err, "resume in another driver process")
	if !again.Reattached() {
		c.Errorf("resume does not say that it found the sandbox with its processes")
	}
	if listed := listed(c, again, id); listed == nil || listed.Exit != nil {
		c.Errorf("the process is not listed as running by the next driver process: %+v", listed)
	}
	got, gaps := kit.Follow(c, again, id, 1000, len(text)-1000)
	c.Same("the replay by another driver process, from offset 1000", got, text[1000:])
	if len(gaps) > 0 {
		c.Errorf("gaps in it: %v", gaps)
	}
}

func nobodyReads(c *kit.C) {
	box := c.Box()
	name, mark := c.Word("much"), c.Word("mark")
	kit.Put(c, box, name, kit.Pattern(4<<20))
	ctx, cancel := context.WithCancelCause(c.Ctx())
	run := kit.Begin(ctx, c, box, &driver.Command{
		Argv: []string{"sh", "-c", "cat " + name + "; cat " + name + "; echo > " + mark}, Detached: true, ReplayBytes: 64 << 10,
	}, driver.Streams{})
	cancel(kit.ErrEnough)
	run.Wait(c)
	c.Eventually("a command that prints 8 MiB which nobody reads goes on", func() bool {
		_, err := kit.StatErr(c, box, mark, false)
		return err == nil
	})
}
