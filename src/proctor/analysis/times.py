"""Compare measurements that were stored at different moments: ratio of medians, point by point.

The values inside one run say nothing about how much the machine itself moved between the two runs, and that
is usually the larger part. So every interval here is widened by the run-to-run noise, taken from earlier runs
of the same code when there are any and from a documented default when there are none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from proctor.analysis.distributions import normal_quantile, t_quantile, two_sided_t
from proctor.analysis.interval import Interval
from proctor.analysis.multiple import holm
from proctor.analysis.resample import Array, median, resamples
from proctor.analysis.verdict import Verdict, judge, overall

DEFAULT_NOISE = 0.05
"""Run-to-run spread of a median wall time (as a log) where no history says better. On the shared machine on
which other tools were tried, identical code differed by over 5 % in 28 % of pairs by the minimum and by over
10 % in 46 % by the median: spreads of 3 % and 9 %. This lies between."""
NOISE_FLOOR = 0.01
"""No history makes us believe less than this: even pairs run milliseconds apart miss some changes of 2 %."""
MIN_MARGIN = 0.05
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
    draws = int(np.clip(4_000_000 / max(1, sum(len(each.a) + len(each.b) for each in samples)), 200, 2000))
    points = [_point(each, noise, level, seed + at, draws) for at, each in enumerate(samples)]
    settles = _settles([point.error for point in points], noise, level)
    ratio, interval = _sweep(points, noise, level)
    found = TimesComparison(
        points=tuple(points),
        verdict=Verdict.INCONCLUSIVE,
        higher_is_better=higher_is_better,
        ratio=ratio,
        interval=interval,
        margin=MIN_MARGIN if margin is None else margin,
        promise=max(MIN_MARGIN, settles) if margin is None else margin,
        settles=settles,
        noise=noise,
    )
    return adjust_together([found])[0]


def adjust_together(comparisons: Sequence[TimesComparison]) -> tuple[TimesComparison, ...]:
    """Judge several metrics of one study as the single family of questions that they are."""
    adjusted = iter(holm([point.p_value for each in comparisons for point in each.points]))
    judged = []
    for each in comparisons:
        points = tuple(
            replace(point, p_holm=p, verdict=_judge(point, p, each))
            for point, p in zip(each.points, adjusted, strict=False)
        )
        judged.append(replace(each, points=points, verdict=overall(point.verdict for point in points)))
    return tuple(judged)


def _point(samples: Samples, noise: Noise, level: float, seed: int, draws: int) -> PointComparison:
    a, b = np.asarray(samples.a, dtype=float), np.asarray(samples.b, dtype=float)
    middle_a, middle_b = float(np.median(a)), float(np.median(b))
    blank = PointComparison(
        name=samples.name,
        count_a=a.size,
        count_b=b.size,
        median_a=middle_a,
        median_b=middle_b,
        ratio=1.0,
        interval=Interval(1.0, 1.0, level, "equal"),
        p_value=1.0,
        p_holm=1.0,
        verdict=Verdict.INCONCLUSIVE,
        error=0.0,
    )
    if min(a.min(), b.min()) <= 0:
        if middle_a == middle_b:
            return replace(blank, note="equal medians; no ratio, as a value is not above zero")
        nothing = Interval(0.0, math.inf, level, "none")
        return replace(blank, ratio=math.nan, interval=nothing, note="no ratio: a value is not above zero")
    log_ratio = math.log(middle_b / middle_a)
    below, above, inside = _within(a, b, log_ratio, level, seed, draws)
    between = math.sqrt(2) * noise.sigma
    quantile = t_quantile(0.5 + level / 2, noise.df)
    error = math.hypot(inside, between)
    note = "one value on a side: its own spread is unknown" if min(a.size, b.size) == 1 else ""
    if error == 0 and note and log_ratio != 0:
        nothing = Interval(0.0, math.inf, level, "none")
        return replace(blank, ratio=middle_b / middle_a, interval=nothing, note=note)
    return replace(
        blank,
        ratio=middle_b / middle_a,
        interval=Interval(
            math.exp(log_ratio - math.hypot(below, quantile * between)),
            math.exp(log_ratio + math.hypot(above, quantile * between)),
            level,
            "bootstrap, widened by run-to-run noise",
        ),
        p_value=_p_value(log_ratio, error, noise, between),
        error=error,
        note=note,
    )


def _within(
    a: Array, b: Array, log_ratio: float, level: float, seed: int, draws: int
) -> tuple[float, float, float]:
    """How far the bootstrap interval reaches below and above the log ratio, and its standard error."""
    drawn = np.log(resamples(b, median, seed=2 * seed, draws=draws)) - np.log(
        resamples(a, median, seed=2 * seed + 1, draws=draws)
    )
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return max(0.0, log_ratio - float(low)), max(0.0, float(high) - log_ratio), float(drawn.std())


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
