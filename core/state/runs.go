// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Run is the record of a run: what others than the machine that has its log must know of it.
type Run struct {
	ID      string
	Project string // directory; empty = none
	Agent   string // label
	Status  string // of core/run
	Turns   int
	Usage   json.RawMessage // empty = none is known
	Owner   string          // user@host, of who has worked on it last
	Host    string          // name of that machine, for people
	Place   string          // the directory of runs that has its log; only there the log is up to date
	Holder  *Holder         // the process that works on it, or did when it died; nil = none
	Started time.Time       // by the store
	Updated time.Time       // by the store
	Ended   time.Time       // zero = it has not
	// Kept is all that another place needs to go on with it; empty = only its place can. [Store.ListRuns] leaves it out.
	Kept    []byte
	Version int64 // by the store
}

// Runs is the table of runs.
type Runs interface {
	// CreateRun adds a record; [ErrExists] when the id is taken.
	CreateRun(ctx context.Context, r *Run) error
	// Run reads one; [ErrUnknown] when there is none.
	Run(ctx context.Context, id string) (*Run, error)
	// ListRuns reads them, the oldest first.
	ListRuns(ctx context.Context) ([]*Run, error)
	// UpdateRun writes what was read before; [ErrChanged] when somebody else was first. With end the run has ended now.
	UpdateRun(ctx context.Context, r *Run, end bool) error
	// DeleteRun removes a record with its approvals. One that is not there is no error.
	DeleteRun(ctx context.Context, id string) error
}

const runColumns = "id, project, agent, status, turns, usage, owner, host, place, holder, started, updated, ended, version, "

func scanRun(scan func(...any) error) (*Run, error) {
	var r Run
	var usage, holder string
	var started, updated, ended int64
	err := scan(&r.ID, &r.Project, &r.Agent, &r.Status, &r.Turns, &usage, &r.Owner, &r.Host, &r.Place, &holder,
		&started, &updated, &ended, &r.Version, &r.Kept)
	if err != nil {
		return nil, err
	}
	r.Usage = json.RawMessage(usage)
	r.Started, r.Updated, r.Ended = fromMillis(started), fromMillis(updated), fromMillis(ended)
	if holder != "" {
		r.Holder = &Holder{}
		if err := json.Unmarshal([]byte(holder), r.Holder); err != nil {
			return nil, fmt.Errorf("who works on run %s: %w", r.ID, err)
		}
	}
	return &r, nil
}

// holderText is a holder as the tables have it.
func holderText(h *Holder) (string, error) {
	if h == nil {
		return "", nil
	}
	b, err := json.Marshal(h)
	return string(b), err
}

func (d *db) run(ctx context.Context, on querier, id string) (*Run, error) {
	var found *Run
	err := d.query(ctx, on, func(scan func(...any) error) (err error) {
		found, err = scanRun(scan)
		return err
	}, "SELECT "+runColumns+"kept FROM runs WHERE id = ?", id)
	if err == nil && found == nil {
		err = ErrUnknown
	}
	return found, err
}

func (d *db) Run(ctx context.Context, id string) (*Run, error) { return d.run(ctx, d.sql, id) }

func (d *db) ListRuns(ctx context.Context) ([]*Run, error) {
	var all []*Run
	err := d.query(ctx, d.sql, func(scan func(...any) error) error {
		r, err := scanRun(scan)
		all = append(all, r)
		return err
	}, "SELECT "+runColumns+"NULL FROM runs ORDER BY started, id")
	if err != nil {
		return nil, err
	}
	return all, nil
}

func (d *db) CreateRun(ctx context.Context, r *Run) error {
	holder, err := holderText(r.Holder)
	if err != nil {
		return err
	}
	return d.tx(ctx, func(on querier) error {
		_, err := d.exec(ctx, on, `INSERT INTO runs (id, project, agent, status, turns, usage, owner, host, place, holder, started,
 updated, ended, kept, version) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, {now}, {now}, ?, ?, 1)`,
			r.ID, r.Project, r.Agent, r.Status, r.Turns, string(r.Usage), r.Owner, r.Host, r.Place, holder, millis(r.Ended), r.Kept)
		if err != nil {
			return err
		}
		return d.rereadRun(ctx, on, r)
	})
}

func (d *db) rereadRun(ctx context.Context, on querier, r *Run) error {
	now, err := d.run(ctx, on, r.ID)
	if err == nil {
		*r = *now
	}
	return err
}

func (d *db) UpdateRun(ctx context.Context, r *Run, end bool) error {
	holder, err := holderText(r.Holder)
	if err != nil {
		return err
	}
	ended := "?"
	if end {
		ended = "{now} + ?"
		r.Ended = time.Time{}
	}
	return d.tx(ctx, func(on querier) error {
		n, err := d.exec(ctx, on, `UPDATE runs SET project = ?, agent = ?, status = ?, turns = ?, usage = ?, owner = ?, host = ?, place = ?,
 holder = ?, ended = `+ended+`, kept = ?, updated = {now}, version = version + 1 WHERE id = ? AND version = ?`,
			r.Project, r.Agent, r.Status, r.Turns, string(r.Usage), r.Owner, r.Host, r.Place, holder, millis(r.Ended), r.Kept, r.ID, r.Version)
		if err != nil {
			return err
		}
		if n == 0 {
			if _, err := d.run(ctx, on, r.ID); err != nil {
				return err
			}
			return ErrChanged
		}
		return d.rereadRun(ctx, on, r)
	})
}

func (d *db) DeleteRun(ctx context.Context, id string) error {
	return d.tx(ctx, func(on querier) error {
		for _, q := range []string{"DELETE FROM approvals WHERE root = ?", "DELETE FROM runs WHERE id = ?"} {
			if _, err := d.exec(ctx, on, q, id); err != nil {
				return err
			}
		}
		return nil
	})
}
