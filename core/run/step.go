// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"

	"github.com/berth-dev/berth/core/model"
)

// Step applies an event to a state. It changes neither argument. An error means that the event cannot happen in this
// state: a mistake of the caller, after which the old state still holds.
func Step(s State, ev Event) (State, []Effect, error) {
	m := machine{s: s.clone()}
	known, err := m.handle(ev)
	if err != nil {
		return s, nil, fmt.Errorf("run %s: event %s: %w", s.RunID, ev.eventType(), err)
	}
	if !known {
		return s, m.out, nil
	}
	m.advance()
	persist := Persist{Items: m.items, Settled: m.settled, Sync: m.sync}
	return *m.s, append([]Effect{persist}, m.out...), nil
}

// machine is one step at work.
type machine struct {
	s       *State
	items   []Ref
	settled []SettledCall
	sync    bool
	out     []Effect
}

// handle notes what happened. It reports false for a result that nobody waits for; then it changed nothing.
func (m *machine) handle(ev Event) (bool, error) {
	switch ev := ev.(type) {
	case Start:
		return true, m.start(ev)
	case Resume:
		return true, m.resume(ev)
	}
	s := m.s
	switch ev.(type) {
	case Tick, Pause, Cancel:
		if s.Status != Running {
			return false, fmt.Errorf("the run is not running, it is %q", s.Status)
		}
	}
	before := *s
	if s.Status == Running {
		m.clock(ev)
	}
	known := true
	switch ev := ev.(type) {
	case SandboxPrepared:
		known = m.take(&s.Sandbox.Slot, ev.Effect)
		s.Sandbox.Ready = s.Sandbox.Ready || known
		if known {
			s.Sandbox.ID = 0
		}
	case SandboxFailed:
		if known = m.take(&s.Sandbox.Slot, ev.Effect); known {
			m.fail(ev.Error)
		}
	case ModelAnswered:
		if known = s.Model != nil && m.take(s.Model, ev.Effect); known {
			m.answered(ev)
		}
	case ModelFailed:
		if known = s.Model != nil && m.take(s.Model, ev.Effect); known {
			m.fail(ev.Error)
		}
	case ToolDone:
		c := m.call(ev.Effect, StageRun, StageAnswer)
		if known = c != nil; known {
			c.Stage, c.Output, c.OK = StageDone, &ev.Output, ev.OK && c.Stage == StageRun
			if ev.Usage != nil {
				s.Usage = s.Usage.Add(*ev.Usage)
			}
			s.MicroUSD += ev.MicroUSD
		}
	case ToolSuspended:
		c := m.call(ev.Effect, StageRun)
		if known = c != nil; known {
			c.Suspended = true
		}
	case InputChecked:
		if known = s.Guard != nil && m.take(&s.Guard.Slot, ev.Effect); known {
			m.inputChecked(ev)
		}
	case PassedOn:
		if known = s.PassOn != nil && m.take(&s.PassOn.Slot, ev.Effect); known {
			m.passedOn(ev)
		}
	case PassOnFailed:
		if known = s.PassOn != nil && m.take(&s.PassOn.Slot, ev.Effect); known {
			m.fail(ev.Error)
		}
	case ToolFailed:
		c := m.call(ev.Effect, StageRun)
		if known = c != nil; known {
			if ev.Unstarted && c.Ran {
				c.Ran = false
				s.ToolCalls--
			}
			m.fail(ev.Error)
		}
	case ToolUnsure:
		c := m.call(ev.Effect, StageRun)
		if known = c != nil; known {
			c.Stage, c.Slot, c.Reason, c.Unsure, c.Remember = StageAsk, Slot{}, ev.Reason, true, false
		}
	case Decided:
		c := m.call(ev.Effect, StageAsk)
		if known = c != nil; known {
			m.decide(c, ev)
		}
	case OutputChecked:
		if known = s.Check != nil && m.take(&s.Check.Slot, ev.Effect); known {
			m.checked(ev)
		}
	case Tick:
	case Pause:
		return true, m.pause()
	case Cancel:
		m.cancel(ev.Now)
	}
	if !known {
		*s = before
		m.ignore(ev)
	}
	return known, nil
}

func (m *machine) start(ev Start) error {
	s := m.s
	switch {
	case s.Status != "":
		return fmt.Errorf("the run was started before")
	case ev.RunID == "":
		return fmt.Errorf("it has no run id")
	case len(ev.Input) == 0:
		return fmt.Errorf("it has no input")
	}
	if _, ok := ev.Config.Agents[ev.Agent]; !ok {
		return fmt.Errorf("agent %q is not in the configuration", ev.Agent)
	}
	s.Version, s.RunID, s.Status, s.Config, s.Agent = StateVersion, ev.RunID, Running, ev.Config, ev.Agent
	s.LastTime = ev.Time
	if a := ev.Config.Agents[ev.Agent]; a.GuardFirst || a.GuardBeside {
		s.Guard = &Guard{Beside: !a.GuardFirst}
	}
	m.transcript(ev.Input...)
	return nil
}

// inputChecked goes on to the check beside the model, if there is one.
func (m *machine) inputChecked(ev InputChecked) {
	s := m.s
	switch {
	case ev.Trip != nil:
		m.fail(*ev.Trip)
	case !s.Guard.Beside && s.Config.Agents[s.Agent].GuardBeside:
		s.Guard = &Guard{Beside: true}
	default:
		s.Guard = nil
	}
}

func (m *machine) resume(ev Resume) error {
	s := m.s
	switch {
	case s.Status == "":
		return fmt.Errorf("the run was not started")
	case s.Status == Completed:
		return fmt.Errorf("the run is complete")
	case s.Version < 1 || s.Version > StateVersion:
		return fmt.Errorf("the state has version %d, this program knows those up to %d", s.Version, StateVersion)
	}
	if _, ok := ev.Config.Agents[s.Agent]; !ok {
		return fmt.Errorf("agent %q is not in the configuration any more", s.Agent)
	}
	s.Version, s.Status, s.Config, s.Stop = StateVersion, Running, ev.Config, nil
	s.LastTime = ev.Time
	s.Sandbox.Ready = false
	s.Notes = append(s.Notes, ev.Notes...)
	m.land()
	return nil
}

// land takes everything out of flight. Ids stay, for a resume.
func (m *machine) land() {
	s := m.s
	s.Sandbox.InFlight = false
	if s.Model != nil {
		s.Model.InFlight = false
	}
	for i := range s.Calls {
		s.Calls[i].Slot.InFlight, s.Calls[i].Suspended = false, false
	}
	if s.Check != nil {
		s.Check.InFlight = false
	}
	if s.Guard != nil {
		s.Guard.InFlight = false
	}
	if s.PassOn != nil {
		s.PassOn.InFlight = false
	}
}

// clock counts the time at work.
func (m *machine) clock(ev Event) {
	if t := ev.when(); t.After(m.s.LastTime) {
		if !m.s.OnlyAsks() {
			m.s.Elapsed += t.Sub(m.s.LastTime)
		}
		m.s.LastTime = t
	}
}

// take ends the flight of a slot, if it is the one that a result names.
func (m *machine) take(sl *Slot, id EffectID) bool {
	if !sl.InFlight || sl.ID != id {
		return false
	}
	sl.InFlight = false
	return true
}

// call finds the call whose effect a result names, in one of the stages, and ends its flight.
func (m *machine) call(id EffectID, stages ...Stage) *Call {
	for i := range m.s.Calls {
		c := &m.s.Calls[i]
		for _, st := range stages {
			if c.Stage == st && m.take(&c.Slot, id) {
				return c
			}
		}
	}
	return nil
}

func (m *machine) ignore(ev Event) {
	id := resultOf(ev)
	why := "is finished, or does not fit this result"
	if id == 0 || id > m.s.LastID {
		why = "was never issued"
	}
	m.out = append(m.out, Emit{
		Notice: NoticeIgnored, Effect: id,
		Message: fmt.Sprintf("a result (%s) for effect %d was ignored: the effect %s", ev.eventType(), id, why),
	})
}

// resultOf is the effect that an event is the result of; 0 = none.
func resultOf(ev Event) EffectID {
	switch ev := ev.(type) {
	case SandboxPrepared:
		return ev.Effect
	case SandboxFailed:
		return ev.Effect
	case ModelAnswered:
		return ev.Effect
	case ModelFailed:
		return ev.Effect
	case ToolDone:
		return ev.Effect
	case ToolFailed:
		return ev.Effect
	case ToolUnsure:
		return ev.Effect
	case Decided:
		return ev.Effect
	case OutputChecked:
		return ev.Effect
	case ToolSuspended:
		return ev.Effect
	case InputChecked:
		return ev.Effect
	case PassedOn:
		return ev.Effect
	case PassOnFailed:
		return ev.Effect
	}
	return 0
}

// fail ends the run because of an error, unless it is ending for another reason already.
func (m *machine) fail(f Failure) {
	m.stop(&Stop{Status: Failed, Error: &f})
}

func (m *machine) stop(st *Stop) {
	if m.s.Stop == nil {
		m.s.Stop = st
	}
}

func (m *machine) cancel(now bool) {
	m.stop(&Stop{Status: Cancelled})
	if now {
		if ids := m.s.InFlight(); len(ids) > 0 {
			m.out = append(m.out, CancelEffects{IDs: ids})
		}
		m.land()
	}
}

func (m *machine) pause() error {
	if !m.s.OnlyAsks() {
		return fmt.Errorf("the run does not only wait for decisions")
	}
	m.stop(&Stop{Status: Paused})
	return nil
}

// transcript puts items at the end of the transcript. A compaction stands for everything before it.
func (m *machine) transcript(items ...Ref) {
	for _, it := range items {
		if it.Kind == model.ItemCompaction {
			m.s.Items.From = m.s.Items.To
		}
		m.s.Items.To++
	}
	m.items = append(m.items, items...)
}

func (m *machine) decide(c *Call, ev Decided) {
	c.Slot = Slot{}
	if ev.Answer != nil {
		m.s.Answers = append(m.s.Answers, *ev.Answer)
	}
	unsure := c.Unsure
	c.Unsure = false
	if ev.Allow {
		c.Stage = StageRun
		c.Ran = c.Ran && !unsure // somebody wants it made, whatever happened before
		return
	}
	c.Stage, c.Problem = StageAnswer, ev.Problem
	if c.Problem == nil {
		c.Problem = &Problem{Code: CodeDenied, Message: "the call was not approved"}
	}
}

func (m *machine) checked(ev OutputChecked) {
	s := m.s
	item := s.Check.Item
	s.Check = nil
	if ev.Trip != nil {
		m.fail(*ev.Trip)
		return
	}
	if ev.Problem == "" {
		s.Final = &Final{Item: item}
		return
	}
	s.BadOutput++
	if ev.Feedback != nil {
		m.transcript(*ev.Feedback)
	}
	if s.BadOutput > s.Config.Agents[s.Agent].OutputRetries {
		m.stop(&Stop{Status: Failed, Output: &item, Error: &Failure{
			Code: FailOutput, Message: "the final output does not fit the output schema: " + ev.Problem,
			Hint: "allow more retries in the output_schema, or loosen the schema",
		}})
		return
	}
	m.out = append(m.out, Emit{Notice: NoticeOutput, Message: ev.Problem})
}
