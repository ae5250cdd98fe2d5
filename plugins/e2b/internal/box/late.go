// SPDX-License-Identifier: Apache-2.0

package box

import (
	"context"
	"errors"
	"time"

	"github.com/berth-dev/berth/plugins/e2b/client"
	"github.com/berth-dev/berth/sdk/errs"
)

// lateTime bounds the removal of a sandbox that nobody waits for any more, from then on.
const lateTime = 2 * time.Minute

// ask asks the service for a sandbox, once. When ctx ends first, late is true: the request goes on, for the service may make
// the sandbox whether or not somebody hears of it, and what comes of it is removed. Until then nobody makes one of this id.
func (h *Host) ask(ctx context.Context, id string, want *client.CreateRequest) (_ *client.Sandbox, late bool, _ error) {
	var made *client.Sandbox // read after answered
	var err error            // the same
	on, end := context.WithCancelCause(context.WithoutCancel(ctx))
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		made, err = h.API.Create(on, want)
	}()
	select {
	case <-answered:
		end(nil)
		return made, false, err
	case <-ctx.Done():
	}
	over := make(chan struct{})
	h.unwanted.Store(id, over)
	go func() {
		defer close(over)
		defer h.unwanted.Delete(id)
		bound := time.AfterFunc(lateTime, func() { end(errOver) })
		defer bound.Stop()
		<-answered
		if e, ok := errors.AsType[*errs.Error](err); ok && e.MaybeApplied {
			h.sweep(on, id)
		} else if err == nil {
			if err := h.API.Kill(on, made.ID()); err != nil {
				h.Log.Warn("a sandbox that nobody waits for was not removed", "sandbox", id, "error", err)
			}
		}
		end(nil)
	}()
	return nil, true, &errs.Error{Code: errs.Canceled, Op: "create", Err: context.Cause(ctx)}
}

// settled waits until what an earlier create of this id has left is removed.
func (h *Host) settled(ctx context.Context, id string) error {
	over, ok := h.unwanted.Load(id)
	if !ok {
		return nil
	}
	select {
	case <-over.(chan struct{}): //nolint:errcheck,forcetypeassert // nothing else is in it
		return nil
	case <-ctx.Done():
		return &errs.Error{Code: errs.Canceled, Op: "create", Err: context.Cause(ctx)}
	}
}

// Settle waits until nothing is left of creates that nobody waits for.
func (h *Host) Settle(ctx context.Context) error {
	var all []string
	h.unwanted.Range(func(id, _ any) bool {
		all = append(all, id.(string)) //nolint:errcheck,forcetypeassert // likewise
		return true
	})
	var err error
	for _, id := range all {
		err = errors.Join(err, h.settled(ctx, id))
	}
	return err
}
