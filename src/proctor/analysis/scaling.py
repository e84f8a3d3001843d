"""How something grows: slopes, scaling exponents and speed-ups, with intervals. Standard library only.

A slope is least squares with Student's interval. An exponent is the slope of log(cost) over log(size): 1 is
proportional, 0 is independent of the size. A speed-up is the geometric mean of ratios of pairs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from proctor.analysis.interval import Interval, student


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number and its interval; None where the values are too few for one."""

    value: float
    interval: Interval | None

    def metrics(self, name: str) -> dict[str, float]:
        """As metrics of an experiment: the value, and the ends of the interval where there is one."""
        found = {name: self.value}
        if self.interval is not None:
            found |= {f"{name}_low": self.interval.low, f"{name}_high": self.interval.high}
        return found


def slope(
    xs: Sequence[float], ys: Sequence[float], groups: Sequence[object] = (), level: float = 0.95
) -> Estimate:
    """The least-squares slope of `ys` over `xs`, common to all groups, each of which has its own level.

    ValueError unless some group has two different `xs`.
    """
    pairs = _centred(xs, ys, groups or [None] * len(xs))
    spread = math.fsum(x * x for x, _ in pairs)
    if not spread:
        msg = "a slope needs at least two different xs"
        raise ValueError(msg)
    found = math.fsum(x * y for x, y in pairs) / spread
    free = len(pairs) - len(set(groups or [None])) - 1
    if free < 1:
        return Estimate(found, None)
    residuals = math.fsum((y - found * x) ** 2 for x, y in pairs)
    return Estimate(found, student(found, math.sqrt(residuals / free / spread), free, level, "least squares"))


def scaling_exponent(
    sizes: Sequence[float], costs: Sequence[float], groups: Sequence[object] = (), level: float = 0.95
) -> Estimate:
    """The exponent k of cost ∝ size^k; ValueError unless all are positive and two sizes differ."""
    if min(sizes, default=0) <= 0 or min(costs, default=0) <= 0:
        msg = "a scaling exponent needs sizes and costs above 0"
        raise ValueError(msg)
    return slope([math.log(size) for size in sizes], [math.log(cost) for cost in costs], groups, level)


def _centred(xs: Sequence[float], ys: Sequence[float], groups: Sequence[object]) -> list[tuple[float, float]]:
    """Each pair less the means of its group."""
    members: dict[object, list[tuple[float, float]]] = {}
    for x, y, group in zip(xs, ys, groups, strict=True):
        members.setdefault(group, []).append((x, y))
    found = []
    for pairs in members.values():
        mean_x = math.fsum(x for x, _ in pairs) / len(pairs)
        mean_y = math.fsum(y for _, y in pairs) / len(pairs)
        found += [(x - mean_x, y - mean_y) for x, y in pairs]
    return found


def speed_up(before: Sequence[float], after: Sequence[float], level: float = 0.95) -> Estimate:
    """How many times as fast `after` is as `before`: times of pairs that were taken in turns."""
    logs = [math.log(one / other) for one, other in zip(before, after, strict=True)]
    count = len(logs)
    if not count:
        msg = "a speed-up needs at least one pair"
        raise ValueError(msg)
    mean = math.fsum(logs) / count
    if count == 1:
        return Estimate(math.exp(mean), None)
    error = math.sqrt(math.fsum((each - mean) ** 2 for each in logs) / (count - 1) / count)
    inner = student(mean, error, count - 1, level)
    return Estimate(
        math.exp(mean), Interval(math.exp(inner.low), math.exp(inner.high), level, "t on log ratios")
    )
