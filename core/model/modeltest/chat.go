// SPDX-License-Identifier: Apache-2.0

package modeltest

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/berth-dev/berth/core/model"
)

func (s *Server) chat(body map[string]any) ([]string, *refusal) {
	if bad := known(body, "model", "messages", "tools", "stream", "stream_options", "temperature", "top_p", "frequency_penalty",
		"presence_penalty", "max_completion_tokens", "verbosity", "store", "top_logprobs", "reasoning_effort", "metadata",
		"parallel_tool_calls", "tool_choice", "response_format"); bad != nil {
		return nil, bad
	}
	for i, t := range members(body["tools"]) {
		f, _ := t["function"].(map[string]any)
		if t["type"] != "function" || text(f["name"]) == "" {
			return nil, &refusal{http.StatusBadRequest, "invalid_value", fmt.Sprintf("Invalid value at 'tools[%d]'.", i)}
		}
	}
	n, bad := checkMessages(members(body["messages"]))
	if bad != nil {
		return nil, bad
	}
	res, bad := s.turn(n, nil)
	if bad != nil {
		return nil, bad
	}
	opts, _ := body["stream_options"].(map[string]any)
	return chatEvents(text(body["model"]), res, opts["include_usage"] == true), nil
}

// checkMessages holds calls and their answers together as the API does, and counts the answers.
func checkMessages(messages []map[string]any) (answers int, bad *refusal) {
	open := map[string]bool{}
	for i, m := range messages {
		role := text(m["role"])
		if role != "tool" && len(open) > 0 {
			return 0, &refusal{http.StatusBadRequest, "", "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'."}
		}
		switch role {
		case "system", "user", "developer":
			if m["content"] == nil {
				return 0, &refusal{http.StatusBadRequest, "", fmt.Sprintf("Invalid value for 'content' of messages[%d]: expected a string, got null.", i)}
			}
		case "assistant":
			answers++
			calls := members(m["tool_calls"])
			if m["content"] == nil && len(calls) == 0 {
				return 0, &refusal{http.StatusBadRequest, "", fmt.Sprintf("messages[%d] has neither content nor tool_calls.", i)}
			}
			for _, c := range calls {
				open[text(c["id"])] = true
			}
		case "tool":
			id := text(m["tool_call_id"])
			if !open[id] {
				return 0, &refusal{http.StatusBadRequest, "", "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."} //nolint:misspell // as the real server writes it
			}
			delete(open, id)
		default:
			return 0, &refusal{http.StatusBadRequest, "", fmt.Sprintf("Invalid value: '%s' at messages[%d].role.", role, i)}
		}
	}
	if len(open) > 0 {
		return 0, &refusal{http.StatusBadRequest, "", "An assistant message with 'tool_calls' must be followed by tool messages."}
	}
	return answers, nil
}

func chatEvents(name string, res *model.Response, usage bool) []string {
	var out []string
	emit := func(choices []any, usage any) {
		b, err := json.Marshal(map[string]any{"id": res.ID, "object": "chat.completion.chunk", "model": name, "choices": choices, "usage": usage})
		if err != nil {
			panic(err) // plain data always encodes
		}
		out = append(out, fmt.Sprintf("data: %s\n\n", b))
	}
	delta := func(d map[string]any, finish any) {
		emit([]any{map[string]any{"index": 0, "delta": d, "finish_reason": finish}}, nil)
	}
	delta(map[string]any{"role": "assistant", "content": ""}, nil)
	calls := 0
	for _, it := range res.Items {
		var m map[string]any
		_ = json.Unmarshal(it.Raw, &m) // it was made by Marshal
		switch it.Type {
		case model.ItemMessage:
			for _, c := range members(m["content"]) {
				for _, d := range chunks(text(c["text"])) {
					delta(map[string]any{"content": d}, nil)
				}
			}
		case model.ItemFunctionCall:
			call := func(fields map[string]any) {
				fields["index"] = calls
				delta(map[string]any{"tool_calls": []any{fields}}, nil)
			}
			call(map[string]any{"id": m["call_id"], "type": "function", "function": map[string]any{"name": m["name"], "arguments": ""}})
			for _, d := range chunks(text(m["arguments"])) {
				call(map[string]any{"function": map[string]any{"arguments": d}})
			}
			calls++
		case model.ItemReasoning, model.ItemFunctionCallOutput, model.ItemCustomToolCall, model.ItemCustomToolCallOutput,
			model.ItemPatchCall, model.ItemPatchCallOutput, model.ItemCompaction:
		}
	}
	finish := "stop"
	if calls > 0 {
		finish = "tool_calls"
	}
	delta(map[string]any{}, finish)
	if usage {
		u := res.Usage
		emit([]any{}, map[string]any{
			"prompt_tokens": u.InputTokens, "completion_tokens": u.OutputTokens, "total_tokens": u.TotalTokens,
			"prompt_tokens_details":     map[string]any{"cached_tokens": u.CachedTokens},
			"completion_tokens_details": map[string]any{"reasoning_tokens": u.ReasoningTokens},
		})
	}
	return append(out, "data: [DONE]\n\n")
}
