"""Find the moments at which a history of results moved to another level and stayed there.

PELT (Killick, Fearnhead and Eckley 2012) with squared error on winsorised logarithms of medians: exact like
trying every segmentation, and nearly linear in time. Winsorising keeps one bad run from becoming two changes.
The library for it (ruptures) needs scipy, which takes longer to import than most commands take to answer.
Its cuts are candidates only. Neighbouring results are alike (autocorrelation): a mean over m of them is worth
fewer than m. And a machine that switches between two speeds makes levels that nobody changed. Cuts that
either explains are removed, by constants that were chosen on simulated series: benchmarks/history_quality.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proctor.analysis.distributions import two_sided_t
from proctor.analysis.interval import Interval, student
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


def change_points(medians: Sequence[float], *, min_change: float = MIN_CHANGE) -> ChangeReport:
    """Changes in an ordered history of positive results; histories below twice `MIN_SEGMENT` show none."""
    values = np.asarray(medians, dtype=np.float64)
    if values.size and (not np.isfinite(values).all() or values.min() <= 0):
        msg = "a history must consist of finite values above zero"
        raise ValueError(msg)
    logs = np.log(values)
    sigma = _noise(logs)
    clean = _winsorised(logs, sigma)
    count = max(values.size, 2)
    price = PENALTY * (1 + SHORT / count) * max(sigma, 1e-9) ** 2 * math.log(count)
    cuts = pelt(clean, price)
    cuts = confirmed(clean, _merge_small(clean, cuts, math.log1p(min_change)), MIN_SEGMENT)
    cuts = _merge_small(clean, cuts, math.log1p(min_change))
    # Outliers count here: what visits another level briefly and often is part of the pattern.
    two_levels = alternation(logs, cuts) if values.size >= 2 * MIN_SEGMENT else None
    if two_levels and two_levels.high - two_levels.low < math.log1p(min_change):
        two_levels = None
    segments, changes = _changes(clean, [] if two_levels else cuts)
    levels = [float(np.exp(segment.mean())) for segment in segments if segment.size]
    return ChangeReport(
        changes=tuple(changes),
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


def _changes(values: Array, cuts: list[int]) -> tuple[list[Array], list[Change]]:
    """The segments between the cuts, and the change at each. One whose interval includes none is no change.

    Noise that all segments share can make a step certain that the values beside it leave open.
    """
    while True:
        segments = [values[start:end] for start, end in pairwise([0, *cuts, values.size])]
        changes = [
            _change(cut, before, after)
            for cut, before, after in zip(cuts, segments, segments[1:], strict=False)
        ]
        weakest = max(changes, key=lambda change: change.p_value, default=None)
        if weakest is None or not weakest.interval.low <= 1 <= weakest.interval.high:
            return segments, changes
        cuts = [cut for cut in cuts if cut != weakest.index]


def _change(index: int, before: Array, after: Array) -> Change:
    shift = float(after.mean() - before.mean())
    df = before.size + after.size - 2
    pooled = (float(((before - before.mean()) ** 2).sum()) + float(((after - after.mean()) ** 2).sum())) / df
    error = math.sqrt(pooled * (1 / before.size + 1 / after.size))
    interval = student(shift, error, df)
    return Change(
        index=index,
        before=float(np.exp(before.mean())),
        after=float(np.exp(after.mean())),
        ratio=math.exp(shift),
        interval=Interval(math.exp(interval.low), math.exp(interval.high), interval.level, "t on logarithms"),
        p_value=two_sided_t(shift / error, df) if error > 0 else 0.0,
    )


THRESHOLD = 4.0
"""Standard errors, with dependence, by which two neighbouring levels must differ."""
DOUBT = 0.5
"""Standard errors that are added to the estimated autocorrelation: short histories underestimate it."""
MOST_DEPENDENCE = 0.9
SWITCHES = 3
"""Moves between the same two levels from which on they are an alternation and not changes."""
BRIEF = 6
"""A level that was left and came back is reported when each stay had at least this many results."""
SEPARATED = 4.5
"""Distance of two levels, in standard deviations inside them, from which on they are two levels."""
SMALLEST_LEVEL = 0.15
"""Share of the results that the rarer level must have."""


@dataclass(frozen=True, slots=True)
class Alternation:
    """Results that go back and forth between two levels (of the logarithm)."""

    low: float
    high: float
    switches: int


@dataclass(frozen=True, slots=True)
class _Fit:
    edges: np.ndarray[Any, np.dtype[np.intp]]
    sizes: np.ndarray[Any, np.dtype[np.intp]]
    means: Array
    residuals: Array


def confirmed(values: Array, cuts: list[int], shortest: int) -> list[int]:
    """The cuts that are left when the least certain one is removed until every one is certain enough."""
    kept = list(cuts)
    if not kept:
        return []
    bar = _bar(values.size)
    sums = np.concatenate([[0.0], np.cumsum(values - values.mean())])
    while kept:
        certainty = _certainty(_fit(values, kept))
        weakest = int(np.argmin(certainty))
        if certainty[weakest] >= bar:
            break
        del kept[weakest]
        for neighbour in (weakest - 1, weakest):
            _move_to_best(sums, kept, neighbour, shortest)
    return kept


def alternation(values: Array, cuts: list[int]) -> Alternation | None:
    """The two levels that these results go back and forth between, if they do; `cuts` are the confirmed."""
    return _between_results(values) or _between_segments(values, cuts)


def _bar(count: int) -> float:
    """Longer histories have more places to look at; in short ones the spread itself is uncertain."""
    longer = 2 * math.log(count / 30) if count > 30 else 0.0
    return math.sqrt(THRESHOLD**2 + longer) * (1 + 20 / count**2)


def _fit(values: Array, cuts: list[int]) -> _Fit:
    edges = np.array([0, *cuts, values.size], dtype=np.intp)
    sizes = np.diff(edges)
    means = np.add.reduceat(values, edges[:-1]) / sizes
    return _Fit(edges, sizes, means, values - np.repeat(means, sizes))


def _certainty(fit: _Fit) -> Array:
    """Each step in standard errors that allow for dependence and for the spread inside all segments."""
    squares = float(fit.residuals @ fit.residuals)
    variance = _variance_of_mean(fit.sizes, _dependence(fit, squares))
    freedom = max(1.0, fit.residuals.size - float((fit.sizes * variance).sum()))
    spread = max(squares / freedom, 1e-18)
    return np.asarray(np.abs(np.diff(fit.means)) / np.sqrt(spread * (variance[:-1] + variance[1:])))


def _dependence(fit: _Fit, squares: float) -> float:
    """Lag-one autocorrelation inside segments, corrected for the means taken out and raised by doubt."""
    count = fit.residuals.size
    if squares <= 0:
        return 0.0
    inside = np.ones(count - 1, dtype=bool)
    inside[fit.edges[1:-1] - 1] = False
    products = (fit.residuals[:-1] * fit.residuals[1:])[inside]
    found = float(products.sum()) / squares * count / max(products.size, 1)
    bias = fit.sizes.size / count
    found = (found + bias) / max(1 - 3 * bias, 0.25)
    found += DOUBT * math.sqrt(max(1 - found**2, 0.1) / count)
    return min(max(found, 0.0), MOST_DEPENDENCE)


def _variance_of_mean(sizes: np.ndarray[Any, np.dtype[np.intp]], dependence: float) -> Array:
    """Of a mean of so many autocorrelated values with variance one."""
    plain = (1 + dependence) / (1 - dependence)
    ends = 2 * dependence * (1 - dependence**sizes) / (sizes * (1 - dependence) ** 2)
    return np.asarray((plain - ends) / sizes)


def _move_to_best(sums: Array, cuts: list[int], which: int, shortest: int) -> None:
    """Put a cut where it explains most, now that its neighbour is gone."""
    if not 0 <= which < len(cuts):
        return
    start = cuts[which - 1] if which else 0
    end = cuts[which + 1] if which + 1 < len(cuts) else sums.size - 1
    places = np.arange(start + shortest, end - shortest + 1)
    left, right = sums[places] - sums[start], sums[end] - sums[places]
    gain = left**2 / (places - start) + right**2 / (end - places)
    cuts[which] = int(places[int(np.argmax(gain))])


def _between_results(values: Array) -> Alternation | None:
    """Two levels with little between them, and three or more moves from one to the other."""
    count = values.size
    least = max(2, math.ceil(SMALLEST_LEVEL * count))
    if count < 2 * least:
        return None
    ordered = np.sort(values)
    centred = ordered - ordered.mean()
    sums, squares = np.cumsum(centred), np.cumsum(centred**2)
    sizes = np.arange(1, count)
    inside = squares[:-1] - sums[:-1] ** 2 / sizes
    inside += squares[-1] - squares[:-1] - (sums[-1] - sums[:-1]) ** 2 / (count - sizes)
    split = least - 1 + int(np.argmin(inside[least - 1 : count - least]))
    low, high = float(np.median(ordered[: split + 1])), float(np.median(ordered[split + 1 :]))
    spread = math.sqrt(max(float(inside[split]), 0.0) / (count - 2))
    if high - low < SEPARATED * max(spread, 1e-12):
        return None
    # What is near neither level is no evidence of a move.
    near = (high - low) / 3
    slow = np.abs(values - high) < near
    labels = slow[slow | (np.abs(values - low) < near)]
    switches = int((labels[1:] != labels[:-1]).sum())
    return Alternation(low, high, switches) if switches >= SWITCHES else None


def _between_segments(values: Array, cuts: list[int]) -> Alternation | None:
    """Segments whose own levels are two, visited again and again; or one that came back soon."""
    if len(cuts) < 2:
        return None
    fit = _fit(values, cuts)
    ordered = np.sort(fit.means)
    gaps = np.diff(ordered)
    widest = int(np.argmax(gaps))
    low, high = ordered[: widest + 1], ordered[widest + 1 :]
    if max(float(np.ptp(low)), float(np.ptp(high))) >= gaps[widest] / 2:
        return None
    slow = fit.means > (low[-1] + high[0]) / 2
    switches = sum(bool(before != after) for before, after in pairwise(slow))
    brief = switches == 2 and int(fit.sizes.min()) < BRIEF
    if switches < SWITCHES and not brief:
        return None
    return Alternation(float(low.mean()), float(high.mean()), switches)
