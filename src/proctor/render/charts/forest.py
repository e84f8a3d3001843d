"""A forest plot: one row per task or point, its difference with its interval, and the margin as a band."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from proctor.render.charts.distribution import WIDTH
from proctor.render.charts.scale import Scale, linear, ticks
from proctor.render.charts.svg import document, line, mark, rect, text

MOST_ROWS = 40
_STEP = 23.0
_LETTER = 7.9
"""Room for a letter of a label, also where a phone shows it in larger type."""
_RATIOS = (
    *(0.01, 0.02, 0.05, 0.1, 0.2, 0.33, 0.5, 0.67, 0.8, 0.9, 0.95, 0.98),
    *(1.0, 1.02, 1.05, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """One row. Ends that are not finite are drawn to the edge."""

    label: str
    value: float
    low: float
    high: float
    text: str
    """Text at the right edge and in the tooltip."""
    tone: str = ""
    """good, bad, or nothing"""


def forest(
    rows: Sequence[Branch],
    *,
    title: str,
    ratio: bool,
    band: tuple[float, float],
    whole: Branch | None = None,
    axis: str,
    between: int = 0,
) -> str:
    """Rows in the order given; of very many the two ends. `whole` is the row that the verdict rests on.

    `between`: how many the caller has left out of the middle already.
    """
    shown, cut = _ends(rows)
    between += cut
    left = min(
        340.0,
        _LETTER * max((len(row.label) for row in [*shown, *([whole] if whole else [])]), default=0) + 22,
    )
    right, top = WIDTH - 210.0, 12.0
    gap = _STEP if between else 0.0
    bottom = top + _STEP * len(shown) + gap + (_STEP * 1.6 if whole else 0.0) + 4
    across = _across(shown, whole, band, left, right, ratio=ratio)
    parts = [_band(band, across, top, bottom, ratio=ratio)]
    parts += _axis(across, top, bottom, axis, ratio=ratio)
    y = top + _STEP / 2
    for at, row in enumerate(shown):
        if between and at == len(shown) // 2:
            parts.append(text(left, y + 4, f"… {between} more between these", "dim"))
            y += gap
        parts += _row(row, across, y, left)
        y += _STEP
    if whole:
        y += _STEP * 0.4
        parts.append(line(left, y - _STEP * 0.62, WIDTH - 4, y - _STEP * 0.62, "grid"))
        parts += _row(whole, across, y, left, whole=True)
    told = "; ".join(f"{row.label} {row.text}" for row in [*([whole] if whole else []), *shown[:12]])
    return document(WIDTH, bottom + 42, title, told, parts)


def _ends(rows: Sequence[Branch]) -> tuple[list[Branch], int]:
    if len(rows) <= MOST_ROWS:
        return list(rows), 0
    half = MOST_ROWS // 2
    return [*rows[:half], *rows[-half:]], len(rows) - MOST_ROWS


def _across(
    rows: Sequence[Branch],
    whole: Branch | None,
    band: tuple[float, float],
    left: float,
    right: float,
    *,
    ratio: bool,
) -> Scale:
    """Around the estimates, with room for typical intervals: a single huge one must not flatten the rest."""
    every = [*rows, *([whole] if whole else [])]
    values = [row.value for row in every if math.isfinite(row.value)]
    reaches = sorted(
        end for row in every for end in (row.low, row.high) if math.isfinite(end) and (end > 0 or not ratio)
    )
    cut = len(reaches) // 10 if len(reaches) > 20 else 0
    held = [*values, *reaches[cut : len(reaches) - cut], *band, 1.0 if ratio else 0.0]
    if not ratio:
        return linear(held, left + 8, right, pad=0.06)
    held = [value for value in held if value > 0]
    low, high = min(held), max(held)
    room = max((high / low) ** 0.06, 1.02)
    return Scale(low / room, high * room, left + 8, right, log=True)


def _band(band: tuple[float, float], across: Scale, top: float, bottom: float, *, ratio: bool) -> str:
    low, high = across.clip(band[0]), across.clip(band[1])
    shown = "margin: tolerated loss" if ratio else "margin"
    return rect(low, top - 6, high - low, bottom - top + 6, "margin", title=shown)


def _axis(across: Scale, top: float, bottom: float, name: str, *, ratio: bool) -> list[str]:
    if ratio:
        places = [(value, f"{value:g}") for value in _RATIOS if across.low <= value <= across.high]
        middle = 1.0
    else:
        places = [(value, f"{100 * value:+g}" if value else "0") for value in ticks(across, 6)]
        middle = 0.0
    parts = [line(across.start, bottom, across.stop, bottom, "axis")]
    drawn: list[float] = []
    for value, shown in [(middle, "1" if ratio else "0"), *places]:
        x = across(value)
        if not drawn or all(abs(x - other) >= 40 for other in drawn):
            parts += [line(x, top - 6, x, bottom, "grid"), text(x, bottom + 17, shown, "m num")]
            drawn.append(x)
    parts.append(line(across(middle), top - 6, across(middle), bottom, "guide"))
    return [*parts, text((across.start + across.stop) / 2, bottom + 36, name, "m dim")]


def _row(row: Branch, across: Scale, y: float, left: float, *, whole: bool = False) -> list[str]:
    css = f"t-{row.tone}" if row.tone else "c0"
    strong = "strong " if whole else ""
    parts = [text(left - 10, y + 4, _cut(row.label, left), f"{strong}e"), f'<g class="{css}">']
    if math.isfinite(row.value):
        low, high = (_clip(end, across) for end in (row.low, row.high))
        parts.append(line(low, y, high, y, "ci" if not whole else "ci whole"))
        parts += _arrow(row.low < across.low, low, y, -1) + _arrow(row.high > across.high, high, y, 1)
        parts.append(mark(across.clip(row.value), y, 3 if whole else 1, f"{row.label}: {row.text}"))
    parts.append("</g>")
    return [*parts, text(across.stop + 14, y + 4, row.text, f"{strong or 'dim '}num")]


def _clip(value: float, across: Scale) -> float:
    if across.log and value <= 0:
        return across.start
    return across.clip(value) if math.isfinite(value) else (across.start if value < 0 else across.stop)


def _arrow(beyond: bool, x: float, y: float, way: int) -> list[str]:
    return [f'<path d="M{x:.1f} {y - 4:.1f}l{6 * way} 4l{-6 * way} 4z" class="f"/>'] if beyond else []


def _cut(label: str, room: float) -> str:
    most = max(8, int((room - 22) / _LETTER))
    return label if len(label) <= most else label[: most - 1] + "…"
