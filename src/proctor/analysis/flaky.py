"""Which tasks have rollouts that disagree, and how much of a score is chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

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
    return SuiteStability(
        tasks=tuple(sorted(tasks, key=lambda task: (-(task.disagreement or 0.0), task.name))),
        flaky_share=sum(task.stability is Stability.FLAKY for task in known) / len(known) if known else None,
    )
