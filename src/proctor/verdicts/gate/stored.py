"""The input of a gate straight from the store: what most rules look at, without a whole run in memory.

Rules that look at more than counts, times, scores and the values of metrics get the run in memory instead.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from proctor.model.outcome import Outcome
from proctor.runfolder.files import encode
from proctor.verdicts.compare.stored import from_store
from proctor.verdicts.gate.inputs import (
    GateInput,
    Tally,
    count_fields,
    renamed,
    score_fields,
    with_aliases,
)
from proctor.verdicts.gate.rules import RuleSet, Threshold

if TYPE_CHECKING:
    from proctor.store.rows import Measured, ResultRow
    from proctor.store.store import Store


def input_from_store(store: Store, ref: str, rules: RuleSet) -> GateInput | None:
    """The input that these rules need; None when a rule looks at what only a run in memory can tell."""
    info = store.run(ref)
    told = {*count_fields(info, Tally()), "score", "pass_rate"}
    paths = [rule.path.partition(".")[0] for rule in rules.rules if isinstance(rule, Threshold)]
    if not told.issuperset(paths):
        return None
    watch = _Watch(info.plan_digest)
    results = renamed(from_store(store, info.id, with_aliases(rules.metrics), watch=watch.look))
    tally = watch.tally
    return GateInput(
        results=results,
        fields={**count_fields(info, tally), **(score_fields(results) if info.kind == "task" else {})},
        reasons=dict(sorted(tally.reasons.items())),
        trials=tally.trials,
        missing=tally.trials - tally.ended,
        broken=tally.broken,
        digest=watch.digest.hexdigest(),
    )


class _Watch:
    """Counts and digests what passes by."""

    def __init__(self, plan_digest: str) -> None:
        self.tally = Tally()
        self.digest = hashlib.sha256(plan_digest.encode())

    def look(self, row: ResultRow) -> None:
        outcome = row.outcome
        self.tally.trials += 1
        line = encode([row.key, None])
        if outcome is not None:
            head = encode([row.key, row.number, outcome.value, row.reward])
            line = f"{head[:-1]},{_as_written(row.measured)}]"
            failure = None if outcome is Outcome.PASSED else row.measured.failure
            kind = failure.type if failure else ""
            self.tally.add(outcome, row.ended_at - row.started_at, kind, suspect=row.measured.suspect)
        self.digest.update(line.encode("utf-8", "replace"))


def _as_written(measured: Measured) -> str:
    """The aggregates as a run folder spells them: as the store does, but for escapes."""
    text = bytes(measured.written_metrics).decode()
    return encode(measured.metrics) if "\\" in text else text
