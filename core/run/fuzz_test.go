// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/berth-dev/berth/core/model"
)

// Whatever events come in whatever order, the machine does not panic and its invariants hold.
func FuzzStep(f *testing.F) {
	f.Add([]byte{0})
	f.Add([]byte{0xff, 4, 2, 1, 6, 0, 6, 1, 4, 0})                 // sandbox, two tools, an end
	f.Add([]byte{0x0f, 2, 0, 4, 9, 12, 0, 6, 0, 1, 0, 2, 0, 4, 8}) // a stop and a resume
	f.Add([]byte{0x55, 4, 7, 8, 0, 8, 1, 11, 0, 1, 3, 8, 2, 9, 1, 9, 0, 5, 5})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) <= 400 { // long inputs find nothing that short ones do not
			walk(t, data)
		}
	})
}

// The same with a fixed set of random inputs, which gets far in every ordinary test run.
func TestRandomEvents(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	ends := map[Status]int{}
	for range 150 {
		data := make([]byte, 300)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		for st, n := range walk(t, data) {
			ends[st] += n
		}
	}
	for _, st := range []Status{Completed, Failed, Cancelled, MaxTurns, Budget, Paused} {
		if ends[st] == 0 {
			t.Errorf("no random run came to the status %s: %v", st, ends)
		}
	}
}

// walk sends events made of bytes to a machine, checks every step and counts the ends.
func walk(t *testing.T, data []byte) map[Status]int {
	in := &bits{data: data}
	w := &walker{t: t, now: time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC), ends: map[Status]int{}}
	w.step(Start{
		Time: w.now, RunID: "r", Agent: "main", Config: fuzzConfig(in.next()),
		Input: []Ref{{Hash: "in", Size: 2, Kind: model.ItemMessage}},
	})
	for len(in.data) > 0 {
		w.now = w.now.Add(time.Duration(in.next()%4) * time.Second)
		w.step(w.event(in))
	}
	return w.ends
}

type bits struct{ data []byte }

func (b *bits) next() int {
	if len(b.data) == 0 {
		return 0
	}
	v := b.data[0]
	b.data = b.data[1:]
	return int(v)
}

func fuzzConfig(c int) Config {
	on := func(bit int) bool { return c>>bit&1 == 1 }
	a := Agent{Sandboxed: on(0), StopOnFirstTool: on(1), ResetToolChoice: on(2), CheckOutput: on(3), OutputRetries: c >> 4 & 1}
	l := Limits{}
	if on(5) {
		l = Limits{Turns: 3}
	}
	if on(6) {
		l.Tokens, l.ToolCalls, l.WallTime = 60, 6, 20*time.Second
	}
	return Config{Limits: l, Agents: map[string]Agent{"main": a}, RaiseUnknown: on(7)}
}

// walker drives a machine and checks it after every step.
type walker struct {
	t       *testing.T
	now     time.Time
	state   State
	items   int
	calls   int // in the answers that were taken in
	outputs int // in the transcript
	serial  int
	ends    map[Status]int
}

func (w *walker) event(in *bits) Event {
	flights := w.state.InFlight()
	id := EffectID(in.next())
	if len(flights) > 0 && id%8 != 7 {
		id = flights[int(id)%len(flights)]
	}
	w.serial++
	out := Ref{Hash: fmt.Sprintf("out%d", w.serial), Size: 1, Kind: model.ItemFunctionCallOutput}
	fail := Failure{Code: "x", Message: "x"}
	kind := in.next()
	if kind >= 64 { // mostly, what the effect waits for
		kind = w.fitting(id, kind)
	}
	switch kind % 16 {
	case 0:
		return SandboxPrepared{Time: w.now, Effect: id}
	case 1:
		return SandboxFailed{Time: w.now, Effect: id, Error: fail}
	case 2, 3, 4:
		return w.answer(id, in)
	case 5:
		return ModelFailed{Time: w.now, Effect: id, Error: fail}
	case 6, 7:
		return ToolDone{Time: w.now, Effect: id, Output: out, OK: in.next()%2 == 0}
	case 8:
		return ToolFailed{Time: w.now, Effect: id, Error: fail}
	case 9:
		return Decided{Time: w.now, Effect: id, Allow: in.next()%2 == 0}
	case 10:
		ev := OutputChecked{Time: w.now, Effect: id}
		if in.next()%2 == 0 {
			ev.Problem, ev.Feedback = "bad", &Ref{Hash: out.Hash, Size: 1, Kind: model.ItemMessage}
		}
		return ev
	case 11:
		return Pause{Time: w.now}
	case 12:
		return Cancel{Time: w.now, Now: in.next()%2 == 0}
	case 13, 14:
		return Resume{Time: w.now, Config: fuzzConfig(in.next())}
	default:
		return Tick{Time: w.now}
	}
}

// fitting is the kind of a good result for an effect.
func (w *walker) fitting(id EffectID, kind int) int {
	switch {
	case w.state.Sandbox.ID == id:
		return 0
	case w.state.Model != nil && w.state.Model.ID == id:
		return 2
	case w.state.Check != nil && w.state.Check.ID == id:
		return 10
	}
	for _, c := range w.state.Calls {
		if c.Slot.ID == id && c.Stage == StageAsk {
			return 9
		} else if c.Slot.ID == id {
			return 6
		}
	}
	return kind
}

func (w *walker) answer(id EffectID, in *bits) ModelAnswered {
	ev := ModelAnswered{Time: w.now, Effect: id, Usage: model.Usage{TotalTokens: 7}}
	for range in.next() % 4 {
		w.serial++
		c := PlannedCall{CallRef: CallRef{
			CallID: fmt.Sprintf("c%d", in.next()%5), Kind: model.ToolFunction, Name: "t", Fingerprint: fmt.Sprint(in.next() % 2),
			Item: Ref{Hash: fmt.Sprintf("call%d", w.serial), Size: 1, Kind: model.ItemFunctionCall},
		}}
		switch in.next() % 8 {
		case 0:
			c.Problem = &Problem{Code: CodeUnknownTool, Message: "no such tool"}
		case 1:
			c.Ask = true
		case 2:
			c.Prior = &PriorCall{Fingerprint: "0", Output: Ref{Hash: "old", Size: 1, Kind: model.ItemFunctionCallOutput}, OK: true}
		case 3:
			c.CallID = ""
		}
		ev.Items, ev.Calls = append(ev.Items, c.Item), append(ev.Calls, c)
	}
	switch in.next() % 6 {
	case 0, 1:
		w.serial++
		it := Ref{Hash: fmt.Sprintf("text%d", w.serial), Size: 1, Kind: model.ItemMessage}
		ev.Items, ev.Output = append(ev.Items, it), &it
	case 2:
		ev.Refusal = "no"
	case 3:
		ev.Cut = "max_output_tokens"
	case 4:
		w.serial++
		ev.Items = append(ev.Items, Ref{Hash: fmt.Sprintf("comp%d", w.serial), Size: 1, Kind: model.ItemCompaction})
	}
	return ev
}

func (w *walker) step(ev Event) {
	t := w.t
	before := must(json.Marshal(w.state))
	next, effects, err := Step(w.state, ev)
	if after := must(json.Marshal(w.state)); !bytes.Equal(before, after) {
		t.Fatalf("%T changed the state that it was given:\n%s\n%s", ev, before, after)
	}
	again, effects2, err2 := Step(w.state, ev)
	nextJSON := must(json.Marshal(next))
	if a, b := fmt.Sprint(string(nextJSON), effectsJSON(effects), err), fmt.Sprint(string(must(json.Marshal(again))), effectsJSON(effects2), err2); a != b {
		t.Fatalf("%T gave two different results:\n%s\n%s", ev, a, b)
	}
	if err != nil {
		if len(effects) > 0 || !bytes.Equal(before, nextJSON) {
			t.Fatalf("%T is an error and has consequences", ev)
		}
		return
	}
	// The event and the state survive the log.
	back := must(UnmarshalEvent(must(MarshalEvent(ev))))
	fromLog, _, err := Step(w.state, back)
	if fromJSON := must(json.Marshal(fromLog)); err != nil || !bytes.Equal(nextJSON, fromJSON) {
		t.Fatalf("%T from the log gives another state: %v\n%s\n%s", ev, err, nextJSON, fromJSON)
	}
	var read State
	if err := json.Unmarshal(nextJSON, &read); err != nil {
		t.Fatal(err)
	}
	if readJSON := must(json.Marshal(read)); !bytes.Equal(nextJSON, readJSON) {
		t.Fatalf("the state does not survive JSON:\n%s\n%s", nextJSON, readJSON)
	}

	prev := w.state
	w.state = next
	var finish *Finish
	for i, ef := range effects {
		switch ef := ef.(type) {
		case Persist:
			if i != 0 {
				t.Fatalf("persist is effect %d", i)
			}
			w.items += len(ef.Items)
			for _, it := range ef.Items {
				switch it.Kind {
				case model.ItemFunctionCall:
					w.calls++
				case model.ItemFunctionCallOutput:
					w.outputs++
				}
			}
		case PrepareSandbox:
			w.issued(ev, ef.ID)
		case CallModel:
			if w.outputs != w.calls {
				t.Fatalf("the model is called with %d outputs of %d calls", w.outputs, w.calls)
			}
			if ef.Items.To != w.items || ef.Items.From > ef.Items.To {
				t.Fatalf("the request holds %v of %d items", ef.Items, w.items)
			}
			w.issued(ev, ef.ID)
		case RunTool:
			w.issued(ev, ef.ID)
		case AskApproval:
			w.issued(ev, ef.ID)
		case AnswerCall:
			w.issued(ev, ef.ID)
		case CheckOutput:
			w.issued(ev, ef.ID)
		case CancelEffects:
			for _, id := range ef.IDs {
				if !slices.Contains(prev.InFlight(), id) {
					t.Fatalf("effect %d is cancelled and was not in flight", id)
				}
			}
		case Finish:
			if i != len(effects)-1 {
				t.Fatal("finish is not the last effect")
			}
			finish = &ef
			w.ends[ef.Status]++
		case Emit:
		}
	}
	if len(effects) > 0 {
		if _, ok := effects[0].(Persist); !ok {
			if _, ok := effects[0].(Emit); !ok || len(effects) > 1 || !bytes.Equal(before, nextJSON) {
				t.Fatalf("%T changed something and is not persisted: %v", ev, effects)
			}
		}
	}
	flights := next.InFlight()
	if (next.Status == Running) != (len(flights) > 0) {
		t.Fatalf("after %T the run is %s with %d effects in flight", ev, next.Status, len(flights))
	}
	if (finish != nil) != (prev.Status != next.Status && next.Status != Running || isResume(ev) && next.Status != Running) {
		t.Fatalf("after %T the run went from %s to %s, finish is %v", ev, prev.Status, next.Status, finish)
	}
	if finish != nil && finish.Status != next.Status {
		t.Fatalf("finish says %s, the state %s", finish.Status, next.Status)
	}
	if next.Items.To != w.items {
		t.Fatalf("the state counts %d items, %d were persisted", next.Items.To, w.items)
	}
	if w.outputs > w.calls {
		t.Fatalf("%d outputs for %d calls", w.outputs, w.calls)
	}
	if next.Status == Completed && w.outputs != w.calls {
		t.Fatalf("the run is complete with %d outputs of %d calls", w.outputs, w.calls)
	}
}

func effectsJSON(effects []Effect) string {
	var b bytes.Buffer
	for _, ef := range effects {
		b.Write(must(MarshalEffect(ef)))
	}
	return b.String()
}

func isResume(ev Event) bool { _, ok := ev.(Resume); return ok }

// issued checks the id of an effect.
func (w *walker) issued(ev Event, id EffectID) {
	if !slices.Contains(w.state.InFlight(), id) {
		w.t.Fatalf("%T issued effect %d, which the state does not have in flight", ev, id)
	}
	if id > w.state.LastID {
		w.t.Fatalf("effect %d is past the last id %d", id, w.state.LastID)
	}
}

// A state does not grow with the run.
func TestStateStaysSmall(t *testing.T) {
	sizes := map[int]int{}
	w := newWorld()
	w.do("start")
	for turn := 1; turn <= 10_000; turn++ {
		w.step(w.answer(w.state.Model.ID, []string{fmt.Sprintf("call=c%d:look", turn)}))
		w.step(ToolDone{Time: w.now, Effect: w.state.Calls[0].Slot.ID, OK: true, Output: Ref{Hash: fmt.Sprintf("o%d", turn), Size: 1, Kind: model.ItemFunctionCallOutput}})
		if turn == 100 || turn == 10_000 {
			sizes[turn] = len(must(json.Marshal(w.state)))
		}
	}
	if w.state.Turn != 10_001 || w.state.Items.To != 20_001 {
		t.Fatalf("the run has %d turns and %d items", w.state.Turn, w.state.Items.To)
	}
	if sizes[10_000] > sizes[100]+40 || sizes[10_000] > 1000 {
		t.Errorf("the state has %d bytes after 100 turns and %d after 10,000", sizes[100], sizes[10_000])
	}
	t.Logf("state: %d bytes after 100 turns, %d after 10,000", sizes[100], sizes[10_000])
}

func BenchmarkStep(b *testing.B) {
	w := newWorld()
	w.do("start")
	s := w.state
	out := Ref{Hash: "o", Size: 1, Kind: model.ItemFunctionCallOutput}
	b.ReportAllocs()
	for b.Loop() {
		ans := ModelAnswered{Effect: s.Model.ID, Items: []Ref{sampleRef}, Calls: []PlannedCall{{CallRef: sampleCall}}}
		s, _, _ = Step(s, ans)
		s, _, _ = Step(s, ToolDone{Effect: s.Calls[0].Slot.ID, Output: out, OK: true})
	}
}
