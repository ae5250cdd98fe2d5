// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"maps"
	"slices"
)

// answered takes a model's answer in.
func (m *machine) answered(ev ModelAnswered) {
	s := m.s
	s.Usage = s.Usage.Add(ev.Usage)
	s.MicroUSD += ev.MicroUSD
	for _, c := range ev.Calls {
		if c.CallID == "" {
			// Such a call can never be answered, so the answer is not kept and a resume asks again.
			m.fail(Failure{Code: FailNoCallID, Message: fmt.Sprintf("the model called %q without a call id", c.Name)})
			return
		}
	}
	s.Model = nil
	m.transcript(ev.Items...)
	if len(ev.Calls) > 0 {
		s.Calls = make([]Call, 0, len(ev.Calls))
		for _, c := range ev.Calls {
			m.plan(c)
		}
		return
	}
	switch {
	case ev.Refusal != "":
		m.stop(&Stop{Status: Failed, Output: ev.Output, Error: &Failure{
			Code: FailRefused, Message: "the model refused: " + ev.Refusal,
		}})
	case ev.Cut != "":
		m.stop(&Stop{Status: Failed, Output: ev.Output, Error: &Failure{
			Code: FailIncomplete, Message: "the model's last answer was cut off: " + ev.Cut,
			Hint: "raise max_tokens in the model settings, or resume the run to let the model go on",
		}})
	case ev.Output == nil && s.Config.Agents[s.Agent].CheckOutput:
		// An output is due and there is none: the model is asked again.
	case ev.Output == nil:
		s.Final = &Final{}
	default:
		m.output(*ev.Output)
	}
}

// output is what the run will end with, if it passes the check.
func (m *machine) output(item Ref) {
	if a := m.s.Config.Agents[m.s.Agent]; a.CheckOutput || a.GuardOutput {
		m.s.Check = &Check{Item: item}
		return
	}
	m.s.Final = &Final{Item: item}
}

// plan decides what becomes of a call. A call id stands for one call in the whole run: the same call again gets the
// output that it had, another call under the same id gets an error.
func (m *machine) plan(p PlannedCall) {
	s := m.s
	c := Call{CallRef: p.CallRef, Stage: StageRun, Handoff: p.Handoff}
	switch twin := m.twin(p.CallID); {
	case twin != nil && twin.Fingerprint == p.Fingerprint:
		c.Stage = StageTwin
		m.repeated(p.CallID)
	case p.Prior != nil && p.Prior.Fingerprint == p.Fingerprint:
		out := p.Prior.Output
		c.Stage, c.Output, c.OK, c.Repeat = StageDone, &out, p.Prior.OK, true
		m.repeated(p.CallID)
	case twin != nil || p.Prior != nil:
		c.Stage, c.Repeat = StageAnswer, true
		c.Problem = &Problem{
			Code:    CodeCallReused,
			Message: fmt.Sprintf("call id %q was used before, for another call", p.CallID),
			Hint:    "make the call again under a new call id",
		}
	case p.Problem != nil:
		c.Stage, c.Problem = StageAnswer, p.Problem
	case p.Handoff != nil && slices.ContainsFunc(s.Calls, func(c Call) bool { return c.Handoff != nil && c.Problem == nil }):
		c.Stage, c.Problem = StageAnswer, &Problem{
			Code: CodeHandedOver, Message: "this answer hands over to another agent already; only the first handover counts",
		}
	case p.Ask:
		c.Stage, c.Reason, c.Remember = StageAsk, p.Reason, p.Remember
	}
	s.Calls = append(s.Calls, c)
}

// twin is the first call of this answer with a call id.
func (m *machine) twin(callID string) *Call {
	for i := range m.s.Calls {
		if c := &m.s.Calls[i]; c.CallID == callID {
			return c
		}
	}
	return nil
}

func (m *machine) repeated(callID string) {
	m.out = append(m.out, Emit{
		Notice: NoticeRepeated, CallID: callID,
		Message: fmt.Sprintf("the model repeated call %q; it was not run again", callID),
	})
}

// settle puts the outputs of the calls into the transcript, in call order, when all are there.
func (m *machine) settle() bool {
	s := m.s
	for i := range s.Calls {
		if st := s.Calls[i].Stage; st != StageDone && st != StageTwin {
			return false
		}
	}
	var final *Ref
	var passing *Passing
	ran := false
	for i := range s.Calls {
		c := &s.Calls[i]
		if c.Stage == StageTwin {
			t := m.twin(c.CallID)
			c.Output, c.OK = t.Output, t.OK
		}
		m.transcript(*c.Output)
		if !c.Repeat && c.Stage != StageTwin {
			m.settled = append(m.settled, SettledCall{
				CallID: c.CallID, PriorCall: PriorCall{Fingerprint: c.Fingerprint, Output: *c.Output, OK: c.OK},
			})
		}
		ran = ran || c.Ran
		if c.Handoff != nil && c.OK && !c.Repeat && passing == nil {
			passing = &Passing{Handoff: *c.Handoff, Call: c.CallRef}
		}
		if final == nil && c.OK && m.endsRun(c.Name) {
			final = c.Output
		}
	}
	if ran && !m.usedTools() {
		s.UsedTools = append(append([]string(nil), s.UsedTools...), s.Agent)
	}
	s.Calls = nil
	switch {
	case passing != nil:
		s.PassOn = passing
	case final != nil:
		m.output(*final)
	}
	return true
}

// endsRun reports whether a good result of a tool is the final output.
func (m *machine) endsRun(tool string) bool {
	a := m.s.Config.Agents[m.s.Agent]
	if a.StopOnFirstTool {
		return true
	}
	return slices.Contains(a.StopAtTools, tool)
}

// passedOn makes another agent the one who acts.
func (m *machine) passedOn(ev PassedOn) {
	s := m.s
	from, to := s.Agent, s.PassOn.Handoff
	if _, was := s.Workspaces[to.Agent]; !was && s.Config.Agents[to.Agent].Sandboxed {
		home := from
		if w, ok := s.Workspaces[from]; ok {
			home = w
		}
		if to.Own || !s.Config.Agents[home].Sandboxed {
			home = to.Agent
		}
		s.Workspaces = maps.Clone(s.Workspaces)
		if s.Workspaces == nil {
			s.Workspaces = map[string]string{}
		}
		s.Workspaces[to.Agent] = home
	}
	s.Agent, s.PassOn, s.BadOutput, s.Sandbox.Ready = to.Agent, nil, 0, false
	if ev.Replace {
		s.Items.From = s.Items.To
	}
	m.transcript(ev.Items...)
	m.out = append(m.out, Emit{Notice: NoticeHandoff, Message: from})
}

func (m *machine) usedTools() bool {
	return slices.Contains(m.s.UsedTools, m.s.Agent)
}
