"""Which cuts of a history are lasting changes, when results depend on each other or a machine has two speeds.

Neighbouring results are alike (autocorrelation): a mean over m of them is worth fewer than m. And a machine
that switches between two speeds makes levels that nobody changed. The constants were chosen on simulated
series: benchmarks/history_quality.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from proctor.analysis.resample import Array

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
