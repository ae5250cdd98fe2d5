// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"context"
	"fmt"
	"time"

	"github.com/berth-dev/berth/core/approval"
	"github.com/berth-dev/berth/core/runner"
	"github.com/berth-dev/berth/core/state"
)

// lookEvery is how often a run that waits looks whether another process has decided.
const lookEvery = 500 * time.Millisecond

// Desk gets the decisions for a run that this process performs.
type Desk struct {
	Register *Register
	RunID    string
	// Ask asks a person who is here, until the context ends; nil = nobody is.
	Ask     func(context.Context, runner.Approval) (runner.Decision, error)
	KeepFor time.Duration // how long a decision is waited for
}

// answer is what a person who is here has said.
type answer struct {
	d   runner.Decision
	err error
}

// Approve waits for a decision, as long as the run may: of a person who is here, or of another process. The first counts.
func (k *Desk) Approve(ctx context.Context, a runner.Approval) (runner.Decision, error) {
	store, q := k.Register.Store, k.question(a)
	if err := store.Ask(ctx, q); err != nil {
		return runner.Decision{}, fmt.Errorf("ask for a decision: %w", err)
	}
	if d, found, err := k.elsewhere(ctx, q); found || err != nil {
		return d, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, k.KeepFor, runner.ErrUndecided)
	defer cancel()
	here := make(chan answer, 1)
	if k.Ask != nil {
		go func() {
			d, err := k.Ask(ctx, a)
			here <- answer{d, err}
		}()
	}
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case said := <-here:
			if said.err != nil {
				return said.d, said.err
			}
			return k.decide(ctx, q, said.d)
		case <-look.C:
			// A store that does not answer now may answer next time, until the time is over.
			if d, found, err := k.elsewhere(ctx, q); found && err == nil {
				return d, nil
			}
		case <-ctx.Done():
			return runner.Decision{}, context.Cause(ctx)
		}
	}
}

// question is what the store is asked.
func (k *Desk) question(a runner.Approval) *state.Approval {
	q := &state.Approval{
		Run: k.RunID, Effect: int64(a.ID), Root: Root(k.RunID), CallID: a.Call.CallID, Agent: a.Agent, Tool: a.Call.Name,
		Arguments: a.Call.JSON(), Reason: a.Reason, Unsure: a.Unsure,
	}
	if a.Covers.Tool != "" {
		q.Covers = approval.Describe(a.Covers)
	}
	return q
}

// elsewhere is what another process has decided.
func (k *Desk) elsewhere(ctx context.Context, q *state.Approval) (runner.Decision, bool, error) {
	a, err := k.Register.Store.Approval(ctx, q.Run, q.Effect)
	if err != nil || a.Decision == "" {
		return runner.Decision{}, false, err
	}
	return said(a), true, nil
}

func said(a *state.Approval) runner.Decision {
	return runner.Decision{Allow: a.Decision == state.Approved, Always: a.Always, Message: a.Message, By: a.Who}
}

// decide keeps a decision that was made here. When another process was first, its decision counts.
func (k *Desk) decide(ctx context.Context, q *state.Approval, d runner.Decision) (runner.Decision, error) {
	mine := *q
	mine.Decision, mine.Always, mine.Message, mine.Who = state.Rejected, d.Always, d.Message, d.By
	if d.Allow {
		mine.Decision = state.Approved
	}
	won, err := k.Register.Store.Decide(context.WithoutCancel(ctx), &mine)
	if err != nil || won {
		return d, err
	}
	was := said(&mine)
	was.By += ", who was first"
	return was, nil
}
