"""Intervals for a mean that is known to lie between 0 and 1, and the plain t interval for any other."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from proctor.analysis.distributions import beta_quantile, normal_quantile, t_quantile


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
