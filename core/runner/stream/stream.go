// SPDX-License-Identifier: Apache-2.0

// Package stream numbers the events of a run, keeps those that belong in the log and hands all of them to a consumer,
// in order, without ever waiting for it.
package stream

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/runlog"
)

const (
	// maxQueued bounds the events that wait for a slow consumer; past it, deltas are left out.
	maxQueued = 4096
	// maxQueuedText bounds the text in them.
	maxQueuedText = 4 << 20
	// maxKept is where even events that are in the log are left out.
	maxKept = 65536
	// drainTime bounds how long the end of a run waits for the consumer.
	drainTime = 10 * time.Second
	// seqGap is left after a resume: events that were not logged may have used numbers past the last one in the log.
	seqGap = 1_000_000
)

// EntryType is the type of a log entry that holds an event.
const EntryType = "event"

// Config says where events come from and go to.
type Config struct {
	RunID string
	Emit  func(event.Event) // gets the events one at a time, in a goroutine of its own; nil = nobody looks
	Watch func(event.Event) // gets those that are logged, at once and in order, from whoever sends; nil = nobody does
	Now   func() time.Time  // called by whoever sends
	// After is a log entry of the last event that was logged before a resume; nil = there was none. Numbers go on well
	// past it, since events that were not logged may have used the next ones.
	After []byte
}

// Stream takes events in. It may be used from several goroutines.
type Stream struct {
	cfg Config

	mu    sync.Mutex
	seq   uint64          // guarded by mu, as all that follows
	agent string          // of the events to come
	turn  int             //
	kept  []runlog.Entry  // for the log
	queue []event.Event   // for the consumer
	text  int             // bytes of deltas in queue
	lost  int             // events left out since the last warning
	over  bool            // no more events will come
	fault error           // an event that could not be encoded
	wake  chan struct{}   // there is something in queue, or over; holds one
	done  <-chan struct{} // the consumer got everything
}

// New makes a stream. End ends it.
func New(cfg Config) (*Stream, error) {
	s := &Stream{cfg: cfg, wake: make(chan struct{}, 1)}
	if cfg.After != nil {
		var last struct {
			Seq uint64 `json:"seq"`
		}
		if err := json.Unmarshal(cfg.After, &last); err != nil {
			return nil, fmt.Errorf("the last event in the log: %w", err)
		}
		s.seq = last.Seq + seqGap
	}
	done := make(chan struct{})
	s.done = done
	if cfg.Emit == nil {
		close(done)
		return s, nil
	}
	go func() {
		defer close(done)
		s.deliver()
	}()
	return s, nil
}

// logged reports whether events of a kind are kept in the log. Deltas are not: the whole follows.
func logged(k event.Kind) bool {
	switch k {
	case event.KindModelDelta, event.KindToolOutput, event.KindSandboxProgress:
		return false
	default:
		return true
	}
}

// At sets where the run is, for the events to come.
func (s *Stream) At(agent string, turn int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.agent, s.turn = agent, turn
}

// Send takes an event in. It never waits for the consumer.
func (s *Stream) Send(data event.Data) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	s.sendLocked(data)
}

func (s *Stream) sendLocked(data event.Data) {
	keep := logged(data.Kind())
	if s.cfg.Emit == nil && !keep {
		return
	}
	s.seq++
	ev := event.Event{
		Seq: s.seq, Time: s.cfg.Now(), RunID: s.cfg.RunID, Agent: s.agent, Turn: s.turn, Kind: data.Kind(), Data: data,
	}
	if keep {
		raw, err := json.Marshal(ev)
		if err != nil {
			s.fault = fmt.Errorf("encode event %s: %w", ev.Kind, err)
			return
		}
		s.kept = append(s.kept, runlog.Entry{Type: EntryType, Time: ev.Time, Data: raw})
		if s.cfg.Watch != nil {
			s.cfg.Watch(ev)
		}
	}
	if s.cfg.Emit == nil {
		return
	}
	full := len(s.queue) >= maxQueued || s.text >= maxQueuedText
	switch {
	case len(s.queue) >= maxKept, full && !keep:
		s.lost++
		return
	case s.joinLocked(ev):
	default:
		s.queue = append(s.queue, ev)
	}
	s.text += textLen(data)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// joinLocked adds a delta to the delta before it, when that still waits.
func (s *Stream) joinLocked(ev event.Event) bool {
	if len(s.queue) == 0 {
		return false
	}
	last := &s.queue[len(s.queue)-1]
	switch d := ev.Data.(type) {
	case event.ModelDelta:
		p, ok := last.Data.(event.ModelDelta)
		if !ok {
			return false
		}
		ev.Data = event.ModelDelta{Text: p.Text + d.Text, Reasoning: p.Reasoning + d.Reasoning}
	case event.ToolOutput:
		p, ok := last.Data.(event.ToolOutput)
		if !ok || p.CallID != d.CallID || p.Note != "" || d.Note != "" {
			return false
		}
		ev.Data = event.ToolOutput{CallID: d.CallID, Text: p.Text + d.Text}
	default:
		return false
	}
	*last = ev
	return true
}

func textLen(data event.Data) int {
	switch d := data.(type) {
	case event.ModelDelta:
		return len(d.Text) + len(d.Reasoning)
	case event.ToolOutput:
		return len(d.Text) + len(d.Note)
	}
	return 0
}

// deliver calls the consumer until the stream is over.
func (s *Stream) deliver() {
	var spare []event.Event
	for range s.wake {
		for {
			s.mu.Lock()
			batch, over := s.queue, s.over
			s.queue, s.text = spare[:0], 0
			if s.lost > 0 {
				lost := s.lost
				s.lost = 0
				s.sendLocked(event.Warning{
					Message: fmt.Sprintf("%d events were left out: whoever reads them is too slow", lost),
					Hint:    "the run log has everything but partial texts",
				})
			}
			s.mu.Unlock()
			for _, ev := range batch {
				s.cfg.Emit(ev)
			}
			clear(batch)
			spare = batch // also an empty one: what it was swapped for is the queue now
			if len(batch) == 0 {
				if over {
					return
				}
				break
			}
		}
	}
}

// Take adds the entries that wait for the log to buf.
func (s *Stream) Take(buf []runlog.Entry) ([]runlog.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	buf = append(buf, s.kept...)
	clear(s.kept)
	s.kept = s.kept[:0]
	return buf, s.fault
}

// End ends the stream. It waits until the consumer got everything, but not for ever.
func (s *Stream) End() {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
	limit := time.NewTimer(drainTime)
	defer limit.Stop()
	select {
	case <-s.done:
	case <-limit.C:
	}
}
