"""A forest plot: one row per task or point, its difference with its interval, and the margin as a band."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from proctor.render.charts.scale import Scale, linear, ticks

MOST_ROWS = 40
APART = 12.0
"""Numbers on the axis are at least this far apart, in per cent of the width."""
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

    `between`: how many the caller has left out of the middle already. Places are shares of the width, and
    words are words of the page, so that it can be read at any width.
    """
    shown, cut = _ends(rows)
    every = [*shown, *([whole] if whole else [])]
    across = _across(shown, whole, band, ratio=ratio)
    parts = [_row(row, across, band, ratio=ratio) for row in shown]
    if between + cut:
        parts.insert(len(shown) // 2, f"<p>… {between + cut} more between these</p>")
    if whole:
        parts.append(_row(whole, across, band, ratio=ratio, css=" whole"))
    parts.append(_axis(across, axis, ratio=ratio))
    label, text = (max((len(each) for each in texts), default=0) for texts in _texts(every))
    told = "; ".join(f"{row.label} {row.text}" for row in [*([whole] if whole else []), *shown[:12]])
    return (
        f'<div class="forest" role="img" aria-label="{escape(f"{title}: {told}")}" '
        f'style="--label:{label}ch;--text:{text}ch">{"".join(parts)}</div>'
    )


def _texts(rows: Sequence[Branch]) -> tuple[list[str], list[str]]:
    return [row.label for row in rows], [row.text for row in rows]


def _ends(rows: Sequence[Branch]) -> tuple[list[Branch], int]:
    if len(rows) <= MOST_ROWS:
        return list(rows), 0
    half = MOST_ROWS // 2
    return [*rows[:half], *rows[-half:]], len(rows) - MOST_ROWS


def _across(rows: Sequence[Branch], whole: Branch | None, band: tuple[float, float], *, ratio: bool) -> Scale:
    """Around the estimates, with room for typical intervals: a single huge one must not flatten the rest."""
    every = [*rows, *([whole] if whole else [])]
    values = [row.value for row in every if math.isfinite(row.value)]
    reaches = sorted(
        end for row in every for end in (row.low, row.high) if math.isfinite(end) and (end > 0 or not ratio)
    )
    cut = len(reaches) // 10 if len(reaches) > 20 else 0
    held = [*values, *reaches[cut : len(reaches) - cut], *band, 1.0 if ratio else 0.0]
    if not ratio:
        return linear(held, 0.0, 100.0, pad=0.06)
    held = [value for value in held if value > 0]
    low, high = min(held), max(held)
    room = max((high / low) ** 0.06, 1.02)
    return Scale(low / room, high * room, 0.0, 100.0, log=True)


def _row(row: Branch, across: Scale, band: tuple[float, float], *, ratio: bool, css: str = "") -> str:
    low, high = (across.clip(end) for end in band)
    parts = [_line("margin", low, high), _line("guide", across(1.0 if ratio else 0.0))]
    if math.isfinite(row.value):
        start, stop = (_clip(end, across) for end in (row.low, row.high))
        parts.append(_line("ci", start, stop))
        parts += [_line("beyond low", start)] if row.low < across.low else []
        parts += [_line("beyond high", stop)] if row.high > across.high else []
        parts.append(_line("mark", across.clip(row.value)))
    tone = f" class=t-{row.tone}" if row.tone else ""
    return (
        f'<div class="row{css}"><b title="{escape(row.label)}">{escape(row.label)}</b>'
        f"<span{tone}>{''.join(parts)}</span><small>{escape(row.text)}</small></div>"
    )


def _line(css: str, start: float, stop: float | None = None) -> str:
    wide = "" if stop is None else f";width:{max(stop - start, 0.0):.2f}%"
    return f'<i class="{css}" style="left:{start:.2f}%{wide}"></i>'


def _axis(across: Scale, name: str, *, ratio: bool) -> str:
    if ratio:
        places = [(value, f"{value:g}") for value in _RATIOS if across.low <= value <= across.high]
        middle = (1.0, "1")
    else:
        places = [(value, f"{100 * value:+g}" if value else "0") for value in ticks(across, 6)]
        middle = (0.0, "0")
    parts, drawn = [], list[float]()
    for value, shown in [middle, *places]:
        x = across(value)
        if all(abs(x - other) >= APART for other in drawn):
            parts.append(f'<i style="left:{x:.2f}%">{shown}</i>')
            drawn.append(x)
    ticked = f'<div class="row axis"><b></b><span>{"".join(parts)}</span><small></small></div>'
    return f"{ticked}<p>{escape(name)}</p>"


def _clip(value: float, across: Scale) -> float:
    if across.log and value <= 0:
        return across.start
    return across.clip(value) if math.isfinite(value) else (across.start if value < 0 else across.stop)
