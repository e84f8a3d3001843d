"""Trials as a worker takes them, in few words."""

from __future__ import annotations

from proctor.model.trial import Lease
from proctor.store.store import Store


def take(store: Store, run_id: str, *, worker: str = "w", lease_s: float = 30, limit: int = 1) -> list[Lease]:
    """The leases of trials that have begun."""
    return [lease for lease, _ in store.take(run_id, worker=worker, lease_s=lease_s, limit=limit).begun]
