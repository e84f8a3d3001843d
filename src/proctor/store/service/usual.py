"""What earlier trials took and cost, for estimates: by subject, agent and model, within a project."""

from __future__ import annotations

from collections.abc import Collection

from proctor.model.outcome import Outcome
from proctor.store import queries
from proctor.store.database import Database
from proctor.store.rows import column

Key = tuple[str, str, str]
"""Subject, agent and model; empty where a trial has none."""

MOST_SUBJECTS = 500
_NANO = 1_000_000_000
_SEEN = "(CAST(:project AS text) IS NULL OR COALESCE(s.project, 'default') = CAST(:project AS text))"
_WHO = "t.subject, COALESCE(t.agent, ''), COALESCE(t.model, '')"
_COSTS = f"""
SELECT {_WHO}, CAST(sum(c.nano_usd) AS BIGINT)
FROM model_calls c JOIN trials t ON t.run_id = c.run_id AND t.idx = c.idx
LEFT JOIN run_service s ON s.run_id = c.run_id
WHERE c.settled = 1 AND c.nano_usd IS NOT NULL AND t.subject IN ({{subjects}}) AND {_SEEN}
GROUP BY t.subject, t.agent, t.model, t.run_id, t.idx ORDER BY t.run_id DESC LIMIT 2000
"""
_TIMES = f"""
SELECT {_WHO}, COALESCE(a.work_s, a.ended_at - a.started_at), a.outcome
FROM attempts a JOIN trials t ON t.run_id = a.run_id AND t.idx = a.idx
LEFT JOIN run_service s ON s.run_id = a.run_id
WHERE a.subject = :subject AND a.counts = 1 AND {_SEEN} ORDER BY a.ended_at DESC LIMIT 200
"""


class Usual:
    """What trials usually take; `project`: only its runs tell, None: all."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def costs(self, subjects: Collection[str], project: str | None) -> dict[Key, list[float]]:
        """What the latest trials cost, in dollars and in order, where that is known."""
        names = [column(each) for each in subjects][:MOST_SUBJECTS]
        sql, params = queries.listed(_COSTS, subjects=names)
        found: dict[Key, list[float]] = {}
        for *key, nano_usd in self._db.read(sql, {**params, "project": project}):
            found.setdefault((key[0], key[1], key[2]), []).append(int(nano_usd) / _NANO)
        return {key: sorted(costs) for key, costs in found.items()}

    def times(self, subjects: Collection[str], project: str | None) -> dict[Key, list[float]]:
        """How long the latest trials took, in seconds and in order."""
        found: dict[Key, list[float]] = {}
        for subject in sorted(set(subjects))[:MOST_SUBJECTS]:
            named = {"subject": column(subject), "project": project}
            for *key, took_s, outcome in self._db.read(_TIMES, named):
                if Outcome(outcome).scored:
                    found.setdefault((key[0], key[1], key[2]), []).append(float(took_s))
        return {key: sorted(times) for key, times in found.items()}
