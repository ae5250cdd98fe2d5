// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"github.com/berth-dev/berth/core/approval"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/runner/calling"
	"github.com/berth-dev/berth/core/runner/handover"
	"github.com/berth-dev/berth/core/runner/history"
)

// plan finds out what the engine must know about a call.
func (x *executor) plan(c model.ToolCall, item run.Ref) run.PlannedCall {
	p := run.PlannedCall{CallRef: run.CallRef{
		CallID: c.CallID, Kind: c.Kind, Name: c.Name, Fingerprint: history.Fingerprint(c), Item: item,
	}}
	if prior, ok := x.prior[c.CallID]; ok {
		p.Prior = &prior
	}
	if p.Problem = x.now().tools.Fault(c); p.Problem != nil {
		return p
	}
	t := x.now().tools.Find(c)
	if h, ok := t.(handover.Tool); ok {
		p.Handoff = &run.Handoff{Agent: h.Handoff.Agent.Label, Own: h.Handoff.Workspace == "own"}
	}
	ruling, err := x.judge(t, c, x.state.Agent)
	if err != nil {
		return p // the tool says it itself, and does nothing
	}
	switch ruling.Verdict {
	case approval.Allow:
	case approval.Ask:
		p.Ask, p.Reason, p.Remember = true, ruling.Reason, ruling.Remember
	case approval.Deny:
		p.Problem = calling.Denied(ruling.Reason, "")
	}
	return p
}
