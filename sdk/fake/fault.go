// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"sync"
	"time"

	"github.com/berth-dev/berth/sdk/errs"
)

// Fault is something that goes wrong at a call.
type Fault struct {
	// Op names the call: create, resume, run, attach, signal, destroy, stop, pause, inspect, list, configure, drain,
	// files.stat, files.list, files.open, files.read, files.write, files.mkdir, files.remove, files.move,
	// files.set_meta, tree.export, tree.import, watch, …
	Op string
	// N is the call that fails, counted from 1 for each Op; 0 = every one.
	N int
	// Delay passes first.
	Delay time.Duration
	// Err is what the call returns; nil = it goes on after the delay.
	Err error
	// After lets the call do its work before it fails: an answer that is lost.
	After bool
	// Crash ends the driver (see [Options.Crash]) instead.
	Crash bool
}

// faults counts calls and finds what is to go wrong.
type faults struct {
	crash func()

	gone chan struct{} // closed by a crash in process: whatever waits ends then

	mu    sync.Mutex
	list  []Fault        // guarded by mu
	count map[string]int // guarded by mu
	dead  bool           // guarded by mu: crashed in process, nothing works any more
}

var errCrashed = errs.New(errs.DriverCrashed, "the fake driver crashed as it was told to")

// begin is called by every operation; the function that it gives is called with the operation's result.
func (f *faults) begin(ctx context.Context, op string) (end func(error) error, err error) {
	f.mu.Lock()
	if f.count == nil {
		f.count = map[string]int{}
	}
	f.count[op]++
	n := f.count[op]
	dead := f.dead
	var hit *Fault
	for i := range f.list {
		if f.list[i].Op == op && (f.list[i].N == 0 || f.list[i].N == n) {
			hit = &f.list[i]
			break
		}
	}
	f.mu.Unlock()
	end = func(err error) error { return err }
	if dead {
		return end, errCrashed
	}
	if hit == nil {
		return end, ctxError(ctx, op)
	}
	if hit.Delay > 0 {
		t := time.NewTimer(hit.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return end, ctxError(ctx, op)
		}
	}
	fail := func() error {
		if hit.Crash {
			return f.die()
		}
		return hit.Err
	}
	if hit.After {
		return func(err error) error {
			if failed := fail(); failed != nil {
				return failed
			}
			return err
		}, nil
	}
	return end, fail()
}

// die crashes the driver. It comes back only when the crash is one of the value and not of the process.
func (f *faults) die() error {
	if f.crash != nil {
		f.crash()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.dead {
		f.dead = true
		close(f.gone)
	}
	return errCrashed
}

func (f *faults) add(fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	// Counted from now on.
	if fault.N > 0 {
		fault.N += f.count[fault.Op]
	}
	f.list = append(f.list, fault)
}

func (f *faults) calls(op string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count[op]
}

func ctxError(ctx context.Context, op string) error {
	if ctx.Err() == nil {
		return nil
	}
	return errs.Wrap(errs.Canceled, op, context.Cause(ctx))
}
