CREATE TABLE runs (
  id       TEXT PRIMARY KEY,
  project  TEXT NOT NULL,
  agent    TEXT NOT NULL,
  status   TEXT NOT NULL,
  turns    BIGINT NOT NULL,
  usage    TEXT NOT NULL,
  owner    TEXT NOT NULL,
  host     TEXT NOT NULL,
  place    TEXT NOT NULL,
  holder   TEXT NOT NULL,
  started  BIGINT NOT NULL,
  updated  BIGINT NOT NULL,
  ended    BIGINT NOT NULL,
  kept     {blob},
  version  BIGINT NOT NULL
);
CREATE INDEX runs_started ON runs (started, id);
CREATE TABLE approvals (
  run       TEXT NOT NULL,
  effect    BIGINT NOT NULL,
  root      TEXT NOT NULL,
  call_id   TEXT NOT NULL,
  agent     TEXT NOT NULL,
  tool      TEXT NOT NULL,
  arguments TEXT NOT NULL,
  reason    TEXT NOT NULL,
  covers    TEXT NOT NULL,
  unsure    BIGINT NOT NULL,
  asked     BIGINT NOT NULL,
  decision  TEXT NOT NULL,
  always    BIGINT NOT NULL,
  message   TEXT NOT NULL,
  who       TEXT NOT NULL,
  decided   BIGINT NOT NULL,
  PRIMARY KEY (run, effect)
);
CREATE INDEX approvals_root ON approvals (root, decision);
