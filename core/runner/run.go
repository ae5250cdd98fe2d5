// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/runner/history"
)

// stateEvery is how many steps may follow the last state in the log.
const stateEvery = 256

// Run starts a run and performs it to its end. The error is not nil when the run could not be performed (a bad
// configuration, a log that cannot be written) or when its status is failed; the result is nil only in the first case.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	x, err := newExecutor(cfg, history.History{})
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", cfg.RunID, err)
	}
	for rec, err := range cfg.Log.Records() {
		if err != nil || rec.Type == history.Step {
			return nil, x.abandon(errors.Join(errors.New("the log is not empty; a run in it can be resumed"), err))
		}
	}
	start := run.Start{Time: cfg.Now(), RunID: cfg.RunID, Agent: cfg.Run.Agent.Label, Config: cfg.machine()}
	for _, it := range append(slices.Clone(cfg.History), model.Message("user", cfg.Run.Input)) {
		ref, err := x.put(it)
		if err != nil {
			return nil, x.abandon(err)
		}
		start.Input = append(start.Input, ref)
	}
	return x.perform(ctx, start)
}

// Resume goes on with the run that is in the log: after a crash, or after any end but a complete one. Limits, agent and
// tools are those of cfg; the transcript, the counters and what is pending come from the log.
func Resume(ctx context.Context, cfg Config) (*Result, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("resume run: %w", err)
	}
	h, err := history.Read(cfg.Log)
	if err != nil {
		return nil, fmt.Errorf("resume run %s: %w", cfg.RunID, err)
	}
	if h.State.RunID != cfg.RunID {
		return nil, fmt.Errorf("resume run %s: the log holds run %q", cfg.RunID, h.State.RunID)
	}
	if h.State.Status == run.Completed {
		return nil, fmt.Errorf("resume run %s: it is complete", cfg.RunID)
	}
	x, err := newExecutor(cfg, h)
	if err != nil {
		return nil, fmt.Errorf("resume run %s: %w", cfg.RunID, err)
	}
	resume := run.Resume{Time: cfg.Now(), Config: cfg.machine()}
	for _, text := range cfg.Notes {
		ref, err := x.put(model.Message("user", text))
		if err != nil {
			return nil, x.abandon(err)
		}
		resume.Notes = append(resume.Notes, ref)
	}
	return x.perform(ctx, resume)
}

// perform drives the run from its first event to its end.
func (x *executor) perform(ctx context.Context, first run.Event) (*Result, error) {
	started := event.RunStarted{Input: x.cfg.Run.Input, Model: x.cfg.ModelName}
	if sb := x.cfg.Run.Sandbox; sb != nil && x.cfg.Run.Agent.Sandboxed {
		started.Driver = sb.Driver
	}
	_, started.Resumed = first.(run.Resume)
	m := x.now()
	x.stream.At(m.spec.Label, 0)
	x.stream.Send(started)
	for _, w := range x.cfg.Warnings {
		x.stream.Send(w)
	}
	if !m.spec.Sandboxed {
		if err := x.prepare(ctx, m); err != nil {
			return nil, x.abandon(err)
		}
	}
	if err := x.loop(ctx, first); err != nil {
		x.closeSessions(ctx, run.Failed)
		return nil, x.abandon(err)
	}
	x.closeSessions(ctx, x.finish.Status)
	res := x.result()
	x.stream.Send(event.RunFinished{
		Status: string(res.Status), Code: failureCode(res.Failure), Output: res.Output, Error: failureText(res.Failure), Hint: res.Hint,
		Usage: res.Usage, Turns: res.Turns,
	})
	if err := x.appendEvents(); err != nil {
		return nil, x.abandon(err)
	}
	x.stream.End()
	if res.Status == run.Failed {
		return res, fmt.Errorf("run %s: %w", x.cfg.RunID, x.failure())
	}
	return res, nil
}

// abandon gives up a run that cannot be performed.
func (x *executor) abandon(err error) error {
	x.stream.Send(event.RunFinished{
		Status: string(run.Failed), Error: err.Error(), Hint: x.resumeHint(), Usage: x.state.Usage, Turns: x.state.Turn,
	})
	x.stream.End()
	return fmt.Errorf("run %s: %w", x.cfg.RunID, err)
}

func (x *executor) result() *Result {
	s := &x.state
	res := &Result{RunID: s.RunID, Status: s.Status, Agent: s.Agent, Usage: s.Usage, MicroUSD: s.MicroUSD, Turns: s.Turn, Failure: x.finish.Error}
	if ref := x.finish.Output; ref != nil {
		if it, err := x.cfg.Log.Get(*ref); err == nil {
			res.Output = it.Text()
		}
	}
	switch {
	case s.Status == run.Completed:
	case s.Status == run.Paused:
		res.Hint = fmt.Sprintf("decide with berth approve %[1]s or berth reject %[1]s, then go on with berth resume %[1]s", s.RunID)
	case res.Failure != nil && res.Failure.Hint != "":
		res.Hint = res.Failure.Hint + " (" + x.resumeHint() + ")"
	default:
		res.Hint = x.resumeHint()
	}
	return res
}

func (x *executor) resumeHint() string { return "berth resume " + x.cfg.RunID }

func failureText(f *run.Failure) string {
	if f == nil {
		return ""
	}
	return f.Message
}

func failureCode(f *run.Failure) string {
	if f == nil {
		return ""
	}
	return f.Code
}

// failure is the error of a failed run, with its cause when it is known.
func (x *executor) failure() error {
	f := x.finish.Error
	if x.cause != nil && f != nil && f.Message == x.causeText {
		return x.cause
	}
	if f == nil {
		return errors.New("it failed")
	}
	return errors.New(f.Message)
}

// appendEvents puts the events that wait into the log.
func (x *executor) appendEvents() error {
	entries, err := x.stream.Take(x.entries[:0])
	if err != nil {
		return err
	}
	x.entries = entries
	return x.cfg.Log.Append(false, entries...)
}
