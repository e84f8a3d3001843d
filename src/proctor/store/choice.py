"""Which trials a worker gets next, of all runs that are running: the store decides, whoever asks.

The higher priority goes first, then the owner with the fewest trials under way, then the run with the fewest,
then the one that has waited longest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple
from zlib import crc32

from msgspec.structs import replace

from proctor.model.plan import PlannedTrial
from proctor.model.trial import Lease, Offers
from proctor.store import queries, steps
from proctor.store.database import Params, Row, Transaction
from proctor.store.rows import column, words
from proctor.store.steps import Taken

_MOST_RUNS = 200
_ALONE = "SELECT {place_lock}"
_PROMISED = """
SELECT COALESCE(sum(t.memory_mb), 0) FROM workers w JOIN trials t ON t.worker = w.name
WHERE w.place = :place AND w.name <> :worker AND t.expires_at IS NOT NULL AND t.memory_mb > 0
"""
"""Workers that are dead count with what they hold until that is taken back: sandboxes may still be there."""


class OpenRun(NamedTuple):
    """A run with trials for a worker."""

    id: str
    kind: str
    held: int
    """How many of its trials are under way, with whatever worker."""


class Wish(NamedTuple):
    """What a worker process asks for."""

    offers: Offers
    """What it has not promised yet."""
    room: int
    ready: Collection[str] | None = None
    """The runs that it can execute already; None: any."""
    refused: Collection[str] = ()
    idle: bool = True
    """Whether nothing runs in it: timings want it for themselves."""


def within(sql: str, offers: Offers) -> tuple[str, dict[str, Any]]:
    """A statement with what a worker offers, and its parameters."""
    sql, params = queries.listed(sql, kinds=offers.kinds, backends=offers.backends)
    left = "t.labels"
    for at, label in enumerate(offers.labels):
        left = f"replace({left}, :label{at}, '')"
        params[f"label{at}"] = words((label,))
    params |= {"memory_mb": offers.memory_mb, "cpus": offers.cpus}
    return sql.replace("{labels}", left), params


def runs_for(
    read: Callable[[str, Params], Sequence[Row]], offers: Offers, soon_s: float = 0.0
) -> list[OpenRun]:
    """The runs with trials that a worker can execute, in the order in which they are served.

    `soon_s`: also those whose trials wait that long after an error.
    """
    sql, params = within(queries.RUNS_TO_WORK_ON, offers)
    found = [OpenRun(*row) for row in read(sql, {**params, "runs": _MOST_RUNS, "soon_s": soon_s})]
    return [each for each in found if offers.runs is None or each.id in offers.runs]


def take_next(tx: Transaction, wish: Wish, *, worker: str, lease_s: float) -> tuple[list[OpenRun], Taken]:
    """Runs with something for a worker, and what it begins of those that it can execute already.

    Fair between runs: where several have work each gives its share, and the next turn goes on.
    """
    found = [each for each in runs_for(tx.execute, wish.offers) if each.id not in wish.refused]
    begun: list[tuple[Lease, PlannedTrial]] = []
    upcoming: PlannedTrial | None = None
    if not wish.idle and found and found[0].kind == "experiment" and not found[0].held:
        return found, Taken(begun, upcoming)  # it comes next, and wants the process for itself
    memory = _Memory(tx, wish.offers, worker)
    ready = [each for each in found if wish.ready is None or each.id in wish.ready]
    for at, run in enumerate(ready):
        alone = run.kind == "experiment"
        if alone and (begun or not wish.idle):
            continue
        share = 1 if alone else max(1, -(-(wish.room - len(begun)) // (len(ready) - at)))
        taken = _take(tx, run.id, wish.offers, memory, worker=worker, lease_s=lease_s, limit=share)
        begun += taken.begun
        upcoming = taken.upcoming if len(ready) == 1 else None
        if len(begun) >= wish.room or (alone and taken.begun):
            break
    return found, Taken(begun, upcoming)


class _Memory:
    """What a worker may still promise of its host's memory, of which others may promise too."""

    def __init__(self, tx: Transaction, offers: Offers, worker: str) -> None:
        self.left_mb = offers.memory_mb
        self._tx = tx
        self._place = offers.place
        self._worker = column(worker)
        self._known = not offers.place

    def share(self) -> bool:
        """Take off what the other workers of the host have promised, if not done yet; whether there is some.

        Of workers that share memory one at a time comes to this, until its transaction has ended.
        """
        if self._known:
            return False
        self._known = True
        self._tx.execute(_ALONE, {"place_number": crc32(self._place.encode()) >> 1})
        promised_mb = self._tx.execute(_PROMISED, {"place": self._place, "worker": self._worker})[0][0]
        self.left_mb = max(0, self.left_mb - promised_mb)
        return bool(promised_mb)


def _take(
    tx: Transaction, run_id: str, offers: Offers, memory: _Memory, *, worker: str, lease_s: float, limit: int
) -> Taken:
    """Lease and begin trials of a run, in plan order; together they need no more memory than is left."""

    def look() -> Sequence[Row]:
        sql, params = within(queries.TAKEABLE_WITHIN, replace(offers, memory_mb=memory.left_mb))
        return tx.execute(sql, {**params, "run": run_id, "limit": limit + 1})

    found = look()
    if any(row[queries.TRIAL_WIDTH] for row in found) and memory.share():
        found = look()
    left_mb, fitting = memory.left_mb, list[Row]()
    for row in found:
        if row[queries.TRIAL_WIDTH] <= left_mb:
            left_mb -= row[queries.TRIAL_WIDTH]
            fitting.append(row)
    memory_mb = [row[queries.TRIAL_WIDTH] for row in fitting]
    taken = steps.begin(tx, run_id, fitting, worker=worker, lease_s=lease_s, limit=limit, memory_mb=memory_mb)
    memory.left_mb -= sum(lease.memory_mb for lease, _ in taken.begun)
    return taken
