"""The runs that a server is to execute, in the order in which they came."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from proctor.store import queries, steps
from proctor.store.again import repeatable
from proctor.store.database import Database
from proctor.store.rows import column

_OPEN = "r.status IN ('pending', 'running', 'interrupted')"
_WAITING = f"""
SELECT s.run_id, s.project, s.owner, r.kind, s.priority, s.queued_at, r.status, s.parallel, p.max_runs
FROM run_service s JOIN runs r ON r.id = s.run_id JOIN projects p ON p.id = s.project
WHERE s.wanted = 1 AND {_OPEN} ORDER BY s.priority DESC, s.queued_at, s.run_id LIMIT :limit
"""
_WANTED = "SELECT run_id FROM run_service WHERE wanted = 1 AND run_id IN ({ids})"
_SET = """
UPDATE run_service SET wanted = :wanted, failure = :failure,
                       queued_at = CASE WHEN :wanted = 1 AND wanted = 0 THEN {now} ELSE queued_at END
WHERE run_id = :run
"""
_ADOPT = """
INSERT INTO run_service (run_id, project, owner, wanted, queued_at)
VALUES (:run, 'default', :owner, 0, {now}) ON CONFLICT (run_id) DO NOTHING
"""
_PRIORITY = "UPDATE run_service SET priority = :priority WHERE run_id = :run"
_DEPTH = f"""
SELECT count(*), COALESCE({{now}} - min(s.queued_at), 0) FROM run_service s JOIN runs r ON r.id = s.run_id
WHERE s.wanted = 1 AND {_OPEN} AND r.status <> 'running'
"""
_OPEN_RUNS = f"""
SELECT count(*) FROM run_service s JOIN runs r ON r.id = s.run_id
WHERE s.project = :project AND s.wanted = 1 AND {_OPEN}
"""


@dataclass(frozen=True, slots=True)
class Queued:
    """A run that is to be executed."""

    run_id: str
    project: str
    owner: str
    kind: str
    priority: int
    queued_at: float
    status: str
    parallel: int | None
    most_runs: int | None
    """How many runs of its project may be executed at a time; None: any number."""

    @property
    def alone(self) -> bool:
        """Whether nothing may run beside it: timings beside other work are contended."""
        return self.kind != "task"


@repeatable
class Queue:
    """The runs that a server is to execute."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def waiting(self, limit: int = 1000) -> list[Queued]:
        """Those that have not ended, also those that are being executed; the first comes first."""
        return [Queued(*row) for row in self._db.read(_WAITING, {"limit": limit})]

    def wanted(self, run_ids: Collection[str]) -> set[str]:
        """Those of these runs that are still to be executed."""
        sql, params = queries.listed(_WANTED, ids=list(run_ids))
        return {str(row[0]) for row in self._db.read(sql, params)}

    def want(self, run_id: str, *, wanted: bool, failure: str = "", owner: str = "", event: str = "") -> None:
        """Put a run into the queue or take it out; `failure`: why it cannot go on."""
        with self._db.write() as tx:
            if wanted:  # a run that no server was told about has nothing to leave
                tx.change(_ADOPT, {"run": run_id, "owner": column(owner)})
            tx.change(_SET, {"run": run_id, "wanted": int(wanted), "failure": column(failure)})
            if event:
                steps.write_event(tx, run_id, event, {"reason": failure} if failure else {})

    def tell(self, run_id: str, event: str, data: Mapping[str, Any]) -> None:
        """Write an event of a run."""
        with self._db.write() as tx:
            steps.write_event(tx, run_id, event, data)

    def set_priority(self, run_id: str, priority: int) -> None:
        """A run with a higher one goes first."""
        with self._db.write() as tx:
            tx.change(_ADOPT, {"run": run_id, "owner": ""})
            tx.change(_PRIORITY, {"run": run_id, "priority": priority})
            steps.write_event(tx, run_id, "run.changed", {"priority": priority})

    def depth(self) -> tuple[int, float]:
        """How many runs wait to begin, and how long the first of them has, in seconds."""
        found = self._db.read(_DEPTH)[0]
        return int(found[0]), float(found[1])

    def open_runs(self, project: str) -> int:
        """How many runs of a project are queued or executed."""
        return int(self._db.read(_OPEN_RUNS, {"project": project})[0][0])
