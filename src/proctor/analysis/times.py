"""Compare measurements that were stored at different moments: ratio of medians, point by point.

The values inside one run say nothing about how much the machine itself moved between the two runs, and that
is usually the larger part. So every interval here is widened by the run-to-run noise, taken from earlier runs
of the same code when there are any and from a documented default when there are none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from proctor.analysis.distributions import normal_quantile, t_quantile
from proctor.analysis.interval import Interval
from proctor.analysis.medians import Bools, Ratios, Spreads, ratios, spreads, verdicts
from proctor.analysis.p_values import holm
from proctor.analysis.resample import Array
from proctor.analysis.verdict import Verdict, overall

DEFAULT_NOISE = 0.05
"""Run-to-run spread of a median wall time (as a log), used without history. On the shared machine on
which other tools were tried, identical code differed by over 5 % in 28 % of pairs by the minimum and by over
10 % in 46 % by the median: spreads of 3 % and 9 %. This lies between."""
WAITING = 0.7
"""How much of the stretch that waiting for a CPU causes (1/(1 - share), as a log) counts as noise. With eight
to sixteen busy processes on two cores, 231 pairs of runs of identical code then gave 3 false verdicts."""
NOISE_FLOOR = 0.01
"""The smallest noise that is assumed: even pairs run milliseconds apart miss some changes of 2 %."""
MARGIN = 0.05
"""The loss that is tolerated where nobody names another."""
HISTORY_NEEDED = 3
"""Repeats of earlier runs, beyond the first of each point, before history replaces the default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """How much the median of identical code moves from run to run, as the spread of its logarithm."""

    sigma: float
    source: str
    df: float = math.inf
    """Degrees of freedom behind it; infinite for a default, which is a convention and not an estimate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """The values of one point on both sides."""

    name: str
    a: tuple[float, ...]
    b: tuple[float, ...]
    waited_a: float = 0.0
    """Share of the time in which the code was ready and waited for a CPU, where that was recorded."""
    waited_b: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PointComparison:
    """One point: B's median over A's, with an interval that contains the run-to-run noise."""

    name: str
    count_a: int
    count_b: int
    median_a: float
    median_b: float
    ratio: float
    interval: Interval
    p_value: float
    p_holm: float
    verdict: Verdict
    error: float
    """Standard error of the logarithm of the ratio."""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimesComparison:
    """A whole sweep: the points, and one verdict over them."""

    points: tuple[PointComparison, ...]
    verdict: Verdict
    higher_is_better: bool | None
    """None where nobody has said so."""
    ratio: float | None
    """Geometric mean over points."""
    interval: Interval | None
    """Its interval. Noise between the runs is shared by all points and does not average out."""
    margin: float
    """A proven change of at least this counts; "no worse" excludes a loss of more than this."""
    settles: float
    """A change below this would be missed more than once in twenty; more points make it larger."""
    noise: Noise


def run_to_run_noise(history: Sequence[Sequence[float]], source: str = "history") -> Noise | None:
    """Noise from the medians of earlier runs, one sequence per point of unchanged code; None if too few."""
    logs = [[math.log(value) for value in point if value > 0] for point in history]
    logs = [point for point in logs if len(point) > 1]
    df = sum(len(point) - 1 for point in logs)
    if df < HISTORY_NEEDED:
        return None
    spread = math.sqrt(sum(float(np.var(point, ddof=1)) * (len(point) - 1) for point in logs) / df)
    # Points of one run share its luck, so the runs are what was sampled, not the points.
    runs = max(len(point) for point in logs)
    return Noise(sigma=max(spread, NOISE_FLOOR), source=source, df=max(runs - 1, 1))


def compare_times(
    samples: Sequence[Samples],
    *,
    noise: Noise,
    margin: float | None = None,
    higher_is_better: bool | None = False,
    level: float = 0.95,
    seed: int = 0,
) -> TimesComparison:
    """Judge every point, at the usual margin where none is given."""
    found = spreads([each.a for each in samples], [each.b for each in samples], level, seed)
    single = np.array([len(each.a) == 1 or len(each.b) == 1 for each in samples], dtype=bool)
    study = ratios(found, single, _between(samples, noise), noise.df, level)
    settles = _settles(study.error, noise, level)
    ratio, interval = _sweep(study, noise, level)
    chosen = MARGIN if margin is None else margin
    adjusted = holm(study.p_value)
    words = verdicts(
        *(study.ratio, study.low, study.high, np.array(adjusted)),
        margin=chosen,
        higher_is_better=higher_is_better,
        alpha=1 - level,
    )
    return TimesComparison(
        points=tuple(_points(samples, found, study, single, level, adjusted, words)),
        verdict=overall(words),
        higher_is_better=higher_is_better,
        ratio=ratio,
        interval=interval,
        margin=chosen,
        settles=settles,
        noise=noise,
    )


def adjust_together(comparisons: Sequence[TimesComparison]) -> tuple[TimesComparison, ...]:
    """Judge several metrics of one study as the single family of questions that they are."""
    adjusted = iter(holm([point.p_value for each in comparisons for point in each.points]))
    judged = []
    for each in comparisons:
        own = [next(adjusted) for _ in each.points]
        words = _verdicts(each, own)
        points = tuple(
            [_judged(point, p, word) for point, p, word in zip(each.points, own, words, strict=True)]
        )
        judged.append(replace(each, points=points, verdict=overall(words)))
    return tuple(judged)


def _verdicts(study: TimesComparison, p_values: Sequence[float]) -> list[Verdict]:
    if not study.points:
        return []
    return verdicts(
        np.array([point.ratio for point in study.points]),
        np.array([point.interval.low for point in study.points]),
        np.array([point.interval.high for point in study.points]),
        np.array(p_values),
        margin=study.margin,
        higher_is_better=study.higher_is_better,
        alpha=1 - study.points[0].interval.level,
    )


def _judged(point: PointComparison, p_holm: float, verdict: Verdict) -> PointComparison:
    """As `dataclasses.replace`, at a quarter of its cost: a sweep may have a hundred thousand points."""
    return PointComparison(
        name=point.name,
        count_a=point.count_a,
        count_b=point.count_b,
        median_a=point.median_a,
        median_b=point.median_b,
        ratio=point.ratio,
        interval=point.interval,
        p_value=point.p_value,
        p_holm=p_holm,
        verdict=verdict,
        error=point.error,
        note=point.note,
    )


def _points(
    samples: Sequence[Samples],
    found: Spreads,
    study: Ratios,
    single: Bools,
    level: float,
    adjusted: Sequence[float],
    words: Sequence[Verdict],
) -> Iterator[PointComparison]:
    columns = (
        *(found.median_a, found.median_b, study.ratio, study.low, study.high, study.error),
        *(study.unknown, study.blind, single),
    )
    rows = zip(samples, study.p_value, adjusted, words, *(column.tolist() for column in columns), strict=True)
    for each, p_value, p_holm, word, before, after, ratio, low, high, error, unknown, blind, alone in rows:
        note, method = "", "bootstrap, widened by run-to-run noise"
        if unknown:
            note, method = "no ratio: a value is not above zero", "equal" if ratio == 1.0 else "none"
        elif alone:
            note, method = "one value on one side: its spread is unknown", "none" if blind else method
        yield PointComparison(
            name=each.name,
            count_a=len(each.a),
            count_b=len(each.b),
            median_a=before,
            median_b=after,
            ratio=ratio,
            interval=Interval(low, high, level, method),
            p_value=p_value,
            p_holm=p_holm,
            verdict=word,
            error=error,
            note=note,
        )


def _between(samples: Sequence[Samples], noise: Noise) -> Array:
    """Spread of the log ratio from run to run. A history has seen its own waiting; a default has not."""
    usual = math.sqrt(2) * noise.sigma
    waiting = np.hypot(
        _waiting([each.waited_a for each in samples]), _waiting([each.waited_b for each in samples])
    )
    found = np.hypot(usual, waiting) if math.isinf(noise.df) else np.maximum(usual, waiting)
    return np.asarray(found, dtype=np.float64)


def _waiting(shares: Sequence[float]) -> Array:
    return np.asarray(-WAITING * np.log1p(-np.clip(np.array(shares, dtype=np.float64), 0.0, 0.95)))


def _settles(errors: Array, noise: Noise, level: float) -> float:
    if not errors.size:
        return math.inf
    certain = t_quantile(1 - (1 - level) / (2 * errors.size), noise.df)
    reach = certain + normal_quantile(0.95)
    return math.expm1(min(reach * float(np.median(errors)), 50.0))


def _sweep(study: Ratios, noise: Noise, level: float) -> tuple[float | None, Interval | None]:
    known = study.ratio > 0
    count = int(known.sum())
    if not count:
        return None, None
    between = math.sqrt(2) * noise.sigma
    inside = float(np.maximum(study.error[known] ** 2 - between**2, 0.0).sum())
    half = t_quantile(0.5 + level / 2, noise.df) * math.hypot(math.sqrt(inside) / count, between)
    centre = float(np.log(study.ratio[known]).mean())
    method = "geometric mean of points, widened by run-to-run noise"
    return math.exp(centre), Interval(math.exp(centre - half), math.exp(centre + half), level, method)
