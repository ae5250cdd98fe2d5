// SPDX-License-Identifier: Apache-2.0

package berth

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-dev/berth/core/conversation"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/runner"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/sdk/errs"
)

// defaultStore is the name of the store of conversations: the state store.
const defaultStore = "default"

// Conversations gives what keeps the conversations of a project; nil = those of no project.
func (h *Harness) Conversations(ctx context.Context, p *spec.Project) (*conversation.Keeper, error) {
	store, err := h.cfg.Store(ctx)
	if err != nil {
		return nil, err
	}
	k := &conversation.Keeper{Store: store, RunsDir: h.cfg.RunsDir}
	if p != nil {
		k.Project = p.Dir
	}
	return k, nil
}

// converse gives the conversation that a new run goes on with, an empty one when it goes on with none.
func (r *live) converse(ctx context.Context) (*conversation.Opened, error) {
	key, block := r.o.Conversation, r.o.Run
	if key == "" {
		var err error
		if key, err = block.SessionID.Eval(r.vars(block.Agent)); err != nil {
			return nil, fmt.Errorf("the id of the session of run %q: %w", block.Label, err)
		}
	}
	if key == "" {
		if block.SessionStore != "" || block.SessionLimit > 0 {
			return nil, errs.New(errs.ConfigInvalid, "run %q has a session without an id: it is not known which conversation is meant", block.Label).
				WithHint("set id in the session block, or give --conversation KEY")
		}
		return &conversation.Opened{}, nil
	}
	k, err := r.h.Conversations(ctx, r.o.Project)
	if err != nil {
		return nil, err
	}
	o, err := k.Open(ctx, key, r.o.ID, block.SessionLimit)
	if err != nil {
		return nil, err
	}
	r.record.Conversation, r.record.Said = key, len(o.Items)
	return o, nil
}

// keepTurn adds a run that has completed to its conversation. It gives the run's error, and its own.
func (r *live) keepTurn(ctx context.Context, res *runner.Result, failed error) error {
	key := r.record.Conversation
	if key == "" || res == nil || res.Status != run.Completed {
		return failed
	}
	ctx = context.WithoutCancel(ctx) // the run is over, and its turn counts
	k, err := r.h.Conversations(ctx, r.o.Project)
	if err != nil {
		return errors.Join(failed, err)
	}
	warning, err := k.Save(ctx, key, r.o.ID)
	if err != nil {
		err = fmt.Errorf("the run is complete, and not in conversation %q yet; the next run of the conversation puts it there: %w", key, err)
	}
	res.Hint = warning
	return errors.Join(failed, err)
}
