"""Describe a sample with the numbers people quote. Standard library only: it runs beside the measurement."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

PERCENTILES = (5, 25, 50, 75, 90, 95, 99)
_NAMES = tuple((f"p{percent}", percent) for percent in PERCENTILES)


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The percentile of an ordered sample, linear between neighbours."""
    if not ordered:
        msg = "percentile of an empty sample"
        raise ValueError(msg)
    position = (len(ordered) - 1) * percent / 100
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def describe(values: Iterable[float]) -> dict[str, float | int]:
    """Count, mean, spread and percentiles of a sample; only `count` when it is empty."""
    ordered = sorted(map(float, values))
    count = len(ordered)
    if not count:
        return {"count": 0}
    if count == 1:
        return _describe_one(ordered[0])
    mean = math.fsum(ordered) / count
    variance = math.fsum([(value - mean) ** 2 for value in ordered]) / (count - 1)
    middle = percentile(ordered, 50)
    deviations = sorted([abs(value - middle) for value in ordered])
    return {
        "count": count,
        "mean": mean,
        "std": math.sqrt(variance),
        "min": ordered[0],
        **{name: percentile(ordered, percent) for name, percent in _NAMES},
        "max": ordered[-1],
        "mad": percentile(deviations, 50),
    }


def _describe_one(value: float) -> dict[str, float | int]:
    """The same of one value: what most points of a large sweep have."""
    found: dict[str, float | int] = {"count": 1, "mean": value, "std": 0.0, "min": value}
    for name, _ in _NAMES:
        found[name] = value
    return found | {"max": value, "mad": 0.0}
