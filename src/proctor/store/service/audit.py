"""Who did what and when: one row for each change that a person makes through a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from proctor.store.again import repeatable
from proctor.store.database import Database, Transaction
from proctor.store.rows import column, dump

_ADD = """
INSERT INTO audit (at, actor, token_id, project, action, target, detail)
VALUES ({now}, :actor, :token, :project, :action, :target, :detail)
"""
_PAGE = """
SELECT id, at, actor, token_id, project, action, target, detail FROM audit
WHERE id < :before AND (CAST(:project AS text) IS NULL OR project = CAST(:project AS text))
ORDER BY id DESC LIMIT :limit
"""
_NEWEST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Deed:
    """What somebody did."""

    id: int
    at: float
    actor: str
    token: str
    project: str
    action: str
    target: str
    detail: Mapping[str, Any]


@repeatable
class Audit:
    """The record of changes."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def add(
        self, actor: str, action: str, target: str, *, token: str = "", project: str = "", **detail: Any
    ) -> None:
        """Write one. Values are never secrets."""
        with self._db.write() as tx:
            write_deed(tx, actor, action, target, token=token, project=project, **detail)

    def page(self, project: str | None, *, before: int | None = None, limit: int = 50) -> list[Deed]:
        """The newest first."""
        import json

        params = {"project": project, "before": before or _NEWEST, "limit": limit}
        found = []
        for row in self._db.read(_PAGE, params):
            number, at, actor, token, owner, action, target, detail = row
            found.append(Deed(number, at, actor, token, owner, action, target, json.loads(detail)))
        return found


def write_deed(
    tx: Transaction, actor: str, action: str, target: str, *, token: str, project: str, **detail: Any
) -> None:
    """Write one in the transaction of what was done."""
    params = {
        "actor": column(actor),
        "token": token,
        "project": project,
        "action": action,
        "target": column(target),
        "detail": dump(detail),
    }
    tx.change(_ADD, params)
