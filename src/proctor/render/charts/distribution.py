"""How values are spread: a histogram with every value under it, or one row of values per parameter point."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from proctor.model.describe import percentile
from proctor.quantity import Unit, metric_title, show, unit_for
from proctor.render.charts.scale import Scale, fitting, linear, thin
from proctor.render.charts.svg import document, dots, line, rect, text, x_axis

WIDTH = 920
MOST_DOTS = 400


@dataclass(frozen=True, slots=True)
class Sample:
    """The values of one point, with the interval of their median."""

    label: str
    values: Sequence[float]
    interval: tuple[float, float] | None = None


def histogram(sample: Sample, metric: str) -> str:
    """One sample in full: histogram, box (p25 to p75) with whiskers (p5 to p95), and every value."""
    ordered = sorted(sample.values)
    middle = percentile(ordered, 50)
    unit = unit_for(metric, [middle])
    left, right, top, floor, base = 34.0, WIDTH - 34.0, 24.0, 178.0, 274.0
    shown = window(ordered)
    scale = fitting(shown, left, right, decades=2.0)
    parts = x_axis(scale, base, top, metric, unit, metric_title(metric), count=8)
    if sample.interval:
        low, high = (scale.clip(value) for value in sample.interval)
        parts.append(rect(low, top, max(1.5, high - low), base - top, "band"))
    parts += _bars(shown, scale, floor, top + 12, unit)
    parts.append(line(scale(middle), top, scale(middle), 226, "median"))
    side, nudge = ("e", -7) if scale(middle) > WIDTH * 0.7 else ("", 7)
    parts.append(text(scale(middle) + nudge, top + 6, f"median {unit.show(middle)}", f"strong halo {side}"))
    parts += _box(ordered, scale, 203, 12)
    parts.append(_strip(shown, scale, 249, 15))
    parts += _beyond(ordered, shown, metric, (left, right), 249)
    description = (
        f"{len(ordered)} values from {show(metric, ordered[0])} to {show(metric, ordered[-1])}, "
        f"median {unit.show(middle)}, half of them between {unit.show(percentile(ordered, 25))} "
        f"and {unit.show(percentile(ordered, 75))}"
    )
    return document(WIDTH, 314, f"Distribution of {metric}", description, parts)


def window(ordered: Sequence[float]) -> list[float]:
    """The values that an axis should hold: all, unless a few lie so far out that the rest would be a line."""
    low, high = percentile(ordered, 25), percentile(ordered, 75)
    reach = 6 * (high - low)
    inside = [value for value in ordered if low - reach <= value <= high + reach]
    few = len(ordered) - len(inside) <= max(1, len(ordered) // 10)
    if not reach or not few or ordered[-1] - ordered[0] < 2 * (inside[-1] - inside[0]):
        return list(ordered)
    return inside


def _beyond(
    ordered: Sequence[float], shown: Sequence[float], metric: str, ends: tuple[float, float], y: float
) -> list[str]:
    """Label the values beyond either end of the axis, with how far they go."""
    parts = []
    over = sum(1 for value in ordered if value > shown[-1])
    if over:
        parts.append(f'<path d="M{ends[1] + 2:.1f} {y - 5:.1f}l8 5l-8 5z" class="off"/>')
        parts.append(text(ends[1] - 4, y + 4, f"{over} more, up to {show(metric, ordered[-1])}", "e halo"))
    under = sum(1 for value in ordered if value < shown[0])
    if under:
        parts.append(f'<path d="M{ends[0] - 2:.1f} {y - 5:.1f}l-8 5l8 5z" class="off"/>')
        parts.append(text(ends[0] + 4, y + 4, f"{under} more, down to {show(metric, ordered[0])}", "halo"))
    return parts


def rows(samples: Sequence[Sample], metric: str, *, relative: bool = False) -> str:
    """A row per point on one axis. `relative`: each around its own median, for points that lie far apart."""
    middles = [percentile(sorted(sample.values), 50) for sample in samples]
    drawn = [
        _around(sample.values, middle, relative) for sample, middle in zip(samples, middles, strict=True)
    ]
    if relative:
        scale_unit, name, kind = (
            Unit("%"),
            f"{metric_title(metric)}, difference from the point's own median",
            "",
        )
        every = sorted(value for values in drawn for value in values)
        held = [every[0], min(every[-1], 2 * percentile(every, 95)), -1.0, 1.0]
    else:
        scale_unit, name, kind = unit_for(metric, middles), metric_title(metric), metric
        held = [value for values in drawn for value in (values[0], values[-1])]
    step = 32.0 if len(samples) <= 16 else 25.0
    left = min(340.0, 22 + 7.2 * max(len(sample.label) for sample in samples))
    right, top = WIDTH - 104.0, 8.0
    bottom = top + step * len(samples) + 6
    scale = linear(held, left, right) if relative else fitting(held, left, right)
    parts = x_axis(scale, bottom, top, kind, scale_unit, name)
    for number, (sample, values, middle) in enumerate(zip(samples, drawn, middles, strict=True)):
        y = top + step * (number + 0.5)
        parts.append(text(left - 12, y + 4, _cut(sample.label, left), "e"))
        parts += _row(values, scale, y, step * 0.3)
        parts.append(text(WIDTH - 88, y + 4, show(metric, middle), "strong num"))
    described = zip(samples[:12], middles, strict=False)
    description = "; ".join(
        f"{each.label}: median {show(metric, m)} of {len(each.values)}" for each, m in described
    )
    return document(WIDTH, bottom + 44, f"{metric} by point", description, parts)


def _around(values: Sequence[float], middle: float, relative: bool) -> list[float]:
    ordered = sorted(values)
    return [100 * (value / middle - 1) for value in ordered] if relative and middle else ordered


def _row(ordered: Sequence[float], scale: Scale, y: float, reach: float) -> list[str]:
    inside = [value for value in ordered if scale.low <= value <= scale.high]
    parts = [_strip(inside, scale, y, reach)]
    if len(ordered) >= 4:
        parts += _box(ordered, scale, y, reach)
    middle = scale(percentile(ordered, 50))
    parts.append(line(middle, y - reach - 1, middle, y + reach + 1, "median"))
    over = sum(1 for value in ordered if value > scale.high)
    if over:
        parts.append(f'<path d="M{scale.stop:.1f} {y - 4:.1f}l7 4l-7 4z" class="off"/>')
        parts.append(text(scale.stop - 4, y + 4, f"{over} more", "e halo dim"))
    return parts


def _cut(label: str, room: float) -> str:
    most = max(8, round((room - 22) / 7.2))
    return label if len(label) <= most else label[: most - 1] + "…"


def _bars(ordered: Sequence[float], scale: Scale, floor: float, top: float, unit: Unit) -> list[str]:
    edges = _edges(ordered, log=scale.log)
    counts = [0] * (len(edges) - 1)
    at = 0
    for value in ordered:
        while at < len(counts) - 1 and value >= edges[at + 1]:
            at += 1
        counts[at] += 1
    most = max(counts)
    parts = []
    for (low, high), count in zip(pairwise(edges), counts, strict=True):
        if count:
            height = (floor - top) * count / most
            told = f"{count} of {len(ordered)}: {unit.span(low, high)}"
            x, x2 = scale.clip(low), scale.clip(high)
            parts.append(rect(x + 0.5, floor - height, max(1.0, x2 - x - 1), height, "bar", title=told))
    return parts


def _edges(ordered: Sequence[float], *, log: bool) -> list[float]:
    """Bins by Freedman and Diaconis, between 6 and 50 of them."""
    data = [math.log10(value) for value in ordered] if log else list(ordered)
    low, high = data[0], data[-1]
    if low == high:
        reach = abs(low) * 0.02 or 0.5
        low, high = low - reach, high + reach
    width = 2 * (percentile(data, 75) - percentile(data, 25)) / len(data) ** (1 / 3)
    count = max(6, math.ceil(min(50.0, (high - low) / width))) if width > 0 else 20
    edges = [low + (high - low) * number / count for number in range(count + 1)]
    return [10**edge for edge in edges] if log else edges


def _box(ordered: Sequence[float], scale: Scale, y: float, reach: float) -> list[str]:
    p5, p25, p75, p95 = (scale.clip(percentile(ordered, percent)) for percent in (5, 25, 75, 95))
    return [
        line(p5, y, p25, y, "whisker"),
        line(p75, y, p95, y, "whisker"),
        line(p5, y - 4, p5, y + 4, "whisker"),
        line(p95, y - 4, p95, y + 4, "whisker"),
        rect(p25, y - reach, max(1.0, p75 - p25), 2 * reach, "box"),
    ]


def _strip(ordered: Sequence[float], scale: Scale, y: float, reach: float) -> str:
    """Every value as a dot, moved up or down by a fixed pattern so that equal values stay visible."""
    golden = 0.6180339887
    points = [
        (scale(value), y + reach * (2 * ((number * golden) % 1) - 1))
        for number, value in enumerate(thin(ordered, MOST_DOTS))
    ]
    return dots(points, 1.9, "dot" if len(points) <= 60 else "dot faint")
