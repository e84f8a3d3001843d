"""Every statement that the store runs, in the SQL that SQLite and PostgreSQL share.

Where they differ stands a word in braces, for which each back end has its own (`database.Wording`): `{now}`
is the database's clock; `{row_lock}` locks the rows that are about to change and skips those that another
transaction has, `{wait_lock}` waits for them, `{place_lock}` makes workers that share memory wait for each
other, and in SQLite, with one writer at a time, all three are nothing;
`{event_id}` and `{settled}` are the ids of events, and which of them may be read already. On the path of
every trial no statement has RETURNING: in SQLite it costs as much again as the change itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proctor.model.outcome import Outcome

RUN_COLUMNS = "id, created_at, name, kind, status, started_at, finished_at, total, head"
TRIAL_COLUMNS = (
    "t.idx, t.key, t.kind, t.subject, t.subject_digest, t.body, "
    "t.agent, t.agent_version, t.model, t.rollout, t.doc"
)
TRIAL_WIDTH = 11
BRIEF_COLUMNS = "a.number, a.outcome, a.counts, a.started_at, a.ended_at, a.reward, a.worker"
ATTEMPT_COLUMNS = f"{BRIEF_COLUMNS}, a.record"
_SCORED = ", ".join(f"'{each.value}'" for each in Outcome if each.scored)
IS_SCORED = f"a.outcome IN ({_SCORED})"
IS_PASS = (
    f"({IS_SCORED} AND COALESCE(a.reward, CASE WHEN a.outcome = '{Outcome.PASSED}' THEN 1 ELSE 0 END) >= 1)"
)
"""As `model.outcome.is_pass`."""

# Runs

INSERT_RUN = """
INSERT INTO runs (id, created_at, name, kind, status, started_at, finished_at, total, folder, head, detail)
VALUES (:id, :created_at, :name, :kind, :status, :started_at, :finished_at, :total, :folder, :head, :detail)
"""
INSERT_TRIAL = """
INSERT INTO trials (run_id, idx, key, kind, subject, subject_digest, body, agent, agent_version, model,
                    rollout, doc, backend, memory_mb, cpus, labels, state, fence, attempts, ready_at)
VALUES (:run, :idx, :key, :kind, :subject, :subject_digest, :body, :agent, :agent_version, :model, :rollout,
        :doc, :backend, :memory_mb, :cpus, :labels, 'pending', 0, 0, 0)
"""
_PAGE_OF_RUNS = "FROM runs WHERE {where} ORDER BY created_at DESC, id DESC LIMIT :limit"
RUNS = f"SELECT {RUN_COLUMNS} {_PAGE_OF_RUNS}"
COUNTS_OF_RUNS = f"""
SELECT run_id, state, outcome, sum(trials) FROM run_counts
WHERE trials > 0 AND run_id IN (SELECT id {_PAGE_OF_RUNS})
GROUP BY run_id, state, outcome
"""
ONE_NAME = "lower(name) LIKE lower(:name) ESCAPE '!'"
ONE_STATUS = "status = :status"
BEFORE = "(created_at, id) < (SELECT created_at, id FROM runs WHERE id = :before)"
OF_PROJECT = "COALESCE((SELECT s.project FROM run_service s WHERE s.run_id = runs.id), 'default') = :project"
RUN = f"SELECT {RUN_COLUMNS}, detail FROM runs WHERE id = :run"
RUN_IDS_FROM = "SELECT id FROM runs WHERE id >= :low AND id < :high ORDER BY id LIMIT 6"
NTH_NEWEST = "SELECT id FROM runs ORDER BY created_at DESC, id DESC LIMIT 1 OFFSET :nth"
NEWEST_NAMED = "SELECT id FROM runs WHERE name = :name ORDER BY created_at DESC, id DESC LIMIT 1 OFFSET :nth"
NEWEST_IN_FOLDER = "SELECT id FROM runs WHERE folder = :folder ORDER BY created_at DESC, id DESC LIMIT 1"
FOLDERS_BELOW = "SELECT folder FROM runs WHERE folder >= :low AND folder < :high"
RECENT_NAMES = "SELECT id, name FROM runs ORDER BY created_at DESC, id DESC LIMIT 200"
COUNTS = """
SELECT state, outcome, sum(trials) FROM run_counts WHERE run_id = :run AND trials > 0
GROUP BY state, outcome ORDER BY outcome
"""
DELETE_RUN = "DELETE FROM runs WHERE id = :run"
STARTED = "SELECT started_at FROM runs WHERE id = :run"
SET_STATUS = """
UPDATE runs SET status = :status,
                started_at = CASE WHEN :starts = 1 THEN COALESCE(started_at, {now}) ELSE started_at END,
                finished_at = CASE
                    WHEN :starts = 1 AND total > COALESCE(
                        (SELECT sum(c.trials) FROM run_counts c WHERE c.run_id = runs.id), 0
                    ) THEN NULL
                    WHEN :ends = 1 AND :status = 'done' THEN COALESCE(finished_at, {now})
                    WHEN :ends = 1 THEN {now}
                    ELSE finished_at END
WHERE id = :run AND (status <> 'cancelled' OR :status = 'cancelled')
"""
SET_FOLDER = "UPDATE runs SET folder = :folder, head = :head WHERE id = :id"
SAME_VERSION = "UPDATE proctor_schema SET version_num = version_num"
SET_WORDS = "UPDATE runs SET name = :name, head = :head WHERE id = :id"
SET_DETAIL = "UPDATE runs SET detail = :detail WHERE id = :id"
STALLED = """
SELECT id FROM runs WHERE status = 'running'
AND NOT EXISTS (SELECT 1 FROM trials WHERE run_id = runs.id AND expires_at >= {now})
AND COALESCE((SELECT at FROM events WHERE run_id = runs.id ORDER BY id DESC LIMIT 1), 0) < {now} - :quiet_s
"""
RETRIES = "SELECT detail FROM runs WHERE id = :run"

# The life of a trial

_READY = "t.run_id = :run AND t.state = 'pending' AND t.ready_at <= {now}"
_TAKEABLE = f"SELECT {TRIAL_COLUMNS}, t.fence, t.attempts, {{now}} FROM trials t WHERE {_READY}"
_IN_ORDER = "ORDER BY t.idx LIMIT :limit {row_lock}"
TAKEABLE = f"{_TAKEABLE} {_IN_ORDER}"
TAKEABLE_KEYS = f"{_TAKEABLE} AND t.key IN ({{keys}}) {_IN_ORDER}"
_WITHIN = (
    "t.kind IN ({kinds}) AND t.backend IN ('', {backends}) AND t.memory_mb <= :memory_mb "
    "AND t.cpus <= :cpus AND {labels} = ''"
)
TAKEABLE_WITHIN = f"""
SELECT {TRIAL_COLUMNS}, t.memory_mb, t.fence, t.attempts, {{now}}
FROM trials t WHERE {_READY} AND {_WITHIN} {_IN_ORDER}
"""
RUNS_TO_WORK_ON = f"""
WITH open AS (
  SELECT r.id, r.kind, COALESCE(s.priority, 0) AS priority, COALESCE(s.owner, '') AS owner,
    COALESCE(s.queued_at, r.created_at) AS since,
    (SELECT count(*) FROM trials h WHERE h.run_id = r.id AND h.expires_at IS NOT NULL) AS held
  FROM runs r LEFT JOIN run_service s ON s.run_id = r.id WHERE r.status = 'running'
), owners AS (SELECT owner, sum(held) AS held FROM open GROUP BY owner)
SELECT o.id, o.kind, o.held FROM open o JOIN owners w ON w.owner = o.owner WHERE (
  SELECT t.idx FROM trials t
  WHERE t.run_id = o.id AND t.state = 'pending' AND t.ready_at <= {{now}} + :soon_s AND {_WITHIN}
  ORDER BY t.idx LIMIT 1
) IS NOT NULL ORDER BY o.priority DESC, w.held, o.held, o.since, o.id LIMIT :runs
"""
"""With EXISTS PostgreSQL reads the whole table where it expects many such trials, and those of a new run are
last in it. The first one in order it finds by the index.
"""
TAKE = """
UPDATE trials SET state = 'running', fence = :fence, worker = :worker, expires_at = :expires,
                  started_at = :started_at
WHERE run_id = :run AND idx = :idx
"""
_HELD = "run_id = :run AND idx = :idx AND key = :key AND fence = :fence AND state IN ('leased', 'running')"
RENEW = f"UPDATE trials SET expires_at = {{now}} + :lease_s WHERE {_HELD}"
STILL_HELD = """
SELECT idx, fence FROM trials WHERE run_id = :run AND idx IN ({idxs}) AND expires_at IS NOT NULL
"""
FINISH = f"""
UPDATE trials SET state = :state, attempts = :number, outcome = :outcome, ready_at = {{now}} + :delay_s,
                  worker = NULL, expires_at = NULL
WHERE {_HELD}
"""
HELD = """
SELECT t.run_id, t.key, t.idx, t.worker, t.fence, t.attempts, t.expires_at, t.state, t.started_at, {{now}}
FROM trials t WHERE t.expires_at IS NOT NULL AND {where} {tail}
"""
EXPIRED = "t.expires_at <= {now}"
OF_WORKER = "t.worker = :worker"
OF_RUN = "t.run_id = :run"
UNFENCE = """
UPDATE trials SET state = :state, attempts = :attempts, outcome = :outcome, fence = fence + 1,
                  worker = NULL, expires_at = NULL
WHERE run_id = :run AND idx = :idx
"""
CANCEL_PENDING = """
UPDATE trials SET state = 'cancelled', outcome = 'cancelled'
WHERE run_id = :run AND state = 'pending'
"""
_LOST = ", ".join(f"'{each.value}'" for each in Outcome if each.retryable)
REOPEN_LOST = f"""
UPDATE trials SET state = 'pending', outcome = NULL, ready_at = 0
WHERE run_id = :run AND state = 'done' AND outcome IN ({_LOST})
"""
UNCOUNT_LOST = f"UPDATE attempts SET counts = 0 WHERE run_id = :run AND counts = 1 AND outcome IN ({_LOST})"
FORGET_LOST = f"""
UPDATE run_counts SET trials = 0 WHERE run_id = :run AND state = 'done' AND outcome IN ({_LOST})
"""
HOLDERS = """
SELECT worker, max(expires_at) FROM trials WHERE run_id = :run AND expires_at IS NOT NULL
GROUP BY worker ORDER BY worker
"""

# Attempts

INSERT_ATTEMPT = """
INSERT INTO attempts (run_id, idx, number, subject, outcome, counts, started_at, ended_at, reward, worker,
                      record, work_s)
VALUES (:run, :idx, :number, (SELECT subject FROM trials WHERE run_id = :run AND idx = :idx), :outcome,
        :counts, :started_at, :ended_at, :reward, :worker, :record, :work_s)
"""
COUNT_TRIALS = """
INSERT INTO run_counts (run_id, state, outcome, shard, trials, attempts, seconds)
VALUES (:run, :state, :outcome, :shard, :trials, :attempts, :seconds)
ON CONFLICT (run_id, state, outcome, shard) DO UPDATE SET trials = run_counts.trials + excluded.trials,
  attempts = run_counts.attempts + excluded.attempts, seconds = run_counts.seconds + excluded.seconds
"""
REFER = """
INSERT INTO blob_refs (run_id, digest, size_bytes) VALUES (:run, :digest, :size_bytes)
ON CONFLICT (run_id, digest) DO NOTHING
"""
ATTEMPTS_PAGE = f"""
SELECT {TRIAL_COLUMNS}, {ATTEMPT_COLUMNS}
FROM attempts a JOIN trials t ON t.run_id = a.run_id AND t.idx = a.idx
WHERE a.run_id = :run AND (a.idx, a.number) > (:idx, :number) AND a.counts >= :counts
ORDER BY a.idx, a.number LIMIT :limit
"""
RECORDS_PAGE = f"""
SELECT {ATTEMPT_COLUMNS}, a.idx FROM attempts a
WHERE a.run_id = :run AND (a.idx, a.number) > (:idx, :number) ORDER BY a.idx, a.number LIMIT :limit
"""
BRIEF_PAGE = f"""
SELECT {BRIEF_COLUMNS}, a.idx, a.work_s FROM attempts a
WHERE a.run_id = :run AND (a.idx, a.number) > (:idx, :number) ORDER BY a.idx, a.number LIMIT :limit
"""
RESULTS_PAGE = """
SELECT t.idx, t.key, t.kind, t.subject, t.agent, t.model, t.doc,
       a.number, a.outcome, a.started_at, a.ended_at, a.reward, a.work_s, t.subject_digest{body}
FROM trials t LEFT JOIN attempts a ON a.run_id = t.run_id AND a.idx = t.idx AND a.counts = 1
WHERE t.run_id = :run AND t.idx > :idx ORDER BY t.idx LIMIT :limit
"""
WITH_BODY = ", a.record"
ATTEMPTS_OF_TRIALS = f"""
SELECT {TRIAL_COLUMNS}, {ATTEMPT_COLUMNS}
FROM trials t JOIN attempts a ON t.run_id = a.run_id AND t.idx = a.idx
WHERE t.run_id = :run AND t.key IN ({{keys}}) ORDER BY t.idx, a.number
"""
TRIAL = f"SELECT {TRIAL_COLUMNS} FROM trials t WHERE t.run_id = :run AND t.key = :key"
TRIALS_PAGE = (
    f"SELECT {TRIAL_COLUMNS} FROM trials t WHERE t.run_id = :run AND t.idx > :idx ORDER BY t.idx LIMIT :limit"
)
STATES = """
SELECT state, count(*) FROM trials WHERE expires_at IS NOT NULL AND run_id = :run GROUP BY state
UNION ALL SELECT state, sum(trials) FROM run_counts WHERE run_id = :run GROUP BY state
UNION ALL SELECT 'total', total FROM runs WHERE id = :run
"""
RECENT_OF_SUBJECT = f"""
SELECT COALESCE(a.work_s, a.ended_at - a.started_at), a.outcome, {TRIAL_COLUMNS}
FROM attempts a JOIN trials t ON t.run_id = a.run_id AND t.idx = a.idx
WHERE a.subject = :subject AND a.counts = 1 ORDER BY a.ended_at DESC LIMIT :limit
"""
IMPORT_TRIAL_STATE = """
UPDATE trials SET fence = :number, attempts = :number,
                  state = CASE WHEN :counts = 1 THEN 'done' ELSE state END,
                  outcome = CASE WHEN :counts = 1 THEN :outcome ELSE outcome END
WHERE run_id = :run AND key = :key RETURNING idx
"""

# Blobs

ORPHANS = """
SELECT digest FROM blob_refs WHERE run_id = :run
AND NOT EXISTS (SELECT 1 FROM blob_refs other WHERE other.digest = blob_refs.digest AND other.run_id <> :run)
AND NOT EXISTS (SELECT 1 FROM uploads WHERE uploads.blob = blob_refs.digest)
ORDER BY digest
"""
REFERRED = (
    "SELECT digest FROM blob_refs UNION SELECT blob FROM uploads UNION SELECT digest FROM shared_layers"
)
BYTES_OF_RUN = "SELECT COALESCE(sum(size_bytes), 0) FROM blob_refs WHERE run_id = :run"

# Events

INSERT_EVENT = """
INSERT INTO events (id, run_id, at, kind, idx, data) VALUES ({event_id}, :run, {now}, :kind, :idx, :data)
"""
INSERT_NOTE = f"""
INSERT INTO events (id, run_id, at, kind, idx, data)
SELECT {{event_id}}, run_id, {{now}} - :age_s, :kind, idx, :data FROM trials WHERE {_HELD}
"""
EVENTS = """
SELECT e.id, e.run_id, e.at, e.kind, t.key, e.data
FROM events e LEFT JOIN trials t ON t.run_id = e.run_id AND t.idx = e.idx
WHERE e.id > :after AND {{settled}} AND {where} ORDER BY e.id LIMIT :limit
"""
LAST_EVENT = "SELECT id FROM events WHERE run_id = :run ORDER BY id DESC LIMIT 1"
EVENT_OF_RUN = "e.run_id = :run"
ANY = "1 = 1"

# Soundness

DRIFT = """
SELECT DISTINCT t.run_id FROM (
  SELECT run_id, state, outcome, count(*) AS trials FROM trials
  WHERE state IN ('done', 'cancelled') GROUP BY run_id, state, outcome
) t
LEFT JOIN (
  SELECT run_id, state, outcome, sum(trials) AS trials FROM run_counts GROUP BY run_id, state, outcome
) c ON c.run_id = t.run_id AND c.state = t.state AND c.outcome = t.outcome
WHERE c.trials IS NULL OR c.trials <> t.trials ORDER BY t.run_id LIMIT 20
"""
UNANSWERED = """
SELECT DISTINCT t.run_id FROM trials t WHERE t.state = 'done' AND NOT EXISTS (
  SELECT 1 FROM attempts a WHERE a.run_id = t.run_id AND a.idx = t.idx AND a.counts = 1
) ORDER BY t.run_id LIMIT 20
"""


def listed(sql: str, **values: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    """A statement whose `{name}` is a list of values, and the parameters that it has for them."""
    params: dict[str, Any] = {}
    for name, each in values.items():
        own = {f"{name}{at}": value for at, value in enumerate(each)}
        sql = sql.replace(f"{{{name}}}", ", ".join(f":{key}" for key in own) or "NULL")
        params |= own
    return sql, params
