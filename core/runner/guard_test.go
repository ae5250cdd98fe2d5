// SPDX-License-Identifier: Apache-2.0

package runner_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/runner"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/tool"
)

// forbid trips over texts that hold a guardrail's label.
func forbid(_ context.Context, g *spec.Guardrail, _ runner.Session, text string) (*runner.Trip, error) {
	if g.Go == "broken" {
		return nil, errors.New("it does not work")
	}
	if strings.Contains(text, g.Label) {
		return &runner.Trip{Message: "no " + g.Label}, nil
	}
	return nil, nil
}

func TestGuardrails(t *testing.T) {
	first := false
	for name, c := range map[string]struct {
		edit     func(*runner.Config)
		failure  string // of the run; empty = it completes
		requests int    // of the model
		told     string // what the model was told about its call
	}{
		"first input":  {edit: func(c *runner.Config) { c.Run.InputGuardrails = guards("input", "do it", &first) }, failure: "no do it"},
		"passes":       {edit: func(c *runner.Config) { c.Run.InputGuardrails = guards("input", "other", &first) }, requests: 2, told: "done {}"},
		"beside input": {edit: func(c *runner.Config) { c.Run.Agent.InputGuardrails = guards("input", "do it", nil) }, failure: "no do it", requests: -1},
		"output":       {edit: func(c *runner.Config) { c.Run.Agent.OutputGuardrails = guards("output", "fine", nil) }, failure: "no fine", requests: 2},
		"broken": {edit: func(c *runner.Config) {
			c.Run.OutputGuardrails = []*spec.Guardrail{{Stage: "output", Label: "x", Go: "broken"}}
		}, failure: "does not work", requests: 2},
		"arguments are rejected": {edit: func(c *runner.Config) {
			g := guards("tool_input", "{}", nil)
			g[0].OnTrip = "reject"
			c.Run.Agent.Tools = []*spec.Tool{{Label: "look", InputGuards: g}}
		}, requests: 2, told: `{"error":{"code":"guardrail","message":"no {}","retryable":false,"hint":"do not make the same call again"}}`},
		"arguments end the run": {edit: func(c *runner.Config) {
			c.Run.Agent.Tools = []*spec.Tool{{Label: "look", InputGuards: guards("tool_input", "{}", nil)}}
		}, failure: `the arguments of tool "look" through: no {}`, requests: 1},
		"result": {edit: func(c *runner.Config) {
			g := guards("tool_output", "done", nil)
			g[0].OnTrip = "reject"
			c.Run.Agent.Tools = []*spec.Tool{{Label: "look", OutputGuards: g}}
		}, requests: 2, told: "no done"},
	} {
		t.Run(name, func(t *testing.T) {
			m := &fakeModel{answer: script(calls(call("1", "look", `{}`)), say("fine"))}
			rec := &recorder{}
			ran := 0
			look := &fakeTool{name: "look", f: func(_ context.Context, c tool.Call) (tool.Result, error) {
				ran++
				return tool.Result{Text: "done " + c.Arguments}, nil
			}}
			cfg, _ := newConfig(t, m, look)
			cfg.Guard, cfg.Emit = forbid, rec.emit
			c.edit(&cfg)
			res, err := runner.Run(t.Context(), cfg)
			switch {
			case c.failure == "" && (err != nil || res.Status != run.Completed):
				t.Errorf("%+v, %v", res, err)
			case c.failure != "" && (res.Status != run.Failed || err == nil || !strings.Contains(err.Error(), c.failure)):
				t.Errorf("%+v, %v", res, err)
			}
			if c.requests >= 0 && len(m.requests) != c.requests {
				t.Errorf("the model was asked %d times, not %d", len(m.requests), c.requests)
			}
			if c.requests < 0 && ran > 0 {
				t.Error("a tool ran before the guardrail over the input was through")
			}
			if c.told != "" {
				items := m.requests[1].Items
				if got := items[len(items)-1].Text(); !strings.Contains(got, c.told) {
					t.Errorf("the model was told %s", got)
				}
			}
			asked := of[event.GuardrailAsked](rec)
			if tripped := len(asked) > 0 && asked[0].Tripped; name != "broken" && name != "passes" && !tripped {
				t.Errorf("the events say %+v", asked)
			}
		})
	}
}

func guards(stage, label string, parallel *bool) []*spec.Guardrail {
	return []*spec.Guardrail{{Stage: stage, Label: label, Go: "forbid", Parallel: parallel}}
}
