// SPDX-License-Identifier: Apache-2.0

package calling

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/tool"
	"github.com/berth-dev/berth/sdk/errs"
)

// UnsureText is what there is to say about a call that may have been made.
const UnsureText = "berth ended while this call was made: it may have done all, a part or nothing of its work"

// Outcome is how a tool call ended.
type Outcome struct {
	Res    tool.Result
	Err    error // ends the run
	Unsure bool  // nobody knows whether it was made before
	// Suspended says that it waits, and that a resume takes it up.
	Suspended bool
}

// Invoke calls a tool, within its time limit. Whatever the tool does, there is an outcome.
func Invoke(ctx context.Context, t tool.Tool, name string, call tool.Call) Outcome {
	if _, ok := t.(tool.Recovering); call.Again && !ok {
		return Outcome{Unsure: true}
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
	res, err := protect(ctx, t, call)
	switch {
	case err == nil && res.Error != nil && res.Error.Code == string(errs.SandboxGone):
		// The call was cut off with all that ran there. A resume finds the sandbox again, and asks whether to make it again.
		return Outcome{Err: fmt.Errorf("tool %q: %w", name, errs.New(errs.SandboxGone, "%s", res.Error.Message))}
	case err == nil:
		return Outcome{Res: res}
	case errors.Is(err, tool.ErrSuspended):
		return Outcome{Suspended: true}
	case errors.Is(err, tool.ErrUnsure):
		return Outcome{Unsure: true}
	}
	var late *timeoutError
	switch cause := context.Cause(ctx); {
	case errors.As(cause, &late) && endRun:
		return Outcome{Err: fmt.Errorf("tool %q: %w", name, cause)}
	case errors.As(cause, &late):
		return Outcome{Res: Failed("timeout", cause.Error(), true, "try it in smaller steps")}
	case cause != nil:
		return Outcome{Res: Failed(string(errs.Canceled), "the call was cancelled: "+cause.Error(), true, "")}
	case tool.EndsRun(err), errors.Is(err, errs.SandboxGone):
		return Outcome{Err: fmt.Errorf("tool %q: %w", name, err)}
	}
	if _, ok := errors.AsType[*errs.Error](err); ok {
		res := tool.Failed(err)
		res.Error.Message, res.Summary = err.Error(), err.Error() // with what was being done
		return Outcome{Res: res}
	}
	return Outcome{Res: Failed("tool_failed", err.Error(), false, "")}
}

// protect calls a tool and turns a panic into a failure.
func protect(ctx context.Context, t tool.Tool, call tool.Call) (res tool.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			res = Failed("tool_crashed", fmt.Sprintf("the tool crashed: %v", p), false, "")
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

// Failed is the result of a call that failed, or that was not made.
func Failed(code, message string, retryable bool, hint string) tool.Result {
	return tool.Result{Error: &tool.Error{Code: code, Message: message, Retryable: retryable, Hint: hint}}
}

// OutputItem makes the item that tells the model how a call ended.
func OutputItem(c model.ToolCall, res tool.Result, support model.Support) model.Item {
	if res.Error != nil {
		return model.OutputItem(c, model.Output{Text: res.Error.JSON(), Failed: true}, support)
	}
	out := model.Output{Text: res.Text}
	for _, im := range res.Images {
		out.Images = append(out.Images, model.OutputImage(im))
	}
	return model.OutputItem(c, out, support)
}

// Finished is the event of a call that ended.
func Finished(c model.ToolCall, out Outcome, took time.Duration) event.ToolFinished {
	ev := event.ToolFinished{
		CallID: c.CallID, Tool: c.Name, OK: out.Err == nil && out.Res.Error == nil,
		Summary: out.Res.Summary, Detail: out.Res.Detail, Duration: took, Text: out.Res.Text,
	}
	switch {
	case out.Suspended:
		ev.OK, ev.Code, ev.Summary = false, "suspended", "waits; berth resume takes it up"
	case out.Unsure:
		ev.OK, ev.Code, ev.Summary = false, run.CodeInterrupted, UnsureText
	case out.Err != nil:
		ev.Code, ev.Summary = FailureOf("tool", out.Err).Code, out.Err.Error()
	case out.Res.Error != nil:
		ev.Code = out.Res.Error.Code
		if ev.Summary == "" {
			ev.Summary = out.Res.Error.Message
		}
	}
	return ev
}

// FailureOf is an error as the engine knows it, with the code and hint of an *errs.Error.
func FailureOf(code string, err error) run.Failure {
	f := run.Failure{Code: code, Message: err.Error()}
	if e, ok := errors.AsType[*errs.Error](err); ok {
		f.Code, f.Hint = string(e.Code), e.Hint
	}
	return f
}
