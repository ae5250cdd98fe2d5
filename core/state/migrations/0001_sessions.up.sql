CREATE TABLE sessions (
  id          TEXT PRIMARY KEY,
  name        TEXT NOT NULL,
  project     TEXT NOT NULL,
  sandbox     TEXT NOT NULL,
  driver      TEXT NOT NULL,
  owner       TEXT NOT NULL,
  host        TEXT NOT NULL,
  run         TEXT NOT NULL,
  status      TEXT NOT NULL,
  reason      TEXT NOT NULL,
  created     BIGINT NOT NULL,
  updated     BIGINT NOT NULL,
  deadline    BIGINT NOT NULL,
  lease_token TEXT NOT NULL,
  lease_by    TEXT NOT NULL,
  lease_until BIGINT NOT NULL,
  state       {blob},
  version     BIGINT NOT NULL
);
CREATE UNIQUE INDEX sessions_name ON sessions (project, name) WHERE name <> '' AND status <> 'gone';
CREATE INDEX sessions_status ON sessions (status, updated);
