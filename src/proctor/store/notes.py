"""What workers say about an attempt while it runs: gathered, and written together with whatever comes next.

Each would otherwise be a commit of its own, and a rollout has several.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from proctor.model.trial import Lease
from proctor.store import queries
from proctor.store.database import Transaction
from proctor.store.rows import dump

_MOST = 10_000
"""Of more the oldest are dropped: they are for people who watch, and nothing depends on them."""


class Notes:
    """Events that wait to be written."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[float, dict[str, Any]]] = deque(maxlen=_MOST)

    def add(self, lease: Lease, kind: str, data: Mapping[str, Any]) -> None:
        """Keep an event of an attempt, with the moment at which it happened. Nothing is written."""
        event = {
            "run": lease.run_id,
            "idx": lease.index,
            "key": lease.key,
            "fence": lease.fence,
            "kind": kind,
            "data": dump({"attempt": lease.attempt, **data}),
        }
        self._waiting.append((time.monotonic(), event))

    def __len__(self) -> int:
        return len(self._waiting)

    def write(self, tx: Transaction) -> None:
        """All of them. Those of leases that were lost meanwhile are dropped."""
        events: list[dict[str, Any]] = []
        now = time.monotonic()
        while self._waiting:
            happened, event = self._waiting.popleft()
            events.append({**event, "age_s": now - happened})
        if events:
            tx.events(queries.INSERT_NOTE, events)
