// SPDX-License-Identifier: Apache-2.0

// Package roster keeps the sandboxes that a driver's process has. It sees that one caller at a time makes or finds the
// sandbox of an id, and makes an end with all of them when the process ends.
package roster

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// Box is a sandbox.
type Box interface {
	comparable
	driver.Stopper
	ID() string
	Destroy(ctx context.Context) error
	Park() // leaves the guest to its lease
}

// Roster holds boxes by their ids. The zero value is empty.
type Roster[B Box] struct {
	mu    sync.Mutex
	boxes map[string]B             // guarded by mu
	busy  map[string]chan struct{} // guarded by mu; of ids that somebody is alone with
}

// Known gives the box of an id, or the zero value.
func (r *Roster[B]) Known(id string) B {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.boxes[id]
}

// Add puts a box in, in place of what had its id.
func (r *Roster[B]) Add(b B) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.boxes == nil {
		r.boxes = map[string]B{}
	}
	r.boxes[b.ID()] = b
}

// Forget takes a box out, unless another one has taken its place.
func (r *Roster[B]) Forget(b B) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.boxes[b.ID()] == b {
		delete(r.boxes, b.ID())
	}
}

// All gives every box.
func (r *Roster[B]) All() []B {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.boxes))
}

// Alone keeps others from making or finding the sandbox of an id until release is called.
func (r *Roster[B]) Alone(ctx context.Context, id string) (release func(), err error) {
	for {
		r.mu.Lock()
		other := r.busy[id]
		if other == nil {
			done := make(chan struct{})
			if r.busy == nil {
				r.busy = map[string]chan struct{}{}
			}
			r.busy[id] = done
			r.mu.Unlock()
			return func() {
				r.mu.Lock()
				defer r.mu.Unlock()
				delete(r.busy, id)
				close(done)
			}, nil
		}
		r.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, &errs.Error{Code: errs.Canceled, Op: "wait for the sandbox", Err: context.Cause(ctx)}
		}
	}
}

// Drain parks or ends every box, all at once, and reports each. One that cannot be stopped without losing its files is
// parked instead.
func (r *Roster[B]) Drain(ctx context.Context, policy driver.OrphanPolicy, report func(driver.DrainResult)) error {
	var mu sync.Mutex
	var failed []error
	var ends sync.WaitGroup
	for _, b := range r.All() {
		ends.Go(func() {
			d := driver.DrainResult{SandboxID: b.ID()}
			switch policy {
			case driver.OrphanDestroy:
				d.Outcome, d.Err = "destroyed", b.Destroy(ctx)
			case driver.OrphanStop:
				d.Outcome, d.Err = "stopped", b.Stop(ctx, true)
				if errors.Is(d.Err, errs.Unsupported) { // its files would go
					b.Park()
					d.Outcome, d.Err = "parked", nil
				}
			default:
				d.Outcome = "parked"
				b.Park()
			}
			mu.Lock()
			defer mu.Unlock()
			if d.Err != nil {
				d.Outcome = "failed"
				failed = append(failed, d.Err)
			}
			report(d)
		})
	}
	ends.Wait()
	return errors.Join(failed...)
}
