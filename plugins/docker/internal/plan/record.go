// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// The labels of what belongs to a sandbox.
const (
	LabelSandbox  = "dev.berth.sandbox" // its id
	LabelRecord   = "dev.berth.record"  // JSON of a record
	LabelOwner    = "dev.berth.owner"   // the installation that made it
	LabelUser     = "dev.berth.user"    // of a snapshot: the default user
	LabelSnapshot = "dev.berth.snapshot"
	LabelPrefix   = "dev.berth.label." // the core's labels
)

// Record is what of a sandbox's making has to be known later. It is a label of the container: whoever finds the
// container knows it, also when the answer to its making was lost.
type Record struct {
	Root     string             `json:"root"`
	User     string             `json:"user,omitempty"` // default of commands; empty = the container's own
	Exec     bool               `json:"exec,omitempty"` // commands run by the engine, without a guest
	Grants   []driver.PathGrant `json:"grants,omitempty"`
	Ports    []uint16           `json:"ports,omitempty"` // that are published
	Alone    bool               `json:"alone,omitempty"` // the network is the sandbox's own
	Lifetime time.Duration      `json:"lifetime,omitempty"`
	Image    string             `json:"image"`
	Digest   string             `json:"digest,omitempty"`
	Facts    Facts              `json:"facts"`
}

// Facts are what the isolation report says.
type Facts struct {
	Network      string   `json:"network"`
	Runtime      string   `json:"runtime,omitempty"`
	Rootless     bool     `json:"rootless,omitempty"`
	Capabilities []string `json:"capabilities,omitempty"`
	Privileges   bool     `json:"privileges,omitempty"` // set-user-ID programs work
	Seccomp      string   `json:"seccomp,omitempty"`
	ReadOnly     bool     `json:"read_only,omitempty"`
	Processes    uint32   `json:"processes,omitempty"`
	Memory       uint64   `json:"memory,omitempty"`
	CPUs         float64  `json:"cpus,omitempty"`
	Why          string   `json:"why,omitempty"` // there is no guest
}

func (r *Record) label() (string, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return "", errs.Wrap(errs.Internal, "write the container's record", err)
	}
	return string(b), nil
}

// ReadRecord reads the label of a container.
func ReadRecord(labels map[string]string) (*Record, error) {
	var r Record
	if err := json.Unmarshal([]byte(labels[LabelRecord]), &r); err != nil {
		return nil, errs.New(errs.DriverIncompatible, "the container's label %s cannot be read: %v", LabelRecord, err)
	}
	return &r, nil
}

// CoreLabels are the labels that the core gave.
func CoreLabels(labels map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range labels {
		if name, ok := strings.CutPrefix(k, LabelPrefix); ok {
			out[name] = v
		}
	}
	return out
}

// State is what Resume needs.
type State struct {
	Container string    `json:"container"`
	Engine    string    `json:"engine"` // its id
	Where     string    `json:"where"`  // its address, for people
	Image     string    `json:"image"`
	Digest    string    `json:"digest,omitempty"`
	Filled    bool      `json:"filled,omitempty"` // the workspace holds something of its owner's
	Stopped   bool      `json:"stopped,omitempty"`
	Deadline  time.Time `json:"deadline,omitzero"`
}

// StateVersion is the version of State.
const StateVersion = 1

// Driver gives it to the core.
func (s *State) Driver(display map[string]string) driver.State {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // text and times only
	}
	return driver.State{Version: StateVersion, Data: b, Display: display, Deadline: s.Deadline}
}

// Status is where a container is in its life.
func Status(s container.ContainerState) driver.Status {
	switch s {
	case container.StateRunning, container.StateRestarting:
		return driver.StatusRunning
	case container.StatePaused:
		return driver.StatusPaused
	case container.StateCreated:
		return driver.StatusCreating
	case container.StateRemoving, container.StateDead:
		return driver.StatusGone
	case container.StateExited:
	}
	return driver.StatusStopped
}
