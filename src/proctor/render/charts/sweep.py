"""How a result changes with the parameters: lines over one, one line per value of a second, or a heat map."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from proctor.quantity import Unit, metric_title, show, significant, unit_for
from proctor.render.charts.distribution import WIDTH
from proctor.render.charts.scale import Scale, fitting, is_geometric, linear, logarithmic
from proctor.render.charts.svg import document, line, mark, polyline, rect, text, tick_text, y_axis

MOST_LINES = 6


@dataclass(frozen=True, slots=True)
class Mark:
    """One measured point: where it is on the axis, its median, and how sure that is."""

    x: float
    value: float
    interval: tuple[float, float] | None = None
    count: int = 1


@dataclass(frozen=True, slots=True)
class Line:
    """The points that share the value of a second parameter."""

    label: str
    marks: Sequence[Mark]


@dataclass(frozen=True, slots=True)
class Cell:
    """One field of a heat map; without a value it failed or is missing."""

    column: int
    row: int
    value: float | None
    told: str = ""


def lines(drawn: Sequence[Line], *, parameter: str, metric: str, second: str = "") -> str:
    """Medians over a numeric parameter, with their intervals; the lines are named at their ends."""
    xs = sorted({mark.x for each in drawn for mark in each.marks})
    ys = [mark.value for each in drawn for mark in each.marks]
    bounds = ys + [end for each in drawn for mark in each.marks for end in mark.interval or ()]
    if min(ys) > 0:
        bounds = [value for value in bounds if value > 0]
    unit = unit_for(metric, ys)
    widest = max((len(each.label) for each in drawn), default=0)
    left, top, bottom = 74.0, 34.0, 320.0
    right = WIDTH - 18.0 - (min(170.0, 14 + 7.0 * widest) if second else 0)
    across = (
        logarithmic(xs, left, right)
        if len(xs) > 1 and is_geometric(xs)
        else linear(xs, left, right, pad=0.03)
    )
    up = fitting(bounds, bottom, top, decades=1.3)
    parts = y_axis(up, left, right, metric, unit, f"median {metric_title(metric)}")
    parts += _parameter_axis(across, xs, bottom, parameter)
    for number, each in enumerate(drawn):
        parts.append(f'<g class="c{number % MOST_LINES}">')
        parts.append(polyline([(across(m.x), up(m.value)) for m in each.marks], "line k"))
        for m in each.marks:
            parts += _whisker(m, across, up)
            told = f"{parameter}={significant(m.x, 6)}: {_told(m, metric)}"
            parts.append(mark(across(m.x), up(m.value), number, f"{each.label}, {told}" if second else told))
        parts.append("</g>")
    if second:
        parts += _names(drawn, across, up, right, second)
    description = "; ".join(
        (f"{each.label}: " if second else "")
        + ", ".join(f"{show(metric, m.value)} at {significant(m.x, 4)}" for m in each.marks[:8])
        for each in drawn
    )
    return document(WIDTH, bottom + 42, f"{metric} over {parameter}", description, parts)


def _told(point: Mark, metric: str) -> str:
    text_ = show(metric, point.value)
    if point.interval:
        text_ += f", 95 % interval {unit_for(metric, [point.value]).span(*point.interval)}"
    return f"{text_}, n={point.count}"


def _parameter_axis(across: Scale, xs: Sequence[float], y: float, parameter: str) -> list[str]:
    """Ticks where something was measured, as long as they have room."""
    unit = unit_for(parameter, xs)
    if not parameter.endswith(("_s", "_bytes", "_ms", "_us", "_ns")):
        unit = Unit("")
    parts = [line(across.start, y, across.stop, y, "axis")]
    last = -math.inf
    for value in xs:
        x, shown = across(value), tick_text(value, unit)
        parts.append(line(x, y, x, y + 5, "axis"))
        if x - last >= 7.0 * len(shown) + 8:
            parts.append(text(x, y + 19, shown, "m num"))
            last = x
    name = parameter + (", log scale" if across.log else "")
    return [*parts, text((across.start + across.stop) / 2, y + 38, name, "m dim")]


def _whisker(mark_: Mark, across: Scale, up: Scale) -> list[str]:
    if not mark_.interval:
        return []
    x, low, high = across(mark_.x), up.clip(mark_.interval[0]), up.clip(mark_.interval[1])
    return [
        line(x, low, x, high, "ci"),
        line(x - 4, low, x + 4, low, "ci"),
        line(x - 4, high, x + 4, high, "ci"),
    ]


def _names(drawn: Sequence[Line], across: Scale, up: Scale, right: float, second: str) -> list[str]:
    """Each line's name where it ends, pushed apart at the edge where lines end together."""
    parts = [text(right + 12, min(up.start, up.stop) - 14, second, "dim")]
    ends = sorted((up(each.marks[-1].value), number) for number, each in enumerate(drawn))
    last = -math.inf
    for y, number in ends:
        label = drawn[number].label if len(drawn[number].label) <= 22 else drawn[number].label[:21] + "…"
        x = across(drawn[number].marks[-1].x)
        if right - x > 60:
            name = text(x + 10, y + 4, label, "f halo")
        else:
            last = max(y, last + 15)
            if last - y > 2 or right - x > 20:
                parts.append(line(x + 6, y, right + 8, last, "grid"))
            name = text(right + 12, last + 4, label, "f halo")
        parts.append(f'<g class="c{number % MOST_LINES}">{name}</g>')
    return parts


_HATCH = (
    '<defs><pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><rect width="7" height="7" style="fill:var(--surface-2)"/>'
    '<line x1="0" y1="0" x2="0" y2="7" style="stroke:var(--bad);stroke-width:1.6;opacity:.45"/>'
    "</pattern></defs>"
)


def heat_map(
    cells: Sequence[Cell], *, columns: Sequence[str], rows: Sequence[str], names: tuple[str, str], metric: str
) -> str:
    """A field per combination of two parameters, stronger colour for more; the value is written in it."""
    values = [cell.value for cell in cells if cell.value is not None]
    low, high = min(values), max(values)
    log = low > 0 and high / low >= 20
    left = min(210.0, 26 + 7.0 * max(len(name) for name in (*rows, names[1])))
    wide = min(120.0, (WIDTH - left - 8) / len(columns))
    tall, top = (36.0 if len(rows) <= 12 else 26.0), 44.0
    parts = [
        _HATCH,
        text(left + 2, 14, f"{names[0]} →", "dim"),
        text(left - 12, 14, f"{names[1]} ↓", "e dim"),
    ]
    for at, name in enumerate(columns):
        parts.append(text(left + wide * (at + 0.5), top - 8, _short(name, wide), "m num"))
    for at, name in enumerate(rows):
        parts.append(text(left - 12, top + tall * (at + 0.5) + 4, _short(name, left), "e num"))
    for cell in cells:
        place = left + wide * cell.column + 1, top + tall * cell.row + 1, wide - 2, tall - 2
        if cell.value is None:
            parts.append(rect(*place, "cellbad", extra=' rx="3"', title=cell.told))
            parts.append(text(place[0] + place[2] / 2, place[1] + place[3] / 2 + 4, "–", "m"))
        else:
            parts += _field(cell, cell.value, _share(cell.value, low, high, log=log), metric, place)
    told = f"from {show(metric, low)} to {show(metric, high)}" + (", shaded on a log scale" if log else "")
    bottom = top + tall * len(rows)
    parts.append(text(left + 2, bottom + 20, f"median {metric_title(metric)}, {told}", "dim"))
    width = min(WIDTH, max(460.0, left + wide * len(columns) + 8))
    return document(width, bottom + 28, f"{metric} over {names[0]} and {names[1]}", told, parts)


def _share(value: float, low: float, high: float, *, log: bool) -> float:
    """How far up the range a value is, from 0 to 1."""
    if low == high:
        return 0.5
    if log:
        bottom = math.log(low)
        return (math.log(value) - bottom) / (math.log(high) - bottom)
    return (value - low) / (high - low)


def _field(
    cell: Cell, value: float, share: float, metric: str, place: tuple[float, float, float, float]
) -> list[str]:
    x, y, wide, tall = place
    shade = 0.08 + 0.87 * share
    shown = show(metric, value) if wide >= 60 else significant(value * unit_for(metric, [value]).factor, 2)
    return [
        rect(
            *place,
            "cell",
            extra=f' rx="3" fill-opacity="{shade:.2f}"',
            title=f"{cell.told}: {show(metric, value)}",
        ),
        text(x + wide / 2, y + tall / 2 + 4, shown, "m num" + (" onheat" if shade > 0.6 else " strong")),
    ]


def _short(name: str, room: float) -> str:
    most = max(3, int(room / 7))
    return name if len(name) <= most else name[: most - 1] + "…"
