"""To whom runs belong: project and owner, and whether a server is to execute them.

A run that no server was told about is in the project `default` and has no owner.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proctor.store import queries
from proctor.store.database import Database, Row, Transaction
from proctor.store.rows import column

DEFAULT = "default"

_PROJECT_OF = "COALESCE((SELECT s.project FROM run_service s WHERE s.run_id = r.id), 'default')"
_SEEN = f"(CAST(:project AS text) IS NULL OR {_PROJECT_OF} = CAST(:project AS text))"
_NEWEST = "ORDER BY r.created_at DESC, r.id DESC LIMIT 1"
_BY_ID = f"SELECT r.id FROM runs r WHERE r.id = :ref AND {_SEEN}"
_BY_NAME = f"SELECT r.id FROM runs r WHERE r.name = :ref AND {_SEEN} {_NEWEST}"
_LATEST = f"SELECT r.id FROM runs r WHERE {_SEEN} {_NEWEST}"
_BY_PREFIX = f"SELECT r.id FROM runs r WHERE r.id >= :ref AND r.id < :high AND {_SEEN} ORDER BY r.id LIMIT 2"
_COLUMNS = "run_id, project, owner, wanted, priority, queued_at, parallel, failure, source"
_OF_RUNS = f"SELECT {_COLUMNS} FROM run_service WHERE run_id IN ({{ids}})"
_OWN = """
INSERT INTO run_service (run_id, project, owner, wanted, priority, queued_at, parallel, source)
VALUES (:run, :project, :owner, :wanted, :priority, {now}, :parallel, :source)
"""
_SHORTEST_PREFIX = 3


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run belongs, and whether a server executes it."""

    run_id: str
    project: str = DEFAULT
    owner: str = ""
    wanted: bool = False
    """Whether the server's engine is to execute it."""
    priority: int = 0
    queued_at: float = 0.0
    parallel: int | None = None
    failure: str = ""
    """Why the engine could not begin or go on; empty: nothing was wrong."""
    source: str = ""
    """What made it, besides a person: `upload:ID`, `schedule:ID`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """To whom a new run belongs, and whether it is to be executed."""

    project: str = DEFAULT
    user: str = ""
    wanted: bool = True
    priority: int = 0
    parallel: int | None = None
    source: str = ""
    also: Callable[[Transaction, str], None] | None = None
    """Writes what belongs to the same transaction, given the run's id."""


def own(tx: Transaction, run_id: str, owner: Owner) -> None:
    """Write to whom a run belongs, in the transaction that makes it."""
    tx.execute(
        _OWN,
        {
            "run": run_id,
            "project": owner.project,
            "owner": column(owner.user),
            "wanted": int(owner.wanted),
            "priority": owner.priority,
            "parallel": owner.parallel,
            "source": column(owner.source),
        },
    )
    if owner.also:
        owner.also(tx, run_id)


class Ownership:
    """To whom runs belong."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def find(self, ref: str, project: str | None) -> str | None:
        """The run that an id, its beginning, a name or `latest` means in a project; None: all projects."""
        ref = column(ref).strip()
        seen = {"project": project}
        if ref == "latest":
            return _one(self._db.read(_LATEST, seen))
        named = {"ref": ref, **seen}
        found = _one(self._db.read(_BY_ID, named)) or _one(self._db.read(_BY_NAME, named))
        if found or len(ref) < _SHORTEST_PREFIX:
            return found
        begun = self._db.read(_BY_PREFIX, {**named, "high": ref + "\U0010ffff"})
        return _one(begun) if len(begun) == 1 else None

    def places(self, run_ids: Sequence[str]) -> dict[str, Place]:
        """Where each of these runs belongs."""
        sql, params = queries.listed(_OF_RUNS, ids=run_ids)
        known = {row[0]: _place(row) for row in self._db.read(sql, params)}
        return {run_id: known.get(run_id) or Place(run_id) for run_id in run_ids}

    def project(self, run_id: str) -> str | None:
        """The project on whose behalf a server has a run; None: no server was told of it."""
        sql, params = queries.listed(_OF_RUNS, ids=[run_id])
        rows = self._db.read(sql, params)
        return str(rows[0][1]) if rows else None

    def place(self, run_id: str) -> Place:
        """Where one run belongs."""
        return self.places([run_id])[run_id]


def _place(row: Row) -> Place:
    return Place(row[0], row[1], row[2], bool(row[3]), *row[4:])


def _one(found: Sequence[Row]) -> str | None:
    return str(found[0][0]) if found else None
