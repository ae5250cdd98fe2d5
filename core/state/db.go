// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// db is a [Store] in a database.
type db struct {
	sql     *sql.DB
	dialect dialect
	where   string
	id      string
}

// dialect is what the backends do differently.
type dialect struct {
	words    *strings.Replacer // for {now} and {blob}
	numbered bool              // placeholders are $1, $2, …
	hasMeta  string            // tells whether there is the table meta
	lock     string            // within a transaction, keeps others from migrating; empty = a transaction does it itself
	create   string            // when there is no schema yet, outside a transaction; empty = nothing
	busy     func(error) bool  // try again
	taken    func(error) bool  // a unique index says no
}

func (d *db) ID() string    { return d.id }
func (d *db) Where() string { return d.where }

func (d *db) Close() error { return d.sql.Close() }

// text is a statement as the backend wants it.
func (d *db) text(q string) string {
	q = d.dialect.words.Replace(q)
	if !d.dialect.numbered {
		return q
	}
	var out strings.Builder
	for n := 1; ; n++ {
		before, after, found := strings.Cut(q, "?")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		out.WriteString("$" + strconv.Itoa(n))
		q = after
	}
}

// querier is a database or a transaction.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// exec changes records and says how many.
func (d *db) exec(ctx context.Context, on querier, q string, args ...any) (int64, error) {
	res, err := on.ExecContext(ctx, d.text(q), args...)
	if err != nil {
		return 0, d.wrap(err)
	}
	n, err := res.RowsAffected()
	return n, d.wrap(err)
}

// query reads records; row is called for each.
func (d *db) query(ctx context.Context, on querier, row func(scan func(...any) error) error, q string, args ...any) error {
	rows, err := on.QueryContext(ctx, d.text(q), args...)
	if err != nil {
		return d.wrap(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return d.wrap(err)
		}
	}
	return d.wrap(rows.Err())
}

// tx does all of f or nothing. Within it, f uses nothing but what it is given.
func (d *db) tx(ctx context.Context, f func(on querier) error) error {
	tx, err := d.sql.BeginTx(ctx, nil)
	if err != nil {
		return d.wrap(err)
	}
	if err := f(tx); err != nil {
		if rerr := tx.Rollback(); rerr != nil && !errors.Is(rerr, sql.ErrTxDone) {
			return errors.Join(err, d.wrap(rerr))
		}
		return err
	}
	return d.wrap(tx.Commit())
}

func (d *db) wrap(err error) error {
	switch {
	case err == nil:
		return nil
	case d.dialect.taken(err):
		return fmt.Errorf("%s: %w", d.where, ErrExists)
	default:
		return fmt.Errorf("%s: %w", d.where, err)
	}
}

// millis is a time as the tables have it.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func fromMillis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
