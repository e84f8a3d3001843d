"""Two runs of rollouts task by task: what each task did on both sides, and what the sides spent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import variance

from proctor.analysis.compare import paired_ratio
from proctor.analysis.estimate import Score, TaskRewards, denominators
from proctor.analysis.interval import Interval, difference_interval, rollouts_worth
from proctor.model.run import RunInfo
from proctor.runfolder.read import metric_of
from proctor.verdicts.compare.means import Mean, clustered_mean
from proctor.verdicts.compare.results import ResultSet

SPENT = ("duration_s", "cost_usd", "prompt_tokens", "completion_tokens", "cpu_s", "peak_memory_bytes")
"""What a page compares beside the score, where attempts have it."""
MOST_WITH_SPENT = 20_000
"""Rollouts of which tokens and memory are looked up for a page; of larger runs time and money only."""


def with_spent(info: RunInfo, metrics: Sequence[str], also: Sequence[str]) -> tuple[str, ...]:
    """The metrics that are compared, and for a page of rollouts what else was spent."""
    if info.kind != "task" or not also:
        return tuple(metrics)
    wanted = tuple(metrics) or (metric_of(info.kind),)
    more = also if info.total <= MOST_WITH_SPENT else also[:2]
    return tuple(dict.fromkeys([*wanted, *more]))


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDifference:
    """One task on both sides. Its interval is for this task, rolled out again."""

    name: str
    a: float
    b: float
    n_a: int
    n_b: int
    errors_a: int
    errors_b: int
    low: float
    high: float

    @property
    def difference(self) -> float:
        """B's mean reward minus A's."""
        return self.b - self.a


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """One resource on both sides: the mean of a rollout, and B over A by task."""

    metric: str
    a: Mean
    b: Mean
    ratio: float | None
    interval: Interval | None

    @property
    def apart(self) -> bool:
        """Whether the interval of the ratio says that the sides differ."""
        return self.interval is not None and not self.interval.low <= 1 <= self.interval.high


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmScore:
    """One arm of one side: its score and what a rollout of it costs."""

    arm: str
    score: Score
    cost: Mean


def task_differences(a: Sequence[TaskRewards], b: Sequence[TaskRewards]) -> list[TaskDifference]:
    """The tasks that both sides scored, from the greatest loss to the greatest gain."""
    known = {task.name: task for task in b if task.scored}
    found = [_difference(task, known[task.name]) for task in a if task.scored and task.name in known]
    return sorted(found, key=lambda each: (each.difference, each.name))


def _difference(a: TaskRewards, b: TaskRewards) -> TaskDifference:
    means = [math.fsum(side.scored) / len(side.scored) for side in (a, b)]
    low, high = _ends(a.scored, b.scored, *means)
    return TaskDifference(
        name=a.name,
        a=means[0],
        b=means[1],
        n_a=len(a.scored),
        n_b=len(b.scored),
        errors_a=a.errors,
        errors_b=b.errors,
        low=low,
        high=high,
    )


def _ends(a: Sequence[float], b: Sequence[float], mean_a: float, mean_b: float) -> tuple[float, float]:
    """For this task, as the whole suite's is for these tasks; nothing is known of rewards beyond 0 and 1."""
    if min(*a, *b) < 0 or max(*a, *b) > 1:
        return -math.inf, math.inf
    sides = [
        (mean, rollouts_worth(mean, [len(each)], [variance(each) if len(each) > 1 else 0.0]))
        for each, mean in ((a, mean_a), (b, mean_b))
    ]
    return difference_interval(sides[0], sides[1])


def spent(a: ResultSet, b: ResultSet, *, seed: int = 0) -> list[Spent]:
    """What both sides report, over the tasks that both have."""
    found = []
    for metric in SPENT:
        before, after = (_by_task(side, metric) for side in (a, b))
        shared = [name for name in before if name in after]
        one = clustered_mean({name: before[name] for name in shared})
        two = clustered_mean({name: after[name] for name in shared})
        if one is None or two is None or not (one.value or two.value):
            continue
        ratio = interval = None
        if all(value > 0 for name in shared for side in (before, after) for value in side[name]):
            paired = paired_ratio(
                {name: before[name] for name in shared}, {name: after[name] for name in shared}, seed=seed
            )
            ratio, interval = (paired.ratio, paired.interval) if paired else (two.value / one.value, None)
        found.append(Spent(metric=metric, a=one, b=two, ratio=ratio, interval=interval))
    return found


def _by_task(side: ResultSet, metric: str) -> dict[str, tuple[float, ...]]:
    return {point.name: values for point in side.points if (values := point.samples.get(metric))}


def arm_scores(side: ResultSet, metric: str) -> list[ArmScore]:
    """Score and cost of each arm of one side; those without either are left out."""
    spending: dict[str, dict[str, tuple[float, ...]]] = {}
    for point in side.points:
        if values := point.samples.get(metric):
            spending.setdefault(point.arm, {})[point.task] = values
    found = []
    for arm in side.arms:
        score = denominators(arm.tasks).excluded
        cost = clustered_mean(spending.get(arm.name, {}))
        if score and cost and cost.value > 0:
            found.append(ArmScore(arm=arm.name, score=score, cost=cost))
    return found
