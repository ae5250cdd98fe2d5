// SPDX-License-Identifier: Apache-2.0

package history

import (
	"encoding/json"
	"fmt"

	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/run"
)

// Own gives what a run added to the items that its transcript began with. Whole says that it stands for those too: the
// transcript was shortened meanwhile. What one agent was told in place of what others had said is not part of it.
func Own(log Source, skip int) (items []model.Item, whole bool, err error) {
	at := 0
	for rec, err := range log.Records() {
		if err != nil {
			return nil, false, err
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
			return nil, false, fmt.Errorf("record %d: %w", rec.Seq, err)
		}
		if err := json.Unmarshal(st.Event, &passed); err != nil {
			return nil, false, fmt.Errorf("record %d: %w", rec.Seq, err)
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
				return nil, false, fmt.Errorf("record %d: %w", rec.Seq, err)
			}
			if it.Type == model.ItemCompaction {
				items, whole = nil, true
			}
			items = append(items, it)
		}
	}
	return items, whole, nil
}
