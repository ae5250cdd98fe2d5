// SPDX-License-Identifier: Apache-2.0

package box

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/berth-dev/berth/plugins/daytona/client"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

const (
	// stopGrace is how long a guest may take to end its processes in order.
	stopGrace = 5 * time.Second
	// nearDeadline is how long before its deadline a sandbox says that it will end.
	nearDeadline = time.Minute
	// keepTimeout bounds one sign of life.
	keepTimeout = 30 * time.Second
)

// Stop ends every process.
func (b *Box) Stop(ctx context.Context, persist bool) error {
	if !persist {
		return b.Destroy(ctx)
	}
	defer b.hold()()
	if b.destroyed {
		return errs.New(errs.SandboxGone, "sandbox %s was destroyed", b.id)
	}
	if b.cfg.Ephemeral() {
		return errs.New(errs.Unsupported, "the files of the sandbox go as it stops").WithHint("auto_delete = \"0\" says so: leave it out").
			With("feature", string(driver.LifeStop))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, b.cfg.StopTimeout, errs.New(errs.StopFailed, "the sandbox did not stop within %s", b.cfg.StopTimeout))
	defer cancel()
	b.tunnels.Close()
	if b.guest != nil {
		// In order first; what does not end then is ended.
		orderly, done := context.WithTimeoutCause(ctx, stopGrace, errs.New(errs.StopFailed, "the guest did not end within %s", stopGrace))
		_ = b.guest.Shutdown(orderly) // the end below does not depend on it
		done()
		b.stopKeeping()
		b.guest = nil
	}
	v, err := b.host.Client.Await(ctx, b.st.ID, nil)
	if err == nil && v.State == client.StateStarted {
		err = b.host.Client.Settled(ctx, func() error {
			_, err := b.host.Client.Stop(ctx, b.st.ID, false)
			return err
		})
		if err == nil {
			v, err = b.host.Client.Await(ctx, b.st.ID, nil)
		}
	}
	switch {
	case err != nil:
		return errs.Wrap(errs.StopFailed, "stop the sandbox", err)
	case v.State.Gone():
		return errs.New(errs.SandboxGone, "sandbox %s was deleted", b.id)
	case v.State == client.StateStarted, v.State == client.StateError:
		return errs.New(errs.StopFailed, "the sandbox is %s after a stop: %s", v.State, v.ErrorReason)
	}
	if b.cfg.ArchiveOnStop && v.State == client.StateStopped {
		err := b.host.Client.Settled(ctx, func() error {
			_, err := b.host.Client.Archive(ctx, b.st.ID)
			return err
		})
		if err != nil { // it is stopped, which is what was wanted
			b.host.Log.Warn("the sandbox was not archived", "sandbox", b.id, "error", err)
		}
	}
	b.leave()
	return nil
}

// Destroy ends every process and removes everything.
func (b *Box) Destroy(ctx context.Context) error {
	defer b.hold()()
	if b.destroyed {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, b.cfg.StopTimeout, errs.New(errs.StopFailed, "the sandbox was not deleted within %s", b.cfg.StopTimeout))
	defer cancel()
	b.tunnels.Close()
	err := b.host.Client.Settled(ctx, func() error { return b.host.Client.Delete(ctx, b.st.ID) })
	if err != nil && !errors.Is(err, errs.SandboxGone) {
		// It may have been deleted as it was asked for.
		if v, e := b.host.Client.Sandbox(ctx, b.st.ID); e == nil && v.State.Gone() || errors.Is(e, errs.SandboxGone) {
			err = nil
		}
		if err != nil {
			return errs.Wrap(errs.StopFailed, "delete the sandbox", err)
		}
	}
	// The vendor begins, and says so; what runs inside goes on until it is done.
	if _, err := b.host.Client.Await(ctx, b.st.ID, nil); err != nil && !errors.Is(err, errs.SandboxGone) {
		return errs.Wrap(errs.StopFailed, "delete the sandbox", err)
	}
	if b.guest != nil {
		// It finds out by itself; a farewell would wait for an answer.
		t := time.NewTimer(stopGrace)
		defer t.Stop()
		select {
		case <-b.guest.Done():
		case <-t.C:
		}
	}
	b.detach()
	b.leave()
	b.destroyed = true
	return nil
}

// vendorPorts are those of the vendor's daemon: toolbox, terminal, recordings and ssh.
var vendorPorts = []uint16{2280, 22222, 33333, 22220}

// Watch reports what happens to the sandbox: from the guest what happens inside, and how it ended.
func (b *Box) Watch(ctx context.Context, report func(driver.Event)) error {
	c, err := b.live(ctx)
	if err != nil {
		return err
	}
	release := b.hold()
	deadline := b.st.Deadline
	release()
	var near <-chan time.Time
	if !deadline.IsZero() {
		t := time.NewTimer(time.Until(deadline) - nearDeadline)
		defer t.Stop()
		near = t.C
	}
	inner, cancel := context.WithCancelCause(ctx)
	over := make(chan error, 1)
	go func() {
		over <- c.Watch(inner, func(e driver.Event) {
			// The vendor's own servers are no news.
			if e.Port == 0 || !slices.Contains(vendorPorts, e.Port) {
				report(e)
			}
		})
	}()
	defer func() {
		cancel(errors.New("the sandbox has ended"))
		<-over //nolint:errcheck // its error is of no interest: the end is told by what follows
	}()
	for {
		select {
		case <-near:
			near = nil
			report(driver.Event{Kind: driver.EventDeadlineNear, Deadline: deadline, Message: "the sandbox ends at " + deadline.Format(time.RFC3339)})
		case <-c.Done():
			report(b.lastEvent(c.Err()))
			return nil
		case <-ctx.Done():
			return &errs.Error{Code: errs.Canceled, Op: "watch the sandbox", Err: context.Cause(ctx)}
		}
	}
}

// lastEvent says how the sandbox ended.
func (b *Box) lastEvent(err error) driver.Event {
	ev := driver.Event{Kind: driver.EventDied, Message: "it was stopped"}
	if err != nil {
		ev.Message = err.Error()
	}
	defer b.hold()()
	if b.expired {
		ev.Message = "its lifetime is over"
	}
	return ev
}

// keep keeps the vendor from stopping the sandbox while something is done in it: nothing that is done counts by itself.
// Preconditions: the gate is held.
func (b *Box) keep() {
	b.stopKeeping()
	if b.cfg.AutoStop == 0 {
		return
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	b.keeper = cancel
	c, id := b.guest, b.st.ID
	go func() {
		// Three signs of life fit: one may be lost.
		t := time.NewTicker(cmp.Or(b.host.Beat, b.cfg.AutoStop/3))
		defer t.Stop()
		for {
			select {
			case <-t.C:
			case <-c.Done():
				return
			case <-ctx.Done():
				return
			}
			once, done := context.WithTimeoutCause(ctx, keepTimeout, errors.New("out of time"))
			if b.used.Swap(false) || b.using.Load() > 0 || running(once, c) {
				if err := b.host.Client.Touch(once, id); err != nil && ctx.Err() == nil {
					b.host.Log.Warn("the sandbox could not be kept: Daytona may stop it", "sandbox", b.id, "error", err)
				}
			}
			done()
		}
	}()
}

// stopKeeping ends that. Preconditions: the gate is held.
func (b *Box) stopKeeping() {
	if b.keeper != nil {
		b.keeper(errors.New("the sandbox is left"))
		b.keeper = nil
	}
}

// running says whether a command runs that nobody may be attached to.
func running(ctx context.Context, c interface {
	Processes(ctx context.Context) ([]driver.Process, error)
},
) bool {
	all, err := c.Processes(ctx)
	if err != nil {
		return false
	}
	for _, p := range all {
		if p.Exit == nil {
			return true
		}
	}
	return false
}
