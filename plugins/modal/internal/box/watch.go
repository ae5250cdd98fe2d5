// SPDX-License-Identifier: Apache-2.0

package box

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/berth-dev/berth/plugins/modal/client"
	"github.com/berth-dev/berth/plugins/modal/internal/vendor"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// nearDeadline is how long before its deadline a sandbox says that it will end: there must be time to save its workspace.
const nearDeadline = 5 * time.Minute

// errEnded ends what goes on beside a watch.
var errEnded = errors.New("the sandbox has ended")

// Watch reports what happens: from the guest what happens inside, from Modal how the sandbox ended.
func (b *Box) Watch(ctx context.Context, report func(driver.Event)) error {
	c, err := b.live(ctx)
	if err != nil {
		return err
	}
	inner, cancel := context.WithCancelCause(ctx)
	var both sync.WaitGroup
	defer both.Wait()
	defer cancel(errEnded)
	both.Go(func() { _ = c.Watch(inner, report) }) // the end is told by what follows
	ended := make(chan driver.Event, 1)
	both.Go(func() {
		st, err := client.WaitEnd(inner, b.sb)
		switch {
		case inner.Err() != nil:
		case err != nil:
			ended <- driver.Event{Kind: driver.EventDied, Message: "Modal does not say how it is: " + err.Error()}
		case st.Reason == client.Evicted:
			ended <- driver.Event{Kind: driver.EventOutOfMemory, Message: vendor.Why(st)}
		default:
			ended <- driver.Event{Kind: driver.EventDied, Message: vendor.Why(st)}
		}
	})
	release := b.hold()
	deadline := b.record.Deadline
	release()
	var near <-chan time.Time
	if !deadline.IsZero() {
		// A short life is told of when half of it is over.
		left := time.Until(deadline)
		t := time.NewTimer(left - min(nearDeadline, left/2))
		defer t.Stop()
		near = t.C
	}
	for {
		select {
		case <-near:
			near = nil
			report(driver.Event{
				Kind: driver.EventDeadlineNear, Deadline: deadline, Message: "Modal ends the sandbox at " + deadline.Format(time.RFC3339) + " and cannot prolong it",
			})
		case ev := <-ended:
			report(ev)
			return nil
		case <-c.Done():
			// The guest has gone; the sandbox with it, or it was parked.
			report(driver.Event{Kind: driver.EventDied, Message: b.last(ctx)})
			return nil
		case <-ctx.Done():
			return &errs.Error{Code: errs.Canceled, Op: "watch the sandbox", Err: context.Cause(ctx)}
		}
	}
}

// last says what became of a sandbox whose guest does not answer.
func (b *Box) last(ctx context.Context) string {
	st, err := client.StatusOf(ctx, b.sb)
	switch {
	case err != nil:
		return "its guest does not answer, and Modal does not say why: " + err.Error()
	case st.Reason == client.Running:
		return "its guest has ended"
	}
	return vendor.Why(st)
}
