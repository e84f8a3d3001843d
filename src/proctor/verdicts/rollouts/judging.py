"""What judges say of each agent's rollouts, beside the tests: scores, agreement, and what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from proctor.analysis.estimate import Score, score
from proctor.model.record import UNKNOWN_COST, AttemptRecord, judge_of, judge_score, unit_score
from proctor.quantity import number
from proctor.runfolder.read import RunData
from proctor.verdicts.rollouts.scores import ArmScore, rollouts
from proctor.verdicts.run.survey import once


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedArm:
    """The judged rollouts of one competitor."""

    arm: ArmScore
    models: tuple[str, ...]
    prompts: tuple[str, ...]
    judged: int
    """Rollouts with a score of the judge."""
    missing: int
    """Rollouts that a judge was asked about in vain."""
    decides: bool
    """Whether the judge's score is the reward."""
    judge: Score | None
    unit: Score | None
    """What the tests say of the rollouts that the judge scored."""
    agreement: Score | None
    """Of votes with each other: the share of pairs that say the same about a rubric."""
    with_tests: Score | None
    """Of the judge with the tests: the share of rubrics that both score and of which they say the same."""
    votes: Mapping[str, int]
    """asked, valid, void, lost"""
    usage: Mapping[str, float]
    reasons: Mapping[str, int]
    """Why scores are missing."""


@once
def judging(data: RunData) -> tuple[JudgedArm, ...]:
    """Every competitor that was judged; none in a run without a judge."""
    found = (_arm(arm) for arm in rollouts(data).arms)
    return tuple(each for each in found if each is not None)


def _arm(arm: ArmScore) -> JudgedArm | None:
    cells = [
        [trial.counted for trial in cell.trials if trial.counted and judge_of(trial.counted)]
        for cell in arm.cells
    ]
    records = [record for cell in cells for record in cell]
    if not records:
        return None
    about = [judge_of(record) for record in records]
    known = [[record for record in cell if judge_score(record) is not None] for cell in cells]
    reasons = Counter(str(each.get("missing")) for each in about if each.get("missing"))
    return JudgedArm(
        arm=arm,
        models=tuple(dict.fromkeys(str(each.get("model", "")) for each in about)),
        prompts=tuple(dict.fromkeys(str(each.get("prompt", "")) for each in about)),
        judged=sum(map(len, known)),
        missing=sum(reasons.values()),
        decides=any(each.get("decides") for each in about),
        judge=score([_numbers(map(judge_score, cell)) for cell in known]),
        unit=score([_numbers(map(unit_score, cell)) for cell in known]),
        agreement=score([_numbers(map(_agreement, cell)) for cell in known]),
        with_tests=score([_numbers(map(_with_tests, cell)) for cell in known]),
        votes={
            name: int(sum(number(each.get(name)) or 0 for each in about))
            for name in ("asked", "valid", "void", "lost")
        },
        usage=_usage(about),
        reasons=dict(reasons),
    )


def _numbers(values: Any) -> list[float]:
    return [each for each in values if each is not None]


def _agreement(record: AttemptRecord) -> float | None:
    return number(judge_of(record).get("agreement"))


def _with_tests(record: AttemptRecord) -> float | None:
    found = judge_of(record).get("with_tests")
    same, of = (number(found.get(name)) for name in ("same", "of")) if isinstance(found, Mapping) else (0, 0)
    return same / of if same is not None and of else None


def _usage(about: list[dict[str, Any]]) -> dict[str, float]:
    """What the judge's calls used, apart from the agents'; a cost that is unknown in part is not there."""
    found: dict[str, float] = {}
    for each in about:
        used = each.get("usage")
        for name in ("requests", "prompt_tokens", "completion_tokens", "cost_usd", UNKNOWN_COST):
            amount = number(used.get(name)) if isinstance(used, Mapping) else None
            if amount:
                found[name] = found.get(name, 0) + amount
    if UNKNOWN_COST in found:
        found.pop("cost_usd", None)
    return found
