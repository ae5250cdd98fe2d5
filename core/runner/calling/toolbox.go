// SPDX-License-Identifier: Apache-2.0

package calling

import (
	"encoding/json"
	"fmt"
	"sort"
	"strings"

	"github.com/berth-dev/berth/core/approval"
	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/tool"
)

// Toolbox is what the model may call. The zero value is an empty one.
type Toolbox struct {
	Specs  []model.ToolSpec
	byName map[string]tool.Tool
	names  []string // sorted
}

// NewToolbox puts the tools of an agent together. Two tools with one name are an error, or with keepFirst a warning.
func NewToolbox(agent string, tools []tool.Tool, keepFirst bool) (Toolbox, []event.Warning, error) {
	b := Toolbox{byName: map[string]tool.Tool{}}
	var warnings []event.Warning
	for _, t := range tools {
		sp := t.Spec()
		if sp.Kind == model.ToolHosted && sp.Name == "" {
			b.Specs = append(b.Specs, sp)
			continue
		}
		if _, twice := b.byName[sp.Name]; twice {
			if !keepFirst {
				return b, nil, fmt.Errorf("agent %q has two tools with the name %q: rename one, or set on_tool_collision = \"warn\" to keep the first",
					agent, sp.Name)
			}
			warnings = append(warnings, event.Warning{
				Message: fmt.Sprintf("agent %q has two tools with the name %q; the second is left out", agent, sp.Name),
			})
			continue
		}
		b.Specs = append(b.Specs, sp)
		b.byName[sp.Name] = t
		b.names = append(b.names, sp.Name)
	}
	sort.Strings(b.names)
	return b, warnings, nil
}

// Find gives the tool that a call means; nil = there is none.
func (b *Toolbox) Find(c model.ToolCall) tool.Tool {
	t := b.byName[c.Name]
	if t == nil || t.Spec().Kind != c.Kind {
		return nil
	}
	return t
}

// Fault says why a call cannot be run; nil = it can.
func (b *Toolbox) Fault(c model.ToolCall) *run.Problem {
	if b.Find(c) == nil {
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
	if err := json.Unmarshal([]byte(Arguments(c)), &args); err != nil {
		return &run.Problem{
			Code: "invalid_arguments", Message: "the arguments are not a JSON object: " + err.Error(), Retryable: true,
			Hint: "make the call again with one JSON object as arguments",
		}
	}
	return nil
}

// Arguments are a call's arguments; models that mean none sometimes send nothing.
func Arguments(c model.ToolCall) string {
	if c.Kind == model.ToolFunction && strings.TrimSpace(c.Arguments) == "" {
		return "{}"
	}
	return c.Arguments
}

// Subject is a call as the rules see it. An error says that the tool will refuse the call.
func Subject(t tool.Tool, c model.ToolCall, agent string) (*approval.Call, error) {
	ac := &approval.Call{Agent: agent, Tool: c.Name, Arguments: Arguments(c)}
	if careful, ok := t.(tool.Careful); ok {
		ac.NeedsApproval = careful.NeedsApproval(ac.Arguments)
	}
	if served, ok := t.(tool.Served); ok {
		ac.Server = served.Server()
	}
	about, ok := t.(tool.Clear)
	if !ok {
		return ac, nil
	}
	var err error
	ac.Subject, err = about.About(ac.Arguments)
	return ac, err
}

// Denied is the problem of a call that a rule, or a person, does not let through; without is the text when there is no reason.
func Denied(reason, without string) *run.Problem {
	if reason == "" {
		reason = without
	}
	return &run.Problem{Code: run.CodeDenied, Message: reason, Hint: "do not make the same call again; find another way, or say what you need"}
}

// Interrupted tells the model of a call that may have been made and is not made again.
func Interrupted(message string) *run.Problem {
	p := &run.Problem{
		Code:    run.CodeInterrupted,
		Message: "the run was interrupted while this call was made; it may have done all, a part or nothing of its work, and was not made again",
		Hint:    "see what it has done, and make a new call if that is right",
	}
	if message != "" {
		p.Message += ": " + message
	}
	return p
}
