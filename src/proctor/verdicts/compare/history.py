"""Run-to-run noise from the store: how much the same code moved between earlier runs on the same machine."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from proctor.analysis.times import Noise, run_to_run_noise
from proctor.model.facts import run_facts, same_machine
from proctor.model.outcome import Outcome
from proctor.verdicts.compare.results import ResultSet, samples_of

if TYPE_CHECKING:
    from proctor.store.store import Store

MAX_RUNS = 20
MAX_ATTEMPTS = 20_000


def noise_from_store(store: Store, a: ResultSet, b: ResultSet, metric: str) -> Noise | None:
    """Noise from runs of the same name with points of the same key; None when there are too few.

    The two runs that are being compared are left out: their difference is the question.
    """
    keys = {point.key for side in (a, b) for point in side.points if point.key}
    if not keys:
        return None
    found: dict[str, list[float]] = {}
    runs = attempts = 0
    for name in sorted({side.name for side in (a, b) if side.name}):
        for brief in store.runs(name=name, limit=MAX_RUNS):
            # A name with an asterisk matches others too.
            if brief.name != name or brief.id in {a.run_id, b.run_id}:
                continue
            if not same_machine(run_facts(store.run(brief.id)), a.facts):
                continue
            used = False
            for row in store.attempts(brief.id, counted_only=True):
                attempts += 1
                if attempts > MAX_ATTEMPTS:
                    break
                if row.trial.key in keys and row.record.outcome is Outcome.PASSED:
                    values = samples_of(row.record, metric)
                    if values:
                        found.setdefault(row.trial.key, []).append(median(values))
                        used = True
            runs += used
    return run_to_run_noise(list(found.values()), source=f"from {runs} earlier runs of the same code")
