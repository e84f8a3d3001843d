"""Addresses that are told when something happens to a run, and how far each of them is."""

from __future__ import annotations

import json
from dataclasses import dataclass

from proctor.store.again import repeatable
from proctor.store.database import Database, Row
from proctor.store.rows import column

_COLUMNS = "id, project, owner, created_at, kind, url, events, secret, enabled, after, last_at, last_status"
_SEEN = "(CAST(:project AS text) IS NULL OR project = CAST(:project AS text))"
_NEWEST = "COALESCE((SELECT max(id) FROM events), 0)"
_ADD = f"""
INSERT INTO webhooks (id, project, owner, created_at, kind, url, events, secret, enabled, after)
VALUES (:id, :project, :owner, {{now}}, :kind, :url, :events, :secret, 1, {_NEWEST})
"""
_LIST = f"SELECT {_COLUMNS} FROM webhooks WHERE {_SEEN} AND id > :from ORDER BY id LIMIT :limit"
_FIND = f"SELECT {_COLUMNS} FROM webhooks WHERE id = :id AND {_SEEN}"
_ENABLED = f"SELECT {_COLUMNS} FROM webhooks WHERE enabled = 1 ORDER BY id"
_ENABLE = f"""
UPDATE webhooks SET enabled = :enabled,
                    after = CASE WHEN :enabled = 1 AND enabled = 0 THEN {_NEWEST} ELSE after END
WHERE id = :id
"""
_MOVE = """
UPDATE webhooks SET after = :after, last_at = CASE WHEN :said = '' THEN last_at ELSE {now} END,
                    last_status = CASE WHEN :said = '' THEN last_status ELSE :said END
WHERE id = :id AND after = :expected
"""
_NOTE = "UPDATE webhooks SET last_at = {now}, last_status = :said WHERE id = :id"
_DELETE = "DELETE FROM webhooks WHERE id = :id"
_LAST = "SELECT COALESCE(max(e.id), 0) FROM events e WHERE {settled}"
_NEXT = """
SELECT e.id, e.run_id, e.at, e.kind, e.data FROM events e
LEFT JOIN run_service s ON s.run_id = e.run_id
WHERE e.id > :after AND e.id <= :last AND e.kind LIKE 'run.%'
AND COALESCE(s.project, 'default') = :project ORDER BY e.id LIMIT 200
"""


@dataclass(frozen=True, slots=True)
class Webhook:
    """An address that is told."""

    id: str
    project: str
    owner: str
    created_at: float
    kind: str
    url: str
    events: tuple[str, ...]
    secret: bytes
    """Sealed by the server's vault."""
    enabled: bool
    after: int
    """The last event that it was told of, or that was none of its business."""
    last_at: float | None = None
    last_status: str = ""


@dataclass(frozen=True, slots=True)
class RunEvent:
    """What happened to a run."""

    id: int
    run_id: str
    at: float
    kind: str
    data: str


@repeatable
class Webhooks:
    """The webhooks of projects."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def add(self, webhook: Webhook) -> None:
        """Keep a new one; it is told of what happens from now on."""
        params = {
            "id": webhook.id,
            "project": webhook.project,
            "owner": column(webhook.owner),
            "kind": webhook.kind,
            "url": webhook.url,
            "events": json.dumps(webhook.events),
            "secret": webhook.secret,
        }
        with self._db.write() as tx:
            tx.change(_ADD, params)

    def page(self, project: str | None, *, after: str = "", limit: int = 50) -> list[Webhook]:
        """Those of a project, or of all."""
        params = {"project": project, "from": after, "limit": limit}
        return [_webhook(row) for row in self._db.read(_LIST, params)]

    def find(self, webhook_id: str, project: str | None) -> Webhook | None:
        """One of them; None where there is none, or not in the project."""
        found = self._db.read(_FIND, {"id": column(webhook_id), "project": project})
        return _webhook(found[0]) if found else None

    def enabled(self) -> list[Webhook]:
        """All that are to be told."""
        return [_webhook(row) for row in self._db.read(_ENABLED)]

    def enable(self, webhook_id: str, *, enabled: bool) -> None:
        """Switch one on or off; what happens while it is off it is never told."""
        with self._db.write() as tx:
            tx.change(_ENABLE, {"id": webhook_id, "enabled": int(enabled)})

    def next(self, webhook: Webhook) -> tuple[list[RunEvent], int]:
        """Events of runs after the last one it knows, oldest first, and up to which event that was looked."""
        last = int(self._db.read(_LAST)[0][0])
        if last <= webhook.after:
            return [], webhook.after
        params = {"after": webhook.after, "last": last, "project": webhook.project}
        found = [RunEvent(*row) for row in self._db.read(_NEXT, params)]
        return found, found[-1].id if len(found) == 200 else last

    def move(self, webhook: Webhook, after: int, said: str = "") -> bool:
        """It knows everything up to an event now; False: another server was first."""
        params = {"id": webhook.id, "after": after, "expected": webhook.after, "said": column(said)}
        with self._db.write() as tx:
            return bool(tx.change(_MOVE, params))

    def note(self, webhook_id: str, said: str) -> None:
        """What came of the last try."""
        with self._db.write() as tx:
            tx.change(_NOTE, {"id": webhook_id, "said": column(said)})

    def delete(self, webhook_id: str) -> None:
        """Forget one."""
        with self._db.write() as tx:
            tx.change(_DELETE, {"id": webhook_id})


def _webhook(row: Row) -> Webhook:
    values = [*row]
    values[6:9] = tuple(json.loads(row[6])), bytes(row[7]), bool(row[8])
    return Webhook(*values)
