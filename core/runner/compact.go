// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/tool"
)

// summarise asks for what the model must know of a transcript that has grown too long.
const summarise = "The conversation is about to be cut: what you write now takes the place of everything above. Write down what is needed " +
	"to go on with the task: what was asked, what was decided and done, what the files and commands showed that still matters, " +
	"names and values exactly, and what is left to do. Call no tool."

// summary is the item that stands for a transcript which this program shortened. Providers do not know it: see expand.
type summary struct {
	Type    model.ItemType `json:"type"`
	Summary string         `json:"summary"`
}

// expand puts a message in the place of a summary at the beginning.
func expand(items []model.Item) []model.Item {
	if len(items) == 0 || items[0].Type != model.ItemCompaction {
		return items
	}
	var s summary
	if json.Unmarshal(items[0].Raw, &s) != nil || s.Summary == "" {
		return items // the provider's own
	}
	return append([]model.Item{model.Message("user", s.Summary)}, items[1:]...)
}

// tooLong reports whether a request would go past the agent's threshold.
func (m *member) tooLong(req *model.Request) (tokens int64, over bool) {
	if m.CompactAt == 0 {
		return 0, false
	}
	bytes := uint64(len(req.Instructions))
	for _, it := range req.Items {
		bytes += uint64(len(it.Raw))
	}
	tokens = int64(tool.Tokens(bytes))
	return tokens, tokens > m.CompactAt
}

// askShortened sends a request; one that would be too long is shortened first. The item that stands for what was left out
// is then the first of the answer.
func (x *executor) askShortened(ctx context.Context, m *member, req *model.Request) (*model.Response, error) {
	tokens, over := m.tooLong(req)
	if !over || len(req.Items) < 2 {
		return x.ask(ctx, m.Model, req)
	}
	short := *req
	short.Items = append(append([]model.Item(nil), req.Items...), model.Message("user", summarise))
	short.Tools, short.OutputSchema, short.IdempotencyKey = nil, nil, req.IdempotencyKey+"-summary"
	if s := req.Settings; s != nil {
		free := *s
		free.ToolChoice, free.ParallelToolCalls = nil, nil
		short.Settings = &free
	}
	said, err := x.ask(ctx, m.Model, &short)
	if err != nil {
		return nil, fmt.Errorf("shorten the conversation: %w", err)
	}
	var text strings.Builder
	for _, it := range said.Items {
		if it.Type == model.ItemMessage {
			text.WriteString(it.Text())
		}
	}
	if strings.TrimSpace(text.String()) == "" {
		return nil, &model.Error{Kind: model.ErrProtocol, Message: "the model gave no summary of a conversation that is too long"}
	}
	raw, err := json.Marshal(summary{
		Type:    model.ItemCompaction,
		Summary: "The task:\n\n" + x.cfg.Run.Input + "\n\nWhat happened so far, as you wrote it down yourself:\n\n" + text.String(),
	})
	if err != nil {
		return nil, err
	}
	item := model.Item{Type: model.ItemCompaction, Raw: raw}
	next := *req
	next.Items = expand([]model.Item{item})
	x.stream.Send(event.Compacted{Tokens: tokens, Items: len(req.Items)})
	resp, err := x.ask(ctx, m.Model, &next)
	if err != nil {
		return nil, err
	}
	out := *resp
	out.Items = append([]model.Item{item}, resp.Items...)
	out.Usage = resp.Usage.Add(said.Usage)
	return &out, nil
}
