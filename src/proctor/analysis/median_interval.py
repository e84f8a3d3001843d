"""An interval for the median that assumes nothing about the distribution: two of the values themselves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

LEVEL = 0.95
SMALLEST = 6
"""Fewer values than this cannot give a 95 % interval of the median."""


def median_interval(ordered: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of the median of an ordered sample; None when the sample is too small."""
    if len(ordered) < SMALLEST:
        return None
    rank = _rank(len(ordered))
    return ordered[rank], ordered[-1 - rank]


@lru_cache(maxsize=4096)
def _rank(count: int) -> int:
    """How many values to leave out at each end: the largest rank whose coverage is still enough."""
    if count > 1000:
        return max(0, math.floor(count / 2 - 1.959964 * math.sqrt(count) / 2) - 1)
    tail, term, rank = 0.0, 0.5**count, 0
    while tail + term <= (1 - LEVEL) / 2:
        tail += term
        term = term * (count - rank) / (rank + 1)
        rank += 1
    return rank - 1
