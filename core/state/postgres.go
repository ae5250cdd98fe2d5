// SPDX-License-Identifier: Apache-2.0

package state

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/berth-dev/berth/sdk/errs"
)

const uniqueViolation = "23505"

var postgresDialect = dialect{
	words:    strings.NewReplacer("{now}", "(EXTRACT(EPOCH FROM statement_timestamp()) * 1000)::BIGINT", "{blob}", "BYTEA"),
	numbered: true,
	hasMeta:  "SELECT COUNT(*) FROM pg_class WHERE oid = to_regclass('berth_meta')",
	lock:     "SELECT pg_advisory_xact_lock(7163384)", // any number that is always the same
	busy:     func(error) bool { return false },
	taken: func(err error) bool {
		e, ok := errors.AsType[*pgconn.PgError](err)
		return ok && e.Code == uniqueViolation
	},
}

func openPostgres(text string) (*db, error) {
	cfg, err := pgx.ParseConfig(text)
	if err != nil {
		// The library's message would show the text, perhaps with its password.
		return nil, errs.New(errs.ConfigInvalid, "the url of the state store is not one that PostgreSQL takes").
			WithHint("write postgres://USER:PASSWORD@HOST:PORT/DATABASE; what is special in USER or PASSWORD is percent-encoded")
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = 15 * time.Second
	}
	pool := stdlib.OpenDB(*cfg)
	pool.SetMaxOpenConns(4)
	pool.SetConnMaxIdleTime(time.Minute)
	at := net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port)))
	if strings.HasPrefix(cfg.Host, "/") {
		at = cfg.Host
	}
	return &db{sql: pool, dialect: postgresDialect, where: fmt.Sprintf("PostgreSQL database %q at %s", cfg.Database, at)}, nil
}
