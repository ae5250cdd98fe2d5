// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"time"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/driver"
)

// orphans wants that the processes of a sandbox end by themselves when nobody comes back in time, and that its files stay.
func orphans(c *kit.C) {
	p := c.Spawn()
	ttl := time.Second
	box := c.FreshOn(p, func(r *driver.CreateRequest) { r.OrphanTTL = &ttl })
	kit.Put(c, box, "kept", []byte("kept"))
	mark := c.Word("orphan")
	up := kit.Seen("up")
	run := kit.Begin(c.Ctx(), c, box, &driver.Command{Argv: []string{"sh", "-c", "echo up; sleep 3600; true", mark}, Detached: true}, driver.Streams{Stdout: up})
	up.Wait(c, run)
	if len(marked(mark)) == 0 {
		c.OK(box.Signal(c.Ctx(), run.ID, driver.Signal{Name: "KILL"}), "signal KILL")
		run.Wait(c)
		c.Skipf("the processes of a sandbox cannot be seen from here")
	}
	p.Kill()
	run.Wait(c)
	// While somebody looks at the sandbox it is not left alone: only the processes are watched.
	c.Eventually("processes end when nobody comes back to their sandbox", func() bool { return len(marked(mark)) == 0 })
	again, err := c.Main().Resume(c.Ctx(), c.Resumption(box))
	c.OK(err, "resume a sandbox that was left alone")
	c.Same("a file of a sandbox that was left alone", kit.Get(c, again, "kept"), []byte("kept"))
	c.Sh(again, "true")
}
