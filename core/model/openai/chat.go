// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/berth-dev/berth/core/model"
)

// chatBody encodes a request of the Chat Completions API. Items become messages: calls and text of one answer are one
// assistant message, outputs are tool messages. Reasoning has no place there and is left out.
func chatBody(req *model.Request) ([]byte, error) {
	messages, err := chatMessages(req)
	if err != nil {
		return nil, err
	}
	p := map[string]any{
		"model": req.Model, "stream": true, "messages": messages,
		"stream_options": map[string]any{"include_usage": true},
	}
	if len(req.Tools) > 0 {
		var tools []any
		for _, t := range req.Tools {
			if t.Kind != model.ToolFunction {
				return nil, fmt.Errorf("tool %q is a %s tool, which the Chat Completions API does not have", t.Name, t.Kind)
			}
			f := map[string]any{"name": t.Name, "description": t.Description, "parameters": t.Parameters}
			if t.Strict {
				f["strict"] = true
			}
			tools = append(tools, map[string]any{"type": "function", "function": f})
		}
		p["tools"] = tools
	}
	if o := req.OutputSchema; o != nil {
		p["response_format"] = map[string]any{
			"type":        "json_schema",
			"json_schema": map[string]any{"name": o.Name, "schema": o.Schema, "strict": o.Strict},
		}
	}
	if s := req.Settings; s != nil {
		put(p, "temperature", s.Temperature)
		put(p, "top_p", s.TopP)
		put(p, "frequency_penalty", s.FrequencyPenalty)
		put(p, "presence_penalty", s.PresencePenalty)
		put(p, "max_completion_tokens", s.MaxTokens)
		put(p, "verbosity", s.Verbosity)
		put(p, "store", s.Store)
		put(p, "top_logprobs", s.TopLogprobs)
		put(p, "reasoning_effort", s.ReasoningEffort)
		if len(s.Metadata) > 0 {
			p["metadata"] = s.Metadata
		}
		if s.IncludeUsage != nil && !*s.IncludeUsage {
			delete(p, "stream_options")
		}
		if len(req.Tools) > 0 {
			put(p, "parallel_tool_calls", s.ParallelToolCalls)
			if s.ToolChoice != nil {
				p["tool_choice"] = toolChoice(*s.ToolChoice,
					map[string]any{"type": "function", "function": map[string]any{"name": *s.ToolChoice}})
			}
		}
	}
	if err := addExtras(p, req.Settings); err != nil {
		return nil, err
	}
	return json.Marshal(p)
}

type chatMessage struct {
	Role       string     `json:"role"`
	Content    any        `json:"content"`
	ToolCalls  []chatCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
}

type chatCall struct {
	Index    int    `json:"index,omitempty"`
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// chatItem holds the fields of the items that have a place in a chat.
type chatItem struct {
	Type      model.ItemType  `json:"type"`
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Input     string          `json:"input"`
	Output    json.RawMessage `json:"output"`
}

func chatMessages(req *model.Request) ([]chatMessage, error) {
	var out []chatMessage
	if req.Instructions != "" {
		out = append(out, chatMessage{Role: "system", Content: req.Instructions})
	}
	// assistant gives the message that the answer which is being read goes into.
	assistant := func() *chatMessage {
		if n := len(out); n > 0 && out[n-1].Role == "assistant" {
			return &out[n-1]
		}
		out = append(out, chatMessage{Role: "assistant"})
		return &out[len(out)-1]
	}
	for _, raw := range req.Items {
		var it chatItem
		if err := json.Unmarshal(raw.Raw, &it); err != nil {
			return nil, fmt.Errorf("item of type %s: %w", raw.Type, err)
		}
		switch raw.Type {
		case model.ItemMessage:
			content, err := chatContent(it.Content)
			if err != nil {
				return nil, err
			}
			if it.Role != "assistant" {
				out = append(out, chatMessage{Role: it.Role, Content: content})
				continue
			}
			m := assistant()
			if text, ok := m.Content.(string); ok && text != "" {
				content = text + "\n" + fmt.Sprint(content)
			}
			m.Content = content
		case model.ItemFunctionCall, model.ItemCustomToolCall:
			call := chatCall{ID: it.CallID, Type: "function"}
			call.Function.Name, call.Function.Arguments = it.Name, it.Arguments
			if raw.Type == model.ItemCustomToolCall {
				// From a transcript of another provider: its free text is the function's one argument here.
				b, err := json.Marshal(map[string]string{"patch": it.Input})
				if err != nil {
					return nil, err
				}
				call.Function.Arguments = string(b)
			}
			m := assistant()
			m.ToolCalls = append(m.ToolCalls, call)
		case model.ItemFunctionCallOutput, model.ItemCustomToolCallOutput:
			content, err := chatContent(it.Output)
			if err != nil {
				return nil, err
			}
			out = append(out, chatMessage{Role: "tool", ToolCallID: it.CallID, Content: textOnly(content)})
		case model.ItemReasoning, model.ItemCompaction, model.ItemPatchCall, model.ItemPatchCallOutput:
		}
	}
	return out, nil
}

// chatContent turns a Responses content, a string or a list of parts, into a chat's.
func chatContent(raw json.RawMessage) (any, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text, nil
	}
	var parts []struct {
		Type     string `json:"type"`
		Text     string `json:"text"`
		Refusal  string `json:"refusal"`
		ImageURL string `json:"image_url"`
		Detail   string `json:"detail"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return nil, fmt.Errorf("content: %w", err)
	}
	var b strings.Builder
	var out []any
	images := false
	for _, p := range parts {
		switch {
		case p.ImageURL != "":
			images = true
			u := map[string]any{"url": p.ImageURL}
			if p.Detail != "" {
				u["detail"] = p.Detail
			}
			out = append(out, map[string]any{"type": "image_url", "image_url": u})
		default:
			b.WriteString(p.Text + p.Refusal)
			out = append(out, map[string]any{"type": "text", "text": p.Text + p.Refusal})
		}
	}
	if images {
		return out, nil
	}
	return b.String(), nil
}

// textOnly drops pictures: a tool message has none.
func textOnly(content any) string {
	if s, ok := content.(string); ok {
		return s
	}
	var b strings.Builder
	parts, _ := content.([]any)
	for _, p := range parts {
		if m, ok := p.(map[string]any); ok {
			if t, ok := m["text"].(string); ok {
				b.WriteString(t)
			}
		}
	}
	return b.String()
}
