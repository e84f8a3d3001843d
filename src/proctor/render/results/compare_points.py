"""One metric of a comparison: every point in a row, their forest, and the values in the order measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from heapq import nsmallest
from pathlib import Path

from proctor.analysis.times import PointComparison, TimesComparison
from proctor.analysis.verdict import Verdict
from proctor.model.document import Block, Cell, Chart, Column, Section, Table, Text, Tone, interval, number
from proctor.quantity import MISSING, metric_title, show
from proctor.render.labels import apart, heading
from proctor.render.results.cells import trial_link
from proctor.verdicts.compare.judge import MetricComparison
from proctor.verdicts.compare.results import ResultSet
from proctor.verdicts.compare.sentence import percent, plain_ratio, ratio_text
from proctor.verdicts.run.story import NOT_DISTINGUISHABLE

MOST_TABLE = 200
MOST_DRAWN = 40
UNFOLDED = 16
"""Longer tables are folded on a page: the chart above shows the same data."""
MOST_PAIRS = 6
LEAST_VALUES = 5
"""A series needs at least this many values."""
TONES: Mapping[Verdict, Tone] = {Verdict.WORSE: "bad", Verdict.BETTER: "good"}


def metric_section(
    each: MetricComparison, a: ResultSet, b: ResultSet, folder: Path, *, tasks: bool
) -> Section:
    """Everything about one metric; nothing when no pair has it."""
    times = each.times
    if not times.points:
        return Section()
    what = "task" if tasks else "point"
    said = f"{each.metric}, {_better(times)}; margin {100 * times.margin:.3g} %; p after Holm"
    blocks: list[Block] = [
        Text(text=said, quiet=True),
        Chart(title=f"B over A, {what} by {what}", draw=lambda: _forest(each), caption=_caption(each, what)),
        _table(each, a, b, folder, what),
    ]
    chosen = [] if tasks else _with_series(each, a, b)
    if chosen:
        some = "" if len(chosen) == len(times.points) else f" The {len(chosen)} points that differ most."
        blocks.append(
            Chart(
                title="Every iteration in the order measured",
                draw=lambda: _series(each, chosen, a, b),
                caption="A in blue, B in orange; dashed: their medians. A slope means drift, a step means a "
                f"change of state.{some}",
            )
        )
    title = metric_title(each.metric).capitalize()
    return Section(title=title, blocks=tuple(blocks), name=f"metric-{each.metric}")


def _better(times: TimesComparison) -> str:
    if times.higher_is_better is None:
        return "nobody has said what is better"
    return "higher is better" if times.higher_is_better else "lower is better"


def _gain(point: PointComparison, *, higher: bool | None) -> float:
    if not math.isfinite(point.ratio) or point.ratio <= 0:
        return -math.inf
    return math.log(point.ratio) if higher else -math.log(point.ratio)


def _forest(each: MetricComparison) -> partial[str]:
    """The points from the greatest loss to the greatest gain; of very many the two ends."""
    from proctor.render.charts.forest import Branch, forest

    times = each.times
    ranked = sorted(times.points, key=lambda point: _gain(point, higher=times.higher_is_better))
    half = MOST_DRAWN // 2
    ends = ranked if len(ranked) <= MOST_DRAWN else [*ranked[:half], *ranked[-half:]]
    _, labels = apart([point.name for point in ranked])
    own = labels if len(ranked) <= MOST_DRAWN else [*labels[:half], *labels[-half:]]
    rows = [
        Branch(
            label=label,
            value=point.ratio,
            low=point.interval.low,
            high=point.interval.high,
            text=_ratio(point.ratio, point.interval.low, point.interval.high),
            tone=TONES.get(point.verdict, ""),
        )
        for point, label in zip(ends, own, strict=True)
    ]
    whole = None
    if len(times.points) > 1 and times.ratio and times.interval:
        low, high = times.interval.low, times.interval.high
        text = _ratio(times.ratio, low, high)
        whole = Branch(label="all points, geometric mean", value=times.ratio, low=low, high=high, text=text)
    return partial(
        forest,
        rows=rows,
        title=f"{each.metric}: B over A",
        ratio=True,
        band=(1 / (1 + times.margin), 1 + times.margin),
        whole=whole,
        axis=f"B/A of the median {metric_title(each.metric)}, log scale; " + _better(times),
        between=len(ranked) - len(ends),
    )


def _ratio(value: float, low: float, high: float) -> str:
    if not math.isfinite(value):
        return "no ratio"
    top = plain_ratio(high) if high < 1000 else "…"
    shown = "includes 1" if low <= 1 <= high else plain_ratio(value)
    return f"{shown} ({plain_ratio(low)} to {top})"


def _caption(each: MetricComparison, what: str) -> str:
    times = each.times
    level = 100 * times.points[0].interval.level
    n_a = _range([point.count_a for point in times.points])
    n_b = _range([point.count_b for point in times.points])
    noise = f" widened by run-to-run noise of {percent(times.noise.sigma)}" if times.noise.sigma else ""
    return (
        f"Lines: {level:.3g} % intervals{noise}. Grey: the margin of {percent(times.margin)}; a {what} "
        f"counts when its change is certain and larger than that (coloured). {len(times.points)} {what}s, "
        f"{n_a} values in A and {n_b} in B each."
    )


def _range(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low}–{high}"


def _table(each: MetricComparison, a: ResultSet, b: ResultSet, folder: Path, what: str) -> Table:
    """All points in their order, or of very many those with the smallest p-values."""
    points = list(each.times.points)
    if len(points) > MOST_TABLE:
        points = sorted(points, key=lambda point: point.p_value)[:MOST_TABLE]
    shared, own = apart([point.name for point in points])
    head, labels = heading(own)
    chosen = {point.name for point in points}
    trials = [{point.name: point.folder for point in side.points if point.name in chosen} for side in (a, b)]
    rows: tuple[tuple[Cell | str, ...], ...] = tuple(
        (
            label,
            *(
                Cell(
                    text=show(each.metric, median),
                    value=median,
                    href=trial_link(side, places.get(point.name, ""), folder),
                )
                for side, places, median in zip((a, b), trials, (point.median_a, point.median_b), strict=True)
            ),
            number(ratio_text(point), point.ratio, strong=True),
            interval(
                f"{plain_ratio(point.interval.low)} – {plain_ratio(point.interval.high)}",
                point.interval.low,
                point.interval.high,
            ),
            number(f"{point.p_holm:.3f}", point.p_holm),
            f"{point.count_a}/{point.count_b}",
            Cell(
                text=point.verdict.value.replace("_", " "),
                tone=TONES.get(point.verdict, ""),
                badge=True,
                note=point.note,
            ),
        )
        for point, label in zip(points, labels, strict=True)
    )
    level = f"{100 * each.times.points[0].interval.level:.3g} % interval"
    said = [f"Fixed: {shared}."] if "=" in shared else []
    if any(ratio_text(point) == MISSING for point in points):
        said.append(f"B/A {MISSING}: {NOT_DISTINGUISHABLE}, because the interval of the ratio includes 1.")
    count = len(each.times.points)
    return Table(
        columns=(
            Column(head, "prose"),
            *(Column(title, "number") for title in ("A", "B", "B/A")),
            Column(level, "whole"),
            Column("p", "number"),
            Column("n", "number", spare=True),
            Column("verdict", "prose"),
        ),
        rows=rows,
        total=count,
        folded=f"Every {what}, {count} of them" if count > UNFOLDED else "",
        caption=" ".join(said),
    )


def _with_series(each: MetricComparison, a: ResultSet, b: ResultSet) -> list[PointComparison]:
    """The points that changed most and have enough values on both sides."""
    far = nsmallest(
        4 * MOST_PAIRS,
        each.times.points,
        key=lambda point: -abs(_gain(point, higher=True)) if point.ratio > 0 else 0.0,
    )
    before, after = (_values(side, each.metric, far) for side in (a, b))
    long = [
        point
        for point in far
        if min(len(before.get(point.name, ())), len(after.get(point.name, ()))) >= LEAST_VALUES
    ]
    return long[:MOST_PAIRS]


def _values(side: ResultSet, metric: str, chosen: Sequence[PointComparison]) -> dict[str, Sequence[float]]:
    names = {point.name for point in chosen}
    return {point.name: point.samples.get(metric, ()) for point in side.points if point.name in names}


def _series(
    each: MetricComparison, chosen: Sequence[PointComparison], a: ResultSet, b: ResultSet
) -> partial[str]:
    from proctor.render.charts.pairs import Pair, pairs

    before, after = (_values(side, each.metric, chosen) for side in (a, b))
    _, labels = apart([point.name for point in each.times.points])
    names = dict(zip((point.name for point in each.times.points), labels, strict=True))
    drawn = [Pair(label=names[point.name], a=before[point.name], b=after[point.name]) for point in chosen]
    return partial(pairs, drawn=drawn, metric=each.metric)
