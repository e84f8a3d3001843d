"""What a monitor asks of a store: counts over all runs that a caller sees."""

from __future__ import annotations

from dataclasses import dataclass

from proctor.store.database import Database
from proctor.store.fleet import Fleet
from proctor.store.service.demand import Demand, read_demand

_NANO = 1_000_000_000
_SEEN = (
    "(CAST(:project AS text) IS NULL OR COALESCE((SELECT s.project FROM run_service s "
    "WHERE s.run_id = {run}), 'default') = CAST(:project AS text))"
)
_RUNS = f"SELECT r.status, count(*) FROM runs r WHERE {_SEEN.format(run='r.id')} GROUP BY r.status"
_OUTCOMES = f"""
SELECT c.outcome, CAST(sum(CASE WHEN c.state = 'done' THEN c.trials ELSE 0 END) AS BIGINT),
  CAST(sum(c.attempts) AS BIGINT), sum(c.seconds)
FROM run_counts c WHERE {_SEEN.format(run="c.run_id")} GROUP BY c.outcome
"""
"""Not of the attempts themselves: a monitor asks every few seconds, and there are more and more of them."""
_HELD = f"""
SELECT count(*), count(DISTINCT t.worker) FROM trials t
WHERE t.expires_at IS NOT NULL AND {_SEEN.format(run="t.run_id")}
"""
_OPEN = f"""
SELECT CAST(COALESCE(sum(r.total - COALESCE(
  (SELECT sum(c.trials) FROM run_counts c WHERE c.run_id = r.id), 0)), 0) AS BIGINT)
FROM runs r WHERE r.status IN ('pending', 'running') AND {_SEEN.format(run="r.id")}
"""
_SPENT = f"""
SELECT CAST(COALESCE(sum(p.requests), 0) AS BIGINT), CAST(COALESCE(sum(p.tokens), 0) AS BIGINT),
  CAST(COALESCE(sum(p.nano_usd), 0) AS BIGINT)
FROM spending p WHERE p.scope = 'run' AND {_SEEN.format(run="p.run_id")}
"""
_QUEUE = f"""
SELECT count(*), COALESCE({{now}} - min(q.queued_at), 0) FROM run_service q JOIN runs r ON r.id = q.run_id
WHERE q.wanted = 1 AND r.status IN ('pending', 'interrupted') AND {_SEEN.format(run="r.id")}
"""


@dataclass(frozen=True, slots=True)
class Figures:
    """What a store holds now."""

    runs: dict[str, int]
    outcomes: dict[str, int]
    queued_runs: int
    queue_age_s: float
    running_trials: int
    waiting_trials: int
    workers: int
    slots: int
    """How many trials live workers that take any more execute at a time."""
    attempts: dict[str, int]
    """By outcome, those that were tried again too."""
    attempt_s: float
    requests: int
    tokens: int
    cost_usd: float
    demand: Demand


class Monitor:
    """Counts."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def figures(self, project: str | None) -> Figures:
        """All of them, of one project or of all."""
        seen = {"project": project}
        running, workers = self._db.read(_HELD, seen)[0]
        queued, age_s = self._db.read(_QUEUE, seen)[0]
        outcomes = self._db.read(_OUTCOMES, seen)
        requests, tokens, nano_usd = self._db.read(_SPENT, seen)[0]
        live = Fleet(self._db).live()
        return Figures(
            runs={str(row[0]): int(row[1]) for row in self._db.read(_RUNS, seen)},
            outcomes={str(row[0]): int(row[1]) for row in outcomes if row[1]},
            queued_runs=int(queued),
            queue_age_s=float(age_s),
            running_trials=int(running),
            waiting_trials=max(0, int(self._db.read(_OPEN, seen)[0][0]) - int(running)),
            workers=max(int(workers), len(live)),
            slots=sum(each.parallel for each in live if not each.draining),
            attempts={str(row[0]): int(row[2]) for row in outcomes if row[2]},
            attempt_s=sum(float(row[3]) for row in outcomes),
            requests=int(requests),
            tokens=int(tokens),
            cost_usd=int(nano_usd) / _NANO,
            demand=read_demand(self._db, project),
        )

    def demand(self, project: str | None = None) -> Demand:
        """How much could run now, of one project or of all."""
        return read_demand(self._db, project)

    def answers(self) -> bool:
        """Whether the store can be read."""
        return bool(self._db.read("SELECT 1"))
