// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"fmt"
	"slices"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/ops"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/runner/calling"
	"github.com/berth-dev/berth/core/runner/stream"
	"github.com/berth-dev/berth/core/tool"
	"github.com/berth-dev/berth/sdk/errs"
)

// toolJob is a tool call on its way.
type toolJob struct {
	ctx  context.Context //nolint:containedctx // a call that waits for its place keeps what it was asked under
	ef   run.RunTool
	call model.ToolCall
}

func (x *executor) runTool(ctx context.Context, ef run.RunTool) error {
	c, err := x.callOf(ef.Call)
	if err != nil {
		return err
	}
	job := toolJob{ctx: ctx, ef: ef, call: c}
	if n := x.cfg.Run.MaxToolsAtOnce; n > 0 && x.running >= n {
		x.queue = append(x.queue, job)
		return nil
	}
	return x.runJob(job)
}

func (x *executor) callOf(ref run.CallRef) (model.ToolCall, error) {
	it, ok := x.held[ref.Item.Hash]
	if !ok {
		var err error
		if it, err = x.cfg.Log.Get(ref.Item); err != nil {
			return model.ToolCall{}, err
		}
	}
	c, ok := it.ToolCall()
	if !ok {
		return c, fmt.Errorf("item %s is no tool call", ref.Item.Hash)
	}
	return c, nil
}

func (x *executor) runJob(job toolJob) error {
	c, ef := job.call, job.ef
	t := x.now().tools.Find(c)
	if t == nil {
		// The tool went away between a crash and the resume.
		return x.answerCall(run.AnswerCall{ID: ef.ID, Agent: ef.Agent, Call: ef.Call, Problem: *x.now().tools.Fault(c)})
	}
	x.running++
	support := x.now().Model.Supports()
	started := x.cfg.Now()
	x.stream.Send(event.ToolStarted{CallID: c.CallID, Tool: c.Name, Arguments: c.Arguments})
	m := x.now()
	saved, left := x.saved[c.CallID], x.left()
	x.launch(ops.ByCall(job.ctx, ef.Agent, c.CallID), ef.ID, func(ctx context.Context) result {
		live := stream.NewOutput(c.CallID, x.stream.Send)
		out := x.guarded(ctx, m, c, func() calling.Outcome {
			return calling.Invoke(ctx, t, c.Name, tool.Call{
				ID: c.CallID, RunID: x.cfg.RunID, Agent: ef.Agent, Arguments: calling.Arguments(c), Again: ef.Again,
				Left: left, Tell: x.stream.Send, Progress: live.Add, Saved: saved, Save: func(value []byte) error { return x.save(c.CallID, value) },
			})
		})
		live.End()
		item := calling.OutputItem(c, out.Res, support)
		return result{event: func() (run.Event, error) {
			x.landed(ef.ID)
			x.running--
			if err := x.nextJob(); err != nil {
				return nil, err
			}
			now := x.cfg.Now()
			x.stream.Send(calling.Finished(c, out, now.Sub(started)))
			if out.Unsure {
				return run.ToolUnsure{Time: now, Effect: ef.ID, Reason: calling.UnsureText}, nil
			}
			if out.Suspended {
				return run.ToolSuspended{Time: now, Effect: ef.ID}, nil
			}
			if out.Err != nil {
				x.keepCause(out.Err)
				return run.ToolFailed{Time: now, Effect: ef.ID, Error: calling.FailureOf("tool", out.Err)}, nil //nolint:nilerr // the event is the failure
			}
			ref, err := x.put(item)
			done := run.ToolDone{Time: now, Effect: ef.ID, Output: ref, OK: out.Res.Error == nil, MicroUSD: out.Res.MicroUSD}
			if out.Res.Usage != (model.Usage{}) {
				done.Usage = &out.Res.Usage
			}
			return done, err
		}}
	})
	return nil
}

// nextJob runs a call that waited for a free place.
func (x *executor) nextJob() error {
	if len(x.queue) == 0 {
		return nil
	}
	job := x.queue[0]
	x.queue = x.queue[1:]
	return x.runJob(job)
}

// dropQueue takes cancelled calls out of the queue. They never started, so a resume runs them.
func (x *executor) dropQueue(ids []run.EffectID) {
	x.queue = slices.DeleteFunc(x.queue, func(j toolJob) bool {
		if !slices.Contains(ids, j.ef.ID) {
			return false
		}
		x.inbox = append(x.inbox, run.ToolFailed{
			Time: x.cfg.Now(), Effect: j.ef.ID, Unstarted: !j.ef.Again,
			Error: run.Failure{Code: string(errs.Canceled), Message: ErrStopped.Error()},
		})
		return true
	})
}

// answerCall makes the output of a call that is not run.
func (x *executor) answerCall(ef run.AnswerCall) error {
	c, err := x.callOf(ef.Call)
	if err != nil {
		return err
	}
	p := ef.Problem
	out := calling.Outcome{Res: calling.Failed(p.Code, p.Message, p.Retryable, p.Hint)}
	ref, err := x.put(calling.OutputItem(c, out.Res, x.now().Model.Supports()))
	if err != nil {
		return err
	}
	x.stream.Send(event.ToolStarted{CallID: c.CallID, Tool: c.Name, Arguments: c.Arguments})
	x.stream.Send(calling.Finished(c, out, 0))
	x.inbox = append(x.inbox, run.ToolDone{Time: x.cfg.Now(), Effect: ef.ID, Output: ref})
	return nil
}

// left is what the run may still use.
func (x *executor) left() tool.Budget {
	s, l := &x.state, x.state.Config.Limits
	var b tool.Budget
	if l.Tokens > 0 {
		b.Tokens = max(1, l.Tokens-s.Usage.TotalTokens)
	}
	if l.MicroUSD > 0 {
		b.MicroUSD = max(1, l.MicroUSD-s.MicroUSD)
	}
	if l.ToolCalls > 0 {
		b.ToolCalls = max(1, l.ToolCalls-s.ToolCalls)
	}
	if d, ok := s.Remaining(); ok {
		b.Time = max(1, d)
	}
	return b
}
