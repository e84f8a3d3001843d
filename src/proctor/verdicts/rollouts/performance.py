"""How good the programs are that agents wrote, against the authors': who is ahead, and how sure that is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from proctor.analysis.estimate import Score, score
from proctor.analysis.performance import Gain, over_tasks
from proctor.model.outcome import reward_of
from proctor.model.record import AttemptRecord, error_of, gain_of, performance_of
from proctor.runfolder.read import RunData
from proctor.verdicts.rollouts.scores import ArmScore, rollouts
from proctor.verdicts.run.survey import once

MEASURED = frozenset({"settled", "erratic"})
"""Verdicts that a ratio counts for."""
INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredArm:
    """One competitor on the tasks that measure performance."""

    arm: ArmScore
    rollouts: int
    measured: int
    """Programs with a ratio that counts."""
    inconclusive: int
    """Programs of which nothing could be said; they are not in the score."""
    reward: Score | None
    """The mean reward: what is wrong or no better than the reference has none."""
    gain: Gain | None
    """How many times better than the references, of the programs that were right."""
    ranks: tuple[int, int] = (1, 1)
    """The best and the worst place that the intervals of the rewards allow."""


@once
def performance(data: RunData) -> tuple[MeasuredArm, ...]:
    """Every competitor whose programs were measured, the best mean reward first."""
    known = [each for arm in rollouts(data).arms if (each := _arm(arm)) is not None]
    ranked = [replace(each, ranks=_ranks(each, known)) for each in known]
    return tuple(sorted(ranked, key=lambda each: -each.reward.value if each.reward else 1.0))


def overview(data: RunData) -> dict[str, Any]:
    """All programs of a run together, for gates; empty where no task measures performance."""
    arms = performance(data)
    if not arms:
        return {}
    cells = [cell for each in arms for cell in _records(each.arm)]
    gain, found = over_tasks([_gains(cell) for cell in cells]), score([_rewards(cell) for cell in cells])
    return {
        "rollouts": sum(each.rollouts for each in arms),
        "measured": sum(each.measured for each in arms),
        "inconclusive": sum(each.inconclusive for each in arms),
        "reward": found.value if found else None,
        **gain_fields(gain),
    }


def gain_fields(gain: Gain | None) -> dict[str, float | None]:
    """A ratio with its interval as plain data."""
    return {
        "ratio": gain.ratio if gain else None,
        "ratio_low": gain.low if gain else None,
        "ratio_high": gain.high if gain else None,
    }


def _arm(arm: ArmScore) -> MeasuredArm | None:
    cells = _records(arm)
    records = [record for cell in cells for record in cell]
    if not records:
        return None
    verdicts = Counter(str(performance_of(record).get("verdict")) for record in records)
    return MeasuredArm(
        arm=arm,
        rollouts=len(records),
        measured=sum(verdicts[each] for each in MEASURED),
        inconclusive=verdicts[INCONCLUSIVE],
        reward=score([_rewards(cell) for cell in cells]),
        gain=over_tasks([_gains(cell) for cell in cells]),
    )


def _records(arm: ArmScore) -> list[list[AttemptRecord]]:
    """Per task, the rollouts on which a measurement has something to say."""
    found = (
        [trial.counted for trial in cell.trials if trial.counted and performance_of(trial.counted)]
        for cell in arm.cells
    )
    return [cell for cell in found if cell]


def _rewards(records: Iterable[AttemptRecord]) -> list[float]:
    return [reward for record in records if (reward := reward_of(record.outcome, record.reward)) is not None]


def _gains(records: Iterable[AttemptRecord]) -> list[tuple[float, float]]:
    return [(gain, error_of(record) or 0.0) for record in records if (gain := gain_of(record)) is not None]


def _ranks(one: MeasuredArm, arms: Sequence[MeasuredArm]) -> tuple[int, int]:
    """Who is surely ahead comes before it, who may be ahead can."""
    if one.reward is None:
        return len(arms), len(arms)
    others = [each.reward.these_tasks for each in arms if each is not one and each.reward]
    mine = one.reward.these_tasks
    ahead = sum(each.low > mine.high for each in others)
    maybe = sum(each.high >= mine.low for each in others)
    return 1 + ahead, 1 + maybe
