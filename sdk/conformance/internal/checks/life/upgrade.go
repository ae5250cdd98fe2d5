// SPDX-License-Identifier: Apache-2.0

package life

import (
	"slices"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/errs"
)

// statesOfBefore wants that states which were kept are still understood: their sandboxes are gone, and the driver says
// that and not that it cannot read them.
func statesOfBefore(c *kit.C) {
	states := c.Options().States
	if len(states) == 0 {
		c.Skipf("no states were given that this driver or an earlier version of it has made (Options.States, --states)")
	}
	for _, old := range states {
		r := c.Resumption(c.Box())
		r.SandboxID, r.State = old.SandboxID, old.State
		box, err := c.Main().Resume(c.Ctx(), r)
		if err == nil {
			c.Destroyed(box)
		}
		c.Code(err, "resume from a kept state of "+old.SandboxID, errs.SandboxGone, errs.SandboxUnknown)
	}
}

// stateUpgrade wants that there is a state of every version that is said to be readable.
func stateUpgrade(c *kit.C) {
	statesOfBefore(c)
	for _, v := range append(slices.Clone(c.Main().Desc.StateReadable), c.Main().Desc.StateVersion) {
		if !slices.ContainsFunc(c.Options().States, func(s kit.SavedState) bool { return s.State.Version == v }) {
			c.Errorf("state version %d is said to be readable, and no state of it was given", v)
		}
	}
}
