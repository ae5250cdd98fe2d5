// SPDX-License-Identifier: Apache-2.0

package box

import (
	"encoding/json"
	"maps"
	"strings"
	"time"

	"github.com/berth-dev/berth/plugins/e2b/internal/settings"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// The metadata of a sandbox.
const (
	metaSandbox = settings.MetaPrefix + "sandbox" // berth's id
	metaRecord  = settings.MetaPrefix + "record"  // JSON of a Record
	metaDriver  = settings.MetaPrefix + "driver"  // marks every sandbox of the driver
	metaLabel   = settings.MetaPrefix + "label_"  // the core's labels
)

// Record is what of a sandbox's making has to be known later. It is in the metadata: whoever finds the sandbox knows it,
// also when the answer to its making was lost.
type Record struct {
	Root      string        `json:"root"`
	User      string        `json:"user"`
	Arch      string        `json:"arch"`
	Timeout   time.Duration `json:"timeout"`
	KeepAlive bool          `json:"keep_alive,omitempty"`
	Public    bool          `json:"public,omitempty"`
	Restored  bool          `json:"restored,omitempty"` // from a snapshot: the workspace holds something from the start
}

// metadata gives it all.
func (r *Record) metadata(id string, own, labels map[string]string) (map[string]string, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "write the sandbox's record", err)
	}
	all := maps.Clone(own)
	if all == nil {
		all = map[string]string{}
	}
	for k, v := range labels {
		all[metaLabel+k] = v
	}
	all[metaSandbox], all[metaRecord], all[metaDriver] = id, string(b), "1"
	return all, nil
}

// readRecord reads the metadata of a sandbox.
func readRecord(metadata map[string]string) (*Record, error) {
	var r Record
	if err := json.Unmarshal([]byte(metadata[metaRecord]), &r); err != nil || r.Root == "" {
		return nil, errs.New(errs.DriverIncompatible, "the sandbox's metadata %s cannot be read", metaRecord).
			WithHint("another version of the driver may have made the sandbox")
	}
	return &r, nil
}

// Labels are those that the core gave, and ID is the sandbox's as berth knows it, of metadata.
func Labels(metadata map[string]string) (id string, labels map[string]string) {
	labels = map[string]string{}
	for k, v := range metadata {
		if name, ok := strings.CutPrefix(k, metaLabel); ok {
			labels[name] = v
		}
	}
	return metadata[metaSandbox], labels
}

// Wanted is the metadata by which sandboxes with labels are found.
func Wanted(labels map[string]string) map[string]string {
	m := map[string]string{metaDriver: "1"}
	for k, v := range labels {
		m[metaLabel+k] = v
	}
	return m
}

// State is what Resume needs. It holds no token: those are asked for again.
type State struct {
	Sandbox  string    `json:"sandbox"` // the service's id
	Where    string    `json:"where"`   // the service, for people
	Template string    `json:"template"`
	Filled   bool      `json:"filled,omitempty"` // the workspace holds something of its owner's
	Deadline time.Time `json:"deadline,omitzero"`
}

// StateVersion is the version of State.
const StateVersion = 1

// ReadState reads what the core kept.
func ReadState(id string, s driver.State) (*State, error) {
	var st State
	if err := json.Unmarshal(s.Data, &st); err != nil || st.Sandbox == "" {
		return nil, errs.New(errs.InvalidArgument, "the state of sandbox %s cannot be read", id)
	}
	return &st, nil
}
