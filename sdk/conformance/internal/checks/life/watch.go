// SPDX-License-Identifier: Apache-2.0

package life

import (
	"context"
	"time"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// near says whether two times are the same for a vendor, who counts in seconds.
func near(a, b time.Time) bool { return a.Sub(b).Abs() < time.Minute }

func deadlineOfCreate(c *kit.C) {
	began := time.Now()
	box := c.Fresh(func(r *driver.CreateRequest) { r.MaxLifetime = kit.Long })
	if d := box.State().Deadline; d.Before(began.Add(kit.Long-time.Minute)) || d.After(time.Now().Add(kit.Long+time.Minute)) {
		c.Errorf("a sandbox that may live for an hour from %v has the deadline %v", began, d)
	}
}

func deadlineMoves(c *kit.C) {
	box := c.Fresh(func(r *driver.CreateRequest) { r.MaxLifetime = kit.Long })
	want := time.Now().Add(2 * kit.Long).Truncate(time.Second)
	got, err := box.ExtendDeadline(c.Ctx(), want)
	c.OK(err, "extend the deadline")
	if !near(got, want) {
		c.Errorf("the deadline that holds is %v, want %v", got, want)
	}
	if d := box.State().Deadline; !near(d, want) {
		c.Errorf("the state's deadline is %v, want %v", d, want)
	}
	info, err := box.Inspect(c.Ctx())
	c.OK(err, "inspect")
	if !near(info.Deadline, want) {
		c.Errorf("inspect gives the deadline %v, want %v", info.Deadline, want)
	}
}

func deadlineStays(c *kit.C) {
	box := c.Fresh(func(r *driver.CreateRequest) { r.MaxLifetime = kit.Long })
	kit.Put(c, box, "f", []byte("f"))
	before, err := box.Inspect(c.Ctx())
	c.OK(err, "inspect")
	kit.Get(c, box, "f")
	c.Sh(box, "true")
	kit.List(c, box, ".", driver.ListOptions{})
	after, err := box.Inspect(c.Ctx())
	c.OK(err, "inspect")
	if !after.Deadline.Equal(before.Deadline) {
		c.Errorf("reading, listing and running moved the deadline from %v to %v", before.Deadline, after.Deadline)
	}
}

func watchEnds(c *kit.C) {
	box := c.Fresh()
	ctx, cancel := context.WithCancelCause(c.Ctx())
	done := make(chan error, 1)
	go func() { done <- box.Watch(ctx, func(driver.Event) {}) }()
	cancel(kit.ErrEnough)
	select {
	case err := <-done:
		if err != nil {
			c.Code(err, "a watch whose caller has gone", errs.Canceled)
		}
	case <-c.Ctx().Done():
		c.Fatalf("a watch goes on after its caller has gone")
	}
	c.Sh(box, "true")
}

func watchDestroyed(c *kit.C) {
	box := c.Fresh()
	done := make(chan error, 1)
	go func() { done <- box.Watch(c.Ctx(), func(driver.Event) {}) }()
	c.Sh(box, "true")
	c.OK(box.Destroy(c.Ctx()), "destroy")
	select {
	case <-done: //nolint:errcheck // only that it has ended counts
	case <-c.Ctx().Done():
		c.Fatalf("a watch goes on after its sandbox was destroyed")
	}
}
