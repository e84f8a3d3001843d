"""The usual ways to judge a change: intervals by eye, pooled z, McNemar on rollouts, medians by eye, Welch.

None of them is used to judge anything here. They are shown beside the gate wherever false
alarms are counted, so that a reader can compare.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import median

import numpy as np
from numpy.typing import ArrayLike

from proctor.analysis.distributions import normal_quantile, two_sided_t
from proctor.analysis.interval import wilson

Direction = int
"""-1: B is called worse than A, 1: better, 0: no difference is claimed."""
Samples = Mapping[str, Sequence[float]]
_Z = normal_quantile(0.975)


def by_eye(a: ArrayLike, b: ArrayLike) -> Direction:
    """Two intervals of pooled rollouts that do not overlap."""
    sides = (np.asarray(side, dtype=float) for side in (a, b))
    one, two = (wilson(float(np.clip(side.mean(), 0.0, 1.0)), side.size) for side in sides)
    return int(two.low > one.high) - int(two.high < one.low)


def pooled_z(a: ArrayLike, b: ArrayLike) -> Direction:
    """The z test that takes rollouts for independent."""
    first, second = np.asarray(a, dtype=float).ravel(), np.asarray(b, dtype=float).ravel()
    both = (first.sum() + second.sum()) / (first.size + second.size)
    error = math.sqrt(max(both * (1 - both), 1e-12) * (1 / first.size + 1 / second.size))
    return _direction(float(second.mean() - first.mean()) / error)


def mcnemar(a: ArrayLike, b: ArrayLike) -> Direction:
    """Rollout i against rollout i, which have nothing in common; those without a partner are left out."""
    first, second = np.asarray(a, dtype=float).ravel(), np.asarray(b, dtype=float).ravel()
    shared = min(first.size, second.size)
    before, after = first[:shared] >= 1, second[:shared] >= 1
    losses, wins = int((before & ~after).sum()), int((~before & after).sum())
    return _direction((wins - losses) / math.sqrt(losses + wins)) if losses + wins else 0


SCORE_RULES: dict[str, Callable[[ArrayLike, ArrayLike], Direction]] = {
    "two intervals by eye": by_eye,
    "pooled z": pooled_z,
    "McNemar on rollouts": mcnemar,
}


def slower_by_eye(a: Samples, b: Samples, margin: float = 0.05) -> bool:
    """A median beyond the margin at any point."""
    return any(median(b[name]) > (1 + margin) * median(a[name]) for name in a)


def slower_by_welch(a: Samples, b: Samples, margin: float = 0.05) -> bool:
    """Welch's test at each point as if values of one run were independent and points were one question."""
    for name in a:
        before, after = (np.log(np.asarray(side[name], dtype=float)) for side in (a, b))
        if before.size < 2 or after.size < 2:
            continue
        error = math.sqrt(float(before.var(ddof=1)) / before.size + float(after.var(ddof=1)) / after.size)
        gap = float(after.mean() - before.mean())
        if gap > math.log1p(margin) and two_sided_t(gap / max(error, 1e-12), before.size) < 0.05:
            return True
    return False


TIME_RULES: dict[str, Callable[[Samples, Samples, float], bool]] = {
    "medians by eye": slower_by_eye,
    "Welch per point": slower_by_welch,
}


def _direction(score: float) -> Direction:
    return int(score > _Z) - int(score < -_Z)
