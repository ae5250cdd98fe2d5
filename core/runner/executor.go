// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/berth-dev/berth/core/approval"
	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/runlog"
	"github.com/berth-dev/berth/core/runner/history"
	"github.com/berth-dev/berth/core/runner/stream"
)

// graceTime bounds how long a run that must end now waits for its tools to see that.
const graceTime = 2 * time.Second

// closeTime bounds the closing of a sandbox after the run's own context has ended.
const closeTime = 60 * time.Second

// The causes with which effects are cancelled.
var (
	errEnded = errors.New("the run ended")
	// ErrStopped is the cause with which calls end when the run is to end cleanly: their results still count.
	ErrStopped = errors.New("the run was stopped")
)

// executor performs one run. All fields belong to the goroutine of loop.
type executor struct {
	cfg    Config
	stream *stream.Stream

	state      run.State
	items      []model.Item          // the transcript; only ever appended to
	held       map[string]model.Item // put and not in the transcript yet, by hash
	prior      map[string]run.PriorCall
	finish     *run.Finish
	sinceState int
	entries    []runlog.Entry // reused

	inbox   []run.Event // results that need no waiting
	results chan result
	over    chan struct{} // closed when nobody takes results any more
	flights map[run.EffectID]context.CancelCauseFunc
	queue   []toolJob // tool calls over the concurrency bound
	// Of the approvals that are asked for: those that an answer can cover, and those that nobody decides for now.
	asks      map[run.EffectID]*approval.Call
	undecided map[run.EffectID]bool
	saved     map[string][]byte // checkpoints, by call id
	running   int               // tool calls that run
	wg        sync.WaitGroup

	team      map[string]*member // by label
	opened    []*member          // that have a session, in order
	started   time.Time
	cause     error // of the last failure
	causeText string
}

// result is an effect's end.
type result struct {
	event func() (run.Event, error) // called in loop's goroutine: the event to step with, or none; nil = there is none
	drop  func()                    // called in the effect's goroutine when nobody takes the result; may be nil
}

func newExecutor(cfg Config, h history.History) (*executor, error) {
	if h.Prior == nil {
		h.Prior = map[string]run.PriorCall{}
	}
	if h.Saved == nil {
		h.Saved = map[string][]byte{}
	}
	st, err := stream.New(stream.Config{RunID: cfg.RunID, Emit: cfg.Emit, Watch: cfg.Watch, Now: cfg.Now, After: h.Event})
	if err != nil {
		return nil, err
	}
	return &executor{
		cfg: cfg, stream: st, team: cfg.team(), started: cfg.Now(),
		state: h.State, items: h.Items, prior: h.Prior,
		held: map[string]model.Item{}, results: make(chan result), over: make(chan struct{}),
		flights: map[run.EffectID]context.CancelCauseFunc{},
		asks:    map[run.EffectID]*approval.Call{}, undecided: map[run.EffectID]bool{}, saved: h.Saved,
	}, nil
}

// loop steps from event to event until the run has ended. When it returns, nothing that it started runs any more,
// unless it ignores its context for longer than the grace time.
func (x *executor) loop(ctx context.Context, first run.Event) (err error) {
	// Effects do not end with ctx but by the engine's word, so that what ctx interrupts is never taken for a failure.
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer func() {
		cancel(errEnded)
		close(x.over)
		x.join()
	}()
	if err := x.step(work, first); err != nil {
		return err
	}
	stop, now := x.cfg.Stop, ctx.Done()
	for x.finish == nil {
		ev, err := x.wait(stop, now)
		if err != nil {
			return err
		}
		if ev == nil {
			continue
		}
		if c, ok := ev.(run.Cancel); ok {
			stop = nil
			if c.Now {
				now = nil
			}
		}
		if err := x.step(work, ev); err != nil {
			return err
		}
	}
	return nil
}

// wait gives the next event; nil = something was done that is none.
func (x *executor) wait(stop, now <-chan struct{}) (run.Event, error) {
	select {
	case <-now:
		return run.Cancel{Time: x.cfg.Now(), Now: true}, nil
	default:
	}
	if len(x.inbox) > 0 {
		ev := x.inbox[0]
		x.inbox = x.inbox[1:]
		return ev, nil
	}
	onlyAsks := x.state.OnlyAsks()
	if n := len(x.undecided); onlyAsks && n > 0 && n == len(x.state.InFlight()) {
		return run.Pause{Time: x.cfg.Now()}, nil
	}
	var timeout <-chan time.Time
	if left, ok := x.state.Remaining(); ok && x.state.Stop == nil && !onlyAsks {
		left -= x.cfg.Now().Sub(x.state.LastTime)
		t := time.NewTimer(max(left, 0))
		defer t.Stop()
		timeout = t.C
	}
	select {
	case r := <-x.results:
		return r.event()
	case <-stop:
		return run.Cancel{Time: x.cfg.Now()}, nil
	case <-now:
		return run.Cancel{Time: x.cfg.Now(), Now: true}, nil
	case <-timeout:
		return run.Tick{Time: x.cfg.Now()}, nil
	}
}

// join waits for what runs.
func (x *executor) join() {
	ended := make(chan struct{})
	go func() {
		x.wg.Wait()
		close(ended)
	}()
	limit := time.NewTimer(graceTime)
	defer limit.Stop()
	select {
	case <-ended:
	case <-limit.C:
	}
}

// step applies an event and starts its effects.
func (x *executor) step(ctx context.Context, ev run.Event) error {
	next, effects, err := run.Step(x.state, ev)
	if err != nil {
		return err
	}
	x.state = next
	x.stream.At(next.Agent, next.Turn)
	for _, ef := range effects {
		if err := x.start(ctx, ev, ef); err != nil {
			return err
		}
	}
	return nil
}

// start performs an effect, or begins to.
func (x *executor) start(ctx context.Context, ev run.Event, ef run.Effect) error {
	switch ef := ef.(type) {
	case run.Persist:
		return x.persist(ev, ef)
	case run.PrepareSandbox:
		x.prepareSandbox(ctx, ef)
	case run.CallModel:
		return x.callModel(ctx, ef)
	case run.RunTool:
		return x.runTool(ctx, ef)
	case run.AnswerCall:
		return x.answerCall(ef)
	case run.AskApproval:
		return x.askApproval(ctx, ef)
	case run.CheckOutput:
		return x.checkOutput(ctx, ef)
	case run.CheckInput:
		x.checkInput(ctx, ef)
	case run.PassOn:
		return x.passOn(ctx, ef)
	case run.CancelEffects:
		x.cancelEffects(ef)
	case run.Emit:
		x.notice(ef)
	case run.Finish:
		x.finish = &ef
	}
	return nil
}

// launch runs f in a goroutine of its own and hands what it gives to loop.
func (x *executor) launch(ctx context.Context, id run.EffectID, f func(context.Context) result) {
	ctx, cancel := context.WithCancelCause(ctx)
	x.flights[id] = cancel
	x.wg.Go(func() {
		r := f(ctx)
		if r.event == nil {
			return
		}
		select {
		case x.results <- r:
		case <-x.over:
			if r.drop != nil {
				r.drop()
			}
		}
	})
}

// landed forgets an effect that has ended.
func (x *executor) landed(id run.EffectID) {
	if cancel := x.flights[id]; cancel != nil {
		cancel(errEnded)
		delete(x.flights, id)
	}
}

func (x *executor) cancelEffects(ef run.CancelEffects) {
	for _, id := range ef.IDs {
		if cancel := x.flights[id]; cancel != nil {
			cancel(ErrStopped)
		}
	}
	x.dropQueue(ef.IDs)
}

// put keeps an item in the log's store, and at hand until it is in the transcript.
func (x *executor) put(it model.Item) (run.Ref, error) {
	ref, err := x.cfg.Log.Put(it)
	if err == nil {
		x.held[ref.Hash] = it
	}
	return ref, err
}

// extend puts items at the end of the transcript.
func (x *executor) extend(refs []run.Ref) error {
	for _, ref := range refs {
		it, ok := x.held[ref.Hash]
		if !ok {
			var err error
			if it, err = x.cfg.Log.Get(ref); err != nil {
				return err
			}
		}
		x.items = append(x.items, it)
	}
	for _, ref := range refs {
		delete(x.held, ref.Hash)
	}
	return nil
}

// persist puts the step into the log and its items into the transcript.
func (x *executor) persist(ev run.Event, ef run.Persist) error {
	raw, err := run.MarshalEvent(ev)
	if err != nil {
		return err
	}
	data, err := history.EncodeStep(raw, ef)
	if err != nil {
		return fmt.Errorf("encode step: %w", err)
	}
	entries, err := x.stream.Take(x.entries[:0])
	if err != nil {
		return err
	}
	x.entries = append(entries, runlog.Entry{Type: history.Step, Time: x.cfg.Now(), Data: data})
	if x.sinceState++; x.sinceState >= stateEvery || x.state.Status != run.Running {
		raw, err := json.Marshal(x.state)
		if err != nil {
			return fmt.Errorf("encode the state: %w", err)
		}
		x.entries = append(x.entries, runlog.Entry{Type: history.State, Time: x.cfg.Now(), Data: raw})
		x.sinceState = 0
	}
	if err := x.cfg.Log.Append(ef.Sync, x.entries...); err != nil {
		return err
	}
	for _, c := range ef.Settled {
		x.prior[c.CallID] = c.PriorCall
		delete(x.saved, c.CallID)
	}
	return x.extend(ef.Items)
}

func (x *executor) notice(ef run.Emit) {
	switch ef.Notice {
	case run.NoticeTurn:
		x.stream.Send(event.TurnStarted{})
	case run.NoticeOutput:
		x.stream.Send(event.Warning{
			Message: "the final output does not fit the output schema: " + ef.Message,
			Hint:    "the model was told and tries again",
		})
	case run.NoticeHandoff:
		x.stream.Send(event.AgentChanged{From: ef.Message, To: x.state.Agent})
	default:
		x.stream.Send(event.Warning{Message: ef.Message})
	}
}
