"""How times behave over a run and over sizes: drift from first to last, and the exponent of growth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from proctor.analysis.distributions import normal_cdf, normal_quantile, t_quantile
from proctor.analysis.interval import Interval
from proctor.analysis.resample import Array

MAX_VALUES = 1000
"""Longer series are thinned to this many medians first; all pairs of them are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """How much a series moved from its first to its last value."""

    relative: float
    """Change over the whole series as a share of its median, by the Theil-Sen slope."""
    interval: Interval
    p_value: float
    """Mann-Kendall, corrected for neighbours that resemble each other."""
    values: int

    def drifts(self, tolerance: float = 0.05, alpha: float = 0.05) -> bool:
        """Whether the series certainly moved, by more than is tolerated."""
        return self.p_value <= alpha and abs(self.relative) > tolerance


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """value ≈ factor × size ** exponent."""

    exponent: float
    interval: Interval | None
    """None with fewer than three sizes."""
    factor: float
    sizes: int


def drift(values: Sequence[float], *, level: float = 0.95) -> Drift | None:
    """Latency drift inside a run; None with fewer than eight values, which can show no trend."""
    data = np.asarray(values, dtype=np.float64)
    if data.size < 8:
        return None
    data = _thinned(data)
    count = data.size
    rows, columns = np.triu_indices(count, 1)
    rises = data[columns] - data[rows]
    slopes = np.sort(rises / (columns - rows))
    statistic = float(np.sign(rises).sum())
    slope = float(np.median(slopes))
    variance = _kendall_variance(data) * _clumping(data - slope * np.arange(count))
    sigma = math.sqrt(variance)
    scale = float(np.median(data))
    span = (count - 1) / scale if scale else 0.0
    z = max(abs(statistic) - 1, 0) / sigma if sigma else 0.0
    reach = normal_quantile(0.5 + level / 2) * sigma / 2
    middle = slopes.size / 2
    low = slopes[int(np.clip(middle - reach, 0, slopes.size - 1))]
    high = slopes[int(np.clip(middle + reach, 0, slopes.size - 1))]
    return Drift(
        relative=slope * span,
        interval=Interval(float(low) * span, float(high) * span, level, "theil-sen"),
        p_value=2 * normal_cdf(-z),
        values=len(values),
    )


def growth(sizes: Sequence[float], values: Sequence[float], *, level: float = 0.95) -> Growth | None:
    """Exponent of growth by least squares on logarithms; None below two different sizes above zero."""
    usable = [(size, value) for size, value in zip(sizes, values, strict=True) if size > 0 and value > 0]
    if len({size for size, _ in usable}) < 2:
        return None
    x, y = np.log(np.array(usable, dtype=np.float64)).T
    exponent, constant, residual = _line(x, y)
    df = len(usable) - 2
    interval = None
    if df >= 1:
        error = math.sqrt(residual / df / float(((x - x.mean()) ** 2).sum()))
        half = t_quantile(0.5 + level / 2, df) * error
        interval = Interval(exponent - half, exponent + half, level, "least squares on logarithms")
    return Growth(
        exponent=exponent,
        interval=interval,
        factor=math.exp(constant),
        sizes=len({size for size, _ in usable}),
    )


def _line(x: Array, y: Array) -> tuple[float, float, float]:
    centred = x - x.mean()
    slope = float((centred * y).sum() / (centred**2).sum())
    constant = float(y.mean() - slope * x.mean())
    return slope, constant, float(((y - constant - slope * x) ** 2).sum())


def _thinned(data: Array) -> Array:
    if data.size <= MAX_VALUES:
        return data
    return np.array([np.median(part) for part in np.array_split(data, MAX_VALUES)])


def _kendall_variance(data: Array) -> float:
    count = data.size
    _, ties = np.unique(data, return_counts=True)
    equal = float((ties * (ties - 1) * (2 * ties + 5)).sum())
    return (count * (count - 1) * (2 * count + 5) - equal) / 18


def _clumping(residuals: Array) -> float:
    """How much fewer independent values a series has than it seems, from its first autocorrelation."""
    ranks = np.argsort(np.argsort(residuals)).astype(np.float64)
    ranks -= ranks.mean()
    power = float((ranks**2).sum())
    lag = float((ranks[1:] * ranks[:-1]).sum()) / power if power else 0.0
    lag = min(max(lag, 0.0), 0.95)
    return (1 + lag) / (1 - lag)
