// SPDX-License-Identifier: Apache-2.0

package state

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

var sqliteDialect = dialect{
	words:   strings.NewReplacer("{now}", "CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)", "{blob}", "BLOB"),
	hasMeta: "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = 'berth_meta'",
	// Readers and a writer work at once, and the file stays so. Outside a transaction, the busy timeout does not count.
	create: "PRAGMA journal_mode = WAL",
	busy:   func(err error) bool { return sqliteCode(err) == sqlite3.SQLITE_BUSY },
	taken: func(err error) bool {
		c := sqliteFull(err)
		return c == sqlite3.SQLITE_CONSTRAINT_UNIQUE || c == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY
	},
}

func sqliteFull(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code()
	}
	return 0
}

func sqliteCode(err error) int { return sqliteFull(err) & 0xff }

// openSQLite opens a file, which nobody else may read, and makes it when it is not there.
func openSQLite(path string) (*db, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("the state store needs an absolute path, not %q", path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("the state store: %w", err)
	}
	// SQLite would make it readable for others; the files beside it get its mode.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the state store: %w", err)
	}
	if err := f.Close(); err != nil {
		return nil, fmt.Errorf("the state store: %w", err)
	}
	// A transaction begins as a writer: one that became it later could fail in spite of the busy timeout.
	query := url.Values{"_txlock": {"immediate"}, "_pragma": {"busy_timeout(15000)", "synchronous(FULL)", "foreign_keys(1)"}}
	name := url.URL{Scheme: "file", Path: path, RawQuery: query.Encode()}
	pool, err := sql.Open("sqlite", name.String())
	if err != nil {
		return nil, fmt.Errorf("the state store %s: %w", path, err)
	}
	pool.SetMaxOpenConns(4)
	return &db{sql: pool, dialect: sqliteDialect, where: path}, nil
}
