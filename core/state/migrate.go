// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/berth-dev/berth/sdk/errs"
)

//go:embed migrations
var migrationFiles embed.FS

// migration leads from the version before it to its own, and back.
type migration struct{ name, up, down string }

// migrations gives them in order; the first makes version 1.
func migrations() ([]migration, error) {
	files, err := fs.Glob(migrationFiles, "migrations/*.up.sql") // sorted
	if err != nil {
		return nil, err
	}
	var all []migration
	for i, f := range files {
		m := migration{name: strings.TrimSuffix(path.Base(f), ".up.sql")}
		if want := fmt.Sprintf("%04d_", i+1); !strings.HasPrefix(m.name, want) {
			return nil, fmt.Errorf("migration %s does not begin with %s", m.name, want)
		}
		up, uerr := migrationFiles.ReadFile(f)
		down, derr := migrationFiles.ReadFile("migrations/" + m.name + ".down.sql")
		if err := errors.Join(uerr, derr); err != nil {
			return nil, err
		}
		m.up, m.down = string(up), string(down)
		all = append(all, m)
	}
	return all, nil
}

// prepare brings the store to this program's schema and reads its id. It writes only where there is something to do.
func (d *db) prepare(ctx context.Context) error {
	known, err := migrations()
	if err != nil {
		return err
	}
	have, err := d.version(ctx, d.sql)
	if err != nil {
		return err
	}
	if have != len(known) {
		if err := d.migrate(ctx, len(known)); err != nil {
			return err
		}
	}
	return d.query(ctx, d.sql, func(scan func(...any) error) error { return scan(&d.id) },
		"SELECT value FROM berth_meta WHERE name = 'id'")
}

// version is that of the schema; 0 = there is none.
func (d *db) version(ctx context.Context, on querier) (int, error) {
	var tables, v int
	if err := on.QueryRowContext(ctx, d.dialect.hasMeta).Scan(&tables); err != nil || tables == 0 {
		return 0, d.wrap(err)
	}
	err := on.QueryRowContext(ctx, "SELECT CAST(value AS INTEGER) FROM berth_meta WHERE name = 'version'").Scan(&v)
	return v, d.wrap(err)
}

func (d *db) migrate(ctx context.Context, to int) error {
	known, err := migrations()
	if err != nil {
		return err
	}
	if to < 0 || to > len(known) {
		return fmt.Errorf("the schema of a state store has a version from 0 to %d, not %d", len(known), to)
	}
	have, err := d.version(ctx, d.sql)
	if err == nil {
		err = d.refuseNewer(have, len(known))
	}
	if err == nil && have == 0 {
		err = d.create(ctx)
	}
	if err != nil {
		return err
	}
	return d.tx(ctx, func(on querier) error {
		if d.dialect.lock != "" {
			if _, err := on.ExecContext(ctx, d.dialect.lock); err != nil {
				return d.wrap(err)
			}
		}
		have, err := d.version(ctx, on) // another process may have been first
		if err == nil {
			err = d.refuseNewer(have, len(known))
		}
		if err != nil {
			return err
		}
		if have == 0 && to > 0 {
			if err := d.makeMeta(ctx, on); err != nil {
				return err
			}
		}
		for ; have < to; have++ {
			if _, err := d.exec(ctx, on, known[have].up); err != nil {
				return fmt.Errorf("migration %s: %w", known[have].name, err)
			}
		}
		for ; have > to; have-- {
			if _, err := d.exec(ctx, on, known[have-1].down); err != nil {
				return fmt.Errorf("migration %s, backwards: %w", known[have-1].name, err)
			}
		}
		if to == 0 {
			_, err = d.exec(ctx, on, "DROP TABLE IF EXISTS berth_meta")
		} else {
			_, err = d.exec(ctx, on, "UPDATE berth_meta SET value = ? WHERE name = 'version'", fmt.Sprint(to))
		}
		return err
	})
}

func (d *db) refuseNewer(have, known int) error {
	if have <= known {
		return nil
	}
	return errs.New(errs.VersionMismatch, "the state store %s has schema %d, and this berth knows up to %d", d.where, have, known).
		WithHint("a newer berth has used it: use that one; nothing was changed")
}

// create does what comes before the first schema. Another process may do the same now.
func (d *db) create(ctx context.Context) error {
	if d.dialect.create == "" {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 15*time.Second, errors.New("other processes keep it busy"))
	defer cancel()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		_, err := d.sql.ExecContext(ctx, d.dialect.create)
		if err == nil || !d.dialect.busy(err) {
			return d.wrap(err)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", d.where, context.Cause(ctx))
		}
	}
}

func (d *db) makeMeta(ctx context.Context, on querier) error {
	if _, err := d.exec(ctx, on, "CREATE TABLE berth_meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)"); err != nil {
		return err
	}
	_, err := d.exec(ctx, on, "INSERT INTO berth_meta (name, value) VALUES ('version', '0'), ('id', ?)", strings.ToLower(rand.Text()))
	return err
}
