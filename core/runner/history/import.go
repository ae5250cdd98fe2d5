// SPDX-License-Identifier: Apache-2.0

package history

import (
	"encoding/json"
	"time"

	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/runlog"
)

// Import makes the log entries of a run that another log held: reading them gives the same history.
func Import(s run.State, items []run.Ref, prior map[string]run.PriorCall, saved map[string]json.RawMessage, now time.Time) ([]runlog.Entry, error) {
	st := step{Event: json.RawMessage("null"), Items: items}
	for id, p := range prior {
		st.Settled = append(st.Settled, run.SettledCall{CallID: id, PriorCall: p})
	}
	var entries []runlog.Entry
	add := func(kind string, v any) error {
		data, err := json.Marshal(v)
		entries = append(entries, runlog.Entry{Type: kind, Time: now, Data: data})
		return err
	}
	if err := add(Step, st); err != nil {
		return nil, err
	}
	for id, v := range saved {
		if err := add(Checkpoint, checkpoint{CallID: id, Value: v}); err != nil {
			return nil, err
		}
	}
	return entries, add(State, s)
}
