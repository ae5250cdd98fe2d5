// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/run"
)

func (x *executor) callModel(ctx context.Context, ef run.CallModel) error {
	m := x.now()
	req := &model.Request{
		Model:          m.ModelName,
		Items:          expand(x.items[ef.Items.From:ef.Items.To:ef.Items.To]),
		Instructions:   m.system,
		Tools:          m.tools.Specs,
		Settings:       m.Settings,
		Turn:           ef.Turn,
		Call:           x.cfg.Call,
		Cut:            ef.Items.From > 0,
		IdempotencyKey: fmt.Sprintf("%s-%d", x.cfg.RunID, ef.ID),
	}
	if s := m.spec.OutputSchema; s != nil {
		req.OutputSchema = &model.OutputSchema{Name: s.Label, Schema: s.Schema, Strict: s.Strict}
		if m.StrictSchema != nil {
			req.OutputSchema.Schema = m.StrictSchema
		}
	}
	if ef.ResetToolChoice && req.Settings != nil && req.Settings.ToolChoice != nil {
		free := *req.Settings
		free.ToolChoice = nil
		req.Settings = &free
	}
	x.launch(ctx, ef.ID, func(ctx context.Context) result {
		resp, err := x.askShortened(ctx, m, req)
		return result{event: func() (run.Event, error) {
			x.landed(ef.ID)
			if err != nil {
				x.keepCause(err)
				return run.ModelFailed{Time: x.cfg.Now(), Effect: ef.ID, Error: modelFailure(err)}, nil //nolint:nilerr // the event is the failure
			}
			return x.answered(ef, resp)
		}}
	})
	return nil
}

// ask sends a request and forwards what streams in.
func (x *executor) ask(ctx context.Context, m model.Model, req *model.Request) (*model.Response, error) {
	for ev, err := range m.Stream(ctx, req) {
		if err != nil {
			return nil, err
		}
		switch ev := ev.(type) {
		case model.TextDelta:
			x.stream.Send(event.ModelDelta{Text: ev.Text})
		case model.ReasoningDelta:
			x.stream.Send(event.ModelDelta{Reasoning: ev.Text})
		case model.Retrying:
			x.stream.Send(event.ModelRetry{Attempt: ev.Attempt, After: ev.After, Error: errorText(ev.Err)})
		case model.ItemDone:
			// It comes again with the response.
		case model.Done:
			return ev.Response, nil
		}
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return nil, &model.Error{Kind: model.ErrProtocol, Message: "the answer ended before it was complete"}
}

// answered makes the engine's event of a response, and tells those who watch.
func (x *executor) answered(ef run.CallModel, resp *model.Response) (run.Event, error) {
	ev := run.ModelAnswered{
		Time: x.cfg.Now(), Effect: ef.ID, Items: make([]run.Ref, 0, len(resp.Items)),
		Refusal: resp.Refusal, Cut: resp.Incomplete, Usage: resp.Usage,
	}
	if x.cfg.Cost != nil {
		ev.MicroUSD = int64(x.cfg.Cost(x.now().ModelName, resp.Usage) * 1e6)
	}
	var text strings.Builder
	for _, it := range resp.Items {
		if bytes.IndexByte(it.Raw, '\n') >= 0 {
			var err error
			if it, err = model.ParseItem(it.Raw); err != nil {
				return nil, err
			}
		}
		if it.Type == model.ItemReasoning && x.cfg.Run.ReasoningIDs == "omit" {
			it = it.WithoutID()
		}
		ref, err := x.put(it)
		if err != nil {
			return nil, err
		}
		ev.Items = append(ev.Items, ref)
		if c, ok := it.ToolCall(); ok {
			ev.Calls = append(ev.Calls, x.plan(c, ref))
		} else if t := it.Text(); it.Type == model.ItemMessage && t != "" {
			ev.Output = &ref
			text.WriteString(t)
		}
	}
	x.stream.Send(event.ModelDone{
		ResponseID: resp.ID, Text: text.String(), Usage: resp.Usage, ToolCalls: len(ev.Calls),
	})
	return ev, nil
}

// modelFailure says what a model call's error means for the run.
func modelFailure(err error) run.Failure {
	var e *model.Error
	if !errors.As(err, &e) {
		return run.Failure{Code: "model", Message: err.Error()}
	}
	return run.Failure{Code: "model_" + string(e.Kind), Message: e.Error(), Hint: e.Hint}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
