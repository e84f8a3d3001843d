"""Find the moments at which a history of results moved to another level and stayed there.

PELT (Killick, Fearnhead and Eckley 2012) with squared error on winsorised logarithms of medians: exact like
trying every segmentation, and nearly linear in time. Winsorising keeps one bad run from becoming two changes.
The library for it (ruptures) needs scipy, which takes longer to import than most commands take to answer.
Its cuts are candidates only: `lasting` removes those that dependence or a machine with two speeds explains.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from proctor.analysis.distributions import two_sided_t
from proctor.analysis.interval import Interval, student
from proctor.analysis.lasting import Alternation, alternation, confirmed
from proctor.analysis.resample import Array

IntArray = NDArray[np.intp]

MIN_SEGMENT = 4
PENALTY = 4.0
"""Times the noise variance times log(n): what a candidate must explain at least."""
SHORT = 8.0
"""Short histories estimate their noise badly; the penalty grows by this over n."""
CLIP = 2.5
"""Values farther than this many sigmas from their neighbourhood are pulled in to that distance."""
MOST_CLIPPED = 0.15
"""Share of the values that may be pulled in; if more are that far away, they are no outliers."""
MIN_CHANGE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A lasting move."""

    index: int
    """The first result at the new level."""
    before: float
    after: float
    ratio: float
    interval: Interval
    """Of the ratio."""
    p_value: float
    """Given that we looked here; for ranking, not for a decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeReport:
    """A history cut into levels."""

    changes: tuple[Change, ...]
    levels: tuple[float, ...]
    """One per value: the level it belongs to."""
    sigma: float
    """Noise between neighbouring results, as the spread of the logarithm."""
    values: int
    alternation: Alternation | None = None
    """Two levels that the results go back and forth between; then there are no changes."""


def change_points(
    medians: Sequence[float],
    *,
    penalty: float = PENALTY,
    min_segment: int = MIN_SEGMENT,
    min_change: float = MIN_CHANGE,
    level: float = 0.95,
) -> ChangeReport:
    """Changes in an ordered history of positive results; histories below twice `min_segment` show none."""
    values = np.asarray(medians, dtype=np.float64)
    if values.size and (not np.isfinite(values).all() or values.min() <= 0):
        msg = "a history must consist of finite values above zero"
        raise ValueError(msg)
    logs = np.log(values)
    sigma = _noise(logs)
    clean = _winsorised(logs, sigma)
    count = max(values.size, 2)
    price = penalty * (1 + SHORT / count) * max(sigma, 1e-9) ** 2 * math.log(count)
    cuts = pelt(clean, price, min_segment)
    cuts = confirmed(clean, _merge_small(clean, cuts, math.log1p(min_change)), min_segment)
    cuts = _merge_small(clean, cuts, math.log1p(min_change))
    # Outliers count here: what visits another level briefly and often is part of the pattern.
    two_levels = alternation(logs, cuts) if values.size >= 2 * min_segment else None
    if two_levels and two_levels.high - two_levels.low < math.log1p(min_change):
        two_levels = None
    cuts = [] if two_levels else cuts
    edges = [0, *cuts, values.size]
    segments = [clean[start:end] for start, end in pairwise(edges)]
    levels = [float(np.exp(segment.mean())) for segment in segments if segment.size]
    return ChangeReport(
        changes=tuple(
            _change(cut, before, after, level)
            for cut, before, after in zip(cuts, segments, segments[1:], strict=False)
        ),
        levels=tuple(
            value for value, segment in zip(levels, segments, strict=False) for _ in range(segment.size)
        ),
        sigma=sigma,
        values=values.size,
        alternation=two_levels,
    )


def pelt(values: Array, penalty: float, min_segment: int = MIN_SEGMENT) -> list[int]:
    """Where to cut so that squared error plus a penalty per cut is least; a cut is a segment's start."""
    count = values.size
    if count < 2 * min_segment:
        return []
    sums = np.concatenate([[0.0], np.cumsum(values)])
    squares = np.concatenate([[0.0], np.cumsum(values**2)])

    def costs(starts: IntArray, end: int) -> Array:
        error = squares[end] - squares[starts] - (sums[end] - sums[starts]) ** 2 / (end - starts)
        return np.asarray(error)

    best = np.full(count + 1, math.inf)
    best[0] = -penalty
    previous = np.zeros(count + 1, dtype=np.intp)
    starts: IntArray = np.array([0], dtype=np.intp)
    for end in range(min_segment, count + 1):
        totals = best[starts] + costs(starts, end)
        winner = int(np.argmin(totals))
        best[end] = totals[winner] + penalty
        previous[end] = starts[winner]
        # From the next end on, `ready` may begin the last segment; a start that was beaten there is beaten
        # for good. Pruning at `end` itself would be too soon: `end` may not begin a segment yet.
        ready = end + 1 - min_segment
        if ready >= min_segment:
            starts = starts[best[starts] + costs(starts, ready) <= best[ready]]
            starts = np.append(starts, ready)
    cuts = []
    at = int(previous[count])
    while at > 0:
        cuts.append(at)
        at = int(previous[at])
    return cuts[::-1]


def _noise(logs: Array) -> float:
    """Robust spread of neighbours, which a level change touches only once."""
    if logs.size < 3:
        return 0.0
    steps = np.diff(logs)
    robust = 1.4826 * float(np.median(np.abs(steps - np.median(steps)))) / math.sqrt(2)
    # Half the history may be exactly equal; then the plain spread is all there is.
    return robust if robust > 0 else float(steps.std()) / math.sqrt(2)


def _winsorised(logs: Array, sigma: float, reach: int = 3) -> Array:
    """Pull outliers in towards the median of their neighbourhood."""
    padded = np.pad(logs, reach, mode="reflect") if logs.size > reach else logs
    if padded.size == logs.size:
        return logs
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * reach + 1)
    local = np.median(windows, axis=1)
    far = np.quantile(np.abs(logs - local), 1 - MOST_CLIPPED, method="higher")
    limit = max(CLIP * sigma, float(far))
    return np.asarray(np.clip(logs, local - limit, local + limit))


def _merge_small(values: Array, cuts: list[int], least: float) -> list[int]:
    """Drop the smallest change until every one left is worth a mention."""
    cuts = list(cuts)
    while cuts:
        edges = [0, *cuts, values.size]
        means = [values[start:end].mean() for start, end in pairwise(edges)]
        steps = [abs(after - before) for before, after in pairwise(means)]
        smallest = int(np.argmin(steps))
        if steps[smallest] >= least:
            break
        del cuts[smallest]
    return cuts


def _change(index: int, before: Array, after: Array, level: float) -> Change:
    shift = float(after.mean() - before.mean())
    df = before.size + after.size - 2
    pooled = (float(((before - before.mean()) ** 2).sum()) + float(((after - after.mean()) ** 2).sum())) / df
    error = math.sqrt(pooled * (1 / before.size + 1 / after.size))
    interval = student(shift, error, df, level)
    return Change(
        index=index,
        before=float(np.exp(before.mean())),
        after=float(np.exp(after.mean())),
        ratio=math.exp(shift),
        interval=Interval(math.exp(interval.low), math.exp(interval.high), level, "t on logarithms"),
        p_value=two_sided_t(shift / error, df) if error > 0 else 0.0,
    )
