"""Answers to requests that had an idempotency key: the same request again has the same answer, for a day."""

from __future__ import annotations

from dataclasses import dataclass

from proctor.store.again import repeatable
from proctor.store.database import ConflictError, Database
from proctor.store.rows import column

_FORGET = "DELETE FROM answers WHERE at < {now} - 86400"
_ONE = "SELECT fingerprint, status, kind, body, {now} - at FROM answers WHERE owner = :owner AND key = :key"
_CLAIM = """
INSERT INTO answers (owner, key, at, fingerprint, status, kind, body)
VALUES (:owner, :key, {now}, :fingerprint, 0, '', :body)
"""
_KEEP = "UPDATE answers SET status = :status, kind = :kind, body = :body WHERE owner = :owner AND key = :key"
_DROP = "DELETE FROM answers WHERE owner = :owner AND key = :key"
_ABANDONED_S = 120.0
"""A request that has no answer after this long has died with its server."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered; status 0: the request is still being worked on."""

    fingerprint: str
    status: int
    kind: str
    body: bytes


@repeatable
class Answers:
    """The answers that are kept."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def claim(self, owner: str, key: str, fingerprint: str) -> Answer | None:
        """Begin a request; what was answered before, or is being worked on, if it is known already."""
        named = {"owner": owner, "key": column(key)}
        try:
            with self._db.write() as tx:
                tx.change(_FORGET)
                found = tx.execute(_ONE, named)
                if found and (found[0][1] or found[0][4] < _ABANDONED_S):
                    return Answer(found[0][0], found[0][1], found[0][2], bytes(found[0][3]))
                tx.change(_DROP, named)
                tx.change(_CLAIM, {**named, "fingerprint": fingerprint, "body": b""})
        except ConflictError:  # another request with this key came first, on PostgreSQL
            return Answer(fingerprint, 0, "", b"")
        return None

    def keep(self, owner: str, key: str, *, status: int, kind: str, body: bytes) -> None:
        """Remember what was answered."""
        with self._db.write() as tx:
            params = {"owner": owner, "key": column(key), "status": status, "kind": kind, "body": body}
            tx.change(_KEEP, params)

    def drop(self, owner: str, key: str) -> None:
        """Forget a request that failed: it may be tried again."""
        with self._db.write() as tx:
            tx.change(_DROP, {"owner": owner, "key": column(key)})
