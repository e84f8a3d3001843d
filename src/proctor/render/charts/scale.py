"""From values to pixels, and where the ticks go."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Scale:
    """A value axis. `log` needs low > 0."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The pixel of a value."""
        if self.log:
            part = (math.log10(value) - math.log10(self.low)) / (math.log10(self.high) - math.log10(self.low))
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.start + part * (self.stop - self.start)

    def clip(self, value: float) -> float:
        """The pixel of a value, kept on the axis."""
        return self(min(max(value, self.low), self.high))


_LEAST = 1e-200
"""What is closer together than this is at one place: parts of it would leave the range of a float."""


def linear(
    values: Sequence[float], start: float, stop: float, *, zero: bool = False, pad: float = 0.04
) -> Scale:
    """An axis around the values, from zero when zero is near or requested."""
    low, high = min(values), max(values)
    if high - low < _LEAST or math.isclose(low, high, rel_tol=1e-12):  # no room between them for a tick
        reach = abs(low) * 0.1 if abs(low) > _LEAST else 1.0
        return Scale(low - reach, high + reach, start, stop)
    room = (high - low) * pad
    if zero or (low >= 0 and low < (high - low) * 0.35):
        return Scale(min(0.0, low), high + room, start, stop)
    return Scale(low - room, high + room, start, stop)


def logarithmic(values: Sequence[float], start: float, stop: float) -> Scale:
    """An axis of decades around positive values."""
    low, high = min(values), max(values)
    room = (high / low) ** 0.05 if high > low else 2.0
    return Scale(low / room, high * room, start, stop, log=True)


_MOST_DECADES = 100.0
"""Maximum number of decades on an axis; beyond it, its ends leave the range of a float."""


def fitting(values: Sequence[float], start: float, stop: float, *, decades: float = 1.5) -> Scale:
    """Logarithmic when the values span at least this many decades, linear otherwise."""
    if min(values) > _LEAST:
        span = math.log10(max(values)) - math.log10(min(values))
        if decades <= span <= _MOST_DECADES:
            return logarithmic(values, start, stop)
    return linear(values, start, stop)


def is_geometric(values: Sequence[float]) -> bool:
    """Whether ordered values grow by a factor rather than by a step: 1, 2, 4, 8 or 10, 30, 100."""
    if len(values) < 3 or min(values) <= 0:
        return False
    ratios = [b / a for a, b in pairwise(values)]
    steps = [b - a for a, b in pairwise(values)]
    return max(ratios) / min(ratios) < max(steps) / min(steps) and values[-1] / values[0] >= 8


def ticks(scale: Scale, count: int = 5) -> list[float]:
    """Round numbers on the axis, about this many."""
    return _log_ticks(scale, count) if scale.log else _linear_ticks(scale.low, scale.high, count)


def _linear_ticks(low: float, high: float, count: int) -> list[float]:
    rough = (high - low) / max(1, count)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(number * step, 12 - math.floor(math.log10(step))) for number in range(first, last + 1)]


def _log_ticks(scale: Scale, count: int) -> list[float]:
    first, last = math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high))
    for factors in ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0)):
        found = [
            factor * 10.0**power
            for power in range(first, last + 1)
            for factor in factors
            if scale.low * 0.9999 <= factor * 10.0**power <= scale.high * 1.0001
        ]
        if len(found) >= min(count, 3):
            return found[:: max(1, math.ceil(len(found) / (count + 2)))]
    low, high = scale.low, scale.high
    return found if len(found) > 1 else [tick for tick in _linear_ticks(low, high, count) if tick > 0]


def thin(values: Sequence[float], limit: int) -> list[float]:
    """At most this many of the values, evenly spread in order of size, extremes included."""
    ordered = sorted(values)
    if len(ordered) <= limit:
        return ordered
    return [ordered[round(at * (len(ordered) - 1) / (limit - 1))] for at in range(limit)]
