// SPDX-License-Identifier: Apache-2.0

// Package checks puts the checks of the conformance suite together; they are in the packages below it, one for each
// family of groups.
//
// A check proves one behaviour that the interfaces of package driver promise, from outside, and fails when the behaviour
// is another. It runs against every kind of sandbox, so it uses nothing but a POSIX shell unless it says which tools it
// needs, and it waits for events and never for time.
package checks

import (
	"github.com/berth-dev/berth/sdk/conformance/internal/checks/faults"
	"github.com/berth-dev/berth/sdk/conformance/internal/checks/files"
	"github.com/berth-dev/berth/sdk/conformance/internal/checks/life"
	"github.com/berth-dev/berth/sdk/conformance/internal/checks/mounts"
	"github.com/berth-dev/berth/sdk/conformance/internal/checks/ports"
	"github.com/berth-dev/berth/sdk/conformance/internal/checks/process"
	"github.com/berth-dev/berth/sdk/conformance/internal/checks/program"
	"github.com/berth-dev/berth/sdk/conformance/internal/checks/snapshots"
	"github.com/berth-dev/berth/sdk/conformance/internal/checks/tree"
	"github.com/berth-dev/berth/sdk/conformance/internal/suite"
)

// Groups are all checks, in the order in which they run.
func Groups() []suite.Group {
	return []suite.Group{
		program.Handshake(), program.Schema(), life.Lifecycle(), process.Group(), process.PTY(), files.Group(), tree.Group(), ports.Group(),
		life.Accounts(), snapshots.Group(), mounts.Group(), faults.Group(), faults.Perf(), faults.Leaks(),
	}
}
