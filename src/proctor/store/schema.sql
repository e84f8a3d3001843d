CREATE TABLE runs (
  id TEXT NOT NULL,
  created_at REAL NOT NULL,
  name TEXT NOT NULL,
  kind TEXT NOT NULL,
  status TEXT NOT NULL,
  started_at REAL,
  finished_at REAL,
  total INTEGER NOT NULL,
  folder TEXT NOT NULL,
  head TEXT NOT NULL,
  detail BLOB NOT NULL,
  PRIMARY KEY (id)
)
 STRICT;

CREATE INDEX runs_by_age ON runs (created_at, id);

CREATE INDEX runs_by_name ON runs (name, created_at);

CREATE INDEX runs_by_status ON runs (status, created_at);

CREATE TABLE attempts (
  run_id TEXT NOT NULL,
  idx INTEGER NOT NULL,
  number INTEGER NOT NULL,
  subject TEXT NOT NULL,
  outcome TEXT NOT NULL,
  counts INTEGER NOT NULL,
  started_at REAL NOT NULL,
  ended_at REAL NOT NULL,
  reward REAL,
  worker TEXT NOT NULL,
  record BLOB NOT NULL,
  work_s REAL,
  PRIMARY KEY (run_id, idx, number),
  FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
)
 STRICT;

CREATE INDEX attempts_by_subject ON attempts (subject, ended_at) WHERE counts = 1;

CREATE UNIQUE INDEX attempts_that_count ON attempts (run_id, idx) WHERE counts = 1;

CREATE TABLE blob_refs (
  run_id TEXT NOT NULL,
  digest TEXT NOT NULL,
  size_bytes INTEGER NOT NULL,
  PRIMARY KEY (run_id, digest),
  FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
)
 STRICT;

CREATE INDEX blob_refs_by_digest ON blob_refs (digest);

CREATE TABLE coordinators (
  run_id TEXT NOT NULL,
  holder TEXT NOT NULL,
  fence INTEGER NOT NULL,
  expires_at REAL NOT NULL,
  PRIMARY KEY (run_id),
  FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
)
 STRICT;

CREATE TABLE events (
  id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
  run_id TEXT NOT NULL,
  at REAL NOT NULL,
  kind TEXT NOT NULL,
  idx INTEGER,
  data TEXT NOT NULL,
  FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
)
 STRICT;

CREATE INDEX events_of_run ON events (run_id, id);

CREATE TABLE model_calls (
  id TEXT NOT NULL,
  run_id TEXT NOT NULL,
  idx INTEGER NOT NULL,
  number INTEGER NOT NULL,
  at REAL NOT NULL,
  model TEXT NOT NULL,
  held_tokens INTEGER NOT NULL,
  held_nano_usd INTEGER,
  settled INTEGER NOT NULL,
  prompt_tokens INTEGER,
  completion_tokens INTEGER,
  cached_tokens INTEGER,
  cache_write_tokens INTEGER,
  reasoning_tokens INTEGER,
  nano_usd INTEGER,
  PRIMARY KEY (id),
  FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
)
 STRICT;

CREATE INDEX model_calls_of_run ON model_calls (run_id, idx, number);

CREATE TABLE run_counts (
  run_id TEXT NOT NULL,
  state TEXT NOT NULL,
  outcome TEXT NOT NULL,
  shard INTEGER DEFAULT 0 NOT NULL,
  trials INTEGER NOT NULL,
  PRIMARY KEY (run_id, state, outcome, shard),
  FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
)
 STRICT;

CREATE TABLE run_inputs (
  run_id TEXT NOT NULL,
  name TEXT NOT NULL,
  digest TEXT NOT NULL,
  size_bytes INTEGER NOT NULL,
  place TEXT NOT NULL,
  PRIMARY KEY (run_id, name),
  FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
)
 STRICT;

CREATE INDEX run_inputs_by_name ON run_inputs (name);

CREATE TABLE spending (
  scope TEXT NOT NULL,
  name TEXT NOT NULL,
  run_id TEXT,
  requests INTEGER NOT NULL,
  tokens INTEGER NOT NULL,
  nano_usd INTEGER NOT NULL,
  held_tokens INTEGER NOT NULL,
  held_nano_usd INTEGER NOT NULL,
  PRIMARY KEY (scope, name),
  FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
)
 STRICT;

CREATE TABLE trials (
  run_id TEXT NOT NULL,
  idx INTEGER NOT NULL,
  "key" TEXT NOT NULL,
  kind TEXT NOT NULL,
  subject TEXT NOT NULL,
  subject_digest TEXT NOT NULL,
  body INTEGER NOT NULL,
  agent TEXT,
  agent_version TEXT,
  model TEXT,
  rollout INTEGER NOT NULL,
  doc TEXT NOT NULL,
  state TEXT NOT NULL,
  fence INTEGER NOT NULL,
  attempts INTEGER NOT NULL,
  ready_at REAL NOT NULL,
  worker TEXT,
  expires_at REAL,
  started_at REAL,
  outcome TEXT,
  backend TEXT DEFAULT '' NOT NULL,
  memory_mb INTEGER DEFAULT 0 NOT NULL,
  PRIMARY KEY (run_id, idx),
  CONSTRAINT one_trial_per_key UNIQUE (run_id, "key"),
  CONSTRAINT known_state CHECK (state IN ('pending', 'leased', 'running', 'done', 'cancelled')),
  CONSTRAINT lease_only_when_held CHECK ((state IN ('leased', 'running')) = (expires_at IS NOT NULL)),
  FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
)
 STRICT;

CREATE INDEX trials_leased ON trials (run_id, expires_at) WHERE expires_at IS NOT NULL;

CREATE INDEX trials_pending ON trials (run_id, idx) WHERE state = 'pending';

CREATE TABLE proctor_schema (version_num VARCHAR(32) NOT NULL PRIMARY KEY);

INSERT INTO proctor_schema VALUES ('0006');

