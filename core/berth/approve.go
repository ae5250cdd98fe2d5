// SPDX-License-Identifier: Apache-2.0

package berth

import (
	"cmp"
	"time"

	"github.com/berth-dev/berth/core/approval"
	"github.com/berth-dev/berth/core/spec"
)

// DefaultKeepFor is how long a run waits for a person at a terminal.
const DefaultKeepFor = 15 * time.Minute

// rules are the approval rules of a run.
func rules(r *spec.Run, team []*spec.Agent) (*approval.Rules, error) {
	root := spec.DefaultRoot
	if m := manifestOf(r, r.Agent); m != nil {
		root = cmp.Or(m.Root, root)
	}
	return approval.Compile(r.Approvals, root, append([]*spec.Agent{r.Agent}, team...)...)
}

// keepFor is how long a run waits for a decision.
func (r *live) keepFor() time.Duration {
	for _, a := range []*spec.Approvals{r.o.Run.Approvals, r.o.Run.Agent.Approvals} {
		if a != nil && a.KeepFor != nil {
			return *a.KeepFor
		}
	}
	if r.o.Approve == nil {
		return 0
	}
	return DefaultKeepFor
}
