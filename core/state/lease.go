// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"
)

// Lease is the right to drive something, for some time.
type Lease struct {
	Token   string // of this holder alone
	By      Holder
	TTL     time.Duration // how long it holds when it is taken or renewed
	Until   time.Time     // by the store
	Expired bool          // by the store: its time was over when it was read
}

// LeaseTTL is how long a lease holds. Holders renew theirs several times within it.
const LeaseTTL = time.Minute

// NewLease makes a lease for this process. What says what it does, such as "berth run 01ab".
func NewLease(what string) Lease { return Lease{Token: rand.Text(), By: Here(what), TTL: LeaseTTL} }

// HeldError says who has a lease that somebody else wants.
type HeldError struct {
	ID    string // of the record
	Lease Lease
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("session %s is in use by %s", e.ID, e.Lease.By)
}

func (d *db) LeaseSession(ctx context.Context, s *Session, l Lease, over *Lease) error {
	by, err := json.Marshal(l.By)
	if err != nil {
		return err
	}
	// A lease that was renewed since it was read is not the one that may be taken over.
	var was Lease
	if over != nil {
		was = *over
	}
	return d.tx(ctx, func(on querier) error {
		n, err := d.exec(ctx, on, `UPDATE sessions SET lease_token = ?, lease_by = ?, lease_until = {now} + ?, updated = {now},
 version = version + 1 WHERE id = ? AND (lease_token = '' OR (lease_token = ? AND lease_until = ?))`,
			l.Token, string(by), l.TTL.Milliseconds(), s.ID, was.Token, millis(was.Until))
		if err != nil {
			return err
		}
		if n == 0 {
			held, err := d.session(ctx, on, "WHERE id = ?", s.ID)
			if err != nil {
				return err
			}
			return &HeldError{ID: s.ID, Lease: *held.Lease}
		}
		return d.reread(ctx, on, s)
	})
}

func (d *db) RenewSession(ctx context.Context, id string, l Lease) error {
	n, err := d.exec(ctx, d.sql, "UPDATE sessions SET lease_until = {now} + ? WHERE id = ? AND lease_token = ?",
		l.TTL.Milliseconds(), id, l.Token)
	if err == nil && n == 0 {
		return d.changed(ctx, d.sql, id)
	}
	return err
}

func (d *db) ReleaseSession(ctx context.Context, id, token string) error {
	_, err := d.exec(ctx, d.sql, "UPDATE sessions SET lease_token = '', lease_by = '', lease_until = 0 WHERE id = ? AND lease_token = ?", id, token)
	return err
}
