"""Events of all runs as they are written: a stream passes them on, so nothing of them is decoded."""

from __future__ import annotations

from msgspec import Struct

from proctor.store.database import Database

_AFTER = """
SELECT e.id, e.run_id, e.at, e.kind, e.idx, e.data, COALESCE(s.project, 'default')
FROM events e LEFT JOIN run_service s ON s.run_id = e.run_id
WHERE e.id > :after AND {settled} AND {where} ORDER BY e.id LIMIT :limit
"""
_LAST = "SELECT COALESCE(max(e.id), 0) FROM events e WHERE {settled}"


class Written(Struct, frozen=True, gc=False):
    """One event; `data` is JSON."""

    id: int
    run_id: str
    at: float
    kind: str
    index: int | None
    data: str
    project: str


class EventViews:
    """What a stream reads."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def after(self, last: int, *, limit: int, run_id: str | None = None) -> list[Written]:
        """What happened after an event, oldest first; none is ever skipped."""
        where = "1 = 1" if run_id is None else "e.run_id = :run"
        sql = _AFTER.replace("{where}", where)
        found = self._db.read(sql, {"after": last, "limit": limit, "run": run_id})
        return [Written(*row) for row in found]

    def last(self) -> int:
        """The newest event's id; 0 when there is none."""
        return int(self._db.read(_LAST)[0][0])

    def mark(self) -> int:
        """The moment to wait from."""
        return self._db.mark()

    def wait(self, mark: int, timeout_s: float) -> None:
        """Return when something may have been committed since the mark."""
        self._db.wait(mark, timeout_s)
