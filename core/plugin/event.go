// SPDX-License-Identifier: Apache-2.0

package plugin

import "github.com/berth-dev/berth/core/catalog"

// Event is something that happened to a driver process or to one of its sandboxes.
type Event struct {
	Kind      EventKind
	Driver    string
	SandboxID string // empty = the process as a whole
	Message   string // for people
	Err       error  // why; a *launch.Crash is in it when the process has ended
	// Reattached says, for Recovered, that the sandbox's processes were found again.
	Reattached bool
}

// EventKind is the kind of an [Event].
type EventKind string

// The kinds.
const (
	Lost        EventKind = "lost"        // the driver process has ended; recovery follows
	Recovered   EventKind = "recovered"   // the sandbox was resumed
	Gone        EventKind = "gone"        // the sandbox could not be resumed and is no more
	Quarantined EventKind = "quarantined" // the driver dies too often and is not started again
	Warning     EventKind = "warning"     // something that a person should know
	Parked      EventKind = "parked"      // what became of a sandbox when its driver was drained, in Message
)

// Phase is where a process is in its life.
type Phase string

// The phases.
const (
	PhaseAbsent      Phase = "absent"
	PhaseStarting    Phase = "starting"
	PhaseReady       Phase = "ready"
	PhaseIdle        Phase = "idle" // ready, and nobody uses it
	PhaseBackoff     Phase = "backoff"
	PhaseDraining    Phase = "draining"
	PhaseQuarantined Phase = "quarantined"
	PhaseStopped     Phase = "stopped" // with the manager
)

// Status is how a process is.
type Status struct {
	Driver    string
	Binary    catalog.Binary // zero for a driver in process
	Phase     Phase
	PID       int // 0 = not running, or in process
	Sandboxes int
	Crashes   int // in the last two minutes
	Err       error
}
