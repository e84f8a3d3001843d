"""Results of each agent and model: pass rates with intervals, three ways to count errors, pass@k, usage."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from proctor.analysis.estimate import (
    AtK,
    Denominators,
    TaskRewards,
    denominators,
    pass_at_k,
    pass_hat_k,
)
from proctor.analysis.flaky import Stability, TaskStability, task_stability
from proctor.model.describe import describe, percentile
from proctor.model.outcome import Outcome
from proctor.model.record import WORK
from proctor.runfolder.read import RunData
from proctor.verdicts.rollouts.table import Arm, Cell, Row, Table, Tally, arrange
from proctor.verdicts.run.survey import once

ALL_K_UP_TO = 10


@dataclass(frozen=True, slots=True)
class ArmScore:
    """One competitor over all its tasks."""

    arm: Arm
    cells: tuple[Cell, ...]
    rollouts: int
    """How many there are, with those that have no result."""
    scored: int
    """How many count."""
    passed: int
    """How many of those passed."""
    errors: int
    """How many ended in an error not caused by the agent."""
    missing: int
    """How many have no result."""
    outcomes: Mapping[Outcome, int]
    partial: bool
    """Whether a reward between none and all makes the mean reward another number than the pass rate."""
    passes: Denominators
    """Of the share that passed."""
    rewards: Denominators
    """Of the mean reward; the same unless some rewards were partial."""
    at_k: tuple[AtK, ...]
    hat_k: tuple[AtK, ...]
    common_k: int
    """The largest k that every scored task has rollouts for; beyond it other tasks are compared."""
    curve: tuple[tuple[AtK, AtK], ...]
    """pass@k and pass^k over the same tasks at every k up to that."""
    stability: Mapping[Row, TaskStability]
    flaky: int
    """How many tasks both passed and failed."""
    median_s: float | None
    """How long agent and verifier of a rollout work."""
    use: Tally
    """What all its rollouts took, used and cost."""

    def at(self, k: int) -> tuple[float | None, float | None]:
        """pass@k and pass^k over all tasks."""
        return next(((at.value, hat.value) for at, hat in self.curve if at.k == k), (None, None))


@dataclass(frozen=True, slots=True)
class Rollouts:
    """A whole run of rollouts."""

    table: Table
    arms: tuple[ArmScore, ...]
    """In plan order."""
    shared_k: int
    """The largest k at which every arm with a score has pass@k over all its tasks; 0 when none has."""


@once
def rollouts(data: RunData) -> Rollouts:
    """The numbers of a run of task trials."""
    return scored(arrange(data))


def scored(table: Table) -> Rollouts:
    """The numbers of a table of rollouts."""
    arms = tuple(_score(arm, tuple(table.of(arm))) for arm in table.arms)
    known = [{at.k for at, _ in arm.curve} for arm in arms if arm.scored]
    return Rollouts(table, arms, max(set.intersection(*known), default=0) if known else 0)


def _score(arm: Arm, cells: tuple[Cell, ...]) -> ArmScore:
    counts = [(len(cell.rewards), cell.passed) for cell in cells]
    known = [scored for scored, _ in counts if scored]
    ks = sorted({*wanted_k(max(known, default=0)), *known})
    at = tuple(each for each in (pass_at_k(counts, k) for k in ks) if each)
    hat = tuple(each for each in (pass_hat_k(counts, k) for k in ks) if each)
    common = min(known, default=0)
    passes = [
        TaskRewards(
            name=cell.row.label,
            scored=tuple([float(reward >= 1) for reward in cell.rewards]),
            errors=cell.errors,
        )
        for cell in cells
    ]
    rewards = [TaskRewards(name=cell.row.label, scored=cell.rewards, errors=cell.errors) for cell in cells]
    stability = {
        cell.row: task_stability(cell.row.label, [reward >= 1 for reward in cell.rewards]) for cell in cells
    }
    use = Tally()
    for cell in cells:
        use.merge(cell.tally)
    return ArmScore(
        arm=arm,
        cells=cells,
        rollouts=len(use.outcomes),
        scored=sum(known),
        passed=sum(cell.passed for cell in cells),
        errors=sum(cell.errors for cell in cells),
        missing=sum(cell.missing for cell in cells),
        outcomes=Counter(outcome for outcome in use.outcomes if outcome),
        partial=any(0 < reward < 1 for cell in cells for reward in cell.rewards),
        passes=denominators(passes),
        rewards=denominators(rewards),
        at_k=at,
        hat_k=hat,
        common_k=common,
        curve=tuple(pair for pair in zip(at, hat, strict=True) if pair[0].k <= common),
        stability=stability,
        flaky=sum(each.stability is Stability.FLAKY for each in stability.values()),
        median_s=middle(use.took),
        use=use,
    )


def wanted_k(most: int) -> list[int]:
    """Every k while there are few, then steps of a half more; the largest always."""
    found = list(range(1, min(most, ALL_K_UP_TO) + 1))
    while found and found[-1] < most:
        found.append(min(most, math.ceil(found[-1] * 1.5)))
    return found


def middle(values: Sequence[float]) -> float | None:
    """The median, if there is one."""
    return percentile(sorted(values), 50) if values else None


def phases(use: Tally, *, work: bool | None = None) -> dict[str, Sequence[float]]:
    """How long each phase took, agent and verifier first: all, the rollout's own, or those around it."""
    ordered = [*(name for name in WORK if name in use.phases), *(n for n in use.phases if n not in WORK)]
    return {name: use.phases[name] for name in ordered if work is None or (name in WORK) is work}


def described(columns: Mapping[str, Sequence[float]]) -> dict[str, dict[str, float | int]]:
    """Every column with the numbers people quote."""
    return {name: describe(values) for name, values in columns.items()}
