// SPDX-License-Identifier: Apache-2.0

package runner_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/runner"
	"github.com/berth-dev/berth/core/tool"
)

// A long run of a model that cannot shorten by itself stays under its threshold, knows its task to the end, and goes on
// from what was shortened when it is resumed.
func TestLongRunIsShortened(t *testing.T) {
	const turns, threshold = 200, 20_000
	largest, calls200, summaries := 0, 0, 0
	m := &fakeModel{answer: func(_ context.Context, req *model.Request) (*model.Response, error) {
		size := 0
		for _, it := range req.Items {
			size += len(it.Raw)
		}
		largest = max(largest, size/4)
		resp := &model.Response{Usage: model.Usage{Requests: 1, TotalTokens: 1}}
		last := req.Items[len(req.Items)-1].Text()
		switch {
		case strings.Contains(last, "about to be cut"):
			if req.Tools != nil {
				t.Error("tools were offered for a summary")
			}
			summaries++
			resp.Items = say(fmt.Sprintf("%d calls were made", calls200))
		case calls200 == turns-1:
			resp.Items = say("done")
		default:
			if !strings.Contains(req.Items[0].Text(), "do it") {
				t.Errorf("the task is not known any more: %s", req.Items[0].Text())
			}
			calls200++
			resp.Items = calls(call(fmt.Sprint("c", calls200), "look", "{}"))
		}
		return resp, nil
	}}
	look := &fakeTool{name: "look", f: func(context.Context, tool.Call) (tool.Result, error) {
		return tool.Result{Text: strings.Repeat("output ", 600)}, nil
	}}
	rec := &recorder{}
	cfg, _ := newConfig(t, m, look)
	cfg.CompactAt, cfg.Emit = threshold, rec.emit
	half := turns / 2
	cfg.Run.MaxTurns = &half
	res, err := runner.Run(t.Context(), cfg)
	if err != nil || res.Status != run.MaxTurns {
		t.Fatalf("%+v, %v", res, err)
	}
	all := 0
	cfg.Run.MaxTurns = &all
	res, err = runner.Resume(t.Context(), cfg)
	if err != nil || res.Status != run.Completed || res.Turns != turns {
		t.Fatalf("%+v, %v", res, err)
	}
	if most := threshold + 2_000; largest > most {
		t.Errorf("a request had %d tokens, more than %d", largest, most)
	}
	if summaries < 5 || len(of[event.Compacted](rec)) == 0 {
		t.Errorf("it was shortened %d times", summaries)
	}
	if int(res.Usage.Requests) != turns+summaries {
		t.Errorf("%d requests count, of %d", res.Usage.Requests, turns+summaries)
	}
}
