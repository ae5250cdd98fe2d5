CREATE TABLE conversation_turns (
  project      TEXT NOT NULL,
  conversation TEXT NOT NULL,
  run          TEXT NOT NULL,
  seq          BIGINT NOT NULL,
  follows      BIGINT NOT NULL,
  skip         BIGINT NOT NULL,
  whole        BIGINT NOT NULL,
  items        {blob},
  created      BIGINT NOT NULL,
  saved        BIGINT NOT NULL,
  PRIMARY KEY (project, conversation, run)
);
CREATE UNIQUE INDEX conversation_turns_order ON conversation_turns (project, conversation, seq) WHERE seq > 0;
