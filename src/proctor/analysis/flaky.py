"""Which tasks have rollouts that disagree, and how much of a score is chance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from proctor.analysis.interval import Interval, clopper_pearson


class Stability(StrEnum):
    """How a task behaved over its rollouts."""

    ALWAYS_PASSES = "always_passes"
    ALWAYS_FAILS = "always_fails"
    FLAKY = "flaky"
    UNKNOWN = "unknown"
    """Fewer than two scored rollouts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStability:
    """One task over its rollouts."""

    name: str
    stability: Stability
    rollouts: int
    passed: int
    interval: Interval | None
    """Of the chance to pass; exact, so that three passes in three do not read as certainty."""
    disagreement: float | None
    """Chance that two of its rollouts differ: 0 when stable, at most about a half."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteStability:
    """A suite over its rollouts."""

    tasks: tuple[TaskStability, ...]
    flaky_share: float | None
    """Share of the tasks with two or more rollouts whose results differ."""
    luck_pp: float | None
    """Spread of the suite's score by chance alone if every task has one rollout, in percentage points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlipHistory:
    """How often a task changed between passing and failing over an ordered history."""

    name: str
    observations: int
    flips: int
    rate: float
    """Flips over chances to flip."""
    expected: float
    """The rate if the same passes and failures had come in random order: near it means flaky, well below it
    means that something changed once and stayed."""


def task_stability(name: str, passes: Sequence[bool], *, level: float = 0.95) -> TaskStability:
    """Judge one task from its scored rollouts."""
    count, passed = len(passes), sum(map(bool, passes))
    if count < 2:
        stability = Stability.UNKNOWN
    elif passed == count:
        stability = Stability.ALWAYS_PASSES
    else:
        stability = Stability.FLAKY if passed else Stability.ALWAYS_FAILS
    return TaskStability(
        name=name,
        stability=stability,
        rollouts=count,
        passed=passed,
        interval=clopper_pearson(passed, count, level) if count else None,
        disagreement=2 * passed * (count - passed) / (count * (count - 1)) if count > 1 else None,
    )


def suite_stability(
    rewards: Mapping[str, Sequence[float]], *, threshold: float = 1.0, level: float = 0.95
) -> SuiteStability:
    """Judge every task of a suite; the least stable come first."""
    tasks = [
        task_stability(name, [reward >= threshold for reward in task], level=level)
        for name, task in rewards.items()
    ]
    known = [task for task in tasks if task.disagreement is not None]
    luck = None
    if known:
        # A pass is worth p(1-p) of variance, and two rollouts disagree with probability 2p(1-p).
        variance = math.fsum((task.disagreement or 0.0) / 2 for task in known) / len(known)
        luck = 100 * math.sqrt(variance / len(known))
    return SuiteStability(
        tasks=tuple(sorted(tasks, key=lambda task: (-(task.disagreement or 0.0), task.name))),
        flaky_share=sum(task.stability is Stability.FLAKY for task in known) / len(known) if known else None,
        luck_pp=luck,
    )


def flip_history(name: str, passes: Sequence[bool]) -> FlipHistory | None:
    """Tell a flaky task from one that broke once; None with fewer than two observations."""
    count = len(passes)
    if count < 2:
        return None
    passed = sum(map(bool, passes))
    flips = sum(before != after for before, after in pairwise(passes))
    return FlipHistory(
        name=name,
        observations=count,
        flips=flips,
        rate=flips / (count - 1),
        expected=2 * passed * (count - passed) / (count * (count - 1)),
    )


def determinism_rate(traces: Sequence[Sequence[str]]) -> float | None:
    """Share of groups (same task, same seed) whose traces are all equal; None when no group has two."""
    groups = [group for group in traces if len(group) > 1]
    return sum(len(set(group)) == 1 for group in groups) / len(groups) if groups else None
