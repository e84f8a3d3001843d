"""Tasks that people uploaded, each with the settings that the older API keeps beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from proctor.store.again import repeatable
from proctor.store.database import Database, Row
from proctor.store.rows import column, dump

_NAMES = (
    "id, project, owner, created_at, name, description, filename, size_bytes, blob, digest, subject, "
    "findings, agent, model, num_runs, run_id, check_id"
)
_INSERT = f"""
INSERT INTO uploads ({_NAMES})
VALUES (:id, :project, :owner, {{now}}, :name, :description, :filename, :size_bytes, :blob, :digest, :subject,
        :findings, :agent, :model, :num_runs, NULL, NULL)
"""
_SEEN = "(CAST(:project AS text) IS NULL OR u.project = CAST(:project AS text))"
_COLUMNS = ", ".join(f"u.{name}" for name in _NAMES.split(", "))
_ONE = f"SELECT {_COLUMNS} FROM uploads u WHERE u.id = :id AND {_SEEN}"
_NAMED = f"""
SELECT {_COLUMNS} FROM uploads u WHERE (u.name = :name OR u.subject = :name) AND {_SEEN}
ORDER BY u.created_at DESC, u.id DESC LIMIT 1
"""
_SAME = f"""
SELECT {_COLUMNS} FROM uploads u WHERE u.project = :project AND u.digest = :digest
ORDER BY u.created_at DESC, u.id DESC LIMIT 1
"""
_JOINED = "LEFT JOIN runs r ON r.id = u.run_id LEFT JOIN run_service s ON s.run_id = u.run_id"
_PAGE = f"""
SELECT {_COLUMNS} FROM uploads u {_JOINED}
WHERE {_SEEN} AND {{where}} ORDER BY u.created_at DESC, u.id DESC LIMIT :limit OFFSET :skip
"""
_COUNT = f"SELECT count(*) FROM uploads u {_JOINED} WHERE {_SEEN} AND {{where}}"
_STATUS = {
    "": "1 = 1",
    "pending": "(u.run_id IS NULL OR r.status = 'pending')",
    "running": "(r.status = 'running' OR (r.status = 'interrupted' AND s.wanted = 1))",
    "completed": "r.status = 'done'",
    "failed": "(r.status = 'interrupted' AND COALESCE(s.wanted, 0) = 0)",
    "cancelled": "r.status = 'cancelled'",
}
"""What a status of the older API means."""
_KEPT = "SELECT count(*), COALESCE(sum(size_bytes), 0) FROM uploads WHERE project = :project"
_SET_RUN = "UPDATE uploads SET run_id = :run WHERE id = :id"
_SET_CHECK = "UPDATE uploads SET check_id = :run WHERE id = :id"
_DELETE = "DELETE FROM uploads WHERE id = :id"
_STORED = """
SELECT t.subject, t.subject_digest, max(i.digest), max(r.created_at)
FROM run_inputs i JOIN runs r ON r.id = i.run_id
JOIN trials t ON t.run_id = i.run_id AND i.name = 'task/' || t.subject_digest
WHERE i.name LIKE 'task/%'
AND (CAST(:project AS text) IS NULL OR CAST(:project AS text) =
     COALESCE((SELECT s.project FROM run_service s WHERE s.run_id = r.id), 'default'))
AND (CAST(:name AS text) IS NULL OR t.subject = CAST(:name AS text))
GROUP BY t.subject, t.subject_digest ORDER BY max(r.created_at) DESC, t.subject LIMIT :limit
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """One uploaded task."""

    id: str
    project: str
    owner: str
    created_at: float = 0.0
    name: str
    description: str = ""
    filename: str
    size_bytes: int
    blob: str
    """The digest of the ZIP."""
    digest: str
    """Of the task in it; empty when it cannot be read."""
    subject: str
    """The task's own name."""
    findings: Sequence[Mapping[str, str]] = ()
    agent: str
    model: str = ""
    num_runs: int
    run_id: str | None = None
    """The run of it that the older API shows."""
    check_id: str | None = None
    """The run of the author's solution."""


@dataclass(frozen=True, slots=True)
class StoredTask:
    """A task that some run brought."""

    name: str
    digest: str
    blob: str
    """The digest of its packed folder."""
    last_run_at: float


@repeatable
class Uploads:
    """The uploads of projects."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def add(self, upload: Upload) -> None:
        """Write one."""
        values = {each.name: getattr(upload, each.name) for each in fields(Upload)}
        texts = {name: column(value) for name, value in values.items() if isinstance(value, str)}
        params = {**values, **texts, "findings": dump(list(upload.findings))}
        for name in ("created_at", "run_id", "check_id"):
            params.pop(name)
        with self._db.write() as tx:
            tx.change(_INSERT, params)

    def find(self, upload_id: str, project: str | None) -> Upload | None:
        """One that a caller may see."""
        return _first(self._db.read(_ONE, {"id": column(upload_id), "project": project}))

    def named(self, name: str, project: str | None) -> Upload | None:
        """The newest of a name."""
        return _first(self._db.read(_NAMED, {"name": column(name), "project": project}))

    def same(self, digest: str, project: str) -> Upload | None:
        """The newest with the same task."""
        return _first(self._db.read(_SAME, {"digest": digest, "project": project}))

    def page(self, project: str | None, *, status: str = "", skip: int = 0, limit: int = 50) -> list[Upload]:
        """The newest first."""
        params = {"project": project, "skip": skip, "limit": limit}
        return [_upload(row) for row in self._db.read(_PAGE.replace("{where}", _STATUS[status]), params)]

    def kept(self, project: str) -> tuple[int, int]:
        """How many a project keeps, and their bytes."""
        ((number, size_bytes),) = self._db.read(_KEPT, {"project": project})
        return int(number), int(size_bytes)

    def count(self, project: str | None, status: str = "") -> int:
        """How many there are."""
        found = self._db.read(_COUNT.replace("{where}", _STATUS[status]), {"project": project})
        return int(found[0][0])

    def set_run(self, upload_id: str, run_id: str) -> None:
        """The run of it that the older API shows."""
        with self._db.write() as tx:
            tx.change(_SET_RUN, {"id": upload_id, "run": run_id})

    def set_check(self, upload_id: str, run_id: str) -> None:
        """The run of the author's solution."""
        with self._db.write() as tx:
            tx.change(_SET_CHECK, {"id": upload_id, "run": run_id})

    def delete(self, upload_id: str) -> None:
        """Forget one; its runs stay."""
        with self._db.write() as tx:
            tx.change(_DELETE, {"id": upload_id})

    def stored_tasks(
        self, project: str | None, *, name: str | None = None, limit: int = 500
    ) -> list[StoredTask]:
        """Tasks that runs of a project brought, the last used first."""
        params = {"project": project, "name": name, "limit": limit}
        return [StoredTask(*row) for row in self._db.read(_STORED, params)]


def _first(rows: Sequence[Row]) -> Upload | None:
    return _upload(rows[0]) if rows else None


def _upload(row: Row) -> Upload:
    values: dict[str, Any] = dict(zip(_NAMES.split(", "), row, strict=True))
    return Upload(**{**values, "findings": json.loads(values["findings"])})
