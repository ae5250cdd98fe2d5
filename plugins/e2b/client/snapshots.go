// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"iter"
	"net/url"
	"time"

	"github.com/berth-dev/berth/sdk/errs"
)

// Snapshot is a saved sandbox, memory and files. A sandbox is made from it with its id as template.
type Snapshot struct {
	ID        string    `json:"snapshotID"`
	Names     []string  `json:"names"`
	SandboxID string    `json:"sandboxID"`
	CreatedAt time.Time `json:"createdAt"`
}

// Snapshot saves a running sandbox, which goes on.
func (c *Client) Snapshot(ctx context.Context, id, name string) (*Snapshot, error) {
	body := map[string]string{}
	if name != "" {
		body["name"] = name
	}
	var s Snapshot
	err := c.post(ctx, "snapshot", "/sandboxes/"+segment(id)+"/snapshots", false, body, &s)
	return &s, err
}

// Snapshots lists what was saved, of one sandbox or of all.
func (c *Client) Snapshots(ctx context.Context, sandboxID string) iter.Seq2[*Snapshot, error] {
	query := url.Values{"limit": {"100"}}
	if sandboxID != "" {
		query.Set("sandboxID", sandboxID)
	}
	return pages[*Snapshot](ctx, c, "list snapshots", "/snapshots", query)
}

// DeleteSnapshot removes a snapshot, or any template. One that is gone is no error.
func (c *Client) DeleteSnapshot(ctx context.Context, id string) error {
	err := c.del(ctx, "delete the snapshot", "/templates/"+segment(id))
	if errors.Is(err, errs.SandboxGone) || errors.Is(err, errs.ConfigInvalid) {
		return nil
	}
	return err
}

// Template is what sandboxes are made from.
type Template struct {
	TemplateID string   `json:"templateID"`
	BuildID    string   `json:"buildID"`
	Names      []string `json:"names"`
	Aliases    []string `json:"aliases"`
	Public     bool     `json:"public"`
	CPUCount   int      `json:"cpuCount"`
	MemoryMB   int      `json:"memoryMB"`
}

// Templates lists the team's templates.
func (c *Client) Templates(ctx context.Context) ([]Template, error) {
	var out []Template
	_, err := c.get(ctx, "list templates", "/templates", nil, &out)
	return out, err
}
