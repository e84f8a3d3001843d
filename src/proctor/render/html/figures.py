"""Which charts a group of trials gets: by how many points there are and how many parameters vary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from proctor.quantity import metric_title, number
from proctor.render.charts import distribution, iterations, sweep
from proctor.render.charts.distribution import Sample
from proctor.render.charts.sweep import Cell, Line, Mark
from proctor.render.html.view import figure
from proctor.runfolder.read import TrialResult, metric_of, stated_interval
from proctor.verdicts.run.story import Group, short

MOST_ROWS = 24
MOST_FACETS = 6
MOST_MARKS = 300
MOST_COLUMNS, MOST_FIELDS = 20, 30
LASTING = 5
"""Fewest iterations for which their order is shown."""
_SPREAD = "Box: the middle half of the values; whiskers: p5 to p95; thick line: median; dots: single values"


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
    found = [Axis(name, _numeric(values := _values(group.trials, name)), values) for name in group.varying]
    return tuple(sorted(found, key=lambda axis: (not axis.numeric, -len(axis.values))))


def charts(group: Group, metric: str, axes: Sequence[Axis]) -> str:
    """Everything there is to see of one metric in one group."""
    return sweep_charts(group, metric, axes) + spread_charts(group, metric)


def spread_charts(group: Group, metric: str) -> str:
    """How the iterations of each point spread, and in which order they came."""
    shown: list[Sample] = []
    series: list[Sample] = []
    repeated = lasting = 0
    for trial in group.trials:
        count = trial.count(metric)
        repeated += count > 1
        lasting += count >= LASTING
        wanted = count > 1 and len(shown) < MOST_ROWS
        lasts = count >= LASTING and len(series) < iterations.PANELS
        if wanted or lasts:
            sample = Sample(group.label(trial), trial.values(metric), trial.interval)
            shown += [sample] if wanted else []
            series += [sample] if lasts else []
    if not shown:
        return ""
    title = metric_title(metric).capitalize()
    if repeated == 1:
        return _single(shown[0], metric, title)
    middles = [median(sample.values) for sample in shown]
    relative = min(middles) > 0 and max(middles) / min(middles) >= 8
    note = _thinned(shown)
    if repeated > len(shown):
        note += f" The first {len(shown)} of {repeated} points are drawn."
    heading = f"Spread of the {metric_title(metric)}" if relative else f"{title} of every iteration"
    drawn = figure(distribution.rows(shown, metric, relative=relative), heading, f"{_SPREAD}.{note}")
    if series:
        caption = (
            "Each panel around its own median, all on one scale: a slope means "
            "drift, a step means a change of state. "
        )
        caption += "Triangles: beyond the scale."
        if lasting > iterations.PANELS:
            caption += f" The first {iterations.PANELS} of {lasting} points are drawn."
        drawn += figure(iterations.panels(series, metric), f"{title} in the order measured", caption)
    return drawn


def _single(sample: Sample, metric: str, title: str) -> str:
    shade = " Shaded: the 95 % interval of the median." if sample.interval else ""
    drawn = figure(
        distribution.histogram(sample, metric),
        f"Distribution of {len(sample.values)} iterations",
        f"{_SPREAD}.{shade}{_thinned([sample])}",
    )
    if len(sample.values) >= 5:
        caption = (
            "Shaded: p5 to p95; dashed: the median. A slope means drift, a step means a change of state."
        )
        if len(sample.values) > iterations.MOST_POINTS:
            caption += " Drawn as the range of neighbouring iterations."
        drawn += figure(iterations.series(sample, metric), f"{title} in the order measured", caption)
    return drawn


def _thinned(samples: Sequence[Sample]) -> str:
    most = max(len(sample.values) for sample in samples)
    if most <= distribution.MOST_DOTS:
        return ""
    return f" {distribution.MOST_DOTS} dots of each point are drawn, evenly over its values; boxes use all."


def sweep_charts(group: Group, metric: str, axes: Sequence[Axis] | None = None) -> str:
    """The median over the parameters that vary, when there are one to three of them."""
    axes = axes_of(group) if axes is None else axes
    if not axes:
        return ""
    first, rest = axes[0], axes[1:]
    if not first.numeric:
        return _map(group.trials, rest[0].name, first.name, metric, "") if len(rest) == 1 else ""
    if not rest:
        return _lines(group.trials, first.name, "", metric, "")
    second, facets = rest[0], rest[1:]
    if not facets and len(second.values) > sweep.MOST_LINES and not _fits(first.values, second.values):
        return ""
    drawn = ""
    values: Sequence[Any] = facets[0].values if facets else [None]
    for value in values[:MOST_FACETS]:
        trials = [t for t in group.trials if not facets or _same(t.planned.params.get(facets[0].name), value)]
        where = f", {facets[0].name}={short(value)}" if facets else ""
        columns, rows = _values(trials, first.name), _values(trials, second.name)
        if len(rows) <= sweep.MOST_LINES:
            drawn += _lines(trials, first.name, second.name, metric, where)
        if min(len(columns), len(rows)) >= 3:
            drawn += _map(trials, first.name, second.name, metric, where)
    if len(values) > MOST_FACETS:
        drawn += f"<p class=note>Drawn for {MOST_FACETS} of {len(values)} values of the third parameter.</p>"
    return drawn


def _fits(columns: Sequence[Any], rows: Sequence[Any]) -> bool:
    """Whether a heat map can hold them."""
    return len(columns) <= MOST_COLUMNS and len(rows) <= MOST_FIELDS


def _lines(trials: Sequence[TrialResult], first: str, second: str, metric: str, where: str) -> str:
    drawn = []
    for value in _values(trials, second) if second else [None]:
        marks = sorted(
            (
                Mark(
                    float(t.planned.params[first]),
                    middle,
                    _interval(t, metric),
                    int(t.stat(metric, "count") or 1),
                )
                for t in trials
                if (not second or _same(t.planned.params.get(second), value))
                and first in t.planned.params
                and (middle := t.stat(metric, "p50")) is not None
            ),
            key=lambda mark: mark.x,
        )
        if marks:
            drawn.append(Line(short(value) if second else "", marks))
    if not drawn or len({mark.x for each in drawn for mark in each.marks}) < 2:
        return ""
    measured = sum(len(each.marks) for each in drawn)
    drawn = [Line(each.label, _thin(each.marks, MOST_MARKS // len(drawn))) for each in drawn]
    bars = any(mark.interval for each in drawn for mark in each.marks)
    caption = "Median of each point" + (", with its 95 % interval" if bars else "") + "."
    absent = len(trials) - measured
    if absent:
        caption += f" {absent} point{'s' * (absent > 1)} without a value left out."
    if measured > sum(len(each.marks) for each in drawn):
        caption += f" Of {measured} points {sum(len(each.marks) for each in drawn)} are drawn."
    chart = sweep.lines(drawn, parameter=first, metric=metric, second=second)
    return figure(chart, f"{metric_title(metric).capitalize()} over {first}{where}", caption)


def _thin(marks: Sequence[Mark], limit: int) -> Sequence[Mark]:
    if len(marks) <= limit:
        return marks
    return [marks[round(at * (len(marks) - 1) / (limit - 1))] for at in range(limit)]


def _map(trials: Sequence[TrialResult], first: str, second: str, metric: str, where: str) -> str:
    columns, rows = _values(trials, first), _values(trials, second)
    if not _fits(columns, rows):
        return ""
    cells = []
    for trial in trials:
        params = trial.planned.params
        column = next(at for at, value in enumerate(columns) if _same(value, params.get(first)))
        row = next(at for at, value in enumerate(rows) if _same(value, params.get(second)))
        told = f"{first}={short(params.get(first))}, {second}={short(params.get(second))}"
        middle = trial.stat(metric, "p50")
        ended = trial.outcome.value if trial.outcome else "no result"
        cells.append(Cell(column, row, middle, told if middle is not None else f"{told}: {ended}"))
    if all(cell.value is None for cell in cells):
        return ""
    chart = sweep.heat_map(
        cells,
        columns=[short(value, 16) for value in columns],
        rows=[short(value, 24) for value in rows],
        names=(first, second),
        metric=metric,
    )
    title = f"{metric_title(metric).capitalize()} over {first} and {second}{where}"
    return figure(
        chart,
        title,
        ("Median of each combination; a stronger colour means a larger value; hatched: no value."),
    )


def _interval(trial: TrialResult, metric: str) -> tuple[float, float] | None:
    if metric == metric_of(trial.planned.kind):
        return trial.interval
    stats = trial.counted.metrics.get(metric) if trial.counted else None
    return stated_interval(stats) if isinstance(stats, Mapping) else None


def _numeric(values: Sequence[Any]) -> bool:
    return all(number(value) is not None for value in values)


def _values(trials: Sequence[TrialResult], name: str) -> list[Any]:
    """The distinct values of a parameter: sorted when they are numbers, else as they come."""
    found: dict[tuple[type, str], Any] = {}
    for trial in trials:
        value = trial.planned.params.get(name)
        found.setdefault((type(value), repr(value)), value)
    values = list(found.values())
    return sorted(values) if _numeric(values) else values


def _same(one: Any, other: Any) -> bool:
    return bool(one == other) and type(one) is type(other)
