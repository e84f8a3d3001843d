"""Trials as a worker takes them, in few words."""

from __future__ import annotations

from proctor.model.trial import Lease, Offers
from proctor.store.choice import Wish
from proctor.store.steps import Taken
from proctor.store.store import Store


def take(store: Store, run_id: str, *, worker: str = "w", lease_s: float = 30, limit: int = 1) -> list[Lease]:
    """The leases of trials that have begun."""
    return [lease for lease, _ in store.take(run_id, worker=worker, lease_s=lease_s, limit=limit).begun]


def take_any(store: Store, offers: Offers, limit: int = 1) -> Taken:
    """As a worker process that can execute any run."""
    return store.exchange_any([], Wish(offers, limit), worker="w", lease_s=30)[2]
