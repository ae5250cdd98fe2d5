// SPDX-License-Identifier: Apache-2.0

package berth

import (
	"cmp"
	"context"
	"time"

	"github.com/berth-dev/berth/core/approval"
	"github.com/berth-dev/berth/core/runner"
	"github.com/berth-dev/berth/core/spec"
)

// DefaultKeepFor is how long a run waits for a person at a terminal.
const DefaultKeepFor = 15 * time.Minute

// rules are the approval rules of a run.
func rules(r *spec.Run) (*approval.Rules, error) {
	root := spec.DefaultRoot
	if m := manifestOf(r); m != nil {
		root = cmp.Or(m.Root, root)
	}
	return approval.Compile(r.Approvals, root, r.Agent)
}

// keepFor is how long a run waits for a decision.
func (r *live) keepFor() time.Duration {
	for _, a := range []*spec.Approvals{r.o.Run.Approvals, r.o.Run.Agent.Approvals} {
		if a != nil && a.KeepFor != nil {
			return *a.KeepFor
		}
	}
	if r.o.Approve == nil {
		return 0
	}
	return DefaultKeepFor
}

// approve waits for a decision, as long as the run may.
func (r *live) approve(ctx context.Context, a runner.Approval) (runner.Decision, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, r.keepFor(), runner.ErrUndecided)
	defer cancel()
	if r.o.Approve != nil {
		d, err := r.o.Approve(ctx, a)
		if ctx.Err() == nil {
			return d, err
		}
	}
	<-ctx.Done()
	return runner.Decision{}, context.Cause(ctx)
}
