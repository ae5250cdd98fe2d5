// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"encoding/json"
	"fmt"
	"sort"
	"strings"

	"github.com/berth-dev/berth/core/approval"
	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/runner/history"
	"github.com/berth-dev/berth/core/tool"
)

// toolbox is what the model may call.
type toolbox struct {
	specs  []model.ToolSpec
	byName map[string]tool.Tool
	names  []string // sorted
}

// newToolbox asks for the tools of a session. Two tools with one name are an error, or a warning where the run says so;
// then the first counts.
func newToolbox(cfg *Config, s Session) (toolbox, []event.Warning, error) {
	b := toolbox{byName: map[string]tool.Tool{}}
	if cfg.Tools == nil {
		return b, nil, nil
	}
	tools, err := cfg.Tools(s)
	if err != nil {
		return b, nil, fmt.Errorf("prepare the tools: %w", err)
	}
	var warnings []event.Warning
	for _, t := range tools {
		sp := t.Spec()
		if sp.Kind == model.ToolHosted && sp.Name == "" {
			b.specs = append(b.specs, sp)
			continue
		}
		if _, twice := b.byName[sp.Name]; twice {
			if cfg.Run.OnToolCollision != "warn" {
				return b, nil, fmt.Errorf("agent %q has two tools with the name %q: rename one, or set on_tool_collision = \"warn\" to keep the first",
					cfg.Run.Agent.Label, sp.Name)
			}
			warnings = append(warnings, event.Warning{
				Message: fmt.Sprintf("agent %q has two tools with the name %q; the second is left out", cfg.Run.Agent.Label, sp.Name),
			})
			continue
		}
		b.specs = append(b.specs, sp)
		b.byName[sp.Name] = t
		b.names = append(b.names, sp.Name)
	}
	sort.Strings(b.names)
	return b, warnings, nil
}

// find gives the tool that a call means; nil = there is none.
func (b *toolbox) find(c model.ToolCall) tool.Tool {
	t := b.byName[c.Name]
	if t == nil || t.Spec().Kind != c.Kind {
		return nil
	}
	return t
}

// plan finds out what the engine must know about a call.
func (x *executor) plan(c model.ToolCall, item run.Ref) run.PlannedCall {
	p := run.PlannedCall{CallRef: run.CallRef{
		CallID: c.CallID, Kind: c.Kind, Name: c.Name, Fingerprint: history.Fingerprint(c), Item: item,
	}}
	if prior, ok := x.prior[c.CallID]; ok {
		p.Prior = &prior
	}
	if p.Problem = x.ready.tools.fault(c); p.Problem != nil {
		return p
	}
	ruling, err := x.judge(x.ready.tools.find(c), c, x.state.Agent)
	if err != nil {
		return p //nolint:nilerr // the tool says it itself, and does nothing
	}
	switch ruling.Verdict {
	case approval.Allow:
	case approval.Ask:
		p.Ask, p.Reason, p.Remember = true, ruling.Reason, ruling.Remember
	case approval.Deny:
		p.Problem = denied(ruling.Reason, "")
	}
	return p
}

// fault says why a call cannot be run; nil = it can.
func (b *toolbox) fault(c model.ToolCall) *run.Problem {
	if b.find(c) == nil {
		p := &run.Problem{Code: run.CodeUnknownTool, Message: fmt.Sprintf("there is no tool %q", c.Name), Hint: "there are no tools at all"}
		if len(b.names) > 0 {
			p.Hint = "the tools are " + strings.Join(b.names, ", ")
		}
		return p
	}
	if c.Kind == model.ToolCustom {
		return nil
	}
	var args map[string]json.RawMessage
	if err := json.Unmarshal([]byte(arguments(c)), &args); err != nil {
		return &run.Problem{
			Code: "invalid_arguments", Message: "the arguments are not a JSON object: " + err.Error(), Retryable: true,
			Hint: "make the call again with one JSON object as arguments",
		}
	}
	return nil
}

// arguments are a call's arguments; models that mean none sometimes send nothing.
func arguments(c model.ToolCall) string {
	if c.Kind == model.ToolFunction && strings.TrimSpace(c.Arguments) == "" {
		return "{}"
	}
	return c.Arguments
}

func denied(reason, without string) *run.Problem {
	if reason == "" {
		reason = without
	}
	return &run.Problem{Code: run.CodeDenied, Message: reason, Hint: "do not make the same call again; find another way, or say what you need"}
}
