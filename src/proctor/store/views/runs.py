"""Runs as lists of a server show them: with project, owner and the newest event, in one statement.

The newest event tells whether anything of a run has changed, so whoever has worked something out for a run
that ended need not do it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from proctor.model.run import RunInfo
from proctor.store import queries, rows
from proctor.store.database import Database, Row
from proctor.store.rows import column

_PROJECT = "COALESCE(s.project, 'default')"
_COLUMNS = f"""
r.id, r.created_at, r.name, r.kind, r.status, r.started_at, r.finished_at, r.total, r.head,
{_PROJECT}, COALESCE(s.owner, ''), COALESCE(s.wanted, 0), COALESCE(s.failure, ''),
COALESCE((SELECT max(e.id) FROM events e WHERE e.run_id = r.id AND {{settled}}), 0),
s.queued_at, COALESCE(s.priority, 0)
"""
_RUNS = f"""
SELECT {_COLUMNS} FROM runs r LEFT JOIN run_service s ON s.run_id = r.id
WHERE {{where}} ORDER BY r.created_at DESC, r.id DESC LIMIT :limit
"""
_CONDITIONS = {
    "id": "r.id = :id",
    "status": "r.status = :status",
    "kind": "r.kind = :kind",
    "name": "lower(r.name) LIKE lower(:name) ESCAPE '!'",
    "series": "r.name = :series",
    "project": f"{_PROJECT} = :project",
    "before": "(r.created_at, r.id) < (SELECT b.created_at, b.id FROM runs b WHERE b.id = :before)",
    "until": "(r.created_at, r.id) <= (SELECT b.created_at, b.id FROM runs b WHERE b.id = :until)",
}
_COUNTS = """
SELECT run_id, state, outcome, sum(trials) FROM run_counts WHERE trials > 0 AND run_id IN ({ids})
GROUP BY run_id, state, outcome
"""
_HELD = """
SELECT run_id, count(*) FROM trials WHERE expires_at IS NOT NULL AND run_id IN ({ids}) GROUP BY run_id
"""
_SPENT = """
SELECT name, requests, tokens, nano_usd FROM spending WHERE scope = 'run' AND name IN ({ids})
"""
_UNKNOWN = """
SELECT run_id, count(*) FROM model_calls WHERE run_id IN ({ids}) AND settled = 1 AND nano_usd IS NULL
GROUP BY run_id
"""
_SERIES = """
SELECT r.name, r.kind, count(*), max(r.created_at), max(r.id)
FROM runs r LEFT JOIN run_service s ON s.run_id = r.id WHERE {where}
GROUP BY r.name, r.kind ORDER BY max(r.created_at) DESC, r.name LIMIT :limit
"""
ANY = "1 = 1"


class Spent(NamedTuple):
    """What a run's calls of models came to."""

    requests: int = 0
    tokens: int = 0
    nano_usd: int = 0
    unknown_cost: int = 0
    """Calls whose cost nobody knows."""

    @property
    def cost_usd(self) -> float | None:
        """What is known of it; None when no call was made."""
        return self.nano_usd / 1e9 if self.requests else None


class Listed(NamedTuple):
    """A run as its row has it, before anything is worked out."""

    row: Row
    project: str
    owner: str
    wanted: bool
    failure: str
    last_event: int
    queued_at: float | None
    priority: int

    @property
    def id(self) -> str:
        """The run's."""
        return str(self.row[0])

    @property
    def status(self) -> str:
        """As a word."""
        return str(self.row[4])

    @property
    def stamp(self) -> tuple[Any, ...]:
        """Changes when anything of the run does."""
        return tuple(self.row)


class RunViews:
    """What a server reads about runs."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def listed(self, *, limit: int, **only: str | None) -> list[Listed]:
        """Runs, newest first; `only` are values for the conditions above, None for those that do not apply.

        `name` may have `*`; `before` and `until` are ids.
        """
        wanted = {name: column(value) for name, value in only.items() if value is not None}
        where = " AND ".join(_CONDITIONS[name] for name in wanted) or ANY
        if "name" in wanted:
            wanted["name"] = rows.pattern(wanted["name"])
        found = self._db.read(_RUNS.replace("{where}", where), {**wanted, "limit": limit})
        return [Listed(row, row[9], row[10], bool(row[11]), *row[12:]) for row in found]

    def infos(self, runs: Sequence[Listed]) -> list[RunInfo]:
        """The same with their counters."""
        counts: dict[str, dict[tuple[str, str], int]] = {}
        for run_id, state, outcome, number in self._of(_COUNTS, runs):
            counts.setdefault(run_id, {})[state, outcome] = number
        return [rows.run_info(each.row, counts.get(each.id, {})) for each in runs]

    def held(self, runs: Sequence[Listed]) -> Mapping[str, int]:
        """How many trials of each are with a worker now."""
        return {str(row[0]): int(row[1]) for row in self._of(_HELD, runs)}

    def spent(self, runs: Sequence[Listed]) -> Mapping[str, Spent]:
        """What each has spent on models; runs without a call are not named."""
        unknown = {row[0]: int(row[1]) for row in self._of(_UNKNOWN, runs)}
        return {
            str(row[0]): Spent(int(row[1]), int(row[2]), int(row[3]), unknown.get(row[0], 0))
            for row in self._of(_SPENT, runs)
        }

    def series(self, *, project: str | None, limit: int) -> list[dict[str, Any]]:
        """The names under which runs are kept, with how many there are; the newest series first."""
        where = _CONDITIONS["project"] if project is not None else ANY
        found = self._db.read(_SERIES.replace("{where}", where), {"project": project, "limit": limit})
        names = ("name", "kind", "runs", "newest_at", "newest")
        return [dict(zip(names, row, strict=True)) for row in found]

    def _of(self, sql: str, runs: Sequence[Listed]) -> Sequence[Row]:
        if not runs:
            return ()
        written, params = queries.listed(sql, ids=[each.id for each in runs])
        return self._db.read(written, params)
