"""The rollouts of an uploaded task as the older API shows them, and holding some of them back."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from proctor.model.record import AttemptRecord
from proctor.store import queries, rows
from proctor.store.again import repeatable
from proctor.store.database import Database

_HELD_AT = 9e15
"""When a trial that is held back could begin: never."""
_OF_RUN = f"""
SELECT t.idx, t.key, t.state, t.outcome, t.started_at, t.attempts, {queries.ATTEMPT_COLUMNS}
FROM trials t LEFT JOIN attempts a ON a.run_id = t.run_id AND a.idx = t.idx
  AND a.number = (SELECT max(b.number) FROM attempts b WHERE b.run_id = t.run_id AND b.idx = t.idx)
WHERE t.run_id = :run AND (:idx < 0 OR t.idx = :idx) ORDER BY t.idx
"""
_HOLD = f"""
UPDATE trials SET ready_at = {_HELD_AT} WHERE run_id = :run AND state = 'pending' AND idx <> :idx
"""
_LET_GO = f"""
UPDATE trials SET ready_at = 0
WHERE run_id = :run AND state = 'pending' AND ready_at >= {_HELD_AT} AND (:idx < 0 OR idx = :idx)
"""
_ONLY_HELD = f"""
SELECT r.id FROM runs r WHERE r.id IN ({{ids}}) AND r.status = 'running'
AND EXISTS (SELECT 1 FROM trials t WHERE t.run_id = r.id AND t.state = 'pending' AND t.ready_at >= {_HELD_AT})
AND NOT EXISTS (
  SELECT 1 FROM trials t WHERE t.run_id = r.id AND t.state IN ('pending', 'leased', 'running')
  AND t.ready_at < {_HELD_AT}
)
"""
_JUDGED = f"""
SELECT COALESCE(sum(CASE WHEN {queries.IS_PASS} THEN 1 ELSE 0 END), 0), count(*)
FROM attempts a JOIN uploads u ON u.run_id = a.run_id
WHERE a.counts = 1 AND {queries.IS_SCORED}
  AND (CAST(:project AS text) IS NULL OR u.project = CAST(:project AS text))
  AND (CAST(:run AS text) IS NULL OR a.run_id = CAST(:run AS text))
"""
_PLANNED = """
SELECT COALESCE(sum(COALESCE(r.total, u.num_runs)), 0) FROM uploads u LEFT JOIN runs r ON r.id = u.run_id
WHERE CAST(:project AS text) IS NULL OR u.project = CAST(:project AS text)
"""


@dataclass(frozen=True, slots=True)
class Rollout:
    """One trial with its newest attempt."""

    index: int
    key: str
    state: str
    outcome: str | None
    started_at: float | None
    attempts: int
    record: AttemptRecord | None


@repeatable
class Rollouts:
    """The trials of small runs, whole."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def of(self, run_id: str, index: int = -1) -> list[Rollout]:
        """All of a run, or one."""
        return [
            Rollout(
                row[0],
                row[1],
                row[2],
                row[3],
                row[4],
                row[5],
                rows.attempt_record(row[6:], row[1]) if row[6] is not None else None,
            )
            for row in self._db.read(_OF_RUN, {"run": run_id, "idx": index})
        ]

    def hold_others(self, run_id: str, index: int) -> None:
        """Only one trial of a run is to begin; the others wait until they are let go."""
        with self._db.write() as tx:
            tx.change(_HOLD, {"run": run_id, "idx": index})
            tx.change(_LET_GO, {"run": run_id, "idx": index})

    def let_go(self, run_id: str, index: int = -1) -> None:
        """All trials of a run may begin, or one of them."""
        with self._db.write() as tx:
            tx.change(_LET_GO, {"run": run_id, "idx": index})

    def only_held(self, run_ids: Collection[str]) -> set[str]:
        """Those of these runs of which nothing is left but what is held back."""
        sql, params = queries.listed(_ONLY_HELD, ids=list(run_ids))
        return {str(row[0]) for row in self._db.read(sql, params)}

    def planned(self, project: str | None) -> int:
        """How many rollouts all uploads have."""
        return int(self._db.read(_PLANNED, {"project": project})[0][0])

    def judged(self, *, project: str | None = None, run_id: str | None = None) -> tuple[int, int]:
        """How many rollouts passed, and how many are scored: of all uploads, or of the run of one."""
        passed, scored = self._db.read(_JUDGED, {"project": project, "run": run_id})[0]
        return int(passed), int(scored)
