// SPDX-License-Identifier: Apache-2.0

package run

import "fmt"

// advance issues what is due, until the run waits for results or ends.
func (m *machine) advance() {
	for m.next() {
	}
}

// next does one thing. It reports false when there is nothing more to do in this step.
func (m *machine) next() bool {
	s := m.s
	busy := len(s.InFlight()) > 0
	if s.Final == nil {
		m.limitTime()
	}
	switch {
	case s.Final != nil && !busy && s.Guard == nil:
		m.finish(Finish{Status: Completed, Output: given(s.Final.Item)})
		return false
	case s.Stop != nil:
		return m.wind()
	case s.Guard != nil && !s.Guard.Beside:
		m.guard()
		return false
	case s.PassOn != nil:
		if p := s.PassOn; m.launch(&p.Slot) {
			m.out = append(m.out, PassOn{ID: p.ID, From: s.Agent, To: p.Agent, Call: p.Call, Items: s.Items})
		}
		return false
	case s.Config.Agents[s.Agent].Sandboxed && !s.Sandbox.Ready:
		if m.launch(&s.Sandbox.Slot) {
			m.out = append(m.out, PrepareSandbox{ID: s.Sandbox.ID, Agent: s.Agent, Workspace: s.Workspaces[s.Agent]})
		}
		return false
	case s.Guard != nil && (s.Model == nil && s.Turn > 0 || s.Final != nil):
		m.guard() // what the answer asks for waits
		return false
	case len(s.Calls) > 0:
		return m.issueCalls() || m.settle() || m.suspend()
	case s.Check != nil:
		if m.launch(&s.Check.Slot) {
			m.out = append(m.out, CheckOutput{ID: s.Check.ID, Agent: s.Agent, Item: s.Check.Item})
		}
		return false
	default:
		if s.Guard != nil {
			m.guard()
		}
		return m.callModel()
	}
}

// guard issues the check of the input.
func (m *machine) guard() {
	if g := m.s.Guard; m.launch(&g.Slot) {
		m.out = append(m.out, CheckInput{ID: g.ID, Agent: m.s.Agent, Beside: g.Beside})
	}
}

// suspend pauses the run when nothing is left to do but calls that cannot go on for now.
func (m *machine) suspend() bool {
	for i := range m.s.Calls {
		if m.s.Calls[i].Suspended && len(m.s.InFlight()) == 0 {
			m.stop(&Stop{Status: Paused})
			return true
		}
	}
	return false
}

// launch puts a slot in flight, with a new id when it has none. It reports false when it is in flight already.
func (m *machine) launch(sl *Slot) bool {
	if sl.InFlight {
		return false
	}
	if sl.ID == 0 {
		m.s.LastID++
		sl.ID = m.s.LastID
	}
	sl.InFlight = true
	return true
}

// issueCalls issues what is due of the calls. It reports true when that ended the run.
func (m *machine) issueCalls() bool {
	s := m.s
	fresh := 0
	for i := range s.Calls {
		c := &s.Calls[i]
		if c.Problem != nil && c.Problem.Code == CodeUnknownTool && s.Config.RaiseUnknown && c.Stage == StageAnswer {
			m.fail(Failure{Code: FailUnknownTool, Message: c.Problem.Message, Hint: c.Problem.Hint})
			return true
		}
		if c.Stage == StageRun && !c.Ran {
			fresh++
		}
	}
	if fresh > 0 && m.limit(fresh) {
		return true
	}
	for i := range s.Calls {
		c := &s.Calls[i]
		if c.Stage == StageDone || c.Stage == StageTwin || c.Suspended || !m.launch(&c.Slot) {
			continue
		}
		switch c.Stage {
		case StageAsk:
			m.out = append(m.out, AskApproval{ID: c.Slot.ID, Agent: s.Agent, Call: c.CallRef, Reason: c.Reason, Remember: c.Remember, Unsure: c.Unsure})
		case StageAnswer:
			m.out = append(m.out, AnswerCall{ID: c.Slot.ID, Agent: s.Agent, Call: c.CallRef, Problem: *c.Problem})
		case StageRun:
			m.sync = true
			m.out = append(m.out, RunTool{ID: c.Slot.ID, Agent: s.Agent, Call: c.CallRef, Again: c.Ran})
			if !c.Ran {
				c.Ran = true
				s.ToolCalls++
			}
		case StageTwin, StageDone: // skipped above
		}
	}
	return false
}

// callModel begins a turn, or issues the turn's call again. It reports true when a limit ended the run.
func (m *machine) callModel() bool {
	s := m.s
	if s.Model != nil && s.Model.InFlight {
		return false
	}
	if m.limit(0) {
		return true
	}
	if s.Model == nil {
		if n := s.Config.Limits.Turns; n > 0 && s.Turn >= n {
			m.stop(&Stop{Status: MaxTurns, Error: &Failure{
				Code:    FailTurns,
				Message: fmt.Sprintf("the run used its %d turns and is not complete", n),
				Hint:    "raise max_turns and resume the run",
			}})
			return true
		}
		s.Turn++
		s.Model = &Slot{}
		m.transcript(s.Notes...)
		s.Notes = nil
	}
	m.launch(s.Model)
	m.out = append(m.out, Emit{Notice: NoticeTurn, Effect: s.Model.ID}, CallModel{
		ID: s.Model.ID, Agent: s.Agent, Turn: s.Turn, Items: s.Items,
		ResetToolChoice: s.Config.Agents[s.Agent].ResetToolChoice && m.usedTools(),
	})
	return false
}

// limit ends the run when its budget does not allow more model calls, or a number of new tool calls.
func (m *machine) limit(newCalls int) bool {
	s, l := m.s, m.s.Config.Limits
	switch {
	case l.Tokens > 0 && s.Usage.TotalTokens >= l.Tokens:
		m.over(FailTokens, fmt.Sprintf("the run used %d tokens of its budget of %d", s.Usage.TotalTokens, l.Tokens))
	case l.MicroUSD > 0 && s.MicroUSD >= l.MicroUSD:
		m.over(FailCost, fmt.Sprintf("the run cost $%.4f of its budget of $%.4f",
			float64(s.MicroUSD)/1e6, float64(l.MicroUSD)/1e6))
	case l.ToolCalls > 0 && s.ToolCalls+newCalls > l.ToolCalls:
		m.over(FailToolCalls, fmt.Sprintf("the run made %d tool calls and wants %d more; its budget is %d",
			s.ToolCalls, newCalls, l.ToolCalls))
	default:
		return false
	}
	return true
}

// limitTime ends the run when its working time is over, whatever is in flight.
func (m *machine) limitTime() {
	if l := m.s.Config.Limits.WallTime; l > 0 && m.s.Elapsed >= l {
		m.over(FailTime, fmt.Sprintf("the run worked for its whole budget of %s", l))
	}
}

func (m *machine) over(code, message string) {
	m.stop(&Stop{Status: Budget, Error: &Failure{
		Code: code, Message: message, Hint: "raise the budget and resume the run",
	}})
}

// wind ends the run, or waits until what is in flight has ended.
func (m *machine) wind() bool {
	s := m.s
	ids := s.InFlight()
	if len(ids) > 0 && !s.Stop.Told {
		s.Stop.Told = true
		m.out = append(m.out, CancelEffects{IDs: ids})
		for i := range s.Calls {
			if c := &s.Calls[i]; c.Stage == StageAsk {
				c.Slot.InFlight = false
			}
		}
		return true
	}
	if len(ids) == 0 {
		m.finish(Finish{Status: s.Stop.Status, Output: s.Stop.Output, Error: s.Stop.Error})
	}
	return false
}

func (m *machine) finish(f Finish) {
	m.s.Status = f.Status
	m.sync = true
	m.out = append(m.out, f)
}

// given is nil for no item.
func given(item Ref) *Ref {
	if item == (Ref{}) {
		return nil
	}
	return &item
}
