// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"errors"
)

// Store remembers what outlives a process. It may be used from several goroutines.
type Store interface {
	// ID is the store's own, made with it. What is made outside carries it, so that it can be found again.
	ID() string
	// Where says which store it is, without a secret.
	Where() string
	Sessions
	Conversations
	Runs
	Approvals
	Close() error
}

// Config says which store is wanted.
type Config struct {
	// URL is of a PostgreSQL database, with all that pgx takes; it may hold a password and is never shown.
	URL string
	// Path is of a SQLite file, where there is no URL. The file and its directory are made.
	Path string
}

// The failures that callers tell apart; see also [HeldError] and [AmbiguousError].
var (
	// ErrUnknown: there is no such record.
	ErrUnknown = errors.New("there is no such record")
	// ErrExists: the id or the name is taken.
	ErrExists = errors.New("there is such a record already")
	// ErrChanged: somebody has changed the record, or taken its lease, since it was read.
	ErrChanged = errors.New("the record was changed by somebody else")
)

// Open opens a store, makes it when it is not there, and brings it to this program's schema.
func Open(ctx context.Context, cfg Config) (Store, error) {
	d, err := open(cfg)
	if err != nil {
		return nil, err
	}
	if err := d.prepare(ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// Migrate brings a store to the schema of a version, up or down; 0 removes everything. It is for whoever goes back to an
// older berth, which refuses a newer schema.
func Migrate(ctx context.Context, cfg Config, version int) error {
	d, err := open(cfg)
	if err != nil {
		return err
	}
	return errors.Join(d.migrate(ctx, version), d.Close())
}

func open(cfg Config) (*db, error) {
	if cfg.URL != "" {
		return openPostgres(cfg.URL)
	}
	return openSQLite(cfg.Path)
}
