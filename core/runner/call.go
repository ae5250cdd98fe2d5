// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/run"
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

// outcome is how a tool call ended.
type outcome struct {
	res    tool.Result
	err    error // ends the run
	unsure bool  // nobody knows whether it was made before
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
	t := x.ready.tools.find(c)
	if t == nil {
		// The tool went away between a crash and the resume.
		return x.answerCall(run.AnswerCall{ID: ef.ID, Agent: ef.Agent, Call: ef.Call, Problem: *x.ready.tools.fault(c)})
	}
	x.running++
	support := x.cfg.Model.Supports()
	started := x.cfg.Now()
	x.stream.Send(event.ToolStarted{CallID: c.CallID, Tool: c.Name, Arguments: c.Arguments})
	saved := x.saved[c.CallID]
	x.launch(job.ctx, ef.ID, func(ctx context.Context) result {
		out := x.invoke(ctx, t, ef, c, saved)
		item := outputItem(c, out.res, support)
		return result{event: func() (run.Event, error) {
			x.landed(ef.ID)
			x.running--
			if err := x.nextJob(); err != nil {
				return nil, err
			}
			now := x.cfg.Now()
			x.toolFinished(c, out, now.Sub(started))
			if out.unsure {
				return run.ToolUnsure{Time: now, Effect: ef.ID, Reason: unsureText}, nil
			}
			if out.err != nil {
				x.keepCause(out.err)
				return run.ToolFailed{Time: now, Effect: ef.ID, Error: failureOf("tool", out.err)}, nil //nolint:nilerr // the event is the failure
			}
			ref, err := x.put(item)
			return run.ToolDone{Time: now, Effect: ef.ID, Output: ref, OK: out.res.Error == nil}, err
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
			Error: run.Failure{Code: string(errs.Canceled), Message: errStopped.Error()},
		})
		return true
	})
}

// invoke calls a tool, within its time limit. Whatever the tool does, there is an outcome.
func (x *executor) invoke(ctx context.Context, t tool.Tool, ef run.RunTool, c model.ToolCall, saved []byte) outcome {
	if _, ok := t.(tool.Recovering); ef.Again && !ok {
		return outcome{unsure: true}
	}
	var endRun bool
	if l, ok := t.(tool.TimeLimited); ok {
		var limit time.Duration
		if limit, endRun = l.TimeLimit(); limit > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, limit, &timeoutError{limit})
			defer cancel()
		}
	}
	live := stream.NewOutput(c.CallID, x.stream.Send)
	res, err := x.protect(ctx, t, tool.Call{
		ID: c.CallID, RunID: x.cfg.RunID, Agent: ef.Agent, Arguments: arguments(c), Again: ef.Again,
		Progress: live.Add, Saved: saved, Save: func(value []byte) error { return x.save(c.CallID, value) },
	})
	live.End()
	switch {
	case err == nil && res.Error != nil && res.Error.Code == string(errs.SandboxGone):
		// The call was cut off with all that ran there. A resume finds the sandbox again, and asks whether to make it again.
		return outcome{err: fmt.Errorf("tool %q: %w", c.Name, errs.New(errs.SandboxGone, "%s", res.Error.Message))}
	case err == nil:
		return outcome{res: res}
	case errors.Is(err, tool.ErrUnsure):
		return outcome{unsure: true}
	}
	var late *timeoutError
	switch cause := context.Cause(ctx); {
	case errors.As(cause, &late) && endRun:
		return outcome{err: fmt.Errorf("tool %q: %w", c.Name, cause)}
	case errors.As(cause, &late):
		return outcome{res: failed("timeout", cause.Error(), true, "try it in smaller steps")}
	case cause != nil:
		return outcome{res: failed(string(errs.Canceled), "the call was cancelled: "+cause.Error(), true, "")}
	case tool.EndsRun(err), errors.Is(err, errs.SandboxGone):
		return outcome{err: fmt.Errorf("tool %q: %w", c.Name, err)}
	}
	if _, ok := errors.AsType[*errs.Error](err); ok {
		res := tool.Failed(err)
		res.Error.Message, res.Summary = err.Error(), err.Error() // with what was being done
		return outcome{res: res}
	}
	return outcome{res: failed("tool_failed", err.Error(), false, "")}
}

// protect calls a tool and turns a panic into a failure.
func (x *executor) protect(ctx context.Context, t tool.Tool, call tool.Call) (res tool.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			res = failed("tool_crashed", fmt.Sprintf("the tool crashed: %v", p), false, "")
			res.Detail = map[string]any{"stack": string(debug.Stack())}
			err = nil
		}
	}()
	return t.Call(ctx, call)
}

type timeoutError struct{ limit time.Duration }

func (e *timeoutError) Error() string {
	return fmt.Sprintf("the tool took longer than its limit of %s", e.limit)
}

func failed(code, message string, retryable bool, hint string) tool.Result {
	return tool.Result{Error: &tool.Error{Code: code, Message: message, Retryable: retryable, Hint: hint}}
}

// outputItem makes the item that tells the model how a call ended.
func outputItem(c model.ToolCall, res tool.Result, support model.Support) model.Item {
	if res.Error != nil {
		return model.OutputItem(c, model.Output{Text: res.Error.JSON(), Failed: true}, support)
	}
	out := model.Output{Text: res.Text}
	for _, im := range res.Images {
		out.Images = append(out.Images, model.OutputImage(im))
	}
	return model.OutputItem(c, out, support)
}

func (x *executor) toolFinished(c model.ToolCall, out outcome, took time.Duration) {
	ev := event.ToolFinished{
		CallID: c.CallID, Tool: c.Name, OK: out.err == nil && out.res.Error == nil,
		Summary: out.res.Summary, Detail: out.res.Detail, Duration: took,
	}
	switch {
	case out.unsure:
		ev.OK, ev.Code, ev.Summary = false, run.CodeInterrupted, unsureText
	case out.err != nil:
		ev.Code, ev.Summary = failureOf("tool", out.err).Code, out.err.Error()
	case out.res.Error != nil:
		ev.Code = out.res.Error.Code
		if ev.Summary == "" {
			ev.Summary = out.res.Error.Message
		}
	}
	x.stream.Send(ev)
}

// answerCall makes the output of a call that is not run.
func (x *executor) answerCall(ef run.AnswerCall) error {
	c, err := x.callOf(ef.Call)
	if err != nil {
		return err
	}
	p := ef.Problem
	out := outcome{res: failed(p.Code, p.Message, p.Retryable, p.Hint)}
	ref, err := x.put(outputItem(c, out.res, x.cfg.Model.Supports()))
	if err != nil {
		return err
	}
	x.stream.Send(event.ToolStarted{CallID: c.CallID, Tool: c.Name, Arguments: c.Arguments})
	x.toolFinished(c, out, 0)
	x.inbox = append(x.inbox, run.ToolDone{Time: x.cfg.Now(), Effect: ef.ID, Output: ref})
	return nil
}
