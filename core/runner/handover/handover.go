// SPDX-License-Identifier: Apache-2.0

// Package handover is what a handover to another agent looks like to models: the tool that asks for one, and what the next
// agent gets to read. It is pure: it keeps nothing and calls nothing.
package handover

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/tool"
)

// Tool offers a handover to the model.
type Tool struct{ Handoff *spec.Handoff }

var (
	_ tool.Careful    = Tool{}
	_ tool.Recovering = Tool{}
)

var noInput = json.RawMessage(`{"type":"object","properties":{},"required":[],"additionalProperties":false}`)

// Spec names the agent and what it is for.
func (t Tool) Spec() model.ToolSpec {
	h := t.Handoff
	about := h.Description
	if about == "" {
		about = fmt.Sprintf("Hand over to the agent %s, which goes on with the request in your place.", Name(h.Agent))
		if d := cmp.Or(h.Agent.HandoffDescription, h.Agent.Description); d != "" {
			about += " " + d
		}
	}
	sp := model.ToolSpec{Kind: model.ToolFunction, Name: h.ToolName, Description: about, Parameters: h.Input, Strict: h.Input == nil}
	if h.Input == nil {
		sp.Parameters = noInput
	}
	return sp
}

// Call only says who takes over: the engine does the rest when every call of the answer is settled.
func (t Tool) Call(context.Context, tool.Call) (tool.Result, error) {
	raw, err := json.Marshal(map[string]string{"assistant": Name(t.Handoff.Agent)})
	return tool.Result{Text: string(raw), Summary: "hands over to " + t.Handoff.Agent.Label}, err
}

// Recovers says that the call changes nothing.
func (Tool) Recovers() {}

// NeedsApproval is what the handoff block says.
func (t Tool) NeedsApproval(string) bool { return t.Handoff.NeedsApproval }

// Name is an agent's name as models read it.
func Name(a *spec.Agent) string { return cmp.Or(a.Name, a.Label) }

// The histories.
const (
	Full   = "full"
	Nested = "nested"
	Last   = "last"
	None   = "none"
)

// FilterTools is the input filter that leaves out what is about tools.
const FilterTools = "remove_all_tools"

// Marks of a nested history; a later one takes an earlier one apart instead of nesting it.
const (
	begin = "<CONVERSATION HISTORY>"
	end   = "</CONVERSATION HISTORY>"
)

// History is what the next agent reads of a transcript, and whether it stands for all of it. From is the agent that had
// the run, call the one that asked for the handover, at the end of the items.
func History(h *spec.Handoff, from *spec.Agent, call model.ToolCall, items []model.Item) (out []model.Item, replace bool) {
	mode := cmp.Or(h.History, Full)
	if h.InputFilter == FilterTools {
		items = withoutTools(items)
		replace = true
	}
	switch mode {
	case Nested:
		out = []model.Item{model.Message("user", nested(withoutCall(items, call)))}
	case Last:
		out = last(items)
	case None:
	default:
		if !replace {
			return nil, false
		}
		out = items
	}
	note := fmt.Sprintf("The agent %s hands this conversation over to you.", Name(from))
	if args := strings.TrimSpace(call.Arguments); args != "" && args != "{}" {
		note += " It passes on: " + args
	} else if len(out) == 0 {
		out = last(items)
	}
	return append(out, model.Message("user", note)), true
}

// withoutTools keeps messages only.
func withoutTools(items []model.Item) []model.Item {
	var out []model.Item
	for _, it := range items {
		if it.Type == model.ItemMessage || it.Type == model.ItemCompaction {
			out = append(out, it)
		}
	}
	return out
}

// withoutCall leaves out the call that asked for the handover, and its output.
func withoutCall(items []model.Item, call model.ToolCall) []model.Item {
	var out []model.Item
	for _, it := range items {
		if id := it.CallID(); id == "" || id != call.CallID {
			out = append(out, it)
		}
	}
	return out
}

// last is the last message of the user.
func last(items []model.Item) []model.Item {
	for _, item := range slices.Backward(items) {
		if item.Role() == "user" {
			return []model.Item{item}
		}
	}
	return nil
}

// nested folds items into one text, a numbered line for each.
func nested(items []model.Item) string {
	var lines []string
	for _, it := range items {
		text := it.Text()
		if inner, ok := unfold(text); ok && it.Type == model.ItemMessage {
			lines = append(lines, inner...)
			continue
		}
		switch {
		case it.Type == model.ItemMessage && !strings.ContainsAny(text, "\r\n"):
			lines = append(lines, it.Role()+": "+text)
		case it.Type == model.ItemReasoning: // says nothing without its id
		default:
			var line bytes.Buffer
			if json.Compact(&line, it.Raw) == nil {
				lines = append(lines, line.String())
			}
		}
	}
	var b strings.Builder
	b.WriteString("What was said and done before you took over:\n" + begin + "\n")
	for i, l := range lines {
		fmt.Fprintf(&b, "%d. %s\n", i+1, l)
	}
	b.WriteString(end)
	return b.String()
}

// unfold gives the lines of a nested history.
func unfold(text string) ([]string, bool) {
	_, rest, ok := strings.Cut(text, begin+"\n")
	body, _, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return nil, false
	}
	var lines []string
	for l := range strings.Lines(body) {
		if _, l, ok = strings.Cut(strings.TrimRight(l, "\n"), ". "); ok {
			lines = append(lines, l)
		}
	}
	return lines, true
}
