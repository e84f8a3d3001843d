"""Which trials a worker gets next, of all runs that are running: the store decides, whoever asks.

The higher priority goes first, then the owner with the fewest trials under way, then the run with the fewest,
then the one that has waited longest.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from proctor.model.trial import Offers
from proctor.store import queries, steps
from proctor.store.database import Database, Row, Transaction
from proctor.store.rows import words
from proctor.store.steps import Taken

_MOST_RUNS = 200


class OpenRun(NamedTuple):
    """A run with trials for a worker."""

    id: str
    kind: str
    held: int
    """How many of its trials are under way, with whatever worker."""


def within(sql: str, offers: Offers) -> tuple[str, dict[str, Any]]:
    """A statement with what a worker offers, and its parameters."""
    sql, params = queries.listed(sql, kinds=offers.kinds, backends=offers.backends)
    left = "t.labels"
    for at, label in enumerate(offers.labels):
        left = f"replace({left}, :label{at}, '')"
        params[f"label{at}"] = words((label,))
    params |= {"memory_mb": offers.memory_mb, "cpus": offers.cpus}
    return sql.replace("{labels}", left), params


def runs_for(db: Database, offers: Offers, soon_s: float = 0.0) -> list[OpenRun]:
    """The runs with trials that a worker can execute, in the order in which they are served.

    `soon_s`: also those whose trials wait that long after an error.
    """
    sql, params = within(queries.RUNS_TO_WORK_ON, offers)
    found = [OpenRun(*row) for row in db.read(sql, {**params, "runs": _MOST_RUNS, "soon_s": soon_s})]
    return [each for each in found if offers.runs is None or each.id in offers.runs]


def take(tx: Transaction, run_id: str, offers: Offers, *, worker: str, lease_s: float, limit: int) -> Taken:
    """Lease and begin trials of a run, in plan order, within what a worker offers."""
    sql, params = within(queries.TAKEABLE_WITHIN, offers)
    found = tx.execute(sql, {**params, "run": run_id, "limit": limit + 1})
    left_mb, fitting = offers.memory_mb, list[Row]()
    for row in found:
        if row[queries.TRIAL_WIDTH] <= left_mb:
            left_mb -= row[queries.TRIAL_WIDTH]
            fitting.append(row)
    memory_mb = [row[queries.TRIAL_WIDTH] for row in fitting]
    return steps.begin(tx, run_id, fitting, worker=worker, lease_s=lease_s, limit=limit, memory_mb=memory_mb)
