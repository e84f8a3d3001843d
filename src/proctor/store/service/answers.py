"""Answers to requests that had an idempotency key: the same request again has the same answer, for a day."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from proctor.errors import StoreError
from proctor.store.again import repeatable
from proctor.store.database import ConflictError, Database, Row, Transaction
from proctor.store.rows import column

_FORGET = "DELETE FROM answers WHERE at < {now} - 86400"
_ONE = """
SELECT fingerprint, status, kind, body FROM answers WHERE owner = :owner AND key = :key
AND at >= {now} - 86400 AND (status <> 0 OR kind <> '' OR at >= {now} - :abandoned_s)
"""
_CLAIM = """
INSERT INTO answers (owner, key, at, fingerprint, status, kind, body)
VALUES (:owner, :key, {now}, :fingerprint, 0, '', :body)
"""
_MADE = """
INSERT INTO answers (owner, key, at, fingerprint, status, kind, body)
VALUES (:owner, :key, {now}, :fingerprint, 0, :kind, :body) ON CONFLICT (owner, key) DO NOTHING
"""
_KEEP = "UPDATE answers SET status = :status, kind = :kind, body = :body WHERE owner = :owner AND key = :key"
_DROP = "DELETE FROM answers WHERE owner = :owner AND key = :key"
_ABANDONED = f"{_DROP} AND status = 0 AND kind = '' AND at < {{now}} - :abandoned_s"
_ABANDONED_S = 120.0
"""A request that has no answer after this long has died with its server."""
_RUN = "run"
"""What an answer is of which only the run is known."""


class Asked(NamedTuple):
    """A request with a key: whose it is, and what it asks for."""

    owner: str
    key: str
    fingerprint: str


class AnsweredError(StoreError):
    """The same key came first with another request, or with this one; nothing was written."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered; status 0: the request is still being worked on, or has made a run."""

    fingerprint: str
    status: int
    kind: str
    body: bytes

    @property
    def run_id(self) -> str | None:
        """The run that the request has made, where its answer was not kept before the server died."""
        return self.body.decode() if self.kind == _RUN else None


@repeatable
class Answers:
    """The answers that are kept."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def claim(self, owner: str, key: str, fingerprint: str) -> Answer | None:
        """Begin a request; what was answered before, or is being worked on, if it is known already."""
        named = {"owner": owner, "key": column(key), "abandoned_s": _ABANDONED_S}
        try:
            with self._db.write() as tx:
                tx.change(_FORGET)
                if found := tx.execute(_ONE, named):
                    return _answer(found[0])
                tx.change(_DROP, named)
                tx.change(_CLAIM, {**named, "fingerprint": fingerprint, "body": b""})
        except ConflictError:  # another request with this key came first, on PostgreSQL
            return Answer(fingerprint, 0, "", b"")
        return None

    def find(self, asked: Asked) -> Answer | None:
        """What was answered before, or is being worked on."""
        named = {"owner": asked.owner, "key": column(asked.key), "abandoned_s": _ABANDONED_S}
        found = self._db.read(_ONE, named)
        return _answer(found[0]) if found else None

    def keep(self, owner: str, key: str, *, status: int, kind: str, body: bytes) -> None:
        """Remember what was answered."""
        with self._db.write() as tx:
            params = {"owner": owner, "key": column(key), "status": status, "kind": kind, "body": body}
            tx.change(_KEEP, params)

    def drop(self, owner: str, key: str) -> None:
        """Forget a request that failed: it may be tried again."""
        with self._db.write() as tx:
            tx.change(_DROP, {"owner": owner, "key": column(key)})


def write_made(tx: Transaction, asked: Asked, run_id: str) -> None:
    """Note in the transaction that makes a run which request made it; AnsweredError when one did before."""
    named = {"owner": asked.owner, "key": column(asked.key), "abandoned_s": _ABANDONED_S}
    tx.change(_FORGET)
    tx.change(_ABANDONED, named)
    params = {**named, "fingerprint": asked.fingerprint, "kind": _RUN, "body": run_id.encode()}
    if not tx.change(_MADE, params):
        raise AnsweredError(f"the request '{asked.key}' was answered before")


def _answer(row: Row) -> Answer:
    return Answer(row[0], row[1], row[2], bytes(row[3]))
