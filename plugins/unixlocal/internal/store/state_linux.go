// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"runtime"
	"time"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// stateVersion is that of the state which the core keeps.
const stateVersion = 1

// stateData is what the core keeps. The directory is found by the id, below this driver's own; the proof must agree
// with what is there.
type stateData struct {
	ID    string `json:"id"`
	Proof string `json:"proof"`
}

// State is what the core keeps of a sandbox.
func (x *Session) State() driver.State {
	data, err := json.Marshal(stateData{ID: x.Record.ID, Proof: x.Record.Proof})
	if err != nil {
		panic(err) // two strings
	}
	return driver.State{Version: stateVersion, Data: data, Display: map[string]string{
		"directory": x.Dir, "created": x.Record.Created.Format(time.RFC3339),
	}}
}

// Resume finds a sandbox by what the core kept.
func (s *Store) Resume(id string, state driver.State) (*Session, error) {
	var data stateData
	if err := json.Unmarshal(state.Data, &data); err != nil || data.ID != id || data.Proof == "" {
		return nil, errs.New(errs.InvalidArgument, "the state of sandbox %s is not one that this driver made", id)
	}
	return s.Open(data.ID, data.Proof)
}

// Info is what the record says of the sandbox.
func (x *Session) Info() driver.Info {
	r := x.Record
	return driver.Info{
		SandboxID: r.ID, Labels: r.Labels, Created: r.Created, Root: r.Root, OS: "linux", Arch: runtime.GOARCH, Isolation: r.Isolation,
		Display: map[string]string{"directory": x.Dir},
	}
}
