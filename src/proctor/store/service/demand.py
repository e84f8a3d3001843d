"""How much work could run now, by what it needs: the signal by which workers are added and taken away.

Only counts and a few columns are read, so that a store with a hundred thousand trials can be asked every few
seconds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from proctor.store.database import Database

ANY = "any"
"""The back end of trials that name none."""
_CLASS = "t.kind, t.backend, t.labels"
"""What makes trials a class: kind of run, back end, labels of workers that they ask for."""
_RUNS = """
SELECT r.id, r.status, COALESCE(s.project, 'default'), COALESCE(s.queued_at, r.created_at),
  (SELECT count(*) FROM coordinators c WHERE c.run_id = r.id AND c.expires_at > {now}), p.max_runs, {now}
FROM runs r LEFT JOIN run_service s ON s.run_id = r.id LEFT JOIN projects p ON p.id = s.project
WHERE r.status IN ('pending', 'running', 'interrupted') AND (COALESCE(s.wanted, 0) = 1 OR EXISTS
  (SELECT 1 FROM coordinators c WHERE c.run_id = r.id AND c.expires_at > {now}))
  AND (CAST(:project AS text) IS NULL OR COALESCE(s.project, 'default') = CAST(:project AS text))
ORDER BY COALESCE(s.priority, 0) DESC, COALESCE(s.queued_at, r.created_at), r.id
"""
_PENDING = f"""
SELECT t.run_id, {_CLASS}, count(*), sum(CASE WHEN t.ready_at > {{now}} THEN 1 ELSE 0 END),
  min(t.ready_at), max(t.memory_mb)
FROM trials t JOIN runs r ON r.id = t.run_id
WHERE t.state = 'pending' AND r.status IN ('pending', 'running', 'interrupted')
GROUP BY 1, 2, 3, 4
"""
_HELD = f"""
SELECT {_CLASS}, count(*), max(t.memory_mb)
FROM trials t LEFT JOIN run_service s ON s.run_id = t.run_id
WHERE t.expires_at IS NOT NULL
  AND (CAST(:project AS text) IS NULL OR COALESCE(s.project, 'default') = CAST(:project AS text))
GROUP BY 1, 2, 3
"""


@dataclass(frozen=True, slots=True)
class Need:
    """Trials of one class: they need the same kind of worker."""

    kind: str
    backend: str
    labels: str = ""
    """Labels that a worker has to have, separated by commas."""
    waiting: int = 0
    """Could run now, if a worker were free."""
    delayed: int = 0
    """Wait for their next try after an error, or for a place of their project's quota."""
    running: int = 0
    oldest_s: float = 0.0
    """How long the first of those that could run has waited."""
    memory_mb: int = 0
    """The most that one of them asks for."""


@dataclass(frozen=True, slots=True)
class Demand:
    """All classes of need, and what an autoscaler makes of them."""

    needs: tuple[Need, ...] = ()

    @property
    def waiting(self) -> int:
        """Trials that could run now."""
        return sum(each.waiting for each in self.needs)

    @property
    def running(self) -> int:
        """Trials that workers hold."""
        return sum(each.running for each in self.needs)

    @property
    def trials(self) -> int:
        """How many trials would be under way if there were workers enough."""
        return self.waiting + self.running

    @property
    def oldest_s(self) -> float:
        """How long the first that could run has waited."""
        return max((each.oldest_s for each in self.needs), default=0.0)

    def workers(self, slots: int) -> int:
        """How many workers would execute all of it at once, with so many trials at a time each."""
        return math.ceil(self.trials / slots)


def as_data(demand: Demand, slots: int) -> dict[str, Any]:
    """As the API and `proctor queue` tell it."""
    return {
        "trials": demand.trials,
        "waiting": demand.waiting,
        "delayed": sum(each.delayed for each in demand.needs),
        "running": demand.running,
        "oldest_s": demand.oldest_s,
        "slots": slots,
        "wanted_workers": demand.workers(slots),
        "classes": [asdict(each) for each in demand.needs],
    }


def read_demand(db: Database, project: str | None = None) -> Demand:
    """Of one project or of all. Runs that nobody has started are no demand."""
    runs = list(_may_run(db.read(_RUNS, {"project": project})))
    found = {run_id: (since, now, allowed) for run_id, since, now, allowed in runs}
    needs: dict[tuple[str, str, str], Need] = {}
    for run_id, *key, number, later, ready_at, memory_mb in db.read(_PENDING):
        if run_id not in found:
            continue
        since, now, allowed = found[run_id]
        ready = int(number) - int(later) if allowed else 0
        waited_s = max(0.0, now - max(float(ready_at), since)) if ready else 0.0
        need = _need(needs, *key)
        needs[need.kind, need.backend, need.labels] = replace(
            need,
            waiting=need.waiting + ready,
            delayed=need.delayed + int(number) - ready,
            oldest_s=max(need.oldest_s, waited_s),
            memory_mb=max(need.memory_mb, int(memory_mb)),
        )
    for *key, number, memory_mb in db.read(_HELD, {"project": project}):
        need = _need(needs, *key)
        needs[need.kind, need.backend, need.labels] = replace(
            need, running=int(number), memory_mb=max(need.memory_mb, int(memory_mb))
        )
    return Demand(tuple(needs[key] for key in sorted(needs)))


def _need(needs: dict[tuple[str, str, str], Need], kind: str, backend: str, labels: str) -> Need:
    """What is known of a class so far."""
    labels = ",".join(filter(None, labels.split("|")))
    return needs.get((kind, backend or ANY, labels)) or Need(kind, backend or ANY, labels)


def _may_run(rows: Iterable[Sequence[Any]]) -> Iterator[tuple[str, float, float, bool]]:
    """Each run, since when it waits, the time, and whether its project's quota lets it run at once."""
    runs = list(rows)
    active = Counter(row[2] for row in runs if row[4])
    for run_id, _, project, since, coordinated, most, now in runs:
        allowed = bool(coordinated) or most is None or active[project] < most
        if allowed and not coordinated:
            active[project] += 1
        yield str(run_id), float(since), float(now), allowed
