"""Two sides of the same point, value by value in the order measured: what a ratio of medians hides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from proctor.model.describe import percentile
from proctor.quantity import show, unit_for
from proctor.render.charts.distribution import WIDTH, window
from proctor.render.charts.scale import Scale, fitting
from proctor.render.charts.svg import document, dots, labelled, line, polyline, text

MOST_VALUES = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One point: its values on both sides, in order."""

    label: str
    a: Sequence[float]
    b: Sequence[float]


def pairs(drawn: Sequence[Pair], metric: str, *, each: str = "iterations") -> str:
    """A panel per point, two beside each other, each with an axis of its own. `each`: what a value is of."""
    columns = 1 if len(drawn) == 1 else 2
    wide, tall = (WIDTH - 70.0 * columns - 20.0) / columns, 130.0 if columns == 1 else 96.0
    parts: list[str] = []
    for number, pair in enumerate(drawn):
        left = 70.0 + (number % columns) * (wide + 80.0)
        top = 30.0 + (number // columns) * (tall + 52.0)
        parts += _panel(pair, metric, (left, top, left + wide, top + tall), each)
    deep = 30.0 + (-(-len(drawn) // columns) - 1) * (tall + 52.0) + tall
    told = "; ".join(
        f"{pair.label}: A {_middle(pair.a, metric)}, B {_middle(pair.b, metric)}" for pair in drawn
    )
    return document(WIDTH, deep + 24, f"{metric} of both sides", told, parts)


def _panel(pair: Pair, metric: str, place: tuple[float, float, float, float], each: str) -> list[str]:
    left, top, right, bottom = place
    shown = window(sorted([*pair.a, *pair.b]))
    up = fitting([shown[0], shown[-1]], bottom, top, decades=2.0)
    across = Scale(0.5, max(len(pair.a), len(pair.b)) + 0.5, left, right)
    most = int((right - left) / 6.4)
    label = pair.label if len(pair.label) <= most else pair.label[: most - 1] + "…"
    parts = [text(left, top - 12, label, "dim")]
    unit = unit_for(metric, [shown[-1]])
    for tick, said in labelled(up, 3, metric, unit):
        parts += [line(left, up(tick), right, up(tick), "grid"), text(left - 8, up(tick) + 4, said, "e num")]
    for series, values in enumerate((pair.a, pair.b)):
        parts += _values(values, across, up, series)
    return [*parts, text(right, bottom + 16, f"{max(len(pair.a), len(pair.b))} {each}", "e dim num")]


def _values(values: Sequence[float], across: Scale, up: Scale, series: int) -> list[str]:
    every = max(1, len(values) // MOST_VALUES)
    points = [(across(at + 1), up.clip(value)) for at, value in enumerate(values) if at % every == 0]
    middle = up.clip(percentile(sorted(values), 50))
    return [
        f'<g class="c{series}">',
        polyline(points, "k hair"),
        dots(points, 2.1, "own"),
        line(across(0.5), middle, across(len(values) + 0.5), middle, "k middle"),
        "</g>",
    ]


def _middle(values: Sequence[float], metric: str) -> str:
    return f"median {show(metric, percentile(sorted(values), 50))} of {len(values)}"
