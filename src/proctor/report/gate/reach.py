"""What a gate could have found, and what it would take to find less: from the spread that both sides show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, variance

from proctor.analysis.distributions import normal_quantile
from proctor.analysis.estimate import TaskRewards
from proctor.analysis.power import Spread, detectable, rollouts_needed, spread_of
from proctor.report.gate.rules import NotWorse
from proctor.report.quantity import significant

MOST_ROLLOUTS = 200
"""More per task than this is nobody's plan."""


def score_reach(rule: NotWorse, before: Sequence[TaskRewards], after: Sequence[TaskRewards]) -> str:
    """How many rollouts, or tasks, would settle a loss of the margin four times in five."""
    pairs = _shared(before, after)
    if len(pairs) < 2 or rule.margin <= 0:
        return ""
    spread, rollouts = _spread(pairs, these_tasks=rule.these_tasks)
    margin = f"{100 * rule.margin:g} pp"
    if detectable(spread, max(1, round(rollouts))) <= rule.margin:
        return ""
    needed = rollouts_needed(spread, rule.margin, limit=MOST_ROLLOUTS)
    if needed is not None:
        return (
            f"{needed} rollouts per task and side would settle {margin} 4 times in 5 "
            f"(now {significant(rollouts, 2)})"
        )
    reach = normal_quantile(0.5 + rule.level / 2) + normal_quantile(0.8)
    variance_each = 2 * spread.within / max(rollouts, 1) + spread.effect
    tasks = math.ceil(variance_each * (reach / rule.margin) ** 2)
    return (
        f"about {tasks} tasks would settle {margin} 4 times in 5 (now {len(pairs)}); "
        "more rollouts of these would not"
    )


def few_tasks(tasks: int, level: float) -> str:
    """Below how many tasks no loss whatever can be certain: each sign pattern is too likely by chance."""
    needed = math.ceil(1 - math.log2(1 - level))
    if tasks >= min(needed, 10):
        return ""
    return f"with {tasks} tasks no loss can be certain at {100 * level:g} %; {needed} tasks are the least"


def _shared(
    before: Sequence[TaskRewards], after: Sequence[TaskRewards]
) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
    known = {task.name: task.scored for task in after if task.scored}
    return [(task.scored, known[task.name]) for task in before if task.scored and task.name in known]


def _spread(
    pairs: Sequence[tuple[tuple[float, ...], tuple[float, ...]]], *, these_tasks: bool
) -> tuple[Spread, float]:
    """Luck inside tasks, and how much the change itself differs from task to task."""
    within = spread_of([side for pair in pairs for side in pair]).within
    rollouts = fmean(2 / (1 / len(a) + 1 / len(b)) for a, b in pairs)
    moved = variance(fmean(b) - fmean(a) for a, b in pairs)
    effect = 0.0 if these_tasks else max(0.0, moved - 2 * within / rollouts)
    return Spread(within=within, effect=effect, tasks=len(pairs)), rollouts
