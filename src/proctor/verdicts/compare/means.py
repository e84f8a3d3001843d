"""Means over tasks, for what is spent on them: every task weighs the same, and tasks are the sample."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from proctor.analysis.interval import student


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """A mean, and the ends of its 95 % interval where there are two tasks or values at least."""

    value: float
    low: float | None
    high: float | None
    n: int
    """Values behind it."""


def clustered_mean(tasks: Mapping[str, Sequence[float]]) -> Mean | None:
    """The mean over tasks of their means; with a single task its values are the sample."""
    groups = [each for each in tasks.values() if each]
    if not groups:
        return None
    sample = list(groups[0]) if len(groups) == 1 else [math.fsum(each) / len(each) for each in groups]
    count, n = len(sample), sum(map(len, groups))
    mean = math.fsum(sample) / count
    if count < 2:
        return Mean(value=mean, low=None, high=None, n=n)
    error = math.sqrt(math.fsum((each - mean) ** 2 for each in sample) / (count - 1) / count)
    interval = student(mean, error, count - 1)
    low = max(interval.low, 0.0) if min(sample) >= 0 else interval.low
    return Mean(value=mean, low=low, high=interval.high, n=n)
