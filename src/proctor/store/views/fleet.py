"""What waits and what works, what it cost by day, and which tasks the store knows."""

from __future__ import annotations

from typing import Any

from proctor.store import queries
from proctor.store.database import Database

_PROJECT = "COALESCE(s.project, 'default')"
_SEEN = f"(CAST(:project AS text) IS NULL OR {_PROJECT} = CAST(:project AS text))"
_QUEUE = f"""
SELECT r.id, r.name, r.kind, r.status, r.created_at, {_PROJECT}, COALESCE(s.owner, ''),
  COALESCE(s.wanted, 0), COALESCE(s.priority, 0), s.queued_at, COALESCE(s.failure, ''),
  count(t.idx), sum(CASE WHEN t.ready_at > {{now}} THEN 1 ELSE 0 END), min(t.ready_at), max(t.memory_mb),
  (SELECT count(*) FROM trials h WHERE h.run_id = r.id AND h.expires_at IS NOT NULL),
  (SELECT c.expires_at FROM coordinators c WHERE c.run_id = r.id AND c.expires_at > {{now}}), {{now}}
FROM runs r LEFT JOIN run_service s ON s.run_id = r.id
JOIN trials t ON t.run_id = r.id AND t.state = 'pending'
WHERE r.status IN ('pending', 'running') AND {_SEEN}
GROUP BY r.id, r.name, r.kind, r.status, r.created_at, s.project, s.owner, s.wanted, s.priority, s.queued_at,
  s.failure
ORDER BY COALESCE(s.priority, 0) DESC, COALESCE(s.queued_at, r.created_at), r.id LIMIT :limit
"""
_QUEUE_NAMES = (
    "run", "name", "kind", "status", "created_at", "project", "owner", "wanted", "priority", "queued_at",
    "failure", "pending", "delayed", "ready_at", "memory_mb", "running", "coordinated_until", "now",
)  # fmt: skip
_WORKERS = f"""
SELECT t.worker, t.run_id, t.idx, t.subject, t.state, t.started_at, t.expires_at, {{now}}
FROM trials t JOIN runs r ON r.id = t.run_id LEFT JOIN run_service s ON s.run_id = r.id
WHERE t.expires_at IS NOT NULL AND {_SEEN} ORDER BY t.worker, t.run_id, t.idx LIMIT :limit
"""
_COSTS = f"""
SELECT {{key}}, count(*), CAST(COALESCE(sum(c.prompt_tokens), 0) AS BIGINT),
  CAST(COALESCE(sum(c.completion_tokens), 0) AS BIGINT), CAST(COALESCE(sum(c.cached_tokens), 0) AS BIGINT),
  CAST(COALESCE(sum(c.nano_usd), 0) AS BIGINT), sum(CASE WHEN c.nano_usd IS NULL THEN 1 ELSE 0 END)
FROM model_calls c LEFT JOIN run_service s ON s.run_id = c.run_id {{join}}
WHERE c.at >= :since AND c.at < :until AND {_SEEN} GROUP BY {{key}} ORDER BY {{key}}
"""
_TRIALS = "JOIN trials t ON t.run_id = c.run_id AND t.idx = c.idx"
_KEYS = {
    "day": ("CAST(c.at AS BIGINT) / 86400", ""),
    "model": ("c.model", ""),
    "agent": ("COALESCE(t.agent, '')", _TRIALS),
    "run": ("c.run_id", ""),
    "task": ("t.subject", _TRIALS),
}
_COST_NAMES = (
    "calls", "prompt_tokens", "completion_tokens", "cached_tokens", "nano_usd", "unknown_cost",
)  # fmt: skip
_TASKS = f"""
SELECT a.subject, count(*), sum(CASE WHEN {queries.IS_PASS} THEN 1 ELSE 0 END),
  sum(CASE WHEN {queries.IS_SCORED} THEN 1 ELSE 0 END), max(a.ended_at), max(a.run_id)
FROM attempts a JOIN runs r ON r.id = a.run_id LEFT JOIN run_service s ON s.run_id = a.run_id
WHERE a.counts = 1 AND r.kind = 'task' AND {_SEEN} GROUP BY a.subject ORDER BY a.subject LIMIT :limit
"""
_CALLS = """
SELECT id, number, at, model, settled, prompt_tokens, completion_tokens, cached_tokens, cache_write_tokens,
  reasoning_tokens, waited_s, first_token_s, worked_s, retries, status, nano_usd
FROM model_calls WHERE run_id = :run AND idx = :idx ORDER BY number, at, id
"""
_CALL_NAMES = (
    "id", "attempt", "at", "model", "settled", "prompt_tokens", "completion_tokens", "cached_tokens",
    "cache_write_tokens", "reasoning_tokens", "waited_s", "first_token_s", "worked_s", "retries", "status",
    "nano_usd",
)  # fmt: skip


class FleetViews:
    """What a server reads about work and money."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def queue(self, project: str | None, limit: int) -> list[dict[str, Any]]:
        """Runs with trials that wait, in the order in which they are taken."""
        found = self._db.read(_QUEUE, {"project": project, "limit": limit})
        return [dict(zip(_QUEUE_NAMES, row, strict=True)) for row in found]

    def workers(self, project: str | None, limit: int) -> list[dict[str, Any]]:
        """What every worker holds now."""
        names = ("worker", "run", "index", "task", "state", "started_at", "expires_at", "now")
        found = self._db.read(_WORKERS, {"project": project, "limit": limit})
        return [dict(zip(names, row, strict=True)) for row in found]

    def costs(self, project: str | None, since: float, until: float, by: str) -> list[dict[str, Any]]:
        """Calls of models within a time, summed by one of `BY`."""
        key, join = _KEYS[by]
        sql = _COSTS.replace("{key}", key).replace("{join}", join)
        found = self._db.read(sql, {"project": project, "since": since, "until": until})
        return [dict(zip((by, *_COST_NAMES), row, strict=True)) for row in found]

    def tasks(self, project: str | None, limit: int) -> list[dict[str, Any]]:
        """Every task that some run has results of."""
        names = ("task", "trials", "passed", "scored", "last_at", "last_run")
        found = self._db.read(_TASKS, {"project": project, "limit": limit})
        return [dict(zip(names, row, strict=True)) for row in found]

    def calls(self, run_id: str, index: int) -> list[dict[str, Any]]:
        """Every call of a model by one trial, in order."""
        found = self._db.read(_CALLS, {"run": run_id, "idx": index})
        return [dict(zip(_CALL_NAMES, row, strict=True)) for row in found]
