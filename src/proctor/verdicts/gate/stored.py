"""The input of a gate straight from the store: what most rules look at, without a whole run in memory.

Rules that look at more than counts, times, scores and the values of metrics get the run in memory instead.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import TYPE_CHECKING

from proctor.model.outcome import Outcome
from proctor.runfolder.files import encode
from proctor.verdicts.compare.stored import from_store, quoted
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
    from proctor.store.rows import ResultRow
    from proctor.store.store import Store

_FAILURE, _SUSPECT = quoted("failure"), quoted("suspect")


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
        if outcome is None:
            self.digest.update(encode([row.key, None]).encode("utf-8", "replace"))
            return
        for part in _line(row, outcome, _canonical(row.body.text("metrics"))):
            self.digest.update(part)
        failure = None
        if outcome is not Outcome.PASSED and row.body.mentions(_FAILURE):
            failure = row.body.get("failure")
        suspect = row.body.mentions(_SUSPECT) and bool(row.body.get("suspect"))
        kind = failure["type"] if failure else ""
        self.tally.add(outcome, row.ended_at - row.started_at, kind, suspect=suspect)


def _line(row: ResultRow, outcome: Outcome, metrics: bytes) -> tuple[bytes, ...]:
    """What `run_digest` digests of a trial, in parts, spelt as `encode` would spell it."""
    key, reward = row.key, "null" if row.reward is None else repr(float(row.reward))
    if key.isascii() and key.isalnum() and math.isfinite(row.reward or 0.0):
        return f'["{key}",{row.number},"{outcome}",{reward},'.encode(), metrics, b"]"
    head = encode([key, row.number, outcome.value, row.reward])[:-1]
    return head.encode("utf-8", "replace"), b",", metrics, b"]"


def _canonical(text: bytes) -> bytes:
    """Stored JSON as a run folder would spell it: the same, unless it has escapes or a number is none."""
    if b"\\" in text or b"NaN" in text or b"Infinity" in text:
        return encode(json.loads(text)).encode("utf-8", "replace")
    return text or b"{}"
