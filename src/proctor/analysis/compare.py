"""Compare two sides on the same tasks: paired on per-task means, never rollout i with rollout i.

Two rollouts with the same number have nothing in common, and pairing them raises false alarms.
The mean difference of each task is one observation; the tests are t and sign-flip permutation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from proctor.analysis.distributions import normal_quantile, t_quantile, two_sided_t
from proctor.analysis.estimate import TaskRewards
from proctor.analysis.interval import Interval, student
from proctor.analysis.resample import Array, Statistic, mean, sign_flip
from proctor.analysis.verdict import Verdict, judge

Rewards = Mapping[str, Sequence[float]]
Pairs = Sequence[tuple[Array, Array]]
FEW_TASKS = 10
"""Below this many tasks the exact permutation test decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedScores:
    """Score of B minus score of A over the tasks that both sides have."""

    difference: float
    tasks: int
    rollouts_a: int
    rollouts_b: int
    these_tasks: Interval
    tasks_like_these: Interval
    p_t: float
    p_sign_flip: float
    exact: bool
    """Whether every sign pattern was tried."""
    detectable: float
    """The difference that a study of this size and spread would find four times in five."""
    only_in_a: tuple[str, ...] = ()
    only_in_b: tuple[str, ...] = ()

    @property
    def p_value(self) -> float:
        """Sign-flip for few tasks, where t assumes too much; t for many, where ties cost power."""
        return self.p_sign_flip if self.tasks < FEW_TASKS else self.p_t

    def interval(self, *, these_tasks: bool = False) -> Interval:
        """The interval of one of the two claims."""
        return self.these_tasks if these_tasks else self.tasks_like_these

    def judge(self, margin: float, *, these_tasks: bool = False, alpha: float = 0.05) -> Verdict:
        """The verdict with a tolerated loss of `margin`."""
        interval = self.interval(these_tasks=these_tasks)
        # The tests are about the tasks as a sample; for these tasks alone the interval decides.
        p_value = 0.0 if these_tasks else self.p_value
        return judge(
            gain=self.difference,
            low=interval.low,
            high=interval.high,
            p_value=p_value,
            margin=margin,
            alpha=alpha,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingBounds:
    """One comparison under every reading of the rollouts that ended in someone else's error."""

    excluded: PairedScores | None
    as_zero: PairedScores | None
    best_case: PairedScores | None
    worst_for_b: PairedScores | None
    """A's errors would have passed and B's failed: nothing below this is possible."""
    best_for_b: PairedScores | None
    errors_a: int
    errors_b: int

    def judge(self, margin: float, *, these_tasks: bool = False) -> Verdict:
        """The headline's verdict if the three denominators agree; inconclusive when they straddle it."""
        readings = (self.excluded, self.as_zero, self.best_case)
        found = {each.judge(margin, these_tasks=these_tasks) if each else None for each in readings}
        first = found.pop()
        return Verdict.INCONCLUSIVE if found or first is None else first


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedRatio:
    """B over A of a positive quantity (cost, time, tokens) over the tasks that both sides have."""

    ratio: float
    interval: Interval
    p_value: float
    tasks: int


def paired_scores(
    a: Rewards, b: Rewards, *, seed: int = 0, level: float = 0.95, flips: int = 10_000
) -> PairedScores | None:
    """Compare rewards per task; None when the two sides share no scored task."""
    names = [name for name in a if len(a[name]) and len(b.get(name, ()))]
    if not names:
        return None
    pairs = [(np.asarray(a[name], dtype=float), np.asarray(b[name], dtype=float)) for name in names]
    means = _moments(pairs)[0]
    differences = means[1::2] - means[::2]
    spread = float(differences.std(ddof=1)) if len(names) > 1 else math.inf
    error = spread / math.sqrt(len(names))
    signs = sign_flip(list(differences), seed=seed, flips=flips)
    between = _tasks_like_these(pairs, differences, level)
    return PairedScores(
        difference=float(differences.mean()),
        tasks=len(names),
        rollouts_a=sum(len(before) for before, _ in pairs),
        rollouts_b=sum(len(after) for _, after in pairs),
        these_tasks=_these_tasks(pairs, differences, level) or between,
        tasks_like_these=between,
        p_t=_p_t(float(differences.mean()), error, len(names) - 1),
        p_sign_flip=signs.p_value,
        exact=signs.exact,
        detectable=_detectable(between),
        only_in_a=tuple(name for name in a if name not in b),
        only_in_b=tuple(name for name in b if name not in a),
    )


def missing_bounds(
    a: Sequence[TaskRewards], b: Sequence[TaskRewards], *, seed: int = 0, level: float = 0.95
) -> MissingBounds:
    """Compare under the three denominators and under the two extremes that errors could have hidden."""

    def compared(fill_a: float | None, fill_b: float | None) -> PairedScores | None:
        return paired_scores(_filled(a, fill_a), _filled(b, fill_b), seed=seed, level=level)

    return MissingBounds(
        excluded=compared(None, None),
        as_zero=compared(0.0, 0.0),
        best_case=compared(1.0, 1.0),
        worst_for_b=compared(1.0, 0.0),
        best_for_b=compared(0.0, 1.0),
        errors_a=sum(task.errors for task in a),
        errors_b=sum(task.errors for task in b),
    )


def paired_ratio(
    a: Rewards,
    b: Rewards,
    *,
    statistic: Statistic = mean,
    seed: int = 0,
    level: float = 0.95,
    draws: int = 4000,
) -> PairedRatio | None:
    """B over A of a statistic over per-task means, by bootstrap over tasks; None below two shared tasks.

    For costs, times and tokens, whose spread is far from normal; pass `median` for a ratio of medians.
    """
    names = [name for name in a if len(a[name]) and len(b.get(name, ()))]
    if len(names) < 2:
        return None
    before = np.array([np.mean(a[name]) for name in names])
    after = np.array([np.mean(b[name]) for name in names])
    if (before <= 0).any() or (after <= 0).any():
        msg = "a ratio needs values above zero"
        raise ValueError(msg)
    logs = np.log(after) - np.log(before)
    ratio = float(statistic(after[None, :])[0] / statistic(before[None, :])[0])
    rows = np.random.default_rng(seed).integers(0, len(names), (draws, len(names)))
    drawn = np.log(statistic(after[rows])) - np.log(statistic(before[rows]))
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    # The percentile interval is too narrow for few tasks by about this factor.
    widen = t_quantile(0.5 + level / 2, len(names) - 1) / normal_quantile(0.5 + level / 2)
    widen *= math.sqrt(len(names) / (len(names) - 1))
    centre = math.log(ratio)
    return PairedRatio(
        ratio=ratio,
        interval=Interval(
            math.exp(centre + (low - centre) * widen),
            math.exp(centre + (high - centre) * widen),
            level,
            "bootstrap over tasks",
        ),
        p_value=sign_flip(list(logs), seed=seed).p_value,
        tasks=len(names),
    )


def _filled(tasks: Sequence[TaskRewards], fill: float | None) -> dict[str, tuple[float, ...]]:
    extra = () if fill is None else (fill,)
    return {task.name: task.scored + extra * task.errors for task in tasks}


def _tasks_like_these(pairs: Pairs, differences: Array, level: float) -> Interval:
    """Normal interval after adding one task that went up and down by half: it holds from five tasks on.

    Without that task, a few tasks that happen to agree would claim certainty that nobody has.
    """
    tasks = len(pairs)
    if not _bounded(pairs):
        if tasks == 1:
            return Interval(-math.inf, math.inf, level, "none: one task")
        error = float(differences.std(ddof=1)) / math.sqrt(tasks)
        return student(float(differences.mean()), error, tasks - 1, level, "t on task differences")
    count = tasks + 1
    centre = float(differences.sum()) / count
    second = (float((differences**2).sum()) + _pseudo(pairs)) / count
    error = math.sqrt((second - centre**2) / count)
    # Luck inside tasks is part of the spread between them: the wider claim is never the more certain one.
    return _normal(centre, max(error, _inside(pairs) or 0.0), level, "adjusted normal on task differences")


def _these_tasks(pairs: Pairs, differences: Array, level: float) -> Interval | None:
    """From the variance inside tasks; None when a task has a single rollout on a side and shows none."""
    error = _inside(pairs)
    if error is None or not _bounded(pairs):
        return None
    centre = float(differences.sum()) / (len(pairs) + 1)
    return _normal(centre, error, level, "adjusted normal, stratified by task")


def _inside(pairs: Pairs) -> float | None:
    if min(len(side) for pair in pairs for side in pair) < 2:
        return None
    _, squares, sizes = _moments(pairs)
    inside = math.fsum(squares / (sizes - 1) / sizes)
    return math.sqrt(inside + _pseudo(pairs)) / (len(pairs) + 1)


def _moments(pairs: Pairs) -> tuple[Array, Array, Array]:
    """Mean, sum of squares around it and size of every side, A before B; at once, for suites are many."""
    sides = [side for pair in pairs for side in pair]
    sizes = np.array([len(side) for side in sides])
    flat, starts = np.concatenate(sides), np.cumsum(sizes) - sizes
    means = np.add.reduceat(flat, starts) / sizes
    squares = np.add.reduceat((flat - np.repeat(means, sizes)) ** 2, starts)
    return means, squares, sizes.astype(np.float64)


def _pseudo(pairs: Pairs) -> float:
    """Squared size of the added task's swing: one whole rollout's worth."""
    return math.fsum(1 / len(side) for pair in pairs for side in pair) / (2 * len(pairs))


def _bounded(pairs: Pairs) -> bool:
    flat = np.concatenate([side for pair in pairs for side in pair])
    return bool(flat.min() >= 0 and flat.max() <= 1)


def _normal(centre: float, error: float, level: float, method: str) -> Interval:
    half = normal_quantile(0.5 + level / 2) * error
    return Interval(max(-1.0, centre - half), min(1.0, centre + half), level, method)


def _detectable(interval: Interval) -> float:
    z = normal_quantile(0.5 + interval.level / 2)
    return interval.width / 2 * (z + normal_quantile(0.8)) / z


def _p_t(difference: float, error: float, df: int) -> float:
    if df < 1:
        return 1.0
    if error == 0:
        return 1.0 if difference == 0 else 0.0
    return two_sided_t(difference / error, df)
