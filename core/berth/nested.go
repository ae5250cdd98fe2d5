// SPDX-License-Identifier: Apache-2.0

package berth

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/runlog"
	"github.com/berth-dev/berth/core/runner"
	"github.com/berth-dev/berth/core/runner/history"
	"github.com/berth-dev/berth/core/runs"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/tool"
)

// agentTool offers an agent as a tool. A call is a run of its own, with a log of its own beside that of the outer run: so
// it survives a crash, and a resume of the outer run goes on with it.
type agentTool struct {
	outer *live
	spec  *spec.AgentTool
	ws    *workspace // of the agent that calls; nil = it has none
	// replayed is what a transcript calls the run; empty = the id of the call.
	replayed string
	// adjust changes what the run is; nil = nothing.
	adjust func(*RunOptions)
}

var (
	_ tool.Careful    = (*agentTool)(nil)
	_ tool.Recovering = (*agentTool)(nil)
)

// agentTools are the agents that an agent has as tools.
func (r *live) agentTools(a *spec.Agent, ws *workspace) ([]tool.Tool, error) {
	var all []tool.Tool
	for _, t := range a.AgentTools {
		on, err := spec.Enabled(t.Enabled, r.vars(a))
		if err != nil {
			return nil, fmt.Errorf("agent tool %q: %w", t.Name, err)
		}
		if on {
			all = append(all, &agentTool{outer: r, spec: t, ws: ws})
		}
	}
	return all, nil
}

var oneText = json.RawMessage(`{"type":"object","properties":{"input":{"type":"string","description":"What the agent should do."}},"required":["input"],"additionalProperties":false}`)

// Spec is what the model is told about the agent.
func (t *agentTool) Spec() model.ToolSpec {
	s := model.ToolSpec{Kind: model.ToolFunction, Name: t.spec.Name, Description: t.spec.Description, Parameters: t.spec.Parameters}
	if s.Description == "" {
		s.Description = t.spec.Agent.Description
	}
	if s.Parameters == nil {
		s.Parameters, s.Strict = oneText, true
	}
	return s
}

// NeedsApproval is what the block says.
func (t *agentTool) NeedsApproval(string) bool { return t.spec.NeedsApproval }

// Recovers says that a call which was cut off is taken up.
func (*agentTool) Recovers() {}

// Call performs the agent's run, or goes on with it.
func (t *agentTool) Call(ctx context.Context, call tool.Call) (tool.Result, error) {
	input, bad := t.input(call.Arguments)
	if bad != nil {
		return tool.Result{Error: bad}, nil
	}
	id := runs.NestedID(call.RunID, call.ID)
	dir, err := t.outer.h.runDir(id)
	if err != nil {
		return tool.Result{}, err
	}
	open := runlog.Create
	if exists(dir) {
		open = runlog.Open
	}
	log, err := open(dir)
	if err != nil {
		return tool.Result{}, err
	}
	defer log.Close() // every record was written, and synced where it counts
	r := &live{h: t.outer.h, o: t.options(id, input, call), dir: dir, audit: t.outer.audit}
	if outer := t.outer.traced; outer != nil {
		r.traced = outer.Inside(ctx, id)
	}
	defer r.end(ctx)
	if r.record, err = readRecord(dir); err != nil {
		return tool.Result{}, err
	}
	begun, err := history.Begun(log)
	if err != nil {
		return tool.Result{}, err
	}
	if begun {
		h, err := history.Read(log)
		if err != nil {
			return tool.Result{}, err
		}
		if h.State.Status == run.Completed {
			res := &runner.Result{Status: run.Completed, Usage: h.State.Usage, MicroUSD: h.State.MicroUSD, Turns: h.State.Turn}
			if f := h.State.Final; f != nil && f.Item != (run.Ref{}) {
				it, err := log.Get(f.Item)
				if err != nil {
					return tool.Result{}, err
				}
				res.Output = it.Text()
			}
			return t.result(r, res)
		}
	}
	// The call ends cleanly when the outer run does: the nested run is stopped, not cut off.
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	stop := make(chan struct{})
	release := context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); !errors.Is(cause, runner.ErrStopped) {
			cancel(cause)
			return
		}
		close(stop)
	})
	defer release()
	r.o.Stop = stop
	cfg, err := r.config(work, log)
	if err != nil {
		return tool.Result{}, err
	}
	perform := runner.Run
	if begun {
		perform = runner.Resume
	}
	res, err := perform(r.named(work), cfg)
	if res == nil {
		return tool.Result{}, err
	}
	return t.result(r, res)
}

// options are those of the nested run.
func (t *agentTool) options(id, input string, call tool.Call) RunOptions {
	o := t.outer.o
	a := t.spec.Agent
	out := RunOptions{
		ID: id, Project: o.Project, Model: o.Model, Name: o.Name, ModelOf: o.ModelOf, Approve: o.Approve, call: cmp.Or(t.replayed, call.ID),
		Emit: func(ev event.Event) { t.tell(ev, call) },
	}
	turns := t.spec.MaxTurns
	r := &spec.Run{
		Label: t.spec.Name, Agent: a, Sandbox: o.Run.Sandbox, Input: input, MaxTurns: &turns, Model: o.Run.Model, Settings: o.Run.Settings,
		MaxToolsAtOnce: o.Run.MaxToolsAtOnce, OnUnknownTool: o.Run.OnUnknownTool, OnToolCollision: o.Run.OnToolCollision,
		ReasoningIDs: o.Run.ReasoningIDs, Approvals: o.Run.Approvals, Vars: o.Run.Vars, Budget: within(t.spec.Budget, call.Left),
	}
	if turns == 0 {
		r.MaxTurns = nil
	}
	switch {
	case t.spec.Workspace == "none" && a.Sandboxed:
		plain := *a
		plain.Sandboxed = false
		r.Agent = &plain
	case t.spec.Workspace == "own", t.ws == nil:
		r.Sandbox = ofTheRun(r.Sandbox)
	default:
		out.Session, r.Cwd, r.Manifest = t.ws.Session, o.Run.Cwd, o.Run.Manifest
	}
	out.Run = r
	if t.adjust != nil {
		t.adjust(&out)
	}
	return out
}

// within is a budget that does not go past what is left of the outer run's.
func within(b spec.Budget, left tool.Budget) spec.Budget {
	b.TotalTokens = least(b.TotalTokens, left.Tokens)
	b.CostUSD = least(b.CostUSD, float64(left.MicroUSD)/1e6)
	b.ToolCalls = least(b.ToolCalls, left.ToolCalls)
	b.WallTime = least(b.WallTime, left.Time)
	return b
}

// least is the smaller bound; zero = none.
func least[T int | int64 | float64 | time.Duration](a, b T) T {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// toolInput are the arguments of an agent tool that takes a text.
func toolInput(text string) (string, error) {
	args, err := json.Marshal(map[string]string{"input": text})
	return string(args), err
}

// input is what the agent is asked, from the arguments of the call.
func (t *agentTool) input(arguments string) (string, *tool.Error) {
	if t.spec.Parameters == nil {
		var args struct {
			Input string `json:"input"`
		}
		if bad := tool.DecodeArguments(arguments, &args); bad != nil {
			return "", bad
		}
		if strings.TrimSpace(args.Input) == "" {
			return "", &tool.Error{Code: tool.CodeArguments, Message: `argument "input" is empty`, Retryable: true, Hint: "say what the agent should do"}
		}
		return args.Input, nil
	}
	text := "You were called as a tool, with these arguments:\n\n" + arguments
	if t.spec.IncludeSchema {
		text += "\n\nTheir JSON Schema:\n\n" + string(t.spec.Parameters)
	}
	return text, nil
}

// result is what the outer model gets of a nested run.
func (t *agentTool) result(r *live, res *runner.Result) (tool.Result, error) {
	out := tool.Result{
		Usage: res.Usage, MicroUSD: res.MicroUSD,
		Detail: map[string]any{"run": r.o.ID, "agent": t.spec.Agent.Label, "turns": res.Turns, "status": string(res.Status)},
	}
	switch res.Status {
	case run.Completed:
		out.Summary = fmt.Sprintf("agent %s answered after %d turns", t.spec.Agent.Label, res.Turns)
		text, err := t.output(r, res.Output)
		out.Text = text
		return out, err
	case run.Paused, run.Cancelled:
		return out, tool.ErrSuspended
	}
	f := res.Failure
	if f == nil {
		f = &run.Failure{Code: string(res.Status), Message: "the agent did not come to an end"}
	}
	out.Error = &tool.Error{Code: f.Code, Message: fmt.Sprintf("agent %s: %s", t.spec.Agent.Label, f.Message), Hint: "ask for less, or go on without it"}
	return out, nil
}

// output is what of the agent's answer the outer model sees.
func (t *agentTool) output(r *live, text string) (string, error) {
	if t.spec.Output == nil {
		return text, nil
	}
	vars := r.vars(t.spec.Agent)
	vars.Output = text
	if t.spec.Agent.OutputSchema != nil {
		if err := json.Unmarshal([]byte(text), &vars.Output); err != nil {
			return "", err
		}
	}
	v, err := t.spec.Output.Eval(vars)
	if err != nil {
		return "", fmt.Errorf("output of agent tool %q: %w", t.spec.Name, err)
	}
	if s, ok := v.(string); ok {
		return s, nil
	}
	raw, err := json.Marshal(v)
	return string(raw), err
}

// tell passes on what somebody who watches the outer run should see of the nested one.
func (t *agentTool) tell(ev event.Event, call tool.Call) {
	switch d := ev.Data.(type) {
	case event.ToolStarted:
		call.Progress(tool.Progress{Note: fmt.Sprintf("%s: %s", t.spec.Agent.Label, d.Tool)})
	case event.ApprovalWanted, event.ApprovalDecided, event.Warning, event.GuardrailAsked, event.SandboxLost, event.MemoryWritten:
		call.Tell(d)
	}
}
