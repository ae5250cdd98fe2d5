// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/spec"
)

// responsesBody encodes a request of the Responses API. The transcript is concatenated, not encoded.
func responsesBody(req *model.Request) ([]byte, error) {
	p := map[string]any{"model": req.Model, "stream": true}
	if req.Instructions != "" {
		p["instructions"] = req.Instructions
	}
	if len(req.Tools) > 0 {
		tools := make([]any, 0, len(req.Tools))
		for _, t := range req.Tools {
			tools = append(tools, responsesTool(t))
		}
		p["tools"] = tools
	}
	text := map[string]any{}
	if o := req.OutputSchema; o != nil {
		text["format"] = map[string]any{"type": "json_schema", "name": o.Name, "schema": o.Schema, "strict": o.Strict}
	}
	if s := req.Settings; s != nil {
		responsesSettings(p, text, s, len(req.Tools) > 0)
	}
	if len(text) > 0 {
		p["text"] = text
	}
	if err := addExtras(p, req.Settings); err != nil {
		return nil, err
	}
	head, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	size := len(head) + len(`,"input":[]`)
	for _, it := range req.Items {
		size += len(it.Raw) + 1
	}
	b := bytes.NewBuffer(make([]byte, 0, size))
	b.Write(head[:len(head)-1])
	b.WriteString(`,"input":[`)
	for i, it := range req.Items {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(it.Raw)
	}
	b.WriteString("]}")
	return b.Bytes(), nil
}

func responsesTool(t model.ToolSpec) any {
	switch t.Kind {
	case model.ToolHosted:
		return t.Raw
	case model.ToolPatch:
		return map[string]any{"type": "apply_patch"}
	case model.ToolCustom:
		m := map[string]any{"type": "custom", "name": t.Name, "description": t.Description}
		if t.Grammar != nil {
			m["format"] = map[string]any{"type": "grammar", "syntax": t.Grammar.Syntax, "definition": t.Grammar.Definition}
		}
		return m
	case model.ToolFunction:
	}
	return map[string]any{"type": "function", "name": t.Name, "description": t.Description, "parameters": t.Parameters, "strict": t.Strict}
}

func responsesSettings(p, text map[string]any, s *spec.ModelSettings, tools bool) {
	put(p, "temperature", s.Temperature)
	put(p, "top_p", s.TopP)
	put(p, "truncation", s.Truncation)
	put(p, "max_output_tokens", s.MaxTokens)
	put(p, "store", s.Store)
	put(p, "prompt_cache_retention", s.PromptCacheRetention)
	put(p, "top_logprobs", s.TopLogprobs)
	put(text, "verbosity", s.Verbosity)
	if tools {
		put(p, "parallel_tool_calls", s.ParallelToolCalls)
		if s.ToolChoice != nil {
			p["tool_choice"] = toolChoice(*s.ToolChoice, map[string]any{"type": "function", "name": *s.ToolChoice})
		}
	}
	if len(s.Metadata) > 0 {
		p["metadata"] = s.Metadata
	}
	for k, v := range s.PromptCache {
		p["prompt_cache_"+k] = v
	}
	reasoning := map[string]any{}
	put(reasoning, "effort", s.ReasoningEffort)
	put(reasoning, "summary", s.ReasoningSummary)
	if len(reasoning) > 0 {
		p["reasoning"] = reasoning
	}
	include := s.ResponseInclude
	if s.Store != nil && !*s.Store {
		// Reasoning that the server does not keep has to come along with the next request.
		include = append(slices.Clip(include), "reasoning.encrypted_content")
	}
	if len(include) > 0 {
		p["include"] = include
	}
	if len(s.ContextManagement) > 0 {
		p["context_management"] = s.ContextManagement
	}
}

func toolChoice(choice string, named any) any {
	switch choice {
	case "auto", "required", "none":
		return choice
	default:
		return named
	}
}

// addExtras puts in what the file passes through. A key that a named setting has set already is refused.
func addExtras(p map[string]any, s *spec.ModelSettings) error {
	if s == nil {
		return nil
	}
	for _, extra := range []struct {
		name string
		m    map[string]any
	}{{"extra_args", s.ExtraArgs}, {"extra_body", s.ExtraBody}} {
		for k, v := range extra.m {
			if _, ok := p[k]; ok {
				return errors.New(extra.name + " sets " + k + ", which a setting of its own sets too: leave one out")
			}
			p[k] = v
		}
	}
	return nil
}

func put[T any](m map[string]any, key string, v *T) {
	if v != nil {
		m[key] = *v
	}
}

// responsesReader reads the stream of the Responses API.
type responsesReader struct {
	requestID string
	finished  bool
}

func (r *responsesReader) done() bool { return r.finished }

func (r *responsesReader) eof() ([]model.Event, error) { return nil, brokeOff(r.requestID) }

// responsesEvent holds the fields of the events that matter here.
type responsesEvent struct {
	Type     string          `json:"type"`
	Delta    string          `json:"delta"`
	Item     json.RawMessage `json:"item"`
	Response json.RawMessage `json:"response"`
	Code     string          `json:"code"`
	Message  string          `json:"message"`
	Error    *apiError       `json:"error"`
}

type apiError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type responsesResult struct {
	ID     string            `json:"id"`
	Model  string            `json:"model"`
	Output []json.RawMessage `json:"output"`
	Error  *apiError         `json:"error"`
	Usage  *struct {
		InputTokens  int64 `json:"input_tokens"`
		OutputTokens int64 `json:"output_tokens"`
		TotalTokens  int64 `json:"total_tokens"`
		InputDetails struct {
			Cached int64 `json:"cached_tokens"`
		} `json:"input_tokens_details"`
		OutputDetails struct {
			Reasoning int64 `json:"reasoning_tokens"`
		} `json:"output_tokens_details"`
	} `json:"usage"`
	Incomplete *struct {
		Reason string `json:"reason"`
	} `json:"incomplete_details"`
}

func (r *responsesReader) read(ev ssestream.Event) ([]model.Event, error) {
	if bytes.Equal(bytes.TrimSpace(ev.Data), []byte("[DONE]")) {
		return nil, nil
	}
	var e responsesEvent
	if err := json.Unmarshal(ev.Data, &e); err != nil {
		return nil, nonsense("an event that cannot be read", ev.Data, err)
	}
	switch e.Type {
	case "response.output_text.delta", "response.refusal.delta":
		return []model.Event{model.TextDelta{Text: e.Delta}}, nil
	case "response.reasoning_summary_text.delta":
		return []model.Event{model.ReasoningDelta{Text: e.Delta}}, nil
	case "response.output_item.done":
		it, err := item(e.Item)
		if err != nil {
			return nil, nonsense("an item that cannot be read", ev.Data, err)
		}
		return []model.Event{model.ItemDone{Item: it}}, nil
	case "response.completed", "response.incomplete":
		res, err := r.result(e.Response)
		if err != nil {
			return nil, err
		}
		r.finished = true
		return []model.Event{model.Done{Response: res}}, nil
	case "response.failed":
		var res responsesResult
		if err := json.Unmarshal(e.Response, &res); err != nil || res.Error == nil {
			return nil, streamError("server_error", "the answer failed without a reason", r.requestID)
		}
		return nil, streamError(res.Error.Code, res.Error.Message, r.requestID)
	case "error":
		if e.Error != nil {
			return nil, streamError(e.Error.Code, e.Error.Message, r.requestID)
		}
		return nil, streamError(e.Code, e.Message, r.requestID)
	}
	return nil, nil
}

func (r *responsesReader) result(raw json.RawMessage) (*model.Response, error) {
	var res responsesResult
	if err := json.Unmarshal(raw, &res); err != nil {
		return nil, nonsense("a response that cannot be read", raw, err)
	}
	out := &model.Response{ID: res.ID, RequestID: r.requestID, Model: res.Model}
	for _, o := range res.Output {
		it, err := item(o)
		if err != nil {
			return nil, nonsense("an item that cannot be read", o, err)
		}
		out.Items = append(out.Items, it)
		if it.Type == model.ItemMessage {
			out.Refusal += refusal(o)
		}
	}
	if u := res.Usage; u != nil {
		out.Usage = model.Usage{
			Requests: 1, InputTokens: u.InputTokens, CachedTokens: u.InputDetails.Cached,
			OutputTokens: u.OutputTokens, ReasoningTokens: u.OutputDetails.Reasoning, TotalTokens: u.TotalTokens,
		}
	}
	if res.Incomplete != nil {
		out.Incomplete = res.Incomplete.Reason
	}
	return out, nil
}

func item(raw json.RawMessage) (model.Item, error) {
	var head struct {
		Type model.ItemType `json:"type"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return model.Item{}, err
	}
	if head.Type == "" {
		return model.Item{}, errors.New("no type")
	}
	return model.Item{Type: head.Type, Raw: append(json.RawMessage(nil), raw...)}, nil
}

func refusal(message json.RawMessage) string {
	var m struct {
		Content []struct {
			Refusal string `json:"refusal"`
		} `json:"content"`
	}
	_ = json.Unmarshal(message, &m) // a message without such content has no refusal
	var b strings.Builder
	for _, c := range m.Content {
		b.WriteString(c.Refusal)
	}
	return b.String()
}
