"""Runs that start by themselves: what to run, and when next."""

from __future__ import annotations

from dataclasses import dataclass

from proctor.store.again import repeatable
from proctor.store.database import Database, Row
from proctor.store.rows import column

_COLUMNS = (
    "id, project, owner, name, created_at, cron, zone, body, enabled, next_at, last_at, last_run, "
    "last_error, missed"
)
_SEEN = "(CAST(:project AS text) IS NULL OR project = CAST(:project AS text))"
_ADD = """
INSERT INTO schedules (id, project, owner, name, created_at, cron, zone, body, enabled, next_at)
VALUES (:id, :project, :owner, :name, {now}, :cron, :zone, :body, :enabled, :next_at)
"""
_LIST = f"SELECT {_COLUMNS} FROM schedules WHERE {_SEEN} AND id > :after ORDER BY id LIMIT :limit"
_FIND = f"SELECT {_COLUMNS} FROM schedules WHERE id = :id AND {_SEEN}"
_DUE = f"SELECT {_COLUMNS} FROM schedules WHERE enabled = 1 AND next_at <= :moment ORDER BY next_at LIMIT 100"
_CHANGE = """
UPDATE schedules SET name = :name, cron = :cron, zone = :zone, body = :body, enabled = :enabled,
                     next_at = :next_at, missed = 0, last_error = ''
WHERE id = :id
"""
_CLAIM = """
UPDATE schedules SET next_at = :next_at, missed = missed + :missed, last_error = :error,
                     last_at = CASE WHEN :begins = 1 THEN :moment ELSE last_at END
WHERE id = :id AND enabled = 1 AND next_at = :expected
"""
_BEGAN = "UPDATE schedules SET last_run = COALESCE(:run, last_run), last_error = :error WHERE id = :id"
_DELETE = "DELETE FROM schedules WHERE id = :id"


@dataclass(frozen=True, slots=True)
class Schedule:
    """A run that starts by itself."""

    id: str
    project: str
    owner: str
    name: str
    created_at: float
    cron: str
    zone: str
    body: str
    """JSON: `submission`, and the `token` and `scopes` of whoever made it."""
    enabled: bool
    next_at: float | None
    last_at: float | None = None
    last_run: str | None = None
    last_error: str = ""
    missed: int = 0
    """How often it should have begun and did not, since it was last changed."""


@repeatable
class Schedules:
    """The schedules of projects."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def add(self, schedule: Schedule) -> None:
        """Keep a new one."""
        params = {
            "id": schedule.id,
            "project": schedule.project,
            "owner": column(schedule.owner),
            "name": column(schedule.name),
            "cron": schedule.cron,
            "zone": schedule.zone,
            "body": schedule.body,
            "enabled": int(schedule.enabled),
            "next_at": schedule.next_at,
        }
        with self._db.write() as tx:
            tx.change(_ADD, params)

    def page(self, project: str | None, *, after: str = "", limit: int = 50) -> list[Schedule]:
        """Those of a project, or of all."""
        params = {"project": project, "after": after, "limit": limit}
        return [_schedule(row) for row in self._db.read(_LIST, params)]

    def find(self, schedule_id: str, project: str | None) -> Schedule | None:
        """One of them; None where there is none, or not in the project."""
        found = self._db.read(_FIND, {"id": column(schedule_id), "project": project})
        return _schedule(found[0]) if found else None

    def due(self, now: float) -> list[Schedule]:
        """Those whose time has come."""
        return [_schedule(row) for row in self._db.read(_DUE, {"moment": now})]

    def change(self, schedule: Schedule) -> None:
        """Another name, time or zone; on or off. What was missed is forgotten."""
        params = {
            "id": schedule.id,
            "name": column(schedule.name),
            "cron": schedule.cron,
            "zone": schedule.zone,
            "body": schedule.body,
            "enabled": int(schedule.enabled),
            "next_at": schedule.next_at,
        }
        with self._db.write() as tx:
            tx.change(_CHANGE, params)

    def claim(
        self, schedule: Schedule, next_at: float | None, now: float, *, missed: int = 0, error: str = ""
    ) -> bool:
        """Go on to the next time, and begin a run unless some were missed; False: another server did."""
        params = {
            "id": schedule.id,
            "expected": schedule.next_at,
            "next_at": next_at,
            "moment": now,
            "missed": missed,
            "error": column(error),
            "begins": int(not missed),
        }
        with self._db.write() as tx:
            return bool(tx.change(_CLAIM, params))

    def began(self, schedule_id: str, run_id: str | None, error: str = "") -> None:
        """What came of it: a run, or why there is none."""
        with self._db.write() as tx:
            tx.change(_BEGAN, {"id": schedule_id, "run": run_id, "error": column(error)})

    def delete(self, schedule_id: str) -> None:
        """Forget one; its runs are kept."""
        with self._db.write() as tx:
            tx.change(_DELETE, {"id": schedule_id})


def _schedule(row: Row) -> Schedule:
    values = [*row]
    values[8] = bool(row[8])
    return Schedule(*values)
