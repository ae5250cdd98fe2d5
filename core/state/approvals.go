// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"encoding/json"
	"time"
)

// Approval is a call that somebody is asked about, and what was decided. A decision is made once and never changed.
type Approval struct {
	Run    string // that the call belongs to
	Effect int64  // that asks, in that run
	Root   string // the run that people see: Run, or the one that Run is inside of

	CallID    string
	Agent     string
	Tool      string
	Arguments json.RawMessage
	Reason    string
	Covers    string // which calls an answer covers that is to count for later ones; empty = it cannot
	Unsure    bool   // it may have been made already
	Asked     time.Time

	Decision string // one of the constants; empty = none yet
	Always   bool
	Message  string
	Who      string
	Decided  time.Time
}

// The decisions about an [Approval].
const (
	Approved = "approved"
	Rejected = "rejected"
)

// Approvals is the table of approvals. Times are by the store.
type Approvals interface {
	// Ask adds a question. One that is there already is left as it is.
	Ask(ctx context.Context, a *Approval) error
	// Approval reads one; [ErrUnknown] when it was never asked.
	Approval(ctx context.Context, run string, effect int64) (*Approval, error)
	// ListApprovals reads those of a run and the runs in it, the oldest first.
	ListApprovals(ctx context.Context, root string) ([]*Approval, error)
	// CountOpen says how many calls wait for a decision, by root; those without any are not in it.
	CountOpen(ctx context.Context) (map[string]int, error)
	// Decide writes a decision about a question, which it adds when it is not there, and reads the record back. False =
	// somebody was first, and the record holds that decision.
	Decide(ctx context.Context, a *Approval) (bool, error)
	// Withdraw takes a question back that nobody has decided.
	Withdraw(ctx context.Context, run string, effect int64) error
}

const approvalColumns = `run, effect, root, call_id, agent, tool, arguments, reason, covers, unsure, asked, decision, always,
 message, who, decided`

func (d *db) approvals(ctx context.Context, on querier, rest string, args ...any) ([]*Approval, error) {
	var all []*Approval
	err := d.query(ctx, on, func(scan func(...any) error) error {
		var a Approval
		var arguments string
		var unsure, always, asked, decided int64
		err := scan(&a.Run, &a.Effect, &a.Root, &a.CallID, &a.Agent, &a.Tool, &arguments, &a.Reason, &a.Covers, &unsure, &asked,
			&a.Decision, &always, &a.Message, &a.Who, &decided)
		a.Arguments, a.Unsure, a.Always = json.RawMessage(arguments), unsure != 0, always != 0
		a.Asked, a.Decided = fromMillis(asked), fromMillis(decided)
		all = append(all, &a)
		return err
	}, "SELECT "+approvalColumns+" FROM approvals "+rest, args...)
	if err != nil {
		return nil, err
	}
	return all, nil
}

func (d *db) approval(ctx context.Context, on querier, run string, effect int64) (*Approval, error) {
	all, err := d.approvals(ctx, on, "WHERE run = ? AND effect = ?", run, effect)
	if err == nil && len(all) == 0 {
		err = ErrUnknown
	}
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

func (d *db) Approval(ctx context.Context, run string, effect int64) (*Approval, error) {
	return d.approval(ctx, d.sql, run, effect)
}

func (d *db) ListApprovals(ctx context.Context, root string) ([]*Approval, error) {
	return d.approvals(ctx, d.sql, "WHERE root = ? ORDER BY asked, run, effect", root)
}

func (d *db) CountOpen(ctx context.Context) (map[string]int, error) {
	open := map[string]int{}
	err := d.query(ctx, d.sql, func(scan func(...any) error) error {
		var root string
		var n int
		err := scan(&root, &n)
		open[root] = n
		return err
	}, "SELECT root, COUNT(*) FROM approvals WHERE decision = '' GROUP BY root")
	return open, err
}

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func (d *db) ask(ctx context.Context, on querier, a *Approval) error {
	_, err := d.exec(ctx, on, `INSERT INTO approvals (`+approvalColumns+`) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, {now}, '', 0, '', '', 0)
 ON CONFLICT (run, effect) DO NOTHING`,
		a.Run, a.Effect, a.Root, a.CallID, a.Agent, a.Tool, string(a.Arguments), a.Reason, a.Covers, bit(a.Unsure))
	return err
}

func (d *db) Ask(ctx context.Context, a *Approval) error { return d.ask(ctx, d.sql, a) }

func (d *db) Decide(ctx context.Context, a *Approval) (won bool, err error) {
	err = d.tx(ctx, func(on querier) error {
		if err := d.ask(ctx, on, a); err != nil {
			return err
		}
		n, err := d.exec(ctx, on, `UPDATE approvals SET decision = ?, always = ?, message = ?, who = ?, decided = {now}
 WHERE run = ? AND effect = ? AND decision = ''`, a.Decision, bit(a.Always), a.Message, a.Who, a.Run, a.Effect)
		if err != nil {
			return err
		}
		now, err := d.approval(ctx, on, a.Run, a.Effect)
		if err != nil {
			return err
		}
		won, *a = n > 0, *now
		return nil
	})
	return won && err == nil, err
}

func (d *db) Withdraw(ctx context.Context, run string, effect int64) error {
	_, err := d.exec(ctx, d.sql, "DELETE FROM approvals WHERE run = ? AND effect = ? AND decision = ''", run, effect)
	return err
}
