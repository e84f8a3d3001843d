"""Ratios of statistics other than the median: percentiles and means, of single points and of whole suites.

A percentile far out rests on few values, so it is judged only when enough lie beyond it. As in `times`, every
interval is widened by the run-to-run noise, which the values of one run cannot show.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from proctor.analysis.distributions import normal_quantile, t_quantile, two_sided_t
from proctor.analysis.interval import Interval
from proctor.analysis.resample import Array, Statistic, mean, quantile, resamples
from proctor.analysis.times import Noise

DRAWS = 1000
BEYOND = 1.0
"""Values that must lie beyond a percentile for it to be estimated: 20 values for p95, 100 for p99."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """B over A of one statistic."""

    ratio: float
    interval: Interval
    p_value: float
    error: float
    """Standard error of the logarithm of the ratio."""
    count_a: int
    count_b: int
    note: str = ""
    """Why there is no estimate; empty when there is one."""


def statistic_of(name: str) -> Statistic:
    """`mean`, or a percentile such as `p95`."""
    return mean if name == "mean" else quantile(_share(name))


def values_needed(name: str) -> int:
    """How few values will not do."""
    share = 0.5 if name == "mean" else _share(name)
    return max(5, math.ceil(BEYOND / max(1e-9, min(share, 1 - share)) - 1e-9))


def point_ratio(
    a: Sequence[float],
    b: Sequence[float],
    name: str,
    *,
    noise: Noise,
    level: float = 0.95,
    seed: int = 0,
) -> Ratio:
    """The ratio at one point, by bootstrap over its values."""
    needed = values_needed(name)
    if min(len(a), len(b)) < needed:
        return _none(a, b, level, f"{name} needs {needed} values on each side")
    if min(*a, *b) <= 0:
        return _none(a, b, level, "no ratio: a value is not above zero")
    statistic = statistic_of(name)
    drawn = np.log(resamples(b, statistic, seed=2 * seed, draws=DRAWS))
    drawn -= np.log(resamples(a, statistic, seed=2 * seed + 1, draws=DRAWS))
    log_ratio = math.log(_whole(b, statistic) / _whole(a, statistic))
    return _judged(log_ratio, drawn, min(len(a), len(b)), (len(a), len(b)), noise, level, "bootstrap")


def suite_ratio(
    a: Mapping[str, Sequence[float]],
    b: Mapping[str, Sequence[float]],
    name: str,
    *,
    noise: Noise,
    level: float = 0.95,
    seed: int = 0,
) -> Ratio:
    """The ratio over all values of the shared tasks, by bootstrap over tasks, which are what was sampled."""
    names = [each for each in a if len(a[each]) and len(b.get(each, ()))]
    before = [np.asarray(a[each], dtype=float) for each in names]
    after = [np.asarray(b[each], dtype=float) for each in names]
    all_a, all_b = (np.concatenate(side) if side else np.zeros(0) for side in (before, after))
    needed = values_needed(name)
    if len(names) < 2 or min(all_a.size, all_b.size) < needed:
        why = "two shared tasks" if len(names) < 2 else f"{needed} values on each side"
        return _none(all_a, all_b, level, f"{name} over a suite needs {why}")
    if min(all_a.min(), all_b.min()) <= 0:
        return _none(all_a, all_b, level, "no ratio: a value is not above zero")
    statistic = statistic_of(name)
    rows = np.random.default_rng(seed).integers(0, len(names), (DRAWS, len(names)))
    drawn = np.array(
        [
            math.log(
                _whole(np.concatenate([after[at] for at in row]), statistic)
                / _whole(np.concatenate([before[at] for at in row]), statistic)
            )
            for row in rows
        ]
    )
    log_ratio = math.log(_whole(all_b, statistic) / _whole(all_a, statistic))
    counts = (all_a.size, all_b.size)
    return _judged(log_ratio, drawn, len(names), counts, noise, level, "bootstrap over tasks")


def widen(interval: Interval, ratio: float, noise: Noise) -> tuple[Interval, float]:
    """An interval of a ratio with run-to-run noise added, and the standard error that it then stands for."""
    between = math.sqrt(2) * noise.sigma
    reach = t_quantile(0.5 + interval.level / 2, noise.df) * between
    below = math.hypot(math.log(ratio / interval.low), reach)
    above = math.hypot(math.log(interval.high / ratio), reach)
    error = (below + above) / 2 / normal_quantile(0.5 + interval.level / 2)
    method = f"{interval.method}, widened by run-to-run noise" if between else interval.method
    return Interval(ratio * math.exp(-below), ratio * math.exp(above), interval.level, method), error


def _judged(
    log_ratio: float,
    drawn: Array,
    sample: int,
    counts: tuple[int, int],
    noise: Noise,
    level: float,
    method: str,
) -> Ratio:
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    # Percentiles of few draws from few values are too narrow by about this factor.
    factor = t_quantile(0.5 + level / 2, sample - 1) / normal_quantile(0.5 + level / 2)
    factor *= math.sqrt(sample / (sample - 1))
    below, above = max(0.0, log_ratio - float(low)) * factor, max(0.0, float(high) - log_ratio) * factor
    between = math.sqrt(2) * noise.sigma
    reach = t_quantile(0.5 + level / 2, noise.df) * between
    error = math.hypot(float(drawn.std(ddof=1)) * factor, between)
    interval = Interval(
        math.exp(log_ratio - math.hypot(below, reach)),
        math.exp(log_ratio + math.hypot(above, reach)),
        level,
        f"{method}, widened by run-to-run noise" if between else method,
    )
    if error > 0:
        p_value = two_sided_t(log_ratio / error, min(sample - 1, noise.df))
    else:
        p_value = 1.0 if log_ratio == 0 else 0.0
    return Ratio(
        ratio=math.exp(log_ratio),
        interval=interval,
        p_value=p_value,
        error=error,
        count_a=counts[0],
        count_b=counts[1],
    )


def _none(a: Sequence[float] | Array, b: Sequence[float] | Array, level: float, note: str) -> Ratio:
    return Ratio(
        ratio=math.nan,
        interval=Interval(0.0, math.inf, level, "none"),
        p_value=1.0,
        error=math.inf,
        count_a=len(a),
        count_b=len(b),
        note=note,
    )


def _whole(values: Sequence[float] | Array, statistic: Statistic) -> float:
    return float(statistic(np.asarray(values, dtype=float)[None, :])[0])


def _share(name: str) -> float:
    if not name.startswith("p") or not name[1:].isdigit() or not 0 < int(name[1:]) < 100:
        msg = f"'{name}' is not a statistic: mean, or a percentile such as p95"
        raise ValueError(msg)
    return int(name[1:]) / 100
