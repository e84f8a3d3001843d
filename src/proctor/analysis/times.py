"""Compare measurements that were stored at different moments: ratio of medians, point by point.

The values inside one run say nothing about how much the machine itself moved between the two runs, and that
is usually the larger part. So every interval here is widened by the run-to-run noise, taken from earlier runs
of the same code when there are any and from a documented default when there are none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from proctor.analysis.distributions import normal_quantile, t_quantile, two_sided_t
from proctor.analysis.interval import Interval
from proctor.analysis.multiple import holm
from proctor.analysis.resample import Array, IntArray, median_ranks
from proctor.analysis.verdict import Verdict, judge, overall

Ranks = tuple[IntArray, IntArray]

DEFAULT_NOISE = 0.05
"""Run-to-run spread of a median wall time (as a log) where no history says better. On the shared machine on
which other tools were tried, identical code differed by over 5 % in 28 % of pairs by the minimum and by over
10 % in 46 % by the median: spreads of 3 % and 9 %. This lies between."""
WAITING = 0.7
"""How much of the stretch that waiting for a CPU causes (1/(1 - share), as a log) counts as noise. With eight
to sixteen busy processes on two cores, 231 pairs of runs of identical code then gave 3 false verdicts."""
NOISE_FLOOR = 0.01
"""No history makes us believe less than this: even pairs run milliseconds apart miss some changes of 2 %."""
MIN_MARGIN = 0.05
MAX_PROMISE = 0.5
"""Not to be worse by more than this is the least that "no worse" may mean."""
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
    higher_is_better: bool
    ratio: float | None
    """Geometric mean over points."""
    interval: Interval | None
    """Its interval. Noise between the runs is shared by all points and does not average out."""
    margin: float
    """A certain change of at least this counts."""
    promise: float
    """"No worse" excludes a loss of more than this: the margin that was asked for, or what can be settled."""
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
    higher_is_better: bool = False,
    level: float = 0.95,
    seed: int = 0,
) -> TimesComparison:
    """Judge every point. Without a margin, nothing finer is promised than the data can settle."""
    draws = int(np.clip(20_000_000 / max(1, len(samples)), 250, 2000))
    spreads = _spreads(samples, level, seed, draws)
    points = [_point(each, spread, noise, level) for each, spread in zip(samples, spreads, strict=True)]
    settles = _settles([point.error for point in points], noise, level)
    ratio, interval = _sweep(points, noise, level)
    found = TimesComparison(
        points=tuple(points),
        verdict=Verdict.INCONCLUSIVE,
        higher_is_better=higher_is_better,
        ratio=ratio,
        interval=interval,
        margin=MIN_MARGIN if margin is None else margin,
        promise=min(max(MIN_MARGIN, settles), MAX_PROMISE) if margin is None else margin,
        settles=settles,
        noise=noise,
    )
    return adjust_together([found])[0]


def adjust_together(comparisons: Sequence[TimesComparison]) -> tuple[TimesComparison, ...]:
    """Judge several metrics of one study as the single family of questions that they are."""
    adjusted = iter(holm([point.p_value for each in comparisons for point in each.points]))
    judged = []
    for each in comparisons:
        points = tuple([_adjusted(point, p, each) for point, p in zip(each.points, adjusted, strict=False)])
        judged.append(replace(each, points=points, verdict=overall(point.verdict for point in points)))
    return tuple(judged)


def _adjusted(point: PointComparison, p_holm: float, study: TimesComparison) -> PointComparison:
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
        verdict=_judge(point, p_holm, study),
        error=point.error,
        note=point.note,
    )


def _point(samples: Samples, spread: _Spread, noise: Noise, level: float) -> PointComparison:
    ratio, interval, p_value, error, note = 1.0, Interval(1.0, 1.0, level, "equal"), 1.0, 0.0, ""
    between = _between(samples, noise)
    single = min(len(samples.a), len(samples.b)) == 1
    if spread.lowest <= 0:
        note = "no ratio: a value is not above zero"
        if spread.median_a != spread.median_b:
            ratio, interval = math.nan, Interval(0.0, math.inf, level, "none")
    elif single and between == 0 and spread.median_a != spread.median_b:
        note = "one value on a side: its own spread is unknown"
        ratio, interval = spread.median_b / spread.median_a, Interval(0.0, math.inf, level, "none")
    else:
        note = "one value on a side: its own spread is unknown" if single else ""
        ratio = spread.median_b / spread.median_a
        error = math.hypot(spread.error, between)
        reach = t_quantile(0.5 + level / 2, noise.df) * between
        interval = Interval(
            ratio * math.exp(-math.hypot(spread.below, reach)),
            ratio * math.exp(math.hypot(spread.above, reach)),
            level,
            "bootstrap, widened by run-to-run noise",
        )
        p_value = _p_value(math.log(ratio), error, noise, between)
    return PointComparison(
        name=samples.name,
        count_a=len(samples.a),
        count_b=len(samples.b),
        median_a=spread.median_a,
        median_b=spread.median_b,
        ratio=ratio,
        interval=interval,
        p_value=p_value,
        p_holm=p_value,
        verdict=Verdict.INCONCLUSIVE,
        error=error,
        note=note,
    )


def _between(samples: Samples, noise: Noise) -> float:
    """Spread of the log ratio from run to run. A history has seen its own waiting; a default has not."""
    usual = math.sqrt(2) * noise.sigma
    waiting = math.hypot(_waiting(samples.waited_a), _waiting(samples.waited_b))
    return math.hypot(usual, waiting) if math.isinf(noise.df) else max(usual, waiting)


def _waiting(share: float) -> float:
    return -WAITING * math.log1p(-min(max(share, 0.0), 0.95))


class _Spread(NamedTuple):
    """What the values of one point say: medians, and how far the log ratio may be off on either side."""

    median_a: float
    median_b: float
    below: float
    above: float
    error: float
    lowest: float


def _spreads(samples: Sequence[Samples], level: float, seed: int, draws: int) -> list[_Spread]:
    """Bootstrap all points; those with equally many values at once, which makes large sweeps quick."""
    groups: dict[tuple[int, int], list[int]] = {}
    for at, each in enumerate(samples):
        groups.setdefault((len(each.a), len(each.b)), []).append(at)
    found: dict[int, _Spread] = {}
    for (count_a, count_b), members in groups.items():
        ranks_a = median_ranks(count_a, seed=2 * seed + 1, draws=draws)
        ranks_b = median_ranks(count_b, seed=2 * seed, draws=draws)
        block = max(1, 2_000_000 // max(draws, count_a, count_b))
        for start in range(0, len(members), block):
            chosen = members[start : start + block]
            a = np.sort(np.array([samples[at].a for at in chosen], dtype=np.float64), axis=1)
            b = np.sort(np.array([samples[at].b for at in chosen], dtype=np.float64), axis=1)
            found |= zip(chosen, _bootstrapped(a, b, ranks_a, ranks_b, level), strict=True)
    return [found[at] for at in range(len(samples))]


def _bootstrapped(a: Array, b: Array, ranks_a: Ranks, ranks_b: Ranks, level: float) -> Iterator[_Spread]:
    middle_a, middle_b = _middle(a), _middle(b)
    # Values at zero or below make logarithms that nobody reads: those points get no ratio.
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(middle_b / middle_a)
        drawn = np.log((b[:, ranks_b[0]] + b[:, ranks_b[1]]) / (a[:, ranks_a[0]] + a[:, ranks_a[1]]))
        errors = drawn.std(axis=1)
        tail = int((1 - level) / 2 * (drawn.shape[1] - 1))
        drawn.partition((tail, drawn.shape[1] - 1 - tail), axis=1)
        below = np.maximum(logs - drawn[:, tail], 0.0)
        above = np.maximum(drawn[:, -1 - tail] - logs, 0.0)
    columns = (middle_a, middle_b, below, above, errors, np.minimum(a[:, 0], b[:, 0]))
    return map(_Spread._make, zip(*(column.tolist() for column in columns), strict=True))


def _middle(ordered: Array) -> Array:
    count = ordered.shape[1]
    return np.asarray((ordered[:, (count - 1) // 2] + ordered[:, count // 2]) / 2)


def _p_value(log_ratio: float, error: float, noise: Noise, between: float) -> float:
    if error == 0:
        return 1.0 if log_ratio == 0 else 0.0
    # Satterthwaite: the part of the variance that came from few runs carries few degrees of freedom.
    df = noise.df * (error / between) ** 4 if between > 0 else math.inf
    return two_sided_t(log_ratio / error, df)


def _judge(point: PointComparison, p_holm: float, study: TimesComparison) -> Verdict:
    if math.isnan(point.ratio):
        return Verdict.INCONCLUSIVE
    logs = [
        math.log(value) if value > 0 else -math.inf
        for value in (point.ratio, point.interval.low, point.interval.high)
    ]
    alpha = 1 - point.interval.level
    gain, low, high = logs if study.higher_is_better else (-logs[0], -logs[2], -logs[1])
    return judge(
        gain=gain,
        low=low,
        high=high,
        p_value=p_holm,
        margin=math.log1p(study.margin),
        promise=math.log1p(study.promise),
        alpha=alpha,
    )


def _settles(errors: Sequence[float], noise: Noise, level: float) -> float:
    if not errors:
        return math.inf
    typical = float(np.median(errors))
    certain = t_quantile(1 - (1 - level) / (2 * len(errors)), noise.df)
    reach = certain + normal_quantile(0.95)
    return math.expm1(min(reach * typical, 50.0))


def _sweep(
    points: Sequence[PointComparison], noise: Noise, level: float
) -> tuple[float | None, Interval | None]:
    logs = [math.log(point.ratio) for point in points if point.ratio > 0]
    if not logs:
        return None, None
    between = math.sqrt(2) * noise.sigma
    inside = math.fsum(max(0.0, point.error**2 - between**2) for point in points if point.ratio > 0)
    half = t_quantile(0.5 + level / 2, noise.df) * math.hypot(math.sqrt(inside) / len(logs), between)
    centre = math.fsum(logs) / len(logs)
    method = "geometric mean of points, widened by run-to-run noise"
    return math.exp(centre), Interval(math.exp(centre - half), math.exp(centre + half), level, method)
