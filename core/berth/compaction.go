// SPDX-License-Identifier: Apache-2.0

package berth

import (
	"cmp"

	"github.com/berth-dev/berth/core/berth/choose"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/spec"
)

// The thresholds when the file says nothing: a part of the window of a model that is known, else so many tokens.
const (
	windowPart    = 0.9
	plainTokens   = 240_000
	compactAction = "compaction"
)

// compaction says how an agent's long transcripts are shortened: by a setting for the provider that can do it, else by this
// program at so many tokens.
func compaction(a *spec.Agent, c choose.Choice) (*spec.ModelSettings, int64) {
	want := a.Capabilities.Compaction
	if want == nil {
		return c.Settings, 0
	}
	at := threshold(want, c.Name)
	if !c.Model.Supports().Compaction {
		return c.Settings, at
	}
	if s := c.Settings; s != nil {
		if len(s.ContextManagement) > 0 {
			return s, 0 // what the file says itself counts
		}
	}
	mine := &spec.ModelSettings{ContextManagement: []map[string]any{{"type": compactAction, "compact_threshold": at}}}
	return mine.Over(c.Settings), 0
}

func threshold(c *spec.CompactionCapability, modelName string) int64 {
	window := cmp.Or(int64(c.ContextWindow), model.Window(modelName))
	part := windowPart
	switch {
	case c.Policy == "static":
		return int64(cmp.Or(c.Threshold, plainTokens))
	case c.Policy == "dynamic":
		part = cmp.Or(c.Threshold, windowPart)
	}
	if window == 0 {
		return plainTokens
	}
	return int64(float64(window) * part)
}
