// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/conformance/internal/suite"
	"github.com/berth-dev/berth/sdk/driver"
)

func Perf() suite.Group {
	return suite.Group{
		Name: "perf", Doc: "how fast it is: figures, without a verdict", When: suite.WithPerf,
		Checks: []suite.Check{
			{Name: "create", Alone: true, Func: perfCreate},
			{Name: "run", Alone: true, Func: perfRun},
			{Name: "small-files", Alone: true, Func: perfSmallFiles},
			{Name: "throughput", Alone: true, Func: perfThroughput},
		},
	}
}

// median calls f n times and notes the median of its time.
func median(c *kit.C, name string, n int, f func()) {
	var all []time.Duration
	for range n {
		began := time.Now()
		f()
		all = append(all, time.Since(began))
	}
	slices.Sort(all)
	c.Figure(name, all[n/2].Seconds()*1000, "ms")
}

func perfCreate(c *kit.C) {
	median(c, "create and destroy", 11, func() {
		box, err := c.Main().Create(c.Ctx(), c.Request())
		c.OK(err, "create")
		c.OK(box.Destroy(c.Ctx()), "destroy")
	})
}

func perfRun(c *kit.C) {
	box := c.Box()
	median(c, "run true", 51, func() { c.Exec(box, "true") })
}

func perfSmallFiles(c *kit.C) {
	box := c.Box()
	at := c.Dir(box)
	const n = 200
	began := time.Now()
	for i := range n {
		kit.Put(c, box, fmt.Sprintf("%s/%d", at, i), []byte("small"))
	}
	c.Figure("small files", n/time.Since(began).Seconds(), "writes/s")
}

func perfThroughput(c *kit.C) {
	box := c.Box()
	name := c.Word("big")
	const size = 64 << 20
	data := kit.Pattern(size)
	began := time.Now()
	_, err := box.Write(c.Ctx(), name, driver.WriteOptions{}, bytes.NewReader(data))
	c.OK(err, "write")
	c.Figure("write", size/1e6/time.Since(began).Seconds(), "MB/s")
	began = time.Now()
	kit.Get(c, box, name)
	c.Figure("read", size/1e6/time.Since(began).Seconds(), "MB/s")
	c.OK(box.Remove(c.Ctx(), name, false, ""), "remove")
}
