"""Workers that share a store."""

from __future__ import annotations

from tests.taking import take

from proctor.errors import FenceError
from proctor.store.store import Store

RUN = "20260101-aaaa"


def work(store: Store, worker: str, make: object) -> None:
    """Claim and finish until nothing is left."""
    while leases := take(store, RUN, worker=worker, lease_s=30, limit=2):
        for lease in leases:
            try:
                store.finish(lease, make.record(lease), counts=True)
            except FenceError:
                continue
