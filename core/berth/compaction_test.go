// SPDX-License-Identifier: Apache-2.0

package berth

import (
	"context"
	"iter"
	"testing"

	"github.com/berth-dev/berth/core/berth/choose"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/spec"
)

type supporting struct{ model.Support }

func (s supporting) Supports() model.Support { return s.Support }

func (supporting) Stream(context.Context, *model.Request) iter.Seq2[model.Event, error] { return nil }

func TestCompaction(t *testing.T) {
	of := func(c *spec.CompactionCapability) *spec.Agent {
		return &spec.Agent{Capabilities: spec.Capabilities{Compaction: c}}
	}
	for name, c := range map[string]struct {
		want  *spec.CompactionCapability
		model string
		at    int64
	}{
		"none":                {nil, "gpt-5.6", 0},
		"known model":         {&spec.CompactionCapability{}, "gpt-4o", 115_200},
		"unknown model":       {&spec.CompactionCapability{}, "own", 240_000},
		"static":              {&spec.CompactionCapability{Policy: "static", Threshold: 5000}, "gpt-4o", 5000},
		"dynamic":             {&spec.CompactionCapability{Policy: "dynamic", Threshold: 0.5}, "gpt-4o", 64_000},
		"dynamic, own window": {&spec.CompactionCapability{Policy: "dynamic", Threshold: 0.5, ContextWindow: 1000}, "own", 500},
	} {
		s, at := compaction(of(c.want), choose.Choice{Model: supporting{}, Name: c.model})
		if at != c.at || s != nil {
			t.Errorf("%s, by this program: %d, %+v", name, at, s)
		}
		s, at = compaction(of(c.want), choose.Choice{Model: supporting{model.Support{Compaction: true}}, Name: c.model})
		switch {
		case at != 0, c.want == nil && s != nil:
			t.Errorf("%s, by the provider: %d, %+v", name, at, s)
		case c.want != nil && (len(s.ContextManagement) != 1 || s.ContextManagement[0]["compact_threshold"] != c.at):
			t.Errorf("%s, by the provider: %+v", name, s)
		}
	}
	own := &spec.ModelSettings{ContextManagement: []map[string]any{{"type": "compaction", "compact_threshold": 7}}}
	if s, _ := compaction(of(&spec.CompactionCapability{}), choose.Choice{Model: supporting{model.Support{Compaction: true}}, Settings: own}); s != own {
		t.Errorf("the file's own setting became %+v", s)
	}
}
