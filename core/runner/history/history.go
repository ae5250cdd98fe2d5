// SPDX-License-Identifier: Apache-2.0

// Package history is the runner's part of a run's log: what it writes there, and how a run is read back.
package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"

	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/runlog"
	"github.com/berth-dev/berth/core/runner/stream"
)

// The types of the log entries that hold the engine's part.
const (
	Step       = "step"       // an event of the engine and what it settled, see step
	State      = "state"      // the whole state after the steps before it
	Checkpoint = "checkpoint" // what a tool keeps during its call
)

// step is a step of the engine in the log. Together they are the run: the transcript is the concatenation of Items.
type step struct {
	Event   json.RawMessage   `json:"event"`
	Items   []run.Ref         `json:"items,omitempty"`
	Settled []run.SettledCall `json:"settled,omitempty"`
}

// checkpoint is what a tool keeps for the case that its process ends during its call.
type checkpoint struct {
	CallID string          `json:"call_id"`
	Value  json.RawMessage `json:"value"`
}

// EncodeCheckpoint makes the data of a [Checkpoint].
func EncodeCheckpoint(callID string, value []byte) ([]byte, error) {
	return json.Marshal(checkpoint{CallID: callID, Value: value})
}

// EncodeStep makes the data of a [Step] without going through the event, which is most of it, once more.
func EncodeStep(event []byte, ef run.Persist) ([]byte, error) {
	out := append(append(make([]byte, 0, len(event)+512), `{"event":`...), event...)
	if len(ef.Items) > 0 {
		raw, err := json.Marshal(ef.Items)
		if err != nil {
			return nil, err
		}
		out = append(append(out, `,"items":`...), raw...)
	}
	if len(ef.Settled) > 0 {
		raw, err := json.Marshal(ef.Settled)
		if err != nil {
			return nil, err
		}
		out = append(append(out, `,"settled":`...), raw...)
	}
	return append(out, '}'), nil
}

// Source is a run's log.
type Source interface {
	Get(run.Ref) (model.Item, error)
	Records() iter.Seq2[runlog.Record, error]
}

// History is a run as its log has it.
type History struct {
	State run.State
	Items []model.Item             // the transcript
	Prior map[string]run.PriorCall // settled calls, by call id
	Saved map[string][]byte        // checkpoints of calls that are not settled
	Event []byte                   // the last event of the stream
}

// Read reads the run that is in a log, whatever became of it.
func Read(log Source) (History, error) {
	h := History{Prior: map[string]run.PriorCall{}, Saved: map[string][]byte{}}
	var tail []json.RawMessage // events of the engine after the last state
	for rec, err := range log.Records() {
		if err != nil {
			return h, err
		}
		switch rec.Type {
		case Step:
			var st step
			if err := json.Unmarshal(rec.Data, &st); err != nil {
				return h, fmt.Errorf("record %d: %w", rec.Seq, err)
			}
			for _, ref := range st.Items {
				it, err := log.Get(ref)
				if err != nil {
					return h, fmt.Errorf("record %d: %w", rec.Seq, err)
				}
				h.Items = append(h.Items, it)
			}
			for _, c := range st.Settled {
				h.Prior[c.CallID] = c.PriorCall
				delete(h.Saved, c.CallID)
			}
			tail = append(tail, st.Event)
		case State:
			h.State = run.State{}
			if err := json.Unmarshal(rec.Data, &h.State); err != nil {
				return h, fmt.Errorf("record %d: %w", rec.Seq, err)
			}
			tail = tail[:0]
		case Checkpoint:
			var c checkpoint
			if err := json.Unmarshal(rec.Data, &c); err != nil {
				return h, fmt.Errorf("record %d: %w", rec.Seq, err)
			}
			h.Saved[c.CallID] = c.Value
		case stream.EntryType:
			h.Event = rec.Data
		}
	}
	for _, raw := range tail {
		ev, err := run.UnmarshalEvent(raw)
		if err != nil {
			return h, err
		}
		if h.State, _, err = run.Step(h.State, ev); err != nil {
			return h, err
		}
	}
	if h.State.Status == "" {
		return h, errors.New("the log holds no run: it ended before the first step was written. Start it anew")
	}
	return h, nil
}

// Begun reports whether a log holds a run.
func Begun(log Source) (bool, error) {
	for rec, err := range log.Records() {
		if err != nil {
			return false, err
		}
		if rec.Type == Step || rec.Type == State {
			return true, nil
		}
	}
	return false, nil
}
