"""One metric on the page of a comparison: the forest of its points, their table, and the values in order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from proctor.analysis.times import PointComparison
from proctor.analysis.verdict import Verdict
from proctor.quantity import metric_title, show
from proctor.render.charts.forest import MOST_ROWS, Branch, forest
from proctor.render.charts.pairs import Pair, pairs
from proctor.render.html.view import details, figure, section, table
from proctor.render.labels import apart
from proctor.verdicts.compare.judge import MetricComparison
from proctor.verdicts.compare.results import ResultSet
from proctor.verdicts.compare.sentence import percent, ratio_text

MOST_TABLE = 200
UNFOLDED = 16
"""Longer tables are folded: the chart above shows the same data."""
MOST_PAIRS = 6
LEAST_VALUES = 5
"""A series needs at least this many values."""
TONES = {Verdict.WORSE: "bad", Verdict.BETTER: "good"}


def metric_section(each: MetricComparison, a: ResultSet, b: ResultSet, *, tasks: bool) -> str:
    """Everything about one metric; nothing when no pair has it."""
    times = each.times
    if not times.points:
        return ""
    ranked = sorted(times.points, key=lambda point: _gain(point, higher=times.higher_is_better))
    title = f"B over A, {_what(tasks)} by {_what(tasks)}"
    shared, own = apart([point.name for point in ranked])
    labels = dict(zip((point.name for point in ranked), own, strict=True))
    body = f"<p class=note>Fixed: {escape(shared)}</p>" if "=" in shared else ""
    body += figure(_forest(each, ranked, labels), title, _caption(each, tasks))
    body += _table(each, ranked, labels)
    body += "" if tasks else _series(each, ranked, labels, a, b)
    return section(metric_title(each.metric).capitalize(), body, name=f"metric-{each.metric}")


def _what(tasks: bool) -> str:
    return "task" if tasks else "point"


def _gain(point: PointComparison, *, higher: bool) -> float:
    if not math.isfinite(point.ratio) or point.ratio <= 0:
        return -math.inf
    return math.log(point.ratio) if higher else -math.log(point.ratio)


def _forest(each: MetricComparison, ranked: Sequence[PointComparison], labels: Mapping[str, str]) -> str:
    times = each.times
    whole = None
    if len(times.points) > 1 and times.ratio and times.interval:
        whole = Branch(
            label="all points, geometric mean",
            value=times.ratio,
            low=times.interval.low,
            high=times.interval.high,
            told=_ratio(times.ratio, times.interval.low, times.interval.high),
        )
    ends = ranked if len(ranked) <= MOST_ROWS else [*ranked[: MOST_ROWS // 2], *ranked[-MOST_ROWS // 2 :]]
    return forest(
        [_branch(point, labels[point.name]) for point in ends],
        title=f"{each.metric}: B over A",
        ratio=True,
        band=(1 / (1 + times.margin), 1 + times.margin),
        whole=whole,
        axis=f"B/A of the median {metric_title(each.metric)}, log scale; "
        f"{'more' if times.higher_is_better else 'less'} than 1 is better",
        between=len(ranked) - len(ends),
    )


def _branch(point: PointComparison, label: str) -> Branch:
    return Branch(
        label=label,
        value=point.ratio,
        low=point.interval.low,
        high=point.interval.high,
        told=_ratio(point.ratio, point.interval.low, point.interval.high),
        tone=TONES.get(point.verdict, ""),
    )


def _ratio(value: float, low: float, high: float) -> str:
    if not math.isfinite(value):
        return "no ratio"
    top = f"{high:.3f}" if high < 1000 else "…"
    shown = "includes 1" if low <= 1 <= high else f"{value:.3f}"
    return f"{shown} ({low:.3f} to {top})"


def _caption(each: MetricComparison, tasks: bool) -> str:
    times = each.times
    level = 100 * times.points[0].interval.level
    n = f"{min(point.count_a for point in times.points)}–{max(point.count_a for point in times.points)}"
    n_b = f"{min(point.count_b for point in times.points)}–{max(point.count_b for point in times.points)}"
    noise = f" widened by run-to-run noise of {percent(times.noise.sigma)}" if times.noise.sigma else ""
    return (
        f"Lines: {level:.3g} % intervals{noise}. Grey: the margin of {percent(times.margin)}; a "
        f"{_what(tasks)} counts when its change is certain and larger than that (coloured). "
        f"{len(times.points)} "
        f"{_what(tasks)}s, {_same(n)} values in A and {_same(n_b)} in B each."
    )


def _same(span: str) -> str:
    low, _, high = span.partition("–")
    return low if low == high else span


def _table(each: MetricComparison, ranked: Sequence[PointComparison], labels: Mapping[str, str]) -> str:
    rows = []
    for point in ranked[:MOST_TABLE]:
        tone = TONES.get(point.verdict, "")
        note = f" <small>{escape(point.note)}</small>" if point.note else ""
        rows.append(
            [
                escape(labels[point.name]),
                escape(show(each.metric, point.median_a)),
                escape(show(each.metric, point.median_b)),
                f"<b>{ratio_text(point)}</b>",
                f"{point.interval.low:.3f} – {point.interval.high:.3f}",
                f"{point.p_holm:.3f}",
                f"{point.count_a}/{point.count_b}",
                f'<span class="badge {tone}">{escape(point.verdict.value.replace("_", " "))}</span>{note}',
            ]
        )
    headers = ["point", "A", "B", "B/A", "interval", "p, Holm", "n", "verdict"]
    body = table(headers, rows, numeric=(1, 2, 3, 4, 5, 6))
    more = len(ranked) - len(rows)
    body += f"<p class=note>And {more} more; --json lists all of them.</p>" if more > 0 else ""
    return body if len(rows) <= UNFOLDED else details(f"Every point, {len(ranked)} of them", body)


def _series(
    each: MetricComparison,
    ranked: Sequence[PointComparison],
    labels: Mapping[str, str],
    a: ResultSet,
    b: ResultSet,
) -> str:
    """The values of the points that changed most, in the order in which they were measured."""
    before, after = (
        {point.name: point.samples.get(each.metric, ()) for point in side.points} for side in (a, b)
    )
    shown = sorted(ranked, key=lambda point: -abs(_gain(point, higher=True)) if point.ratio > 0 else 0.0)
    drawn = [
        Pair(label=labels[point.name], a=before[point.name], b=after[point.name])
        for point in shown[: 4 * MOST_PAIRS]
        if min(len(before.get(point.name, ())), len(after.get(point.name, ()))) >= LEAST_VALUES
    ][:MOST_PAIRS]
    if not drawn:
        return ""
    some = "" if len(drawn) == len(ranked) else f" The {len(drawn)} points that differ most."
    caption = (
        "A in blue, B in orange; dashed: their medians. A slope means drift, a "
        f"step means a change of state.{some}"
    )
    return figure(pairs(drawn, each.metric), "Every iteration in the order measured", caption)
