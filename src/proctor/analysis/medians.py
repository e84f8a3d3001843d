"""Ratios of medians at very many points at once: the arithmetic behind `times`, on arrays.

A sweep may have a hundred thousand points; one at a time they would take longer than reading them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from proctor.analysis.distributions import t_quantile, two_sided_t
from proctor.analysis.resample import Array, IntArray, median_ranks
from proctor.analysis.verdict import Verdict

Bools = NDArray[np.bool_]
Values = Sequence[Sequence[float]]

MOST_DRAWN = 20_000_000
"""Draws of the bootstrap over all points, as long as each gets enough of them."""


class Spreads(NamedTuple):
    """What the values of each point say: medians, and how far the log ratio may be off on either side."""

    median_a: Array
    median_b: Array
    below: Array
    above: Array
    error: Array
    lowest: Array


class Ratios(NamedTuple):
    """B over A at each point, with what is known of it."""

    ratio: Array
    low: Array
    high: Array
    error: Array
    """Standard error of the logarithm of the ratio."""
    p_value: list[float]
    unknown: Bools
    """No ratio: a value is not above zero."""
    blind: Bools
    """One value on one side, and its noise is unknown."""


def spreads(a: Values, b: Values, level: float, seed: int) -> Spreads:
    """Bootstrap all points; those with equally many values at once."""
    draws = int(np.clip(MOST_DRAWN / max(1, len(a)), 250, 2000))
    groups: dict[tuple[int, int], list[int]] = {}
    for at, (one, two) in enumerate(zip(a, b, strict=True)):
        groups.setdefault((len(one), len(two)), []).append(at)
    found = Spreads(*(np.zeros(len(a)) for _ in Spreads._fields))
    for (count_a, count_b), members in groups.items():
        ranks, weights = _ranks(count_a, count_b, seed, draws)
        block = max(1, 1_000_000 // max(weights.size, count_a, count_b))
        for start in range(0, len(members), block):
            chosen = members[start : start + block]
            before = np.sort(np.array([a[at] for at in chosen], dtype=np.float64), axis=1)
            after = np.sort(np.array([b[at] for at in chosen], dtype=np.float64), axis=1)
            for column, values in zip(found, _drawn(before, after, ranks, weights, level), strict=True):
                column[chosen] = values
    return found


def _ranks(count_a: int, count_b: int, seed: int, draws: int) -> tuple[IntArray, IntArray]:
    """Which ordered values each draw's medians lie between, on both sides, and how often they came.

    Few values have few medians: a draw that was made ten times is worked out once and counts ten times.
    """
    drawn = np.stack(
        [
            *median_ranks(count_a, seed=2 * seed + 1, draws=draws),
            *median_ranks(count_b, seed=2 * seed, draws=draws),
        ]
    )
    different, weights = np.unique(drawn, axis=1, return_counts=True)
    return different, weights


def _drawn(a: Array, b: Array, ranks: IntArray, weights: IntArray, level: float) -> Spreads:
    middle_a, middle_b = _middle(a), _middle(b)
    # Values at zero or below make logarithms that nobody reads: those points get no ratio.
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(middle_b / middle_a)
        drawn = b[:, ranks[2]]
        drawn += b[:, ranks[3]]
        under = a[:, ranks[0]]
        under += a[:, ranks[1]]
        drawn /= under
        np.log(drawn, out=drawn)
        low, high, errors = _summary(drawn, weights, level)
        below, above = np.maximum(logs - low, 0.0), np.maximum(high - logs, 0.0)
    return Spreads(middle_a, middle_b, below, above, errors, np.minimum(a[:, 0], b[:, 0]))


def _summary(drawn: Array, weights: IntArray, level: float) -> tuple[Array, Array, Array]:
    """The two ends of the middle `level` of the draws, and their spread, row by row."""
    draws = int(weights.sum())
    tail = int((1 - level) / 2 * (draws - 1))
    if weights.size == draws:
        errors = drawn.std(axis=1)
        drawn.partition((tail, draws - 1 - tail), axis=1)
        return drawn[:, tail], drawn[:, draws - 1 - tail], errors
    mean = drawn @ weights / draws
    errors = np.sqrt(np.maximum((drawn - mean[:, None]) ** 2 @ weights / draws, 0.0))
    order = np.argsort(drawn, axis=1)
    passed = np.cumsum(weights[order], axis=1)
    rows = np.arange(len(drawn))
    ends = (order[rows, np.argmax(passed > at, axis=1)] for at in (tail, draws - 1 - tail))
    low, high = (drawn[rows, at] for at in ends)
    return low, high, errors


def _middle(ordered: Array) -> Array:
    count = ordered.shape[1]
    return np.asarray((ordered[:, (count - 1) // 2] + ordered[:, count // 2]) / 2)


def ratios(found: Spreads, single: Bools, between: Array, df: float, level: float) -> Ratios:
    """Every point's ratio, its interval widened by the run-to-run spread `between`, and its p-value.

    `df` are the degrees of freedom behind that spread; `single` marks points with one value on a side.
    """
    changed = found.median_a != found.median_b
    unknown = found.lowest <= 0
    blind = ~unknown & single & (between == 0) & changed
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = np.where(unknown, np.where(changed, np.nan, 1.0), found.median_b / found.median_a)
        reach = t_quantile(0.5 + level / 2, df) * between if between.size else between
        low = ratio * np.exp(-np.hypot(found.below, reach))
        high = ratio * np.exp(np.hypot(found.above, reach))
    nothing = blind | (unknown & changed)
    low, high = np.where(nothing, 0.0, low), np.where(nothing, np.inf, high)
    same = unknown & ~changed
    low, high = np.where(same, 1.0, low), np.where(same, 1.0, high)
    error = np.where(unknown | blind, 0.0, np.hypot(found.error, between))
    usable = ~(unknown | blind)
    return Ratios(ratio, low, high, error, _p_values(ratio, error, between, df, usable), unknown, blind)


def _p_values(ratio: Array, error: Array, between: Array, df: float, usable: Bools) -> list[float]:
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(ratio)
        # Satterthwaite: the part of the variance that came from few runs carries few degrees of freedom.
        dfs = np.where(between > 0, df * (error / between) ** 4, np.inf)
        scores = logs / error
    found = []
    columns = (scores, logs, error, dfs, usable)
    for score, log, wrong, each, judged in zip(*(column.tolist() for column in columns), strict=True):
        if not judged:
            found.append(1.0)
        elif wrong == 0:
            found.append(1.0 if log == 0 else 0.0)
        else:
            found.append(two_sided_t(score, each))
    return found


def verdicts(
    ratio: Array,
    low: Array,
    high: Array,
    p_value: Array,
    *,
    margin: float,
    higher_is_better: bool | None,
    alpha: float,
) -> list[Verdict]:
    """As `verdict.judge` on the logarithm of every ratio; what has no ratio is inconclusive.

    Where nobody said what is better, a certain change is `changed`, and nothing is "no worse".
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        gain, least, most = np.log(ratio), np.log(low), np.log(high)
    if not higher_is_better:
        gain, least, most = -gain, -most, -least
    margin = math.log1p(margin)
    certain = (p_value <= alpha) & ((least > 0) | (most < 0))
    far = certain & (np.abs(gain) >= margin)
    inside = (-margin <= least) & (most <= margin)
    chosen = np.select(
        [np.isnan(ratio), far & (gain > 0), far, inside & certain, inside, least >= -margin],
        range(6),
        default=0,
    )
    names = (
        Verdict.INCONCLUSIVE,
        Verdict.BETTER,
        Verdict.WORSE,
        Verdict.SMALL,
        Verdict.SAME,
        Verdict.NO_WORSE,
    )
    if higher_is_better is None:
        changed, open_ = Verdict.CHANGED, Verdict.INCONCLUSIVE
        names = (open_, changed, changed, Verdict.SMALL, Verdict.SAME, open_)
    return [names[at] for at in chosen.tolist()]
