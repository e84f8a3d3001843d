"""Workers that share a store."""

from __future__ import annotations

from proctor.errors import FenceError
from proctor.store.store import Store

RUN = "20260101-aaaa"


def work(store: Store, worker: str, make: object) -> None:
    """Claim and finish until nothing is left."""
    while leases := store.claim(RUN, worker=worker, now=1.0, lease_s=30, limit=2):
        for lease in leases:
            try:
                store.begin(lease, 1.0)
                store.finish(lease, make.record(lease), now=2.0, counts=True)
            except FenceError:
                continue
