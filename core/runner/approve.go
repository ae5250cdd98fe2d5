// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-dev/berth/core/approval"
	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/runlog"
	"github.com/berth-dev/berth/core/runner/calling"
	"github.com/berth-dev/berth/core/runner/history"
	"github.com/berth-dev/berth/core/tool"
)

// ErrUndecided is what [Config.Approve] answers when nobody decides for now. When the run waits for nothing else, it
// pauses, and a resume asks again.
var ErrUndecided = errors.New("nobody has decided")

// Approval is a call that waits for a decision.
type Approval struct {
	ID          run.EffectID // the same after a resume
	Call        model.ToolCall
	Fingerprint string // over kind, name and arguments: what a decision is about
	Agent       string
	Reason      string
	// Unsure says that the call may have been made by a process that ended, and that allowing it makes it (again).
	Unsure bool
	// Covers is what an answer covers that is to count for later calls; the zero Cover = it cannot.
	Covers run.Cover
}

// Decision decides an [Approval].
type Decision struct {
	Allow   bool
	Message string // for the model, when the call is denied; may be empty
	// Always lets an allowed call stand for all that the approval covers.
	Always bool
	By     string // who decided, for the log; may be empty
}

// judge asks the rules about a call.
func (x *executor) judge(t tool.Tool, c model.ToolCall, agent string) (approval.Ruling, error) {
	ac, err := calling.Subject(t, c, agent)
	if err != nil || x.cfg.Rules == nil {
		return approval.Ruling{}, err
	}
	return x.cfg.Rules.Judge(ac, x.state.Answers), nil
}

func (x *executor) askApproval(ctx context.Context, ef run.AskApproval) error {
	c, err := x.callOf(ef.Call)
	if err != nil {
		return err
	}
	a := Approval{ID: ef.ID, Call: c, Fingerprint: ef.Call.Fingerprint, Agent: ef.Agent, Reason: ef.Reason, Unsure: ef.Unsure}
	wanted := event.ApprovalWanted{CallID: c.CallID, Tool: c.Name, Arguments: c.JSON(), Reason: ef.Reason, Unsure: ef.Unsure}
	// A tool that went away between a crash and the resume is not there to ask.
	if t := x.now().tools.Find(c); t != nil && x.cfg.Rules != nil && !ef.Unsure {
		if ac, err := calling.Subject(t, c, ef.Agent); err == nil {
			a.Covers = x.cfg.Rules.Kind(ac)
			wanted.Covers = approval.Describe(a.Covers)
			x.asks[ef.ID] = ac
		}
	}
	x.stream.Send(wanted)
	if x.cfg.Approve == nil {
		x.decided(c, ef, Decision{}, &run.Problem{
			Code:    "approval_unavailable",
			Message: "the call needs an approval, and nobody can give one: approvals are not available in this run",
			Hint:    "find a way that needs no approval, or say what you need",
		})
		return nil
	}
	x.launch(ctx, ef.ID, func(ctx context.Context) result {
		d, err := x.cfg.Approve(ctx, a)
		if context.Cause(ctx) != nil {
			return result{} // the run ends, and a resume asks again
		}
		return result{event: func() (run.Event, error) {
			if x.flights[ef.ID] == nil {
				return nil, nil // another answer covered this call meanwhile
			}
			x.landed(ef.ID)
			switch {
			case errors.Is(err, ErrUndecided):
				x.undecided[ef.ID] = true
			case err != nil:
				x.decided(c, ef, Decision{}, calling.Denied("the approval could not be asked for: "+err.Error(), ""))
			default:
				x.decided(c, ef, d, nil)
			}
			return nil, nil
		}}
	})
	return nil
}

// decided makes the engine's event of a decision, and of all that it covers. A problem says why nobody could decide.
func (x *executor) decided(c model.ToolCall, ef run.AskApproval, d Decision, problem *run.Problem) {
	ev := run.Decided{Time: x.cfg.Now(), Effect: ef.ID, Allow: d.Allow}
	switch {
	case d.Allow:
	case ef.Unsure:
		ev.Problem = calling.Interrupted(d.Message)
	case problem != nil:
		ev.Problem = problem
	default:
		ev.Problem = calling.Denied(d.Message, "the call was not approved")
	}
	ac := x.asks[ef.ID]
	delete(x.asks, ef.ID)
	if ac != nil && problem == nil && (d.Allow && d.Always || ef.Remember) {
		ev.Answer = &run.Answer{Covers: x.cfg.Rules.Kind(ac), Allow: d.Allow, Message: d.Message}
	}
	x.tellDecided(c.CallID, c.Name, d, ev.Answer)
	x.inbox = append(x.inbox, ev)
	if ev.Answer == nil {
		return
	}
	for id, other := range x.asks {
		if !x.cfg.Rules.Covered(ev.Answer.Covers, other) {
			continue
		}
		x.landed(id)
		delete(x.asks, id)
		delete(x.undecided, id)
		x.inbox = append(x.inbox, run.Decided{Time: x.cfg.Now(), Effect: id, Allow: d.Allow, Problem: ev.Problem})
	}
}

func (x *executor) tellDecided(callID, name string, d Decision, a *run.Answer) {
	ev := event.ApprovalDecided{CallID: callID, Tool: name, Allow: d.Allow, Message: d.Message, By: d.By}
	if a != nil {
		ev.Covers = approval.Describe(a.Covers)
	}
	x.stream.Send(ev)
}

// save puts a checkpoint into the log. It is called in a tool's goroutine and waits until it is there.
func (x *executor) save(callID string, value []byte) error {
	data, err := history.EncodeCheckpoint(callID, value)
	if err != nil {
		return fmt.Errorf("save a checkpoint: %w", err)
	}
	done := make(chan error, 1)
	write := func() (run.Event, error) {
		err := x.cfg.Log.Append(true, runlog.Entry{Type: history.Checkpoint, Time: x.cfg.Now(), Data: data})
		if err == nil {
			x.saved[callID] = value
		}
		done <- err
		return nil, err
	}
	select {
	case x.results <- result{event: write}:
		return <-done
	case <-x.over:
		return errEnded
	}
}
