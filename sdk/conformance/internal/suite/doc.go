// SPDX-License-Identifier: Apache-2.0

// Package suite is the engine of the conformance suite: it holds driver processes, gives sandboxes to checks, runs the
// checks and keeps the account of what they proved. It knows no check.
//
// A [Suite] begins with one driver process and one sandbox that all checks share. A check that damages its sandbox asks
// for one of its own, and one that needs a second driver process for another [Process]. After a failed check the shared
// sandbox is replaced.
//
// Size: the life of drivers and sandboxes, what a check may ask for, and the report; each needs the others.
package suite

import (
	"slices"

	"github.com/berth-dev/berth/sdk/driver"
)

// Group is a part of the suite.
type Group struct {
	Name   string
	Doc    string // what the group proves, in one sentence
	When   When
	Checks []Check
}

// When says which option a group waits for.
type When uint8

// The options.
const (
	Always When = iota
	WithFaults
	WithPerf
)

// Check proves one behaviour.
type Check struct {
	Name string
	// Needs are features without which the check has nothing to test: it is skipped unless all are claimed.
	Needs []driver.Feature
	// Unless is a feature with which it has nothing to test; empty = none.
	Unless driver.Feature
	// Proves are features that a pass proves; they need not be claimed for the check to run. Nil = Needs.
	Proves []driver.Feature
	// Claims are the features that a pass proves, where only a description can name them; nil = Proves.
	Claims func(driver.Description) []driver.Feature
	Tools  []string // what the sandbox must have, see [Suite.Has]
	// Process says that the check needs a driver that the suite starts itself.
	Process bool
	// Binary says that it needs a driver that is a program.
	Binary bool
	// Alone says that no other check may run at the same time.
	Alone bool
	Func  func(*C)
}

func (c *Check) proves(d driver.Description) []driver.Feature {
	if c.Claims != nil {
		return c.Claims(d)
	}
	if c.Proves != nil {
		return c.Proves
	}
	return c.Needs
}

// Mounts are the features that a description claims of storage: mount.KIND.STRATEGY.
func Mounts(d driver.Description) []driver.Feature {
	var out []driver.Feature
	for _, m := range d.Mounts {
		for _, how := range m.Strategies {
			out = append(out, driver.Feature("mount."+m.Kind+"."+how))
		}
	}
	return out
}

func (o *Options) skipped(group, check string) (reason string, ok bool) {
	if reason, ok = o.Skip[group+"/"+check]; !ok {
		reason, ok = o.Skip[group]
	}
	return reason, ok
}

const needsPerf = "not asked for: it needs --perf"

// unasked says why nobody wants a check; empty = it is wanted.
func (o *Options) unasked(g *Group, check string) string {
	switch {
	case g.When == WithFaults && !o.Faults:
		return "not asked for: it needs --faults"
	case g.When == WithPerf && !o.Perf:
		return needsPerf
	case len(o.Only) > 0 && !slices.Contains(o.Only, g.Name) && !slices.Contains(o.Only, g.Name+"/"+check):
		return "not asked for: --only names others"
	}
	return ""
}
