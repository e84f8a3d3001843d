CREATE TABLE answers (
  owner TEXT NOT NULL,
  "key" TEXT NOT NULL,
  at REAL NOT NULL,
  fingerprint TEXT NOT NULL,
  status INTEGER NOT NULL,
  kind TEXT NOT NULL,
  body BLOB NOT NULL,
  PRIMARY KEY (owner, "key")
)
 STRICT;

CREATE INDEX answers_by_age ON answers (at);

CREATE TABLE audit (
  id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
  at REAL NOT NULL,
  actor TEXT NOT NULL,
  token_id TEXT NOT NULL,
  project TEXT NOT NULL,
  action TEXT NOT NULL,
  target TEXT NOT NULL,
  detail TEXT NOT NULL
)
 STRICT;

CREATE INDEX audit_of_project ON audit (project, id);

CREATE TABLE gateways (
  id TEXT NOT NULL,
  expires_at REAL NOT NULL,
  PRIMARY KEY (id)
)
 STRICT;

CREATE TABLE limits (
  provider TEXT NOT NULL,
  model TEXT NOT NULL,
  size REAL NOT NULL,
  slow_start INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  closed_until REAL NOT NULL,
  PRIMARY KEY (provider, model)
)
 STRICT;

CREATE TABLE projects (
  id TEXT NOT NULL,
  title TEXT NOT NULL,
  created_at REAL NOT NULL,
  max_runs INTEGER,
  day_usd REAL,
  keep_days INTEGER,
  PRIMARY KEY (id)
)
 STRICT;

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

CREATE TABLE shared_layers (
  "key" TEXT NOT NULL,
  platform TEXT NOT NULL,
  content TEXT NOT NULL,
  digest TEXT NOT NULL,
  size_bytes INTEGER NOT NULL,
  used_at REAL NOT NULL,
  PRIMARY KEY ("key", platform)
)
 STRICT;

CREATE TABLE users (
  id TEXT NOT NULL,
  created_at REAL NOT NULL,
  disabled INTEGER DEFAULT 0 NOT NULL,
  PRIMARY KEY (id)
)
 STRICT;

CREATE TABLE workers (
  name TEXT NOT NULL,
  host TEXT NOT NULL,
  version TEXT NOT NULL,
  parallel INTEGER NOT NULL,
  running INTEGER NOT NULL,
  cpus REAL NOT NULL,
  memory_mb INTEGER NOT NULL,
  backends TEXT NOT NULL,
  labels TEXT NOT NULL,
  run TEXT NOT NULL,
  draining INTEGER NOT NULL,
  since REAL NOT NULL,
  seen_at REAL NOT NULL,
  place TEXT DEFAULT '' NOT NULL,
  left_runs TEXT DEFAULT '{}' NOT NULL,
  PRIMARY KEY (name)
)
 STRICT;

CREATE INDEX workers_by_place ON workers (place);

CREATE INDEX workers_by_sight ON workers (seen_at);

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

CREATE TABLE limit_shares (
  provider TEXT NOT NULL,
  model TEXT NOT NULL,
  holder TEXT NOT NULL,
  share INTEGER NOT NULL,
  wanted TEXT NOT NULL,
  served_at REAL NOT NULL,
  PRIMARY KEY (provider, model, holder),
  FOREIGN KEY(holder) REFERENCES gateways (id) ON DELETE CASCADE
)
 STRICT;

CREATE INDEX limit_shares_of_holder ON limit_shares (holder);

CREATE TABLE members (
  project TEXT NOT NULL,
  user_id TEXT NOT NULL,
  PRIMARY KEY (project, user_id),
  FOREIGN KEY(project) REFERENCES projects (id) ON DELETE CASCADE,
  FOREIGN KEY(user_id) REFERENCES users (id) ON DELETE CASCADE
)
 STRICT;

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
  waited_s REAL,
  first_token_s REAL,
  worked_s REAL,
  retries INTEGER,
  status INTEGER,
  holder TEXT,
  scopes TEXT,
  PRIMARY KEY (id),
  FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE,
  FOREIGN KEY(holder) REFERENCES gateways (id)
)
 STRICT;

CREATE INDEX model_calls_of_run ON model_calls (run_id, idx, number);

CREATE INDEX model_calls_open ON model_calls (holder) WHERE holder IS NOT NULL;

CREATE TABLE portions (
  scope TEXT NOT NULL,
  name TEXT NOT NULL,
  holder TEXT NOT NULL,
  requests INTEGER NOT NULL,
  tokens INTEGER NOT NULL,
  nano_usd INTEGER NOT NULL,
  PRIMARY KEY (scope, name, holder),
  FOREIGN KEY(holder) REFERENCES gateways (id) ON DELETE CASCADE
)
 STRICT;

CREATE INDEX portions_of_holder ON portions (holder);

CREATE TABLE provider_keys (
  project TEXT NOT NULL,
  name TEXT NOT NULL,
  value BLOB NOT NULL,
  hint TEXT NOT NULL,
  updated_at REAL NOT NULL,
  updated_by TEXT NOT NULL,
  PRIMARY KEY (project, name),
  FOREIGN KEY(project) REFERENCES projects (id) ON DELETE CASCADE
)
 STRICT;

CREATE TABLE run_counts (
  run_id TEXT NOT NULL,
  state TEXT NOT NULL,
  outcome TEXT NOT NULL,
  shard INTEGER DEFAULT 0 NOT NULL,
  trials INTEGER NOT NULL,
  attempts INTEGER DEFAULT 0 NOT NULL,
  seconds REAL DEFAULT 0 NOT NULL,
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

CREATE TABLE run_service (
  run_id TEXT NOT NULL,
  project TEXT NOT NULL,
  owner TEXT NOT NULL,
  wanted INTEGER NOT NULL,
  priority INTEGER DEFAULT 0 NOT NULL,
  queued_at REAL NOT NULL,
  parallel INTEGER,
  failure TEXT DEFAULT '' NOT NULL,
  source TEXT DEFAULT '' NOT NULL,
  PRIMARY KEY (run_id),
  FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE,
  FOREIGN KEY(project) REFERENCES projects (id) ON DELETE CASCADE
)
 STRICT;

CREATE INDEX run_service_of_project ON run_service (project, run_id);

CREATE INDEX run_service_wanted ON run_service (queued_at) WHERE wanted = 1;

CREATE TABLE schedules (
  id TEXT NOT NULL,
  project TEXT NOT NULL,
  owner TEXT NOT NULL,
  name TEXT NOT NULL,
  created_at REAL NOT NULL,
  cron TEXT NOT NULL,
  zone TEXT NOT NULL,
  body TEXT NOT NULL,
  enabled INTEGER NOT NULL,
  next_at REAL,
  last_at REAL,
  last_run TEXT,
  last_error TEXT DEFAULT '' NOT NULL,
  missed INTEGER DEFAULT 0 NOT NULL,
  PRIMARY KEY (id),
  FOREIGN KEY(project) REFERENCES projects (id) ON DELETE CASCADE
)
 STRICT;

CREATE INDEX schedules_by_time ON schedules (enabled, next_at);

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

CREATE TABLE tokens (
  id TEXT NOT NULL,
  hash TEXT NOT NULL,
  name TEXT NOT NULL,
  user_id TEXT NOT NULL,
  project TEXT,
  scopes TEXT NOT NULL,
  created_at REAL NOT NULL,
  expires_at REAL,
  revoked_at REAL,
  used_at REAL,
  PRIMARY KEY (id),
  CONSTRAINT one_token_per_hash UNIQUE (hash),
  FOREIGN KEY(user_id) REFERENCES users (id) ON DELETE CASCADE,
  FOREIGN KEY(project) REFERENCES projects (id) ON DELETE CASCADE
)
 STRICT;

CREATE TABLE trial_comments (
  id TEXT NOT NULL,
  run_id TEXT NOT NULL,
  idx INTEGER NOT NULL,
  author TEXT NOT NULL,
  at REAL NOT NULL,
  body TEXT NOT NULL,
  PRIMARY KEY (id),
  FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
)
 STRICT;

CREATE INDEX trial_comments_of_trial ON trial_comments (run_id, idx, at);

CREATE TABLE trial_labels (
  run_id TEXT NOT NULL,
  idx INTEGER NOT NULL,
  label TEXT NOT NULL,
  author TEXT NOT NULL,
  at REAL NOT NULL,
  PRIMARY KEY (run_id, idx, label),
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
  cpus REAL DEFAULT 0 NOT NULL,
  labels TEXT DEFAULT '' NOT NULL,
  PRIMARY KEY (run_id, idx),
  CONSTRAINT one_trial_per_key UNIQUE (run_id, "key"),
  CONSTRAINT known_state CHECK (state IN ('pending', 'leased', 'running', 'done', 'cancelled')),
  CONSTRAINT lease_only_when_held CHECK ((state IN ('leased', 'running')) = (expires_at IS NOT NULL)),
  FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
)
 STRICT;

CREATE INDEX trials_leased ON trials (run_id, expires_at) WHERE expires_at IS NOT NULL;

CREATE INDEX trials_pending ON trials (run_id, idx) WHERE state = 'pending';

CREATE TABLE uploads (
  id TEXT NOT NULL,
  project TEXT NOT NULL,
  owner TEXT NOT NULL,
  created_at REAL NOT NULL,
  name TEXT NOT NULL,
  description TEXT NOT NULL,
  filename TEXT NOT NULL,
  size_bytes INTEGER NOT NULL,
  blob TEXT NOT NULL,
  digest TEXT NOT NULL,
  subject TEXT NOT NULL,
  findings TEXT NOT NULL,
  agent TEXT NOT NULL,
  model TEXT NOT NULL,
  num_runs INTEGER NOT NULL,
  run_id TEXT,
  check_id TEXT,
  PRIMARY KEY (id),
  FOREIGN KEY(project) REFERENCES projects (id) ON DELETE CASCADE,
  FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE SET NULL,
  FOREIGN KEY(check_id) REFERENCES runs (id) ON DELETE SET NULL
)
 STRICT;

CREATE INDEX uploads_by_digest ON uploads (project, digest);

CREATE INDEX uploads_by_run ON uploads (run_id);

CREATE INDEX uploads_of_project ON uploads (project, created_at, id);

CREATE TABLE webhooks (
  id TEXT NOT NULL,
  project TEXT NOT NULL,
  owner TEXT NOT NULL,
  created_at REAL NOT NULL,
  kind TEXT NOT NULL,
  url TEXT NOT NULL,
  events TEXT NOT NULL,
  secret BLOB NOT NULL,
  enabled INTEGER NOT NULL,
  "after" INTEGER DEFAULT 0 NOT NULL,
  last_at REAL,
  last_status TEXT DEFAULT '' NOT NULL,
  PRIMARY KEY (id),
  FOREIGN KEY(project) REFERENCES projects (id) ON DELETE CASCADE
)
 STRICT;

CREATE TABLE sessions (
  hash TEXT NOT NULL,
  token_id TEXT NOT NULL,
  created_at REAL NOT NULL,
  expires_at REAL NOT NULL,
  PRIMARY KEY (hash),
  FOREIGN KEY(token_id) REFERENCES tokens (id) ON DELETE CASCADE
)
 STRICT;

INSERT INTO projects (id, title, created_at) VALUES ('default', 'Default', 0);

CREATE TABLE proctor_schema (version_num VARCHAR(32) NOT NULL PRIMARY KEY);

INSERT INTO proctor_schema VALUES ('0013');

