"""Values in the order they were measured: drift, steps and outliers that a distribution hides."""

from __future__ import annotations

import math
from collections.abc import Sequence

from proctor.model.describe import percentile
from proctor.quantity import Unit, metric_title, significant, unit_for
from proctor.render.charts.distribution import WIDTH, Sample
from proctor.render.charts.scale import Scale, fitting, linear
from proctor.render.charts.svg import document, dots, line, polyline, rect, text, x_axis, y_axis

MOST_POINTS = 1200
PANELS = 12


def series(sample: Sample, metric: str, *, each: str = "iteration") -> str:
    """One sample against the number of each value, with its median and the band from p5 to p95."""
    values = list(sample.values)
    ordered = sorted(values)
    unit = unit_for(metric, ordered)
    left, right, top, bottom = 74.0, WIDTH - 12.0, 32.0, 218.0
    across = Scale(0.5, len(values) + 0.5, left, right)
    up = fitting(ordered, bottom, top, decades=2.0)
    parts = x_axis(across, bottom, bottom, "", Unit(""), each, count=8)
    parts += y_axis(up, left, right, metric, unit, metric_title(metric))
    low, high = up(percentile(ordered, 95)), up(percentile(ordered, 5))
    parts.append(rect(left, low, right - left, high - low, "band"))
    parts += _drawn(values, across, up)
    middle = percentile(ordered, 50)
    parts.append(line(left, up(middle), right, up(middle), "guide"))
    description = f"{len(values)} {each}s in order; {trend(values)}"
    return document(WIDTH, bottom + 42, f"{metric} by {each}", description, parts)


def _drawn(values: Sequence[float], across: Scale, up: Scale) -> list[str]:
    if len(values) <= MOST_POINTS:
        points = [(across(number), up(value)) for number, value in enumerate(values, 1)]
        return [polyline(points, "trace"), dots(points, 2.0 if len(values) < 300 else 1.3, "dot faint")]
    size = -(-len(values) // (MOST_POINTS // 2))
    spans = []
    for start in range(0, len(values), size):
        part = values[start : start + size]
        x = across(start + len(part) / 2)
        spans += [(x, up(min(part))), (x, up(max(part)))]
    return [polyline(spans, "trace")]


def trend(values: Sequence[float]) -> str:
    """How the end compares with the beginning, in words."""
    third = len(values) // 3
    if third < 3:
        return "too few values for a trend"
    first = percentile(sorted(values[:third]), 50)
    last = percentile(sorted(values[-third:]), 50)
    change = last / first - 1 if first else math.inf
    if not math.isfinite(change):
        return "no trend"
    direction = "higher" if change > 0 else "lower"
    return f"the last third is {significant(abs(change) * 100, 2)} % {direction} than the first"


def panels(samples: Sequence[Sample], metric: str) -> str:
    """A small picture per point, each relative to its own median, all on one scale."""
    shown = samples[:PANELS]
    columns = min(3, len(shown))
    width, height = (WIDTH - 50 - 24.0 * (columns - 1)) / columns, 64.0
    ratios = [_relative(sample.values) for sample in shown]
    every = sorted(ratio for each in ratios for ratio in each)
    usual = 1 + 2 * (percentile(every, 95) - 1)
    reach = linear([max(0.0, every[0]), min(usual, every[-1]), 0.95, 1.05], 0, 0, pad=0.0)
    parts: list[str] = []
    for number, (sample, values) in enumerate(zip(shown, ratios, strict=True)):
        left = 50 + (number % columns) * (width + 24)
        top = 24 + (number // columns) * (height + 38)
        parts.append(text(left, top - 9, _fit(sample.label, width), "dim"))
        parts += _panel(values, reach, (left, top, left + width, top + height), labels=number % columns == 0)
    deep = 24 + (-(-len(shown) // columns) - 1) * (height + 38) + height
    description = "; ".join(f"{sample.label}: {trend(sample.values)}" for sample in shown)
    title = f"{metric} by iteration, relative to each point's median"
    return document(WIDTH, deep + 10, title, description, parts)


def _panel(
    values: Sequence[float], reach: Scale, place: tuple[float, float, float, float], *, labels: bool
) -> list[str]:
    left, top, right, bottom = place
    up = Scale(reach.low, reach.high, bottom, top)
    across = Scale(0.5, len(values) + 0.5, left, right)
    parts = []
    for level in (reach.low, 1.0, reach.high):
        parts.append(line(left, up(level), right, up(level), "guide" if level == 1.0 else "grid"))
        if labels:
            near = level != 1.0 and abs(up(level) - up(1.0)) < 11
            shown = "" if near else f"{level - 1:+.0%}" if level != 1.0 else "0"
            parts.append(text(left - 8, up(level) + 4, shown, "e num dim"))
    parts += _drawn([up_to(value, reach) for value in values], across, up)
    over = [across(at) for at, value in enumerate(values, 1) if value > reach.high]
    return parts + [f'<path d="M{x:.1f} {top - 3:.1f}l3.5 6h-7z" class="off"/>' for x in over[:20]]


def up_to(value: float, scale: Scale) -> float:
    """A value, kept on the scale."""
    return min(max(value, scale.low), scale.high)


def _relative(values: Sequence[float]) -> list[float]:
    middle = percentile(sorted(values), 50)
    ratios = [value / middle for value in values] if middle else []
    return ratios if ratios and all(map(math.isfinite, ratios)) else [1.0 for _ in values]


def _fit(label: str, width: float) -> str:
    most = int(width / 6.2)
    return label if len(label) <= most else label[: most - 1] + "…"
