"""Power: the smallest difference that a study with k rollouts can detect."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from proctor.analysis.distributions import t_quantile
from proctor.analysis.estimate import variance

MAX_ROLLOUTS = 20
POWER = 0.8
"""The probability with which a difference is to be detected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """What makes a difference of scores uncertain."""

    within: float
    """Mean variance of one rollout's reward inside a task."""
    effect: float = 0.0
    """Variance between tasks of the true difference: some tasks gain, others lose."""
    tasks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Detectable:
    """The price and the reach of k rollouts per task and side."""

    rollouts: int
    these_tasks: float
    tasks_like_these: float
    total_rollouts: int
    hours: float | None
    """Wall time with the given parallelism."""
    cost_usd: float | None


def spread_of(rewards: Sequence[Sequence[float]]) -> Spread:
    """Spread from a pilot. Tasks with one rollout count with the variance that their overall mean allows."""
    suite = [[float(reward) for reward in task] for task in rewards if len(task)]
    if not suite:
        msg = "a pilot needs at least one task with a scored rollout"
        raise ValueError(msg)
    means = [math.fsum(task) / len(task) for task in suite]
    overall = math.fsum(means) / len(means)
    cap = max(overall * (1 - overall), 0.0) if all(0 <= mean <= 1 for mean in means) else 0.0
    repeats = [task for task in suite if len(task) > 1]
    if repeats:
        inside = math.fsum(variance(task) for task in repeats) / len(repeats)
        # A pilot in which nothing varied proves little: one disagreement more is always believable.
        weight = sum(len(task) - 1 for task in repeats)
        within = (weight * inside + cap) / (weight + 1)
    else:
        within = cap
    return Spread(within=within, tasks=len(suite))


def detectable(spread: Spread, rollouts: int) -> float:
    """The difference that a paired t test on task means finds with 80 % probability, for tasks like these."""
    return _detectable(spread, rollouts, spread.effect)


def plan_table(
    spread: Spread,
    *,
    max_rollouts: int = MAX_ROLLOUTS,
    seconds_per_rollout: float | None = None,
    cost_per_rollout_usd: float | None = None,
    parallel: int = 1,
) -> tuple[Detectable, ...]:
    """One row for each k from 1 to `max_rollouts`: what would be found, how long it takes, what it costs."""
    rows = []
    for rollouts in range(1, max_rollouts + 1):
        total = 2 * spread.tasks * rollouts
        turns = math.ceil(total / parallel)
        rows.append(
            Detectable(
                rollouts=rollouts,
                these_tasks=_detectable(spread, rollouts, 0.0),
                tasks_like_these=_detectable(spread, rollouts, spread.effect),
                total_rollouts=total,
                hours=None if seconds_per_rollout is None else turns * seconds_per_rollout / 3600,
                cost_usd=None if cost_per_rollout_usd is None else total * cost_per_rollout_usd,
            )
        )
    return tuple(rows)


def rollouts_needed(spread: Spread, difference: float, *, limit: int = 10_000) -> int | None:
    """The fewest rollouts per task and side that find a difference; None when `limit` of them do not."""
    low, high = 1, limit
    if detectable(spread, limit) > abs(difference):
        return None
    while low < high:
        middle = (low + high) // 2
        if detectable(spread, middle) <= abs(difference):
            high = middle
        else:
            low = middle + 1
    return low


def _detectable(spread: Spread, rollouts: int, effect: float) -> float:
    df = max(spread.tasks - 1, 1)
    error = math.sqrt((2 * spread.within / rollouts + effect) / spread.tasks)
    return (t_quantile(0.975, df) + t_quantile(POWER, df)) * error
