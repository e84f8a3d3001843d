"""What would settle an open question about scores: how many rollouts, or how many tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, variance

from proctor.analysis.claim import Claim, too_few
from proctor.analysis.distributions import normal_quantile
from proctor.analysis.estimate import TaskRewards
from proctor.analysis.power import Spread, detectable, rollouts_needed, spread_of
from proctor.quantity import significant

MOST_ROLLOUTS = 200
"""Maximum number of rollouts per task that is suggested."""
THESE_INSTEAD = "or judge these tasks only: --these-tasks, in a gate's rule 'for these tasks'"
Pairs = Sequence[tuple[tuple[float, ...], tuple[float, ...]]]


def what_settles(
    before: Sequence[TaskRewards],
    after: Sequence[TaskRewards],
    *,
    claim: Claim,
    margin: float,
    level: float = 0.95,
) -> str:
    """What would detect a loss of the margin with 80 % probability; empty when the data can already."""
    pairs = _shared(before, after)
    few = too_few(len(pairs), level) if claim is Claim.TASKS_LIKE_THESE else ""
    if few:
        return f"{few}, {THESE_INSTEAD}"
    if not pairs or margin <= 0:
        return ""
    rollouts = fmean(2 / (1 / len(a) + 1 / len(b)) for a, b in pairs)
    if claim is Claim.THESE_TASKS:
        return _rollouts_here(pairs, rollouts, margin, level)
    return _for_tasks_like_these(pairs, rollouts, margin, level)


def _rollouts_here(pairs: Pairs, rollouts: float, margin: float, level: float) -> str:
    """For fixed tasks more rollouts are always enough."""
    within = spread_of([side for pair in pairs for side in pair]).within
    quantiles = normal_quantile(0.5 + level / 2) + normal_quantile(0.8)
    needed = math.ceil(2 * within * (quantiles / margin) ** 2 / len(pairs))
    return "" if needed <= rollouts else _more_rollouts(needed, rollouts, margin)


def _for_tasks_like_these(pairs: Pairs, rollouts: float, margin: float, level: float) -> str:
    spread = _spread(pairs, rollouts)
    if detectable(spread, max(1, round(rollouts))) <= margin:
        return ""
    needed = rollouts_needed(spread, margin, limit=MOST_ROLLOUTS)
    if needed is not None:
        return _more_rollouts(needed, rollouts, margin)
    quantiles = normal_quantile(0.5 + level / 2) + normal_quantile(0.8)
    variance_each = 2 * spread.within / max(rollouts, 1) + spread.effect
    tasks = math.ceil(variance_each * (quantiles / margin) ** 2)
    return (
        f"about {tasks} tasks would detect {100 * margin:g} pp with 80 % probability (now {len(pairs)}); "
        f"more rollouts of these would not, {THESE_INSTEAD}"
    )


def _more_rollouts(needed: int, rollouts: float, margin: float) -> str:
    return (
        f"{needed} rollouts per task and side would detect {100 * margin:g} pp with 80 % probability "
        f"(now {significant(rollouts, 2)})"
    )


def _shared(
    before: Sequence[TaskRewards], after: Sequence[TaskRewards]
) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
    known = {task.name: task.scored for task in after if task.scored}
    return [(task.scored, known[task.name]) for task in before if task.scored and task.name in known]


def _spread(pairs: Pairs, rollouts: float) -> Spread:
    """Variation within tasks, and how much the change itself differs from task to task."""
    within = spread_of([side for pair in pairs for side in pair]).within
    moved = variance(fmean(b) - fmean(a) for a, b in pairs)
    return Spread(within=within, effect=max(0.0, moved - 2 * within / rollouts), tasks=len(pairs))
