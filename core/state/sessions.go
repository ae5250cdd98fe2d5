// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Status is how far a session is.
type Status string

// The states. A record is there before its sandbox is made, and until it is known to be gone.
const (
	Creating Status = "creating" // whether there is a sandbox is not known yet
	Live     Status = "live"     // it runs, or was left running
	Paused   Status = "paused"
	Stopped  Status = "stopped"
	Ending   Status = "ending" // it is being removed
	Lost     Status = "lost"   // its driver does not know it any more
	Gone     Status = "gone"
)

// Session is the record of a session.
type Session struct {
	ID      string // of the session and of its sandbox; a ULID
	Name    string // the key by which runs find it again; empty = none. One that is not gone has it for itself in a project
	Project string // directory; empty = none
	Sandbox string // label of the block; empty = the default one
	Driver  string // name of the driver
	Owner   string // user@host
	Host    string // name of the machine it was made on
	Run     string // that it was made for; empty = none

	Status   Status
	Reason   string    // why it is so, where there is something to say
	Created  time.Time // by the store
	Updated  time.Time // by the store
	Deadline time.Time // when the driver ends it; zero = not known
	State    []byte    // sealed: how to find the sandbox again, and what it was made with
	Lease    *Lease    // nil = nobody drives it
	Version  int64     // by the store
}

// SessionFilter chooses sessions. The zero value is all of them.
type SessionFilter struct {
	Project string   // empty = of any
	Status  []Status // nil = any
	Host    string   // empty = of any
}

// Sessions is the table of sessions.
type Sessions interface {
	// CreateSession adds a record, with its lease when it has one; [ErrExists] when the id or the name is taken.
	CreateSession(ctx context.Context, s *Session) error
	// Session reads one by its id.
	Session(ctx context.Context, id string) (*Session, error)
	// FindSession reads one by its id, the beginning of it, or its name. What is gone is found by its id only.
	FindSession(ctx context.Context, project, text string) (*Session, error)
	// NamedSession reads the one that has a name in a project and is not gone.
	NamedSession(ctx context.Context, project, name string) (*Session, error)
	// ListSessions reads them, the oldest first.
	ListSessions(ctx context.Context, f SessionFilter) ([]*Session, error)
	// UpdateSession writes what was read before, but for its lease, of several all or none; [ErrChanged] when somebody else
	// was first.
	UpdateSession(ctx context.Context, all ...*Session) error
	// DeleteSession removes a record.
	DeleteSession(ctx context.Context, id string) error
	// PruneSessions removes the records of those that are gone for longer than this, and says how many.
	PruneSessions(ctx context.Context, older time.Duration) (int, error)

	// LeaseSession takes the lease of a session, writes it into s and rereads the rest; *[HeldError] when somebody has
	// it. Over is a lease that may be taken over all the same, as it was read; nil = none.
	LeaseSession(ctx context.Context, s *Session, l Lease, over *Lease) error
	// RenewSession holds a lease for longer; [ErrChanged] when it was lost.
	RenewSession(ctx context.Context, id string, l Lease) error
	// ReleaseSession gives a lease back. One that was lost is no error.
	ReleaseSession(ctx context.Context, id, token string) error
}

// AmbiguousError says that the beginning of an id fits several.
type AmbiguousError struct {
	Text string
	IDs  []string
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("%q is the beginning of %d sessions: %s", e.Text, len(e.IDs), strings.Join(e.IDs, ", "))
}

const sessionColumns = `id, name, project, sandbox, driver, owner, host, run, status, reason, created, updated, deadline,
 lease_token, lease_by, lease_until, lease_until < {now}, state, version`

func scanSession(scan func(...any) error) (*Session, error) {
	var s Session
	var l Lease
	var created, updated, deadline, until int64
	var by string
	err := scan(&s.ID, &s.Name, &s.Project, &s.Sandbox, &s.Driver, &s.Owner, &s.Host, &s.Run, &s.Status, &s.Reason,
		&created, &updated, &deadline, &l.Token, &by, &until, &l.Expired, &s.State, &s.Version)
	if err != nil {
		return nil, err
	}
	s.Created, s.Updated, s.Deadline = fromMillis(created), fromMillis(updated), fromMillis(deadline)
	if l.Token != "" {
		if err := json.Unmarshal([]byte(by), &l.By); err != nil {
			return nil, fmt.Errorf("the lease of session %s: %w", s.ID, err)
		}
		l.Until = fromMillis(until)
		s.Lease = &l
	}
	return &s, nil
}

func (d *db) sessions(ctx context.Context, on querier, rest string, args ...any) ([]*Session, error) {
	var all []*Session
	err := d.query(ctx, on, func(scan func(...any) error) error {
		s, err := scanSession(scan)
		all = append(all, s)
		return err
	}, "SELECT "+sessionColumns+" FROM sessions "+rest, args...)
	if err != nil {
		return nil, err
	}
	return all, nil
}

func (d *db) session(ctx context.Context, on querier, rest string, args ...any) (*Session, error) {
	all, err := d.sessions(ctx, on, rest, args...)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, ErrUnknown
	}
	return all[0], nil
}

func (d *db) CreateSession(ctx context.Context, s *Session) error {
	var l Lease
	if s.Lease != nil {
		l = *s.Lease
	}
	by, err := json.Marshal(l.By)
	if err != nil {
		return err
	}
	return d.tx(ctx, func(on querier) error {
		_, err := d.exec(ctx, on, `INSERT INTO sessions (id, name, project, sandbox, driver, owner, host, run, status, reason, created,
 updated, deadline, lease_token, lease_by, lease_until, state, version)
 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, {now}, {now}, ?, ?, ?, {now} + ?, ?, 1)`,
			s.ID, s.Name, s.Project, s.Sandbox, s.Driver, s.Owner, s.Host, s.Run, string(s.Status), s.Reason, millis(s.Deadline),
			l.Token, string(by), l.TTL.Milliseconds(), s.State)
		if err != nil {
			return err
		}
		return d.reread(ctx, on, s)
	})
}

// reread brings a record to what the store has.
func (d *db) reread(ctx context.Context, on querier, s *Session) error {
	now, err := d.session(ctx, on, "WHERE id = ?", s.ID)
	if err == nil {
		*s = *now
	}
	return err
}

func (d *db) Session(ctx context.Context, id string) (*Session, error) {
	return d.session(ctx, d.sql, "WHERE id = ?", id)
}

func (d *db) NamedSession(ctx context.Context, project, name string) (*Session, error) {
	return d.session(ctx, d.sql, "WHERE project = ? AND name = ? AND name <> '' AND status <> 'gone'", project, name)
}

func (d *db) FindSession(ctx context.Context, project, text string) (*Session, error) {
	if s, err := d.NamedSession(ctx, project, text); !errors.Is(err, ErrUnknown) {
		return s, err
	}
	if s, err := d.Session(ctx, text); !errors.Is(err, ErrUnknown) {
		return s, err
	}
	if text == "" {
		return nil, ErrUnknown
	}
	// SUBSTR compares without the wildcards of LIKE.
	all, err := d.sessions(ctx, d.sql, "WHERE LOWER(SUBSTR(id, 1, ?)) = LOWER(?) AND status <> 'gone' ORDER BY id LIMIT 10",
		utf8.RuneCountInString(text), text)
	switch {
	case err != nil:
		return nil, err
	case len(all) == 0:
		return nil, ErrUnknown
	case len(all) > 1:
		amb := &AmbiguousError{Text: text}
		for _, s := range all {
			amb.IDs = append(amb.IDs, s.ID)
		}
		return nil, amb
	}
	return all[0], nil
}

func (d *db) ListSessions(ctx context.Context, f SessionFilter) ([]*Session, error) {
	where, args := "WHERE 1 = 1", []any{}
	if f.Project != "" {
		where, args = where+" AND project = ?", append(args, f.Project)
	}
	if f.Host != "" {
		where, args = where+" AND host = ?", append(args, f.Host)
	}
	if f.Status != nil {
		marks := make([]string, len(f.Status))
		for i, s := range f.Status {
			marks[i], args = "?", append(args, string(s))
		}
		where += " AND status IN (" + strings.Join(marks, ", ") + ")"
	}
	return d.sessions(ctx, d.sql, where+" ORDER BY created, id", args...)
}

func (d *db) UpdateSession(ctx context.Context, all ...*Session) error {
	return d.tx(ctx, func(on querier) error {
		for _, s := range all {
			n, err := d.exec(ctx, on, `UPDATE sessions SET name = ?, run = ?, status = ?, reason = ?, deadline = ?, state = ?,
 updated = {now}, version = version + 1 WHERE id = ? AND version = ?`,
				s.Name, s.Run, string(s.Status), s.Reason, millis(s.Deadline), s.State, s.ID, s.Version)
			if err != nil {
				return err
			}
			if n == 0 {
				return d.changed(ctx, on, s.ID)
			}
		}
		for _, s := range all {
			if err := d.reread(ctx, on, s); err != nil {
				return err
			}
		}
		return nil
	})
}

// changed says why a record was not there as it was expected.
func (d *db) changed(ctx context.Context, on querier, id string) error {
	if _, err := d.session(ctx, on, "WHERE id = ?", id); err != nil {
		return err
	}
	return ErrChanged
}

func (d *db) DeleteSession(ctx context.Context, id string) error {
	n, err := d.exec(ctx, d.sql, "DELETE FROM sessions WHERE id = ?", id)
	if err == nil && n == 0 {
		return ErrUnknown
	}
	return err
}

func (d *db) PruneSessions(ctx context.Context, older time.Duration) (int, error) {
	n, err := d.exec(ctx, d.sql, "DELETE FROM sessions WHERE status = 'gone' AND updated <= {now} - ?", older.Milliseconds())
	return int(n), err
}
