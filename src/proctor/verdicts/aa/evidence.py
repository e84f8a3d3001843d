"""What a run and its repeats show without any resampling: drift, real pairs, and the price of a rollout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from proctor.analysis.aa import GATE, Call, alarm_rate
from proctor.analysis.compare import paired_scores
from proctor.analysis.times import Noise
from proctor.model.record import UNKNOWN_COST
from proctor.quantity import number
from proctor.runfolder.read import RunData
from proctor.verdicts.aa.certificate import Trial
from proctor.verdicts.aa.words import plural
from proctor.verdicts.gate.evaluate import evaluate
from proctor.verdicts.gate.inputs import GateInput, input_of_run
from proctor.verdicts.gate.rules import read_rules
from proctor.verdicts.gate.verdict import GateVerdict

DRIFT = 0.01
"""Early and late rollouts differ when the p-value is below this."""


def drift(rewards: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Early rollouts against late ones: random splits cannot see a machine or a provider that changed."""
    halves = {name: len(task) // 2 for name, task in rewards.items() if len(task) > 1}
    early = {name: rewards[name][:half] for name, half in halves.items()}
    late = {name: rewards[name][-half:] for name, half in halves.items()}
    found = paired_scores(early, late)
    if found is None or found.tasks < 2:
        return {}
    return {
        "difference": found.difference,
        "p_value": found.p_value,
        "moved": found.p_value < DRIFT,
        "what": "late rollouts minus early ones",
    }


def repeated(
    repeats: Sequence[RunData], side: GateInput, rule: str, *, noise: Mapping[str, Noise] | None = None
) -> list[Trial]:
    """Earlier runs of the same plan: the only pairs that were really made at different times."""
    if not repeats:
        return []
    rules = read_rules([rule])
    sides = [*(input_of_run(each, rules.metrics) for each in repeats), side]
    verdicts = [evaluate(rules, after, before, noise=noise).verdict for before, after in pairwise(sides)]
    hits = verdicts.count(GateVerdict.REGRESSION)
    return [
        Trial(
            name="repeats",
            how=(
                f"{plural(len(sides), 'run')} of the same plan in the store, "
                "each compared with the one before"
            ),
            per_side="a whole run",
            gate=alarm_rate(GATE, hits, len(verdicts)),
            calls={each.value: verdicts.count(GateVerdict(each.value)) for each in Call},
        )
    ]


def price(data: RunData) -> tuple[float | None, float | None]:
    """Seconds and dollars of one rollout, retries included; no cost where none was recorded."""
    attempts = [record for trial in data.trials for record in trial.attempts]
    counted = len(data.finished)
    took = [record.ended_at - record.started_at for record in attempts if record.ended_at > record.started_at]
    costs = [number(record.usage.get("cost_usd")) or 0.0 for record in attempts]
    if any(record.usage.get(UNKNOWN_COST) for record in attempts):
        costs = []
    seconds = sum(took) / counted if counted and took else None
    return seconds, sum(costs) / counted if counted and sum(costs) > 0 else None
