"""Values over runs with their intervals, the typical level, and lasting changes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from proctor.quantity import Unit, unit_for
from proctor.render.charts.distribution import WIDTH
from proctor.render.charts.scale import Scale, fitting, linear
from proctor.render.charts.svg import document, line, mark, text, y_axis

MOST_INTERVALS = 200
"""Maximum number of runs with intervals; above it, intervals would overlap."""
_LABELS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """One run: its value, or why it has none."""

    value: float | None
    low: float | None = None
    high: float | None = None
    level: float | None = None
    tooltip: str = ""
    """Text of the tooltip."""
    under: tuple[str, str] = ("", "")
    """Two short lines below the axis: when, and which version."""
    left_out: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Between which two runs the level moved, and what to write there."""

    last: int
    at: int
    label: str


def timeline(
    spots: Sequence[Spot],
    steps: Sequence[Step],
    *,
    name: str,
    metric: str,
    share: bool = False,
    series: int = 0,
) -> str:
    """The picture of one line. `share`: values are shares and the axis is in per cent."""
    known = [spot.value for spot in spots if spot.value is not None]
    ends = [
        end for spot in spots if spot.value is not None for end in (spot.low, spot.high) if end is not None
    ]
    left, right, top, bottom = 74.0, WIDTH - 18.0, 44.0, 264.0
    across = Scale(-0.5, max(len(spots) - 0.5, 0.5), left, right)
    up = _up(known, ends, bottom, top, share=share)
    unit = Unit("%", 100.0) if share else unit_for(metric, known)
    parts = y_axis(up, left, right, "" if share else metric, unit, name)
    parts.append(line(left, bottom, right, bottom, "axis"))
    parts += _below(spots, across, bottom)
    parts += _levels(spots, across, up, steps)
    parts.append(f'<g class="c{series}">')
    for at, spot in enumerate(spots):
        parts += _spot(spot, across(at), up, bottom, series, intervals=len(spots) <= MOST_INTERVALS)
    parts.append("</g>")
    parts += _steps(steps, across, top, bottom)
    told = f"{len(known)} of {len(spots)} runs have a value"
    told += "".join(f"; {step.label} at run {step.at + 1}" for step in steps) or "; no lasting change"
    return document(WIDTH, bottom + 52, name, told, parts)


def _up(known: Sequence[float], ends: Sequence[float], bottom: float, top: float, *, share: bool) -> Scale:
    if share:
        return Scale(0.0, 1.0, bottom, top)
    held = [*known, *ends]
    low, high = min(held), max(held)
    if high - low < 0.1 * abs(high):
        # Noise must not look like mountains: the axis spans a tenth of the level at least.
        middle, reach = (low + high) / 2, 0.06 * abs(high) or 1.0
        return Scale(middle - reach, middle + reach, bottom, top)
    return fitting(held, bottom, top, decades=2.0) if min(held) > 0 else linear(held, bottom, top)


def _spot(spot: Spot, x: float, up: Scale, bottom: float, series: int, *, intervals: bool) -> list[str]:
    told = f"<title>{escape(spot.tooltip)}</title>"
    if spot.value is None:
        cross = f"M{x - 3.5:.1f} {bottom - 3.5:.1f}l7 7m0 -7l-7 7"
        css = "gone" if spot.left_out else "none"
        return [f'<path d="{cross}" class="{css}">{told}</path>']
    parts = []
    if intervals and spot.low is not None and spot.high is not None:
        low, high = up.clip(spot.low), up.clip(spot.high)
        parts.append(line(x, low, x, high, "ci"))
        if up.high > up.low:
            parts += [line(x - 3, end, x + 3, end, "ci") for end in (low, high)]
    return [*parts, mark(x, up.clip(spot.value), series, spot.tooltip)]


def _levels(spots: Sequence[Spot], across: Scale, up: Scale, steps: Sequence[Step]) -> list[str]:
    """A horizontal stroke per level, from the first run at it to the last."""
    starts = [0, *(step.at for step in steps)]
    stops = [*(step.last for step in steps), len(spots) - 1]
    parts = []
    for start, stop in zip(starts, stops, strict=True):
        known = [at for at in range(start, stop + 1) if spots[at].level is not None]
        if known:
            level = spots[known[0]].level
            assert level is not None
            y = up.clip(level)
            parts.append(line(across(known[0] - 0.4), y, across(known[-1] + 0.4), y, "level"))
    return parts


def _steps(steps: Sequence[Step], across: Scale, top: float, bottom: float) -> list[str]:
    parts = []
    last_end = -1e9
    for step in steps:
        x = across((step.last + step.at) / 2)
        wide = 7.0 * len(step.label)
        lift = 13 if x - wide / 2 < last_end else 0
        near = "e" if x + wide / 2 > across.stop else "m"
        parts.append(line(x, top - 6, x, bottom, "move"))
        parts.append(text(x, top - 11 - lift, step.label, f"strong halo {near}"))
        last_end = x + wide / 2 + 6
    return parts


def _below(spots: Sequence[Spot], across: Scale, bottom: float) -> list[str]:
    """When, and which version, under as many runs as have room."""
    every = max(1, -(-len(spots) // _LABELS))
    parts = []
    for at in range(0, len(spots), every):
        x = across(at)
        parts.append(line(x, bottom, x, bottom + 4, "axis"))
        for row, said in enumerate(spots[at].under):
            parts.append(text(x, bottom + 18 + 15 * row, said, "m num" if row == 0 else "m num dim"))
    return parts
