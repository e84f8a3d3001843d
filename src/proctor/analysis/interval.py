"""Intervals of a mean between 0 and 1, and the plain t interval for any other.

For fixed tasks with random rollouts each side is reduced to one share and the number of coin tosses it is
worth; its interval is from the beta distribution. The interval of a difference is made from those of the
sides (MOVER, after Newcombe), so it contains the estimate. Its coverage: docs/explanation/statistics.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from proctor.analysis.distributions import beta_quantile, normal_quantile, t_quantile

LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A range that contains the truth in `level` of all such studies, by the method named."""

    low: float
    high: float
    level: float = 0.95
    method: str = ""

    def contains(self, value: float) -> bool:
        """Whether a value lies inside, ends included."""
        return self.low <= value <= self.high

    @property
    def width(self) -> float:
        """High minus low."""
        return self.high - self.low


def wilson(mean: float, effective_n: float, level: float = 0.95, method: str = "wilson") -> Interval:
    """Wilson's score interval; `effective_n` need not be whole."""
    z = normal_quantile(0.5 + level / 2)
    shrink = 1 + z * z / effective_n
    centre = (mean + z * z / (2 * effective_n)) / shrink
    half = z / shrink * math.sqrt(mean * (1 - mean) / effective_n + (z / (2 * effective_n)) ** 2)
    # Rounding must not exclude the ends that the formula reaches exactly.
    low = 0.0 if mean <= 0 else max(0.0, centre - half)
    high = 1.0 if mean >= 1 else min(1.0, centre + half)
    return Interval(low, high, level, method)


@lru_cache(maxsize=4096)
def clopper_pearson(successes: int, trials: int, level: float = 0.95) -> Interval:
    """The interval that never covers less than it says; for a single count in which caution is the point."""
    tail = (1 - level) / 2
    low = beta_quantile(tail, successes, trials - successes + 1) if successes else 0.0
    high = beta_quantile(1 - tail, successes + 1, trials - successes) if successes < trials else 1.0
    return Interval(low, high, level, "clopper-pearson")


def student(
    mean: float, standard_error: float, df: float, level: float = 0.95, method: str = "t"
) -> Interval:
    """Mean ± t × standard error."""
    half = t_quantile(0.5 + level / 2, df) * standard_error
    return Interval(mean - half, mean + half, level, method)


CAUTION = 0.25
"""How far the beta limits are from Clopper and Pearson's (0) towards Jeffreys' (0.5). Chosen by the grid."""
PRIOR_EVENTS = 6
"""What the belief weighs that all tasks are alike: as much as this many tosses of a fair coin."""
MOST_CERTAIN = 1e-12


def rollouts_worth(
    mean: float, sizes: Sequence[int], variances: Sequence[float], *, prior: float = PRIOR_EVENTS
) -> float:
    """How many coin tosses the rollouts of a suite are worth, for rewards between 0 and 1.

    `share` is the variance inside tasks over the variance if all tasks were alike. It is pulled towards 1,
    which is cautious, by a weight that matters less the more is known: the degrees of freedom after
    Satterthwaite, for tasks with few rollouts decide the error and tell least about it, times how often
    rewards differ at all, for a suite that nearly always passes shows hardly anything of its variance.
    A task with one rollout shows no variance inside and is counted as if it had all of it.
    """
    extreme = mean * (1 - mean)
    slots = math.fsum([1 / size for size in sizes])
    coins = len(sizes) ** 2 / slots
    if extreme * slots <= 0:  # a mean next to 0 may be lost in the product
        return coins
    inside = math.fsum(
        [(found if size > 1 else extreme) / size for size, found in zip(sizes, variances, strict=True)]
    )
    share = min(max(inside / (extreme * slots), 0.0), 1.0)
    known = _degrees(sizes) * min(1.0, 4 * extreme)
    return coins * (known + prior) / (known * share + prior)


def _degrees(sizes: Sequence[int]) -> float:
    repeated = [size for size in sizes if size > 1]
    if not repeated:
        return 0.0
    inverse = math.fsum([1 / size for size in repeated])
    return inverse * inverse / math.fsum([1 / (size * size * (size - 1)) for size in repeated])


@lru_cache(maxsize=65536)
def beta_limits(mean: float, coins: float, tail: float) -> tuple[float, float]:
    """Between Clopper–Pearson and Jeffreys; `coins` need not be whole. Contains the mean."""
    low, high = 0.0, 1.0
    passed, failed = mean * coins, (1 - mean) * coins
    if passed > 0:
        low = beta_quantile(tail, passed + CAUTION, failed + 1 - CAUTION)
    if failed > 0:
        high = beta_quantile(1 - tail, passed + 1 - CAUTION, failed + CAUTION)
    return min(low, mean), max(high, mean)


def difference_interval(
    a: tuple[float, float], b: tuple[float, float], level: float = 0.95
) -> tuple[float, float]:
    """Ends of the interval of B minus A, each side given as its mean and the coin tosses it is worth."""
    tail = (1 - level) / 2
    low_a, high_a = beta_limits(*a, tail)
    low_b, high_b = beta_limits(*b, tail)
    mean_a, mean_b = a[0], b[0]
    difference = mean_b - mean_a
    low = difference - math.hypot(mean_b - low_b, high_a - mean_a)
    high = difference + math.hypot(high_b - mean_b, mean_a - low_a)
    return max(-1.0, low), min(1.0, high)


def p_of_no_difference(a: tuple[float, float], b: tuple[float, float]) -> float:
    """The p-value that belongs to the interval: at its level zero lies on the interval's end."""
    if a[0] == b[0]:
        return 1.0
    certain, doubtful = MOST_CERTAIN, 1.0
    for _ in range(60):
        middle = math.sqrt(certain * doubtful)
        low, high = difference_interval(a, b, 1 - middle)
        if low <= 0 <= high:
            certain = middle
        else:
            doubtful = middle
        if doubtful - certain < 1e-6 * doubtful:
            break
    return doubtful


def welch(
    difference: float, sizes: Sequence[int], variances: Sequence[float], tasks: int, level: float
) -> Interval | None:
    """For rewards beyond 0 and 1: t with Satterthwaite's degrees of freedom; None where a task has one."""
    if min(sizes) < 2:
        return None
    parts = [found / size for size, found in zip(sizes, variances, strict=True)]
    total = math.fsum(parts)
    weights = math.fsum(part * part / (size - 1) for size, part in zip(sizes, parts, strict=True))
    df = total * total / weights if weights > 0 else float(sum(size - 1 for size in sizes))
    half = t_quantile(0.5 + level / 2, df) * math.sqrt(total) / tasks
    return Interval(difference - half, difference + half, level, "t, stratified by task")
