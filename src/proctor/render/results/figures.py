"""Which charts a group of trials gets: by how many points there are and how many parameters vary."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from proctor.model.document import Block, Chart, Text
from proctor.quantity import metric_title, number, plural
from proctor.render.charts import distribution, iterations, sweep
from proctor.render.charts.distribution import Sample
from proctor.render.charts.sweep import Cell, Line, Mark
from proctor.runfolder.read import TrialResult
from proctor.verdicts.run.survey import Group, short

MOST_ROWS = 24
MOST_FACETS = 6
MOST_MARKS = 300
MOST_COLUMNS, MOST_FIELDS = 20, 30
LASTING = 5
"""Fewest iterations for which their order is shown."""
_SPREAD = "Box: the middle half of the values; whiskers: p5 to p95; thick line: median; dots: single values"
_ORDER = (
    "Each panel around its own median, all on one scale: a slope means drift, a step means a change of "
    "state. Triangles: beyond the scale."
)
_MAP = "Median of each combination; a stronger colour means a larger value; hatched: no value."


@dataclass(frozen=True, slots=True)
class Axis:
    """One parameter that varies: its values, sorted when they are numbers."""

    name: str
    numeric: bool
    values: Sequence[Any]


def axes_of(group: Group) -> tuple[Axis, ...]:
    """The parameters that can be drawn over: numbers first, then those with most values. For all metrics."""
    if not 1 <= len(group.varying) <= 3:
        return ()
    distinct: list[dict[tuple[type, str], Any]] = [{} for _ in group.varying]
    for trial in group.trials:
        for name, found in zip(group.varying, distinct, strict=True):
            value = trial.planned.params.get(name)
            found.setdefault((type(value), repr(value)), value)
    axes = []
    for name, found in zip(group.varying, distinct, strict=True):
        values = list(found.values())
        numeric = all(number(value) is not None for value in values)
        axes.append(Axis(name, numeric, sorted(values) if numeric else values))
    return tuple(sorted(axes, key=lambda axis: (not axis.numeric, -len(axis.values))))


def spread_charts(group: Group, metric: str) -> list[Chart]:
    """How the iterations of each point spread, and in which order they came."""
    repeated = [at for at, count in enumerate(group.counts) if count > 1]
    lasting = [at for at in repeated if group.counts[at] >= LASTING]
    drawn = {at: _sample(group, at, metric) for at in {*repeated[:MOST_ROWS], *lasting[: iterations.PANELS]}}
    shown = [sample for at in repeated[:MOST_ROWS] if (sample := drawn[at]).values]
    series = [sample for at in lasting[: iterations.PANELS] if (sample := drawn[at]).values]
    if not shown:
        return []
    title = metric_title(metric).capitalize()
    if len(repeated) == 1:
        return _single(shown[0], metric, title)
    middles = [median(sample.values) for sample in shown]
    relative = min(middles) > 0 and max(middles) / min(middles) >= 8
    heading = f"Spread of the {metric_title(metric)}" if relative else f"{title} of every iteration"
    rows = Chart(
        title=heading,
        draw=partial(distribution.rows, samples=shown, metric=metric, relative=relative),
        caption=f"{_SPREAD}.{_thinned(shown)}{_first(len(shown), len(repeated))}",
    )
    if not series:
        return [rows]
    order = Chart(
        title=f"{title} in the order measured",
        draw=partial(iterations.panels, samples=series, metric=metric),
        caption=_ORDER + _first(len(series), len(lasting)),
    )
    return [rows, order]


def _sample(group: Group, at: int, metric: str) -> Sample:
    trial = group.trials[at]
    return Sample(group.label(trial), trial.values(metric), trial.interval_of(metric))


def _first(count: int, total: int) -> str:
    return f" The first {count} of {total} points are drawn." if total > count else ""


def _single(sample: Sample, metric: str, title: str) -> list[Chart]:
    shade = " Shaded: the 95 % interval of the median." if sample.interval else ""
    spread = Chart(
        title=f"Distribution of {len(sample.values)} iterations",
        draw=partial(distribution.histogram, sample=sample, metric=metric),
        caption=f"{_SPREAD}.{shade}{_thinned([sample])}",
    )
    if len(sample.values) < LASTING:
        return [spread]
    caption = "Shaded: p5 to p95; dashed: the median. A slope means drift, a step means a change of state."
    if len(sample.values) > iterations.MOST_POINTS:
        caption += " Drawn as the range of neighbouring iterations."
    order = Chart(
        title=f"{title} in the order measured",
        draw=partial(iterations.series, sample=sample, metric=metric),
        caption=caption,
    )
    return [spread, order]


def _thinned(samples: Sequence[Sample]) -> str:
    most = max(len(sample.values) for sample in samples)
    if most <= distribution.MOST_DOTS:
        return ""
    return f" {distribution.MOST_DOTS} dots of each point are drawn, evenly over its values; boxes use all."


def sweep_charts(group: Group, metric: str, axes: Sequence[Axis] | None = None) -> list[Block]:
    """The median over the parameters that vary, when there are one to three of them."""
    axes = axes_of(group) if axes is None else axes
    if not axes:
        return []
    first, rest = axes[0], axes[1:]
    if not first.numeric:
        return _map(group.trials, rest[0], first, metric, "") if len(rest) == 1 else []
    if not rest:
        return _lines(group.trials, first, None, metric, "")
    second, facets = rest[0], rest[1:]
    if not facets and len(second.values) > sweep.MOST_LINES and not _fits(first.values, second.values):
        return []
    drawn: list[Block] = []
    values: Sequence[Any] = facets[0].values if facets else [None]
    for value in values[:MOST_FACETS]:
        trials: Sequence[TrialResult] = group.trials
        where = ""
        if facets:
            trials = [each for each in trials if _same(each.planned.params.get(facets[0].name), value)]
            where = f", {facets[0].name}={short(value)}"
        across, down = _narrowed(trials, first), _narrowed(trials, second)
        if len(down.values) <= sweep.MOST_LINES:
            drawn += _lines(trials, across, down, metric, where)
        if min(len(across.values), len(down.values)) >= 3:
            drawn += _map(trials, across, down, metric, where)
    if len(values) > MOST_FACETS:
        said = f"Drawn for {MOST_FACETS} of {len(values)} values of the third parameter."
        drawn.append(Text(text=said, quiet=True))
    return drawn


def _narrowed(trials: Sequence[TrialResult], axis: Axis) -> Axis:
    """The values of an axis that occur in some of its trials."""
    if len(axis.values) > MOST_COLUMNS * MOST_FIELDS:
        return axis
    found = {(type(v), repr(v)) for v in (trial.planned.params.get(axis.name) for trial in trials)}
    return Axis(axis.name, axis.numeric, [v for v in axis.values if (type(v), repr(v)) in found])


def _fits(columns: Sequence[Any], rows: Sequence[Any]) -> bool:
    """Whether a heat map can hold them."""
    return len(columns) <= MOST_COLUMNS and len(rows) <= MOST_FIELDS


class _Points:
    """The points of one line, as numbers: there may be a hundred thousand, and few are drawn."""

    def __init__(self) -> None:
        self.xs, self.ys = array("d"), array("d")
        self.lows, self.highs = array("d"), array("d")
        self.counts = array("L")

    def add(self, x: float, trial: TrialResult, metric: str, y: float) -> None:
        low, high = trial.interval_of(metric) or (math.nan, math.nan)
        for column, value in zip((self.xs, self.ys, self.lows, self.highs), (x, y, low, high), strict=True):
            column.append(value)
        self.counts.append(int(trial.stat(metric, "count") or 1))

    def marks(self, most: int) -> list[Mark]:
        """Those that are drawn, evenly from the first to the last."""
        order = sorted(range(len(self.xs)), key=self.xs.__getitem__)
        if len(order) > most:
            order = [order[round(at * (len(order) - 1) / (most - 1))] for at in range(most)]
        return [
            Mark(
                self.xs[at],
                self.ys[at],
                None if math.isnan(self.lows[at]) else (self.lows[at], self.highs[at]),
                self.counts[at],
            )
            for at in order
        ]


def _lines(
    trials: Sequence[TrialResult], first: Axis, second: Axis | None, metric: str, where: str
) -> list[Block]:
    values = second.values if second else [None]
    lines: dict[tuple[type, str], _Points] = {(type(each), repr(each)): _Points() for each in values}
    absent = 0
    for trial in trials:
        params = trial.planned.params
        value = params.get(second.name) if second else None
        middle, x = trial.stat(metric, "p50"), params.get(first.name)
        if middle is None or x is None:
            absent += 1
        else:
            lines[type(value), repr(value)].add(float(x), trial, metric, middle)
    known = [(value, points) for value in values if (points := lines[type(value), repr(value)]).xs]
    if len({x for _, each in known for x in each.xs}) < 2:
        return []
    most = MOST_MARKS // len(known)
    drawn = [Line(short(value) if second else "", each.marks(most)) for value, each in known]
    measured, shown = len(trials) - absent, sum(len(each.marks) for each in drawn)
    bars = any(mark.interval for each in drawn for mark in each.marks)
    caption = "Median of each point" + (", with its 95 % interval" if bars else "") + "."
    if absent:
        caption += f" {plural(absent, 'point')} without a value left out."
    if measured > shown:
        caption += f" Of {measured} points {shown} are drawn."
    title = f"{metric_title(metric).capitalize()} over {first.name}{where}"
    name = second.name if second else ""
    draw = partial(sweep.lines, drawn=drawn, parameter=first.name, metric=metric, second=name)
    return [Chart(title=title, draw=draw, caption=caption)]


def _map(trials: Sequence[TrialResult], first: Axis, second: Axis, metric: str, where: str) -> list[Block]:
    if not _fits(first.values, second.values):
        return []
    columns = {(type(value), repr(value)): at for at, value in enumerate(first.values)}
    rows = {(type(value), repr(value)): at for at, value in enumerate(second.values)}
    cells = []
    for trial in trials:
        x, y = trial.planned.params.get(first.name), trial.planned.params.get(second.name)
        middle = trial.stat(metric, "p50")
        ended = trial.outcome.value if trial.outcome else "no result"
        told = (
            f"{first.name}={short(x)}, {second.name}={short(y)}{'' if middle is not None else f': {ended}'}"
        )
        cells.append(Cell(columns[type(x), repr(x)], rows[type(y), repr(y)], middle, told))
    if all(cell.value is None for cell in cells):
        return []
    draw = partial(
        sweep.heat_map,
        cells=cells,
        columns=[short(value, 16) for value in first.values],
        rows=[short(value, 24) for value in second.values],
        names=(first.name, second.name),
        metric=metric,
    )
    title = f"{metric_title(metric).capitalize()} over {first.name} and {second.name}{where}"
    return [Chart(title=title, draw=draw, caption=_MAP)]


def _same(one: Any, other: Any) -> bool:
    return bool(one == other) and type(one) is type(other)
