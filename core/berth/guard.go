// SPDX-License-Identifier: Apache-2.0

package berth

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/guard"
	"github.com/berth-dev/berth/core/hostproc"
	"github.com/berth-dev/berth/core/ops"
	"github.com/berth-dev/berth/core/outschema"
	"github.com/berth-dev/berth/core/runner"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/tool"
	"github.com/berth-dev/berth/sdk/errs"
)

// checkOutput holds a final output against the agent's schema.
func checkOutput(s *spec.OutputSchema, text string) error {
	if s.Strict {
		return outschema.Relaxed(s.Schema, text)
	}
	return outschema.Check(s.Schema, text)
}

// guard asks a guardrail about a text.
func (r *live) guard(ctx context.Context, g *spec.Guardrail, s runner.Session, text string) (*runner.Trip, error) {
	env := guard.Env{Funcs: r.h.cfg.Guardrails, Agent: r.guardAgent, Vars: r.vars(r.o.Run.Agent), User: r.o.Run.Agent.RunAs}
	if ws, ok := s.(*workspace); ok {
		env.Sandbox = ws.Session
	}
	host := hostproc.Host{}
	if r.o.Project != nil {
		host.Dir = r.o.Project.Dir
	}
	env.Host = host
	ctx, end, err := ops.Begin(ctx, nil, ops.Op{Kind: ops.Guardrail, Name: g.Label})
	if err != nil {
		return nil, err
	}
	message, ok, err := guard.Ask(ctx, g, text, env)
	end(ops.End{Err: err, Tripped: err == nil && !ok})
	if ok || err != nil {
		return nil, err
	}
	return &runner.Trip{Message: message}, nil
}

// guardAgent asks the agent of a guardrail, in a run of its own without a sandbox. A text that it was asked about before,
// in a process that ended, is not asked about again.
func (r *live) guardAgent(ctx context.Context, g *spec.Guardrail, text string) (any, error) {
	args, err := toolInput(text)
	if err != nil {
		return nil, err
	}
	t := &agentTool{outer: r, spec: &spec.AgentTool{Name: g.Label, Agent: g.Agent, MaxTurns: runner.DefaultMaxTurns, Workspace: "none", Pos: g.Pos}}
	t.replayed = "guardrail." + g.Label
	res, err := t.Call(ctx, tool.Call{
		ID: fmt.Sprintf("guardrail.%s.%s.%x", g.Stage, g.Label, sha256.Sum256([]byte(text))), RunID: r.o.ID, Agent: g.Agent.Label, Arguments: args,
		Progress: func(tool.Progress) {}, Tell: func(event.Data) {}, Save: func([]byte) error { return nil },
	})
	switch {
	case err != nil:
		return nil, err
	case res.Error != nil:
		return nil, errs.New(errs.Code(res.Error.Code), "%s", res.Error.Message)
	case g.Agent.OutputSchema == nil:
		return res.Text, nil
	}
	var v any
	err = json.Unmarshal([]byte(res.Text), &v)
	return v, err
}
