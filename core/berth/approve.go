// SPDX-License-Identifier: Apache-2.0

package berth

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/berth-dev/berth/core/approval"
	"github.com/berth-dev/berth/core/runner"
	"github.com/berth-dev/berth/core/runs"
	"github.com/berth-dev/berth/core/spec"
)

const (
	// DefaultKeepFor is how long a run waits for a person at a terminal.
	DefaultKeepFor = 15 * time.Minute
	// lookEvery is how often a run that waits looks whether another process has decided.
	lookEvery = 250 * time.Millisecond
)

// Runs is the directory of runs.
func (h *Harness) Runs() runs.Dir { return runs.Dir{Path: h.cfg.RunsDir} }

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

// answer is what a person who is here has said.
type answer struct {
	d   runner.Decision
	err error
}

// approve waits for a decision, as long as the run may: of a person who is here, or of another process. The first counts.
func (r *live) approve(ctx context.Context, a runner.Approval) (runner.Decision, error) {
	if d, err := r.elsewhere(a); d != nil || err != nil {
		return deref(d), err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, r.keepFor(), runner.ErrUndecided)
	defer cancel()
	here := make(chan answer, 1)
	if r.o.Approve != nil {
		go func() {
			d, err := r.o.Approve(ctx, a)
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
			return r.decide(a, said.d)
		case <-look.C:
			if d, err := r.elsewhere(a); d != nil || err != nil {
				cancel()
				return deref(d), err
			}
		case <-ctx.Done():
			return runner.Decision{}, context.Cause(ctx)
		}
	}
}

// elsewhere is what another process has decided; nil = nothing.
func (r *live) elsewhere(a runner.Approval) (*runner.Decision, error) {
	d, err := r.h.Runs().Decision(r.o.ID, a.ID)
	if d == nil || err != nil {
		return nil, err
	}
	return &runner.Decision{Allow: d.Allow, Always: d.Always, Message: d.Message, By: d.By}, nil
}

// decide keeps a decision that was made here. When another process was first, its decision counts.
func (r *live) decide(a runner.Approval, d runner.Decision) (runner.Decision, error) {
	mine := runs.Decision{Allow: d.Allow, Always: d.Always, Message: d.Message, By: d.By, Time: r.h.cfg.Now()}
	was, won, err := r.h.Runs().Decide(r.o.ID, a.ID, mine)
	if err != nil || won {
		return d, err
	}
	return runner.Decision{
		Allow: was.Allow, Always: was.Always, Message: was.Message, By: fmt.Sprintf("%s, who was first", was.By),
	}, nil
}
