// SPDX-License-Identifier: Apache-2.0

package box

import (
	"encoding/json"
	"maps"
	"strings"
	"time"

	"github.com/berth-dev/berth/plugins/modal/internal/settings"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// StateVersion is that of the state.
const StateVersion = 1

// The tags of sandboxes.
const (
	TagSandbox  = "berth-sandbox" // the core's id
	tagRoot     = "berth-root"
	labelPrefix = "berth-label-"
)

// Record is a sandbox as it is kept in its state: what a resume does not carry, and how to find it.
type Record struct {
	Sandbox  string            `json:"sandbox,omitempty"` // Modal's id; empty = it is stopped
	Image    string            `json:"image,omitempty"`   // what it was made from again, or will be; empty = never stopped
	App      string            `json:"app"`
	Root     string            `json:"root"`
	User     string            `json:"user,omitempty"` // of commands that name none
	Labels   map[string]string `json:"labels,omitempty"`
	Ports    []uint16          `json:"ports,omitempty"`
	Wish     settings.Wish     `json:"wish,omitzero"`
	Created  time.Time         `json:"created,omitzero"`
	Deadline time.Time         `json:"deadline,omitzero"`
	Server   string            `json:"server"` // the control plane that knows it
}

// ReadState reads a state.
func ReadState(st driver.State, id string) (*Record, error) {
	var r Record
	if st.Version != StateVersion {
		return nil, errs.New(errs.InvalidArgument, "the state of sandbox %s has version %d, and this driver reads %d", id, st.Version, StateVersion)
	}
	if err := json.Unmarshal(st.Data, &r); err != nil || r.Root == "" || r.Sandbox == "" && r.Image == "" {
		return nil, errs.New(errs.InvalidArgument, "the state of sandbox %s cannot be read", id)
	}
	return &r, nil
}

// Tags are the tags of a sandbox: the user's, and those that find it again.
func (r *Record) Tags(id string, more map[string]string) map[string]string {
	tags := maps.Clone(more)
	if tags == nil {
		tags = map[string]string{}
	}
	for k, v := range r.Labels {
		tags[labelPrefix+k] = v
	}
	tags[TagSandbox], tags[tagRoot] = id, r.Root
	return tags
}

// LabelTags are the tags that sandboxes with these labels have.
func LabelTags(labels map[string]string) map[string]string {
	tags := map[string]string{}
	for k, v := range labels {
		tags[labelPrefix+k] = v
	}
	return tags
}

// FromTags gives a sandbox's id, root and labels.
func FromTags(tags map[string]string) (id, root string, labels map[string]string) {
	labels = map[string]string{}
	for k, v := range tags {
		if name, ok := strings.CutPrefix(k, labelPrefix); ok {
			labels[name] = v
		}
	}
	return tags[TagSandbox], tags[tagRoot], labels
}
