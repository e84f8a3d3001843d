"""Compare two sides on the same tasks: paired on per-task means, never rollout i with rollout i.

Two rollouts with the same number have nothing in common, and pairing them raises false alarms.
The mean difference of each task is one observation; the tests are t and sign-flip permutation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from proctor.analysis.claim import FEW_TASKS, Claim, chosen_claim
from proctor.analysis.distributions import normal_quantile, t_quantile, two_sided_t
from proctor.analysis.estimate import TaskRewards
from proctor.analysis.interval import (
    Interval,
    difference_interval,
    p_of_no_difference,
    rollouts_worth,
    student,
    welch,
)
from proctor.analysis.resample import Array, mean, sign_flip
from proctor.analysis.verdict import Verdict, judge

Rewards = Mapping[str, Sequence[float]]
Pairs = Sequence[tuple[Array, Array]]
Worth = tuple[float, float]
"""A side's mean over tasks, and how many coin tosses its rollouts are worth."""


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
    """The difference that would be detected with 80 % probability for tasks like these."""
    detectable_here: float
    """The same for these tasks."""
    worth: tuple[Worth, Worth] | None = None
    """Both sides as coin tosses, where the interval for these tasks is made of them."""
    only_in_a: tuple[str, ...] = ()

    @property
    def p_value(self) -> float:
        """Sign-flip for few tasks, where t assumes too much; t for many, where ties cost power."""
        return self.p_sign_flip if self.tasks < FEW_TASKS else self.p_t

    @property
    def p_these_tasks(self) -> float:
        """The p-value for these tasks: it is below 5 % when the 95 % interval does not contain zero.

        Where that interval comes from the differences between tasks, their t test is the p-value.
        """
        return p_of_no_difference(*self.worth) if self.worth else self.p_t

    def interval(self, claim: Claim) -> Interval:
        """The interval of one of the two claims."""
        return self.these_tasks if claim is Claim.THESE_TASKS else self.tasks_like_these

    def detects(self, claim: Claim) -> float:
        """The difference that would be detected with 80 % probability."""
        return self.detectable_here if claim is Claim.THESE_TASKS else self.detectable

    def p_of(self, claim: Claim) -> float:
        """The p-value of one of the two claims."""
        return self.p_these_tasks if claim is Claim.THESE_TASKS else self.p_value

    def judge(
        self, margin: float, *, these_tasks: bool | None = None, alpha: float = 0.05, times: float = 1.0
    ) -> Verdict:
        """The verdict with a tolerated loss of `margin`, on the claim asked for or the widest possible.

        `times`: what a correction for several comparisons makes of the p-value.
        """
        claim = chosen_claim(these_tasks, self.tasks, 1 - alpha)
        interval = self.interval(claim)
        # The tests are about the tasks as a sample; for these tasks alone the interval decides.
        p_value = 0.0 if claim is Claim.THESE_TASKS and times == 1 else min(1.0, times * self.p_of(claim))
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
    tasks: int = 0
    """Tasks that both sides have, scored or not: what chooses the claim."""

    def judge(self, margin: float, *, these_tasks: bool | None = None, times: float = 1.0) -> Verdict:
        """The headline's verdict if the three denominators agree; inconclusive when they straddle it."""
        these_tasks = chosen_claim(these_tasks, self.tasks) is Claim.THESE_TASKS
        readings = (self.excluded, self.as_zero, self.best_case)
        found = {
            each.judge(margin, these_tasks=these_tasks, times=times) if each else None for each in readings
        }
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
    moments = _moments(pairs)
    differences = moments.means[1::2] - moments.means[::2]
    difference = float(differences.mean())
    spread = float(differences.std(ddof=1)) if len(names) > 1 else math.inf
    signs = sign_flip(list(differences), seed=seed, flips=flips)
    between = _between_tasks(moments, differences, level)
    worth = _worth(moments)
    these = _these_tasks(moments, difference, worth, level) or between
    like = _hull(between, these)
    return PairedScores(
        difference=difference,
        tasks=len(names),
        rollouts_a=sum(len(before) for before, _ in pairs),
        rollouts_b=sum(len(after) for _, after in pairs),
        these_tasks=these,
        tasks_like_these=like,
        p_t=_p_t(difference, spread / math.sqrt(len(names)), len(names) - 1),
        p_sign_flip=signs.p_value,
        exact=signs.exact,
        detectable=_detectable(like),
        detectable_here=_detectable(these),
        worth=worth,
        only_in_a=tuple(name for name in a if name not in b),
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
        tasks=len({task.name for task in a} & {task.name for task in b}),
    )


def paired_ratio(
    a: Rewards, b: Rewards, *, seed: int = 0, level: float = 0.95, draws: int = 4000
) -> PairedRatio | None:
    """B over A of the mean over per-task means, by bootstrap over tasks; None below two shared tasks.

    For costs, times and tokens, whose spread is far from normal.
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
    ratio = float(after.mean() / before.mean())
    rows = np.random.default_rng(seed).integers(0, len(names), (draws, len(names)))
    drawn = np.log(mean(after[rows])) - np.log(mean(before[rows]))
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


def _between_tasks(moments: _Moments, differences: Array, level: float) -> Interval:
    """Normal interval after adding one task that went up and down by half: it holds from five tasks on.

    Without that task, a few tasks that happen to agree would claim a certainty that does not exist.
    """
    tasks, difference = len(differences), float(differences.mean())
    if not moments.bounded:
        if tasks == 1:
            return Interval(-math.inf, math.inf, level, "none: one task")
        error = float(differences.std(ddof=1)) / math.sqrt(tasks)
        return student(difference, error, tasks - 1, level, "t on task differences")
    count = tasks + 1
    centre = float(differences.sum()) / count
    # The added task swings by one whole rollout's worth.
    swing = math.fsum(1 / moments.sizes) / (2 * tasks)
    second = (float((differences**2).sum()) + swing) / count
    half = normal_quantile(0.5 + level / 2) * math.sqrt((second - centre**2) / count)
    # At low levels the added task could push the interval off the estimate.
    low, high = min(centre - half, difference), max(centre + half, difference)
    return Interval(max(-1.0, low), min(1.0, high), level, "adjusted normal on task differences")


def _these_tasks(
    moments: _Moments, difference: float, worth: tuple[Worth, Worth] | None, level: float
) -> Interval | None:
    """From the variance inside tasks; None when rollouts show too little of it."""
    if worth is None:
        if moments.bounded:
            return None
        tasks = len(moments.sizes) // 2
        return welch(difference, moments.counts, moments.variances, tasks, level)
    low, high = difference_interval(*worth, level)
    # The two means were rounded apart from their difference.
    return Interval(min(low, difference), max(high, difference), level, "beta limits, stratified by task")


def _worth(moments: _Moments) -> tuple[Worth, Worth] | None:
    """None for rewards beyond 0 and 1, and when most tasks have a side with a single rollout.

    Then what little the others show would have to speak for all, and the differences between tasks tell more.
    """
    single = (moments.sizes[::2] < 2) | (moments.sizes[1::2] < 2)
    if not moments.bounded or 2 * int(single.sum()) > len(single):
        return None
    sides = []
    for at in (0, 1):
        average = min(max(float(moments.means[at::2].mean()), 0.0), 1.0)
        sides.append((average, rollouts_worth(average, moments.counts[at::2], moments.variances[at::2])))
    return sides[0], sides[1]


def _hull(between: Interval, these: Interval) -> Interval:
    """Luck inside tasks is part of the spread between them: the wider claim is never the more certain one."""
    low, high = min(between.low, these.low), max(between.high, these.high)
    return Interval(low, high, between.level, between.method)


@dataclass(frozen=True, slots=True)
class _Moments:
    """Mean, variance and size of every side, A before B; at once, for suites are many."""

    means: Array
    variances: list[float]
    """0 with a single reward."""
    sizes: Array
    bounded: bool
    """No reward lies beyond 0 and 1."""

    @property
    def counts(self) -> list[int]:
        return [int(size) for size in self.sizes]


def _moments(pairs: Pairs) -> _Moments:
    sides = [side for pair in pairs for side in pair]
    sizes = np.array([len(side) for side in sides])
    flat, starts = np.concatenate(sides), np.cumsum(sizes) - sizes
    means = np.add.reduceat(flat, starts) / sizes
    squares = np.add.reduceat((flat - np.repeat(means, sizes)) ** 2, starts)
    return _Moments(
        means=means,
        variances=(squares / np.maximum(sizes - 1, 1)).tolist(),
        sizes=sizes.astype(np.float64),
        bounded=bool(flat.min() >= 0 and flat.max() <= 1),
    )


def _detectable(interval: Interval) -> float:
    z = normal_quantile(0.5 + interval.level / 2)
    return interval.width / 2 * (z + normal_quantile(0.8)) / z


def _p_t(difference: float, error: float, df: int) -> float:
    if df < 1:
        return 1.0
    if error == 0:
        return 1.0 if difference == 0 else 0.0
    return two_sided_t(difference / error, df)
