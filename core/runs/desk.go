// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"context"
	"fmt"
	"time"

	"github.com/berth-dev/berth/core/runner"
)

// lookEvery is how often a run that waits looks whether another process has decided.
const lookEvery = 250 * time.Millisecond

// Desk gets the decisions for a run that this process performs.
type Desk struct {
	Dir   Dir
	RunID string
	// Ask asks a person who is here, until the context ends; nil = nobody is.
	Ask     func(context.Context, runner.Approval) (runner.Decision, error)
	KeepFor time.Duration // how long a decision is waited for
	Now     func() time.Time
}

// answer is what a person who is here has said.
type answer struct {
	d   runner.Decision
	err error
}

// Approve waits for a decision, as long as the run may: of a person who is here, or of another process. The first counts.
func (k *Desk) Approve(ctx context.Context, a runner.Approval) (runner.Decision, error) {
	if d, found, err := k.elsewhere(a); found || err != nil {
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
			return k.decide(a, said.d)
		case <-look.C:
			if d, found, err := k.elsewhere(a); found || err != nil {
				return d, err
			}
		case <-ctx.Done():
			return runner.Decision{}, context.Cause(ctx)
		}
	}
}

// elsewhere is what another process has decided.
func (k *Desk) elsewhere(a runner.Approval) (runner.Decision, bool, error) {
	d, err := k.Dir.Decision(k.RunID, a.ID)
	if d == nil || err != nil {
		return runner.Decision{}, false, err
	}
	return runner.Decision{Allow: d.Allow, Always: d.Always, Message: d.Message, By: d.By}, true, nil
}

// decide keeps a decision that was made here. When another process was first, its decision counts.
func (k *Desk) decide(a runner.Approval, d runner.Decision) (runner.Decision, error) {
	mine := Decision{Allow: d.Allow, Always: d.Always, Message: d.Message, By: d.By, Time: k.Now()}
	was, won, err := k.Dir.Decide(k.RunID, a.ID, mine)
	if err != nil || won {
		return d, err
	}
	return runner.Decision{Allow: was.Allow, Always: was.Always, Message: was.Message, By: fmt.Sprintf("%s, who was first", was.By)}, nil
}
