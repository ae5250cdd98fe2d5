// SPDX-License-Identifier: Apache-2.0

package history

import (
	"encoding/json"
	"fmt"

	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/run"
)

// Own gives what a run added to the items that its transcript began with. What stands from some item on for everything
// before it, because the transcript was shortened, begins at the index from; -1 = it was not. What one agent was told in
// place of what others had said is not part of it.
func Own(log Source, skip int) (items []model.Item, from int, err error) {
	at := 0
	from = -1
	for rec, err := range log.Records() {
		if err != nil {
			return nil, -1, err
		}
		if rec.Type != Step {
			continue
		}
		var st step
		var passed struct {
			Type    string    `json:"type"`
			Items   []run.Ref `json:"items"`
			Replace bool      `json:"replace"`
		}
		if err := json.Unmarshal(rec.Data, &st); err != nil {
			return nil, -1, fmt.Errorf("record %d: %w", rec.Seq, err)
		}
		if err := json.Unmarshal(st.Event, &passed); err != nil {
			return nil, -1, fmt.Errorf("record %d: %w", rec.Seq, err)
		}
		retold := 0
		if passed.Type == "passed_on" && passed.Replace {
			retold = len(passed.Items)
		}
		for i, ref := range st.Items {
			if at++; at <= skip || i < retold {
				continue
			}
			it, err := log.Get(ref)
			if err != nil {
				return nil, -1, fmt.Errorf("record %d: %w", rec.Seq, err)
			}
			if it.Type == model.ItemCompaction {
				from = len(items)
			}
			items = append(items, it)
		}
	}
	return items, from, nil
}
