// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/runner/calling"
	"github.com/berth-dev/berth/core/spec"
)

// codeGuardrail is the code of a failure that a guardrail made.
const codeGuardrail = "guardrail"

// inputGuards are those over a run's input: the run's first, then those of its first agent.
func (c *Config) inputGuards(a *spec.Agent) []*spec.Guardrail {
	return slices.Concat(c.Run.InputGuardrails, a.InputGuardrails)
}

// guardFirst reports whether a guardrail is asked before there is a sandbox and before the model: it is not parallel, and
// needs no sandbox itself.
func guardFirst(g *spec.Guardrail) bool {
	inside := len(g.Command) > 0 && g.Target != "host"
	return g.Parallel != nil && !*g.Parallel && !inside
}

// checkInput asks the guardrails over the input.
func (x *executor) checkInput(ctx context.Context, ef run.CheckInput) {
	m := x.now()
	guards := slices.DeleteFunc(x.cfg.inputGuards(m.spec), func(g *spec.Guardrail) bool { return guardFirst(g) == ef.Beside })
	s, input := m.session, x.cfg.Run.Input
	x.launch(ctx, ef.ID, func(ctx context.Context) result {
		trip, err := x.guard(ctx, guards, s, input)
		return result{event: func() (run.Event, error) {
			x.landed(ef.ID)
			return run.InputChecked{Time: x.cfg.Now(), Effect: ef.ID, Trip: x.tripped("input", trip, err)}, nil
		}}
	})
}

// tripped is the failure of a text that was not let through, or that could not be looked at.
func (x *executor) tripped(what string, t *trip, err error) *run.Failure {
	switch {
	case err != nil:
		x.keepCause(err)
		return &run.Failure{Code: codeGuardrail, Message: err.Error(), Hint: "mend the guardrail and resume the run"}
	case t != nil:
		return &run.Failure{
			Code: codeGuardrail, Message: fmt.Sprintf("guardrail %q did not let the %s through: %s", t.label, what, t.message),
			Hint: "a resumed run asks about the same text again: change the guardrail first, or start a run with another prompt",
		}
	}
	return nil
}

// trip is what a guardrail did not let through.
type trip struct {
	label, message string
	reject         bool // the model is told, and the run goes on
}

// guard asks guardrails about a text, all at once. The first of them in order that trips counts; one that cannot say is an
// error.
func (x *executor) guard(ctx context.Context, guards []*spec.Guardrail, s Session, text string) (*trip, error) {
	trips, faults := make([]*trip, len(guards)), make([]error, len(guards))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for i, g := range guards {
		all.Go(func() {
			t, err := x.cfg.Guard(ctx, g, s, text)
			switch {
			case err != nil:
				faults[i] = fmt.Errorf("guardrail %q: %w", g.Label, err)
			case t != nil:
				trips[i] = &trip{label: g.Label, message: t.Message, reject: g.OnTrip == "reject"}
				if trips[i].message == "" {
					trips[i].message = "it tripped"
				}
				cancel(errors.New("another guardrail tripped"))
			}
			if faults[i] == nil || t != nil {
				x.stream.Send(event.GuardrailAsked{Guardrail: g.Label, Stage: g.Stage, Tripped: trips[i] != nil, Message: g.Message})
			}
		})
	}
	all.Wait()
	for _, t := range trips {
		if t != nil {
			return t, nil
		}
	}
	return nil, errors.Join(faults...)
}

// guarded makes a call between the guardrails of its tool: those over the arguments before it, those over the result after
// it. What trips is an error that the model reads, or ends the run.
func (x *executor) guarded(ctx context.Context, m *member, c model.ToolCall, invoke func() calling.Outcome) calling.Outcome {
	var before, after []*spec.Guardrail
	for _, t := range m.spec.Tools {
		if t.Label == c.Name {
			before, after = t.InputGuards, t.OutputGuards
		}
	}
	if t, err := x.guard(ctx, before, m.session, calling.Arguments(c)); t != nil || err != nil {
		return stopped(c.Name, "arguments", t, err)
	}
	out := invoke()
	if out.Err != nil || out.Unsure || out.Suspended || out.Res.Error != nil {
		return out
	}
	if t, err := x.guard(ctx, after, m.session, out.Res.Text); t != nil || err != nil {
		bad := stopped(c.Name, "result", t, err)
		bad.Res.Usage, bad.Res.MicroUSD = out.Res.Usage, out.Res.MicroUSD
		return bad
	}
	return out
}

// stopped is the outcome of a call that a guardrail did not let through.
func stopped(name, what string, t *trip, err error) calling.Outcome {
	switch {
	case err != nil:
		return calling.Outcome{Err: fmt.Errorf("tool %q: %w", name, err)}
	case t.reject:
		return calling.Outcome{Res: calling.Failed(codeGuardrail, t.message, false, "do not make the same call again")}
	}
	return calling.Outcome{Err: fmt.Errorf("guardrail %q did not let the %s of tool %q through: %s", t.label, what, name, t.message)}
}

// checkOutput checks a final output against the agent's schema, and asks the guardrails over it.
func (x *executor) checkOutput(ctx context.Context, ef run.CheckOutput) error {
	it, err := x.cfg.Log.Get(ef.Item)
	if err != nil {
		return err
	}
	m := x.now()
	text := it.Text()
	if m.spec.OutputSchema != nil {
		if err := x.cfg.CheckOutput(m.spec.OutputSchema, text); err != nil {
			ev := run.OutputChecked{Time: x.cfg.Now(), Effect: ef.ID, Problem: err.Error()}
			if ev.Problem == "" {
				ev.Problem = "it does not fit"
			}
			ref, err := x.put(model.Message("user", "The final output was not accepted, because it does not fit the output schema: "+
				ev.Problem+"\nAnswer again with JSON that fits."))
			ev.Feedback = &ref
			x.inbox = append(x.inbox, ev)
			return err
		}
	}
	guards := slices.Concat(x.cfg.Run.OutputGuardrails, m.spec.OutputGuardrails)
	if len(guards) == 0 {
		x.inbox = append(x.inbox, run.OutputChecked{Time: x.cfg.Now(), Effect: ef.ID})
		return nil
	}
	x.launch(ctx, ef.ID, func(ctx context.Context) result {
		trip, err := x.guard(ctx, guards, m.session, text)
		return result{event: func() (run.Event, error) {
			x.landed(ef.ID)
			return run.OutputChecked{Time: x.cfg.Now(), Effect: ef.ID, Trip: x.tripped("output", trip, err)}, nil
		}}
	})
	return nil
}
