// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

const (
	safeTries = 4
	minJitter = 200 * time.Millisecond
	maxJitter = 5 * time.Second
)

// retrier decides, for one call, what follows a failure.
type retrier struct {
	p          *process
	idempotent bool

	safe    int  // tries that did nothing
	resumed bool // the sandbox or the process was brought back once
	again   bool // an idempotent call of unknown outcome was repeated once
}

// verdict is what follows a failure.
type verdict uint8

const (
	giveUp verdict = iota
	repeat
	repeatResumed // the sandbox has to be resumed first
)

// after looks at a failure of a call to l and waits as long as it asks for. The error is what the caller gets when it
// gives up.
func (r *retrier) after(ctx context.Context, l *live, err error) (verdict, error) {
	if ctx.Err() != nil {
		return giveUp, err
	}
	if crash := r.p.crashed(ctx, l, err); crash != nil {
		if !r.idempotent || r.resumed {
			return giveUp, crashError(crash, !r.idempotent)
		}
		r.resumed = true
		return repeat, nil
	}
	var e *errs.Error
	if !errors.As(err, &e) {
		return giveUp, err
	}
	wait := e.RetryAfter
	var v verdict
	switch e.RetryClass() {
	case errs.RetrySafe:
		if r.safe++; r.safe >= safeTries {
			return giveUp, err
		}
		v, wait = repeat, max(wait, jitter(r.safe))
	case errs.RetryAfterResume:
		if r.resumed {
			return giveUp, err
		}
		r.resumed, v = true, repeatResumed
	case errs.RetryUnknown:
		if !r.idempotent || r.again {
			return giveUp, err
		}
		r.again, v, wait = true, repeat, max(wait, jitter(1))
	default:
		return giveUp, err
	}
	if wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return giveUp, err
		}
	}
	return v, nil
}

// jitter is a random wait below a bound that doubles with each try.
func jitter(try int) time.Duration {
	return rand.N(min(minJitter<<try, maxJitter)) //nolint:gosec // it spreads load and guards nothing
}

// crashError is the error of a call that a crash took down.
func crashError(crash error, maybeApplied bool) error {
	var e *errs.Error
	if !errors.As(crash, &e) {
		e = &errs.Error{Code: errs.DriverCrashed, Err: crash}
	}
	c := *e
	c.MaybeApplied = maybeApplied
	return &c
}

// do makes a call to the driver, which may be made twice, under the retry policy.
func (p *process) do(ctx context.Context, f func(*live) error) error {
	r := retrier{p: p, idempotent: true}
	for {
		l, err := p.get(ctx)
		if err != nil {
			return err
		}
		if err = f(l); err == nil {
			return nil
		}
		if v, err := r.after(ctx, l, err); v == giveUp {
			return err
		}
	}
}

// do makes a call to the sandbox under the retry policy.
func (s *Sandbox) do(ctx context.Context, idempotent bool, f func(driver.Sandbox) error) error {
	return s.try(ctx, &retrier{p: s.p, idempotent: idempotent}, f)
}

// try is do with a retrier that f may change.
func (s *Sandbox) try(ctx context.Context, r *retrier, f func(driver.Sandbox) error) error {
	for {
		box, l, err := s.current(ctx)
		if err != nil {
			return err
		}
		if err = f(box); err == nil {
			return nil
		}
		v, err := r.after(ctx, l, err)
		switch v {
		case giveUp:
			return err
		case repeatResumed:
			s.forget(box)
		case repeat:
		}
	}
}
