"""Which runs are old enough to lose their files, and letting go of them. Results, labels and notes stay."""

from __future__ import annotations

from collections.abc import Collection

from proctor.store import steps
from proctor.store.again import repeatable
from proctor.store.database import Database

CLEARED = "run.cleared"
_OLD = f"""
SELECT r.id FROM runs r JOIN projects p ON p.id = COALESCE(
  (SELECT s.project FROM run_service s WHERE s.run_id = r.id), 'default')
WHERE p.keep_days IS NOT NULL AND r.status IN ('done', 'cancelled', 'interrupted')
AND COALESCE(r.finished_at, r.created_at) < {{now}} - p.keep_days * 86400.0
AND NOT EXISTS (SELECT 1 FROM run_service w WHERE w.run_id = r.id AND w.wanted = 1)
AND NOT EXISTS (SELECT 1 FROM events e WHERE e.run_id = r.id AND e.kind = '{CLEARED}')
ORDER BY r.id LIMIT :limit
"""
_MARKED = """
SELECT idx FROM trial_labels WHERE run_id = :run UNION SELECT idx FROM trial_comments WHERE run_id = :run
"""
_ALL = "SELECT digest, size_bytes FROM blob_refs WHERE run_id = :run"
_INPUTS = "SELECT digest FROM run_inputs WHERE run_id = :run"
_DROP = "DELETE FROM blob_refs WHERE run_id = :run AND digest = :digest"
_ELSEWHERE = "SELECT 1 FROM blob_refs WHERE digest = :digest UNION SELECT 1 FROM uploads WHERE blob = :digest"


@repeatable
class Retention:
    """What is kept, and for how long."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def old_runs(self, limit: int = 100) -> list[str]:
        """Runs that ended longer ago than their project keeps files, and that still have them."""
        return [str(row[0]) for row in self._db.read(_OLD, {"limit": limit})]

    def marked(self, run_id: str) -> set[int]:
        """Trials that somebody labelled or commented on: they keep their files."""
        return {int(row[0]) for row in self._db.read(_MARKED, {"run": run_id})}

    def clear(self, run_id: str, kept: Collection[str]) -> list[str]:
        """Let go of a run's files except `kept` and what it is made from; those that nothing else needs."""
        orphans: list[str] = []
        freed = 0
        with self._db.write() as tx:
            spared = {*kept, *(str(row[0]) for row in tx.execute(_INPUTS, {"run": run_id}))}
            for digest, size in tx.execute(_ALL, {"run": run_id}):
                if digest in spared:
                    continue
                tx.change(_DROP, {"run": run_id, "digest": digest})
                if not tx.execute(_ELSEWHERE, {"digest": digest}):
                    orphans.append(str(digest))
                    freed += int(size)
            steps.write_event(tx, run_id, CLEARED, {"files": len(orphans), "bytes": freed})
        return orphans
