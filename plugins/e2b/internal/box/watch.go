// SPDX-License-Identifier: Apache-2.0

package box

import (
	"context"
	"errors"
	"time"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// nearDeadline is how long before its deadline a sandbox says that it will end.
const nearDeadline = time.Minute

// Watch reports what happens to the sandbox: from the guest what happens inside, from the service how it ended.
func (b *Box) Watch(ctx context.Context, report func(driver.Event)) error {
	c, err := b.live(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	over := make(chan error, 1)
	go func() { over <- c.Watch(ctx, report) }()
	defer func() {
		cancel(errOver)
		<-over //nolint:errcheck // the end is told by what follows
	}()
	var told time.Time
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			release := b.hold()
			deadline := b.st.Deadline
			release()
			if left := time.Until(deadline); left > nearDeadline {
				tick.Reset(left - nearDeadline)
				continue
			}
			// What keeps it alive may move it yet.
			if !b.record.KeepAlive && !deadline.IsZero() && !deadline.Equal(told) {
				told = deadline
				report(driver.Event{Kind: driver.EventDeadlineNear, Deadline: deadline, Message: "the sandbox ends at " + deadline.Format(time.RFC3339)})
			}
			tick.Reset(nearDeadline / 4)
		case <-c.Done():
			report(b.lastEvent(ctx))
			return nil
		case <-ctx.Done():
			return &errs.Error{Code: errs.Canceled, Op: "watch the sandbox", Err: context.Cause(ctx)}
		}
	}
}

// lastEvent says how the sandbox ended.
func (b *Box) lastEvent(ctx context.Context) driver.Event {
	gone := b.gone(ctx)
	switch {
	case errors.Is(gone, errs.SandboxGone):
		return driver.Event{Kind: driver.EventDied, Message: gone.Error()}
	case gone != nil:
		return driver.Event{Kind: driver.EventPaused, Message: gone.Error()}
	}
	return driver.Event{Kind: driver.EventDied, Message: "berth's guest in the sandbox ended or cannot be reached"}
}
