// SPDX-License-Identifier: Apache-2.0

package run

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/core/model"
)

// world is an executor made of text.
type world struct {
	state   State
	log     [][]byte // events, as the log has them
	items   []Ref    // the transcript
	prior   map[string]PriorCall
	now     time.Time
	effects []Effect // of the last step
	err     error
}

func newWorld() *world {
	return &world{prior: map[string]PriorCall{}, now: time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)}
}

// outcome is what a crash must not change.
func (w *world) outcome() map[string]any {
	return map[string]any{
		"status": w.state.Status, "items": w.items, "turn": w.state.Turn, "usage": w.state.Usage,
		"tool calls": w.state.ToolCalls, "final": w.state.Final, "prior": w.prior, "agents": w.state.UsedTools,
	}
}

// show does a command and gives its effects and what it changed.
func (w *world) show(command string) string {
	before := flat(w.state)
	w.do(command)
	var out strings.Builder
	if w.err != nil {
		fmt.Fprintf(&out, "error: %v\n", w.err)
	}
	for _, ef := range w.effects {
		raw, err := MarshalEffect(ef)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(&out, "%s\n", raw)
	}
	after := flat(w.state)
	keys := maps.Clone(before)
	maps.Copy(keys, after)
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		if before[k] != after[k] {
			fmt.Fprintf(&out, "  %s: %s -> %s\n", k, or(before[k]), or(after[k]))
		}
	}
	return out.String()
}

func or(s string) string {
	if s == "" {
		return "(none)"
	}
	return s
}

// flat gives a state as paths and values, without what every step changes.
func flat(s State) map[string]string {
	s.LastTime, s.Elapsed, s.Config = time.Time{}, 0, Config{}
	out := map[string]string{}
	for i, c := range s.Calls {
		words := []string{c.CallID, c.Name, string(c.Stage)}
		if c.Slot.ID != 0 {
			words = append(words, fmt.Sprintf("effect %d", c.Slot.ID))
		}
		if c.Slot.InFlight {
			words = append(words, "in flight")
		}
		if c.Output != nil {
			words = append(words, "output "+c.Output.Hash)
		}
		for word, is := range map[string]bool{"ok": c.OK, "ran": c.Ran, "repeat": c.Repeat, "unsure": c.Unsure, "suspended": c.Suspended, "hands over": c.Handoff != nil} {
			if is {
				words = append(words, word)
			}
		}
		slices.Sort(words[3:])
		out[fmt.Sprintf("call %d", i)] = strings.Join(words, ", ")
	}
	s.Calls = nil
	raw, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		panic(err)
	}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, e := range v {
				walk(strings.TrimPrefix(path+"."+k, "."), e)
			}
		case []any:
			for i, e := range v {
				walk(fmt.Sprintf("%s[%d]", path, i), e)
			}
		case nil:
		default:
			out[path] = fmt.Sprint(v)
		}
	}
	walk("", v)
	return out
}

func (w *world) step(ev Event) {
	raw, err := MarshalEvent(ev)
	if err != nil {
		panic(err)
	}
	before, err := json.Marshal(w.state)
	if err != nil {
		panic(err)
	}
	next, effects, err := Step(w.state, ev)
	after, _ := json.Marshal(w.state)
	if string(before) != string(after) {
		panic("the step changed its argument")
	}
	w.effects, w.err = effects, err
	if err != nil {
		return
	}
	w.state = next
	for i, ef := range effects {
		p, ok := ef.(Persist)
		if !ok {
			continue
		}
		if i != 0 {
			panic("persist is not the first effect")
		}
		w.log = append(w.log, raw)
		w.items = append(w.items, p.Items...)
		for _, c := range p.Settled {
			w.prior[c.CallID] = c.PriorCall
		}
	}
}

// crash reads the state back from the log.
func (w *world) crash() {
	w.effects, w.err = nil, nil
	var s State
	for _, raw := range w.log {
		ev, err := UnmarshalEvent(raw)
		if err == nil {
			s, _, err = Step(s, ev)
		}
		if err != nil {
			panic(err)
		}
	}
	if diff := cmp.Diff(w.state, s); diff != "" {
		panic("the log gives another state (-live +log):\n" + diff)
	}
	w.state = s
}

func (w *world) resume(c Config) { w.step(Resume{Time: w.now, Config: c}) }

func (w *world) item(kind model.ItemType, name string) Ref {
	return Ref{Hash: name, Size: int64(len(name)), Kind: kind}
}

// find gives the slot's effect of a call, or 9999.
func (w *world) find(callID string, stages ...Stage) EffectID {
	for _, c := range w.state.Calls {
		if c.CallID == callID && c.Slot.InFlight && (len(stages) == 0 || slices.Contains(stages, c.Stage)) {
			return c.Slot.ID
		}
	}
	return 9999
}

func (w *world) do(command string) {
	f := strings.Fields(command)
	w.now = w.now.Add(time.Second)
	arg := func(i int) string {
		if i < len(f) {
			return f[i]
		}
		return ""
	}
	modelID := EffectID(9999)
	if w.state.Model != nil {
		modelID = w.state.Model.ID
	}
	switch f[0] {
	case "start":
		c, inputs := config(f[1:])
		var in []Ref
		for i := range inputs {
			in = append(in, w.item(model.ItemMessage, fmt.Sprintf("input-%d", i+1)))
		}
		w.step(Start{Time: w.now, RunID: "r", Agent: "main", Config: c, Input: in})
	case "resume":
		c := w.state.Config
		if arg(1) == "note" {
			w.step(Resume{Time: w.now, Config: c, Notes: []Ref{w.item(model.ItemMessage, "note")}})
			return
		}
		if len(f) > 1 {
			c, _ = config(f[1:])
		}
		w.resume(c)
	case "crash":
		w.crash()
	case "sandbox":
		if arg(1) == "fail" {
			w.step(SandboxFailed{Time: w.now, Effect: w.state.Sandbox.ID, Error: Failure{Code: "create_failed", Message: "no room"}})
			return
		}
		w.step(SandboxPrepared{Time: w.now, Effect: w.state.Sandbox.ID})
	case "model":
		w.step(w.answer(modelID, f[1:]))
	case "model-error":
		w.step(ModelFailed{Time: w.now, Effect: modelID, Error: Failure{Code: arg(1), Message: "the model failed"}})
	case "tool":
		id := w.find(arg(1), StageRun, StageAnswer)
		switch arg(2) {
		case "suspended":
			w.step(ToolSuspended{Time: w.now, Effect: id})
			return
		case "used":
			w.step(ToolDone{
				Time: w.now, Effect: id, OK: true, Output: w.item(model.ItemFunctionCallOutput, arg(1)+"-ok"),
				Usage: &model.Usage{Requests: 3, TotalTokens: 30}, MicroUSD: 5,
			})
			return
		case "unsure":
			w.step(ToolUnsure{Time: w.now, Effect: id, Reason: "nobody knows"})
			return
		case "fatal":
			w.step(ToolFailed{Time: w.now, Effect: id, Error: Failure{Code: "sandbox_gone", Message: "it is gone"}})
			return
		}
		w.step(ToolDone{
			Time: w.now, Effect: id, OK: arg(2) == "ok",
			Output: w.item(model.ItemFunctionCallOutput, arg(1)+"-"+arg(2)),
		})
	case "decide":
		ev := Decided{Time: w.now, Effect: w.find(arg(1), StageAsk), Allow: arg(2) == "allow"}
		if arg(3) == "always" {
			ev.Answer = &Answer{Allow: ev.Allow, Covers: Cover{Agent: "main", Tool: "look"}}
		}
		w.step(ev)
	case "checked":
		ev := OutputChecked{Time: w.now, Effect: 9999}
		if w.state.Check != nil {
			ev.Effect = w.state.Check.ID
		}
		if arg(1) == "bad" {
			fb := w.item(model.ItemMessage, "feedback")
			ev.Problem, ev.Feedback = "a number is missing", &fb
		}
		w.step(ev)
	case "guard":
		ev := InputChecked{Time: w.now, Effect: 9999}
		if w.state.Guard != nil {
			ev.Effect = w.state.Guard.ID
		}
		if arg(1) == "trip" {
			ev.Trip = &Failure{Code: "guardrail", Message: "it tripped"}
		}
		w.step(ev)
	case "passed-on", "pass-on-failed":
		id := EffectID(9999)
		if w.state.PassOn != nil {
			id = w.state.PassOn.ID
		}
		if f[0] == "pass-on-failed" {
			w.step(PassOnFailed{Time: w.now, Effect: id, Error: Failure{Code: "handoff", Message: "it is not ready"}})
			return
		}
		w.step(PassedOn{Time: w.now, Effect: id, Replace: arg(1) == "replace", Items: []Ref{w.item(model.ItemMessage, "handed")}})
	case "after":
		d, err := time.ParseDuration(arg(1))
		if err != nil {
			panic(err)
		}
		w.now = w.now.Add(d)
		w.effects, w.err = nil, nil
	case "tick":
		w.step(Tick{Time: w.now})
	case "pause":
		w.step(Pause{Time: w.now})
	case "cancel":
		w.step(Cancel{Time: w.now, Now: arg(1) == "now"})
	case "stale":
		n, err := strconv.Atoi(arg(1))
		if err != nil {
			panic(err)
		}
		w.step(ToolDone{Time: w.now, Effect: EffectID(n), Output: w.item(model.ItemFunctionCallOutput, "stale")})
	default:
		panic("unknown command " + f[0])
	}
}

// answer makes a model's answer of a command's words.
func (w *world) answer(id EffectID, words []string) ModelAnswered {
	turn := w.state.Turn
	ev := ModelAnswered{Time: w.now, Effect: id, Usage: model.Usage{Requests: 1, TotalTokens: 10}}
	for _, word := range words {
		k, v, _ := strings.Cut(word, "=")
		switch k {
		case "text":
			it := w.item(model.ItemMessage, fmt.Sprintf("text-%d", turn))
			ev.Items, ev.Output = append(ev.Items, it), &it
		case "compaction":
			ev.Items = append(ev.Items, w.item(model.ItemCompaction, fmt.Sprintf("compaction-%d", turn)))
		case "call":
			p := strings.Split(v, ":")
			c := PlannedCall{CallRef: CallRef{CallID: p[0], Kind: model.ToolFunction, Name: p[1], Fingerprint: strings.Join(p[1:], "/")}}
			c.Item = w.item(model.ItemFunctionCall, "call-"+v)
			if prior, ok := w.prior[c.CallID]; ok {
				c.Prior = &prior
			}
			ev.Items, ev.Calls = append(ev.Items, c.Item), append(ev.Calls, c)
		case "ask":
			for i := range ev.Calls {
				if ev.Calls[i].CallID == v {
					ev.Calls[i].Ask, ev.Calls[i].Reason = true, "careful"
				}
			}
		case "handoff":
			callID, own, _ := strings.Cut(v, ":")
			for i := range ev.Calls {
				if ev.Calls[i].CallID == callID {
					ev.Calls[i].Handoff = &Handoff{Agent: "other", Own: own != ""}
				}
			}
		case "problem":
			callID, code, _ := strings.Cut(v, ":")
			for i := range ev.Calls {
				if ev.Calls[i].CallID == callID {
					ev.Calls[i].Problem = &Problem{Code: code, Message: "it cannot be run"}
				}
			}
		case "refusal":
			ev.Refusal = v
		case "cut":
			ev.Cut = v
		case "tokens":
			ev.Usage.TotalTokens = number(v)
		case "cost":
			ev.MicroUSD = number(v)
		default:
			panic("unknown word " + word)
		}
	}
	return ev
}

func config(words []string) (Config, int) {
	var c Config
	var a Agent
	inputs := 1
	for _, word := range words {
		k, v, _ := strings.Cut(word, "=")
		switch k {
		case "input":
			inputs = int(number(v))
		case "turns":
			c.Limits.Turns = int(number(v))
		case "tokens":
			c.Limits.Tokens = number(v)
		case "cost":
			c.Limits.MicroUSD = number(v)
		case "tool-calls":
			c.Limits.ToolCalls = int(number(v))
		case "wall":
			d, err := time.ParseDuration(v)
			if err != nil {
				panic(err)
			}
			c.Limits.WallTime = d
		case "sandbox":
			a.Sandboxed = true
		case "check":
			a.CheckOutput = true
		case "guard-first":
			a.GuardFirst = true
		case "guard-beside":
			a.GuardBeside = true
		case "guard-output":
			a.GuardOutput = true
		case "retries":
			a.OutputRetries = int(number(v))
		case "stop-first":
			a.StopOnFirstTool = true
		case "stop-at":
			a.StopAtTools = strings.Split(v, ",")
		case "reset":
			a.ResetToolChoice = true
		case "raise":
			c.RaiseUnknown = true
		default:
			panic("unknown word " + word)
		}
	}
	c.Agents = map[string]Agent{"main": a}
	if a.Sandboxed {
		c.Agents["other"] = Agent{Sandboxed: true}
	} else {
		c.Agents["other"] = Agent{}
	}
	return c, inputs
}

func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}
