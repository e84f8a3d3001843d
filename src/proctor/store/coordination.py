"""Who coordinates a run: one lease per run with a fence, on the database's clock.

Whoever takes the lease raises the fence, so what an earlier coordinator still tries to write is refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from proctor.errors import FenceError
from proctor.store.again import repeatable
from proctor.store.database import Database, Transaction

_FIRST = """
INSERT INTO coordinators (run_id, holder, fence, expires_at) VALUES (:run, '', 0, 0)
ON CONFLICT (run_id) DO NOTHING
"""
_TAKE = """
UPDATE coordinators SET holder = :holder, fence = fence + 1, expires_at = {now} + :lease_s
WHERE run_id = :run AND (expires_at <= {now} OR holder = :dead)
"""
_OURS = "run_id = :run AND fence = :fence"
_RENEW = f"UPDATE coordinators SET expires_at = {{now}} + :lease_s WHERE {_OURS}"
_RELEASE = f"UPDATE coordinators SET holder = '', expires_at = 0 WHERE {_OURS}"
_READ = "SELECT run_id, holder, fence, expires_at FROM coordinators WHERE run_id = :run"
_HOLDER = f"{_READ} AND expires_at > {{now}}"
_CHECK = f"SELECT t.fence FROM coordinators t WHERE {_OURS} {{wait_lock}}"
_LAST_EVENT = "SELECT COALESCE(max(e.id), 0) FROM events e WHERE e.run_id = :run AND {settled}"
_ENDED = """
SELECT e.id, t.key, e.data FROM events e JOIN trials t ON t.run_id = e.run_id AND t.idx = e.idx
WHERE e.run_id = :run AND e.id > :after AND e.kind = 'attempt.ended' AND {settled} ORDER BY e.id LIMIT :limit
"""
_SAID = """
SELECT e.data FROM events e
WHERE e.run_id = :run AND e.id > :after AND e.kind = :kind AND {settled} ORDER BY e.id LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class RunLease:
    """The right to coordinate one run, until it expires or passes to another."""

    run_id: str
    holder: str
    fence: int
    expires_at: float


@repeatable
class Coordination:
    """The leases of coordinators, and what a coordinator or a worker asks of a run again and again."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def holder(self, run_id: str) -> RunLease | None:
        """Who coordinates a run now, or did so until it died; None when nobody does."""
        found = self._db.read(_HOLDER, {"run": run_id})
        return RunLease(*found[0]) if found else None

    def take(self, run_id: str, *, holder: str, lease_s: float, dead: str = "") -> RunLease | None:
        """Take a lease that is free, has expired, or is of a holder known to be `dead`; None: it is held."""
        params = {"run": run_id, "holder": holder, "lease_s": lease_s, "dead": dead or holder}
        with self._db.write() as tx:
            tx.change(_FIRST, {"run": run_id})
            if not tx.change(_TAKE, params):
                return None
            return RunLease(*tx.execute(_READ, {"run": run_id})[0])

    def renew(self, lease: RunLease, lease_s: float) -> bool:
        """Push the end of a lease forward; False when it has passed to another."""
        with self._db.write() as tx:
            changed = tx.change(_RENEW, {**_ours(lease), "lease_s": lease_s})
        return bool(changed)

    def release(self, lease: RunLease) -> None:
        """Let go of it. Nothing happens when it has passed on."""
        with self._db.write() as tx:
            tx.change(_RELEASE, _ours(lease))

    def last_event(self, run_id: str) -> int:
        """The number of the latest event of a run below which none can come any more."""
        return int(self._db.read(_LAST_EVENT, {"run": run_id})[0][0])

    def spent_since(self, run_id: str, after: int) -> str:
        """Why a worker takes nothing more of a run, where one said after an event that a budget is spent."""
        return str(self._said(run_id, after, "run.spent").get("reason", ""))

    def refused_since(self, run_id: str, after: int) -> tuple[str, str]:
        """A worker that said after an event that it cannot execute a run, and why; both empty: none."""
        said = self._said(run_id, after, "run.refused")
        return str(said.get("worker", "")), str(said.get("reason", ""))

    def _said(self, run_id: str, after: int, kind: str) -> dict[str, object]:
        found = self._db.read(_SAID, {"run": run_id, "after": after, "kind": kind})
        said: dict[str, object] = json.loads(found[0][0]) if found else {}
        return said

    def ended_since(self, run_id: str, after: int, limit: int = 1000) -> list[tuple[int, str, int]]:
        """Attempts that ended after an event: the event, the key of the trial, the number of the attempt."""
        found = self._db.read(_ENDED, {"run": run_id, "after": after, "limit": limit})
        return [(event, key, int(json.loads(data)["attempt"])) for event, key, data in found]


def check(tx: Transaction, lease: RunLease) -> None:
    """Let the transaction go on for the current coordinator only: FenceError when the lease has passed on."""
    if not tx.execute(_CHECK, _ours(lease)):
        raise FenceError(
            f"run {lease.run_id}: it is coordinated by another process now "
            f"(the lease of {lease.holder}, fence {lease.fence}, has passed on); nothing was written"
        )


def _ours(lease: RunLease) -> dict[str, object]:
    return {"run": lease.run_id, "fence": lease.fence}
