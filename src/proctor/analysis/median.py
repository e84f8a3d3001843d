"""The interval of a median, whatever the distribution. Light: the measuring child imports it."""

from __future__ import annotations

import math
from functools import lru_cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

SMALLEST = 6
"""Fewer values than this cannot give a 95 % interval of the median."""
_EXACT_UP_TO = 1000


def median_interval(ordered: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of the median of an ordered sample: two of its values. None when it is too small."""
    if len(ordered) < SMALLEST:
        return None
    outside = values_outside(len(ordered))
    return ordered[outside], ordered[-1 - outside]


@lru_cache(maxsize=4096)
def values_outside(count: int) -> int:
    """How many values lie outside at each end: the most with which the interval still covers 95 %.

    Exact by the binomial distribution, beyond a thousand values by the normal one.
    """
    if count > _EXACT_UP_TO:
        return math.floor(count / 2 - 1.959964 * math.sqrt(count) / 2) - 1
    tail, term, rank = 0.0, 0.5**count, 0
    while tail + term <= 0.025:
        tail += term
        term = term * (count - rank) / (rank + 1)
        rank += 1
    return rank - 1
