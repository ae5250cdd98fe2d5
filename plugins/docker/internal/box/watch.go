// SPDX-License-Identifier: Apache-2.0

package box

import (
	"context"
	"errors"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/plugins/docker/internal/inside"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// nearDeadline is how long before its deadline a sandbox says that it will end.
const nearDeadline = time.Minute

// errEnded ends what goes on beside a watch.
var errEnded = errors.New("the container has ended")

// Watch reports what happens to the sandbox: from the guest what happens inside, from the engine how it ended.
func (s *Guest) Watch(ctx context.Context, report func(driver.Event)) error {
	c, err := s.live(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	over := make(chan error, 1)
	go func() { over <- c.Watch(ctx, report) }()
	defer func() {
		cancel(errEnded)
		<-over //nolint:errcheck // its error is of no interest: the end is told by what follows
	}()
	return s.watch(ctx, report, c.Done())
}

// watch reports the deadline, and the end when gone is closed.
func (b *Box) watch(ctx context.Context, report func(driver.Event), gone <-chan struct{}) error {
	release := b.hold()
	deadline := b.st.Deadline
	release()
	var near <-chan time.Time
	if !deadline.IsZero() {
		t := time.NewTimer(time.Until(deadline) - nearDeadline)
		defer t.Stop()
		near = t.C
	}
	for {
		select {
		case <-near:
			near = nil
			report(driver.Event{Kind: driver.EventDeadlineNear, Deadline: deadline, Message: "the sandbox ends at " + deadline.Format(time.RFC3339)})
		case <-gone:
			report(b.lastEvent(ctx))
			return nil
		case <-ctx.Done():
			return &errs.Error{Code: errs.Canceled, Op: "watch the sandbox", Err: context.Cause(ctx)}
		}
	}
}

// lastEvent says how the sandbox ended.
func (b *Box) lastEvent(ctx context.Context) driver.Event {
	release := b.hold()
	expired, stopped, id := b.expired, b.stopped, b.st.Container
	release()
	ev := driver.Event{Kind: driver.EventDied}
	got, err := b.e.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	switch {
	case expired:
		ev.Message = "its lifetime is over"
	case engine.NotFound(err):
		ev.Message = "its container was removed"
	case err != nil:
		ev.Message = "the container engine does not answer: " + engine.Text(err)
	case got.Container.State != nil && got.Container.State.Status == container.StatePaused:
		ev.Kind, ev.Message = driver.EventPaused, "its container was paused"
	case stopped:
		ev.Message = "it was stopped"
	default:
		ev.Message = inside.Why(got.Container.State)
	}
	return ev
}
