// SPDX-License-Identifier: Apache-2.0

package modeltest

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/berth-dev/berth/core/model"
)

func (s *Server) responses(body map[string]any) ([]string, *refusal) {
	if bad := known(body, "model", "input", "instructions", "tools", "stream", "temperature", "top_p", "truncation",
		"max_output_tokens", "store", "prompt_cache_retention", "prompt_cache_key", "top_logprobs", "text", "parallel_tool_calls",
		"tool_choice", "metadata", "reasoning", "include", "context_management", "previous_response_id", "conversation"); bad != nil {
		return nil, bad
	}
	tools, bad := responsesTools(body)
	if bad != nil {
		return nil, bad
	}
	n, bad := checkInput(members(body["input"]))
	if bad != nil {
		return nil, bad
	}
	res, bad := s.turn(n, tools)
	if bad != nil {
		return nil, bad
	}
	return responsesEvents(text(body["model"]), res), nil
}

func responsesTools(body map[string]any) ([]model.ToolSpec, *refusal) {
	var out []model.ToolSpec
	for i, t := range members(body["tools"]) {
		spec := model.ToolSpec{Name: text(t["name"])}
		switch text(t["type"]) {
		case "function":
			spec.Kind = model.ToolFunction
			if p, ok := t["parameters"].(map[string]any); !ok || p["type"] != "object" {
				return nil, &refusal{
					http.StatusBadRequest, "invalid_function_parameters",
					fmt.Sprintf("Invalid schema for function '%s': schema must be a JSON Schema of 'type: \"object\"'.", spec.Name),
				}
			}
		case "custom":
			spec.Kind = model.ToolCustom
		case "apply_patch":
			spec.Kind, spec.Name = model.ToolPatch, "apply_patch"
		default:
			return nil, &refusal{http.StatusBadRequest, "invalid_value", fmt.Sprintf("Invalid value: '%s' at 'tools[%d].type'.", text(t["type"]), i)}
		}
		if spec.Name == "" {
			return nil, &refusal{http.StatusBadRequest, "missing_required_parameter", fmt.Sprintf("Missing required parameter: 'tools[%d].name'.", i)}
		}
		out = append(out, spec)
	}
	return out, nil
}

// checkInput refuses calls without outputs and outputs without calls, and counts the answers.
func checkInput(items []map[string]any) (answers int, bad *refusal) {
	open := map[string]string{}
	before := false
	for _, it := range items {
		typ, id := text(it["type"]), text(it["call_id"])
		made := false
		switch typ {
		case "function_call", "custom_tool_call":
			made = true
			open[id] = typ
		case "function_call_output", "custom_tool_call_output":
			if open[id]+"_output" != typ {
				return 0, &refusal{http.StatusBadRequest, "", fmt.Sprintf("No tool call found for %s with call_id %s.", typ, id)}
			}
			delete(open, id)
		case "message", "":
			made = it["role"] == "assistant"
			if it["role"] == nil || it["content"] == nil {
				return 0, &refusal{http.StatusBadRequest, "invalid_value", "a message needs a role and content"}
			}
		case "reasoning":
			made = true
		default:
			return 0, &refusal{http.StatusBadRequest, "invalid_value", fmt.Sprintf("Invalid value: '%s'.", typ)}
		}
		if made && !before {
			answers++
		}
		before = made
	}
	for id := range open {
		return 0, &refusal{http.StatusBadRequest, "", fmt.Sprintf("No tool output found for function call %s.", id)}
	}
	return answers, nil
}

func responsesEvents(name string, res *model.Response) []string {
	var out []string
	seq := 0
	emit := func(typ string, fields map[string]any) {
		fields["type"], fields["sequence_number"] = typ, seq
		seq++
		b, err := json.Marshal(fields)
		if err != nil {
			panic(err) // plain data always encodes
		}
		out = append(out, fmt.Sprintf("event: %s\ndata: %s\n\n", typ, b))
	}
	head := func(status string, items []json.RawMessage, usage any) map[string]any {
		return map[string]any{"response": map[string]any{
			"id": res.ID, "object": "response", "status": status, "model": name,
			"output": items, "usage": usage, "error": nil, "incomplete_details": nil,
		}}
	}
	none := []json.RawMessage{}
	emit("response.created", head("in_progress", none, nil))
	emit("response.in_progress", head("in_progress", none, nil))
	items := none
	for i, it := range res.Items {
		var m map[string]any
		_ = json.Unmarshal(it.Raw, &m) // it was made by Marshal
		emit("response.output_item.added", map[string]any{"output_index": i, "item": map[string]any{"type": m["type"], "id": m["id"], "status": "in_progress"}})
		switch it.Type {
		case model.ItemMessage:
			for j, c := range members(m["content"]) {
				at := func(more map[string]any) map[string]any {
					more["item_id"], more["output_index"], more["content_index"] = m["id"], i, j
					return more
				}
				emit("response.content_part.added", at(map[string]any{"part": map[string]any{"type": "output_text", "text": ""}}))
				for _, d := range chunks(text(c["text"])) {
					emit("response.output_text.delta", at(map[string]any{"delta": d, "logprobs": []any{}}))
				}
				emit("response.output_text.done", at(map[string]any{"text": c["text"]}))
				emit("response.content_part.done", at(map[string]any{"part": c}))
			}
		case model.ItemFunctionCall:
			for _, d := range chunks(text(m["arguments"])) {
				emit("response.function_call_arguments.delta", map[string]any{"output_index": i, "delta": d})
			}
			emit("response.function_call_arguments.done", map[string]any{"output_index": i, "arguments": m["arguments"]})
		case model.ItemCustomToolCall:
			for _, d := range chunks(text(m["input"])) {
				emit("response.custom_tool_call_input.delta", map[string]any{"output_index": i, "delta": d})
			}
			emit("response.custom_tool_call_input.done", map[string]any{"output_index": i, "input": m["input"]})
		case model.ItemReasoning, model.ItemFunctionCallOutput, model.ItemCustomToolCallOutput, model.ItemPatchCall,
			model.ItemPatchCallOutput, model.ItemCompaction:
		}
		emit("response.output_item.done", map[string]any{"output_index": i, "item": it.Raw})
		items = append(items, it.Raw)
	}
	u := res.Usage
	emit("response.completed", head("completed", items, map[string]any{
		"input_tokens": u.InputTokens, "input_tokens_details": map[string]any{"cached_tokens": u.CachedTokens},
		"output_tokens": u.OutputTokens, "output_tokens_details": map[string]any{"reasoning_tokens": u.ReasoningTokens},
		"total_tokens": u.TotalTokens,
	}))
	return out
}
