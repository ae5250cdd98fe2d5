// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/berth-dev/berth/core/model"
)

// chatReader reads the stream of the Chat Completions API and makes items of it.
type chatReader struct {
	requestID string
	id, model string
	text      strings.Builder
	refusal   strings.Builder
	calls     []chatCall
	finish    string
	usage     model.Usage
	finished  bool
}

func (r *chatReader) done() bool { return r.finished }

// eof accepts a server that closes the connection instead of sending its last event.
func (r *chatReader) eof() ([]model.Event, error) { return r.end() }

type chatChunk struct {
	ID      string `json:"id"`
	Model   string `json:"model"`
	Choices []struct {
		Delta struct {
			Content   string     `json:"content"`
			Refusal   string     `json:"refusal"`
			ToolCalls []chatCall `json:"tool_calls"`
		} `json:"delta"`
		FinishReason string `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		PromptTokens     int64 `json:"prompt_tokens"`
		CompletionTokens int64 `json:"completion_tokens"`
		TotalTokens      int64 `json:"total_tokens"`
		PromptDetails    struct {
			Cached int64 `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
		CompletionDetails struct {
			Reasoning int64 `json:"reasoning_tokens"`
		} `json:"completion_tokens_details"`
	} `json:"usage"`
	Error *apiError `json:"error"`
}

func (r *chatReader) read(ev ssestream.Event) ([]model.Event, error) {
	if bytes.Equal(bytes.TrimSpace(ev.Data), []byte("[DONE]")) {
		return r.end()
	}
	var c chatChunk
	if err := json.Unmarshal(ev.Data, &c); err != nil {
		return nil, nonsense("a chunk that cannot be read", ev.Data, err)
	}
	if c.Error != nil {
		return nil, streamError(c.Error.Code, c.Error.Message, r.requestID)
	}
	if c.ID != "" {
		r.id, r.model = c.ID, c.Model
	}
	if u := c.Usage; u != nil {
		r.usage = model.Usage{
			Requests: 1, InputTokens: u.PromptTokens, CachedTokens: u.PromptDetails.Cached,
			OutputTokens: u.CompletionTokens, ReasoningTokens: u.CompletionDetails.Reasoning, TotalTokens: u.TotalTokens,
		}
	}
	var out []model.Event
	for _, ch := range c.Choices {
		if t := ch.Delta.Content + ch.Delta.Refusal; t != "" {
			r.text.WriteString(ch.Delta.Content)
			r.refusal.WriteString(ch.Delta.Refusal)
			out = append(out, model.TextDelta{Text: t})
		}
		for _, d := range ch.Delta.ToolCalls {
			if err := r.add(d); err != nil {
				return nil, err
			}
		}
		if ch.FinishReason != "" {
			r.finish = ch.FinishReason
		}
	}
	return out, nil
}

// add joins the parts of a call. Servers that are not OpenAI's may leave out the index of a single call.
func (r *chatReader) add(d chatCall) error {
	switch {
	case d.Index < 0 || d.Index > len(r.calls):
		return &model.Error{Kind: model.ErrProtocol, RequestID: r.requestID, Message: fmt.Sprintf("the server sent part of tool call %d before call %d", d.Index, len(r.calls))}
	case d.Index == len(r.calls):
		r.calls = append(r.calls, chatCall{})
	case d.ID != "" && r.calls[d.Index].ID != "" && d.ID != r.calls[d.Index].ID:
		r.calls = append(r.calls, chatCall{})
		d.Index = len(r.calls) - 1
	}
	c := &r.calls[d.Index]
	if d.ID != "" {
		c.ID = d.ID
	}
	c.Function.Name += d.Function.Name
	c.Function.Arguments += d.Function.Arguments
	return nil
}

// end makes the items. A stream without a finish reason was cut.
func (r *chatReader) end() ([]model.Event, error) {
	if r.finish == "" {
		return nil, brokeOff(r.requestID)
	}
	res := &model.Response{ID: r.id, Model: r.model, RequestID: r.requestID, Usage: r.usage, Refusal: r.refusal.String()}
	res.Usage.Requests = 1
	switch r.finish {
	case "length":
		res.Incomplete = "max_output_tokens"
	case "content_filter":
		res.Incomplete = "content_filter"
	}
	var content []map[string]any
	if t := r.text.String(); t != "" {
		content = append(content, map[string]any{"type": "output_text", "text": t, "annotations": []any{}})
	}
	if t := res.Refusal; t != "" {
		content = append(content, map[string]any{"type": "refusal", "refusal": t})
	}
	var made []map[string]any
	if content != nil {
		made = append(made, map[string]any{"type": model.ItemMessage, "role": "assistant", "content": content})
	}
	for i, c := range r.calls {
		if c.ID == "" {
			c.ID = fmt.Sprintf("call_%s_%d", r.id, i)
		}
		made = append(made, map[string]any{"type": model.ItemFunctionCall, "call_id": c.ID, "name": c.Function.Name, "arguments": c.Function.Arguments})
	}
	var out []model.Event
	for _, m := range made {
		raw, err := json.Marshal(m)
		if err != nil {
			return nil, err
		}
		it, err := item(raw)
		if err != nil {
			return nil, err
		}
		res.Items = append(res.Items, it)
		out = append(out, model.ItemDone{Item: it})
	}
	r.finished = true
	return append(out, model.Done{Response: res}), nil
}
