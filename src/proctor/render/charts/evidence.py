"""The evidence of a race after each pair, on a log scale, with the boundary at which it stops."""

from __future__ import annotations

from collections.abc import Sequence

from proctor.quantity import significant
from proctor.render.charts.distribution import WIDTH
from proctor.render.charts.scale import Scale
from proctor.render.charts.svg import document, line, polyline, rect, text

_LOW, _HIGH = 0.1, 100.0
_MOST_DRAWN = 1e6
"""Evidence beyond this is drawn at the upper edge."""


def evidence(values: Sequence[float], *, planned: int, boundary: float, stopped: bool) -> str:
    """The picture. `values`: one after each pair that counts."""
    left, right, top, bottom = 64.0, WIDTH - 18.0, 40.0, 284.0
    drawn = [min(max(value, _LOW / 10), _MOST_DRAWN) for value in values]
    across = Scale(0.0, max(planned, len(values), 1), left, right)
    up = Scale(min([_LOW, *drawn]), max([_HIGH, 2 * boundary, *drawn]) * 1.5, bottom, top, log=True)
    parts = _grid(up, left, right)
    if stopped and len(values) < planned:
        parts += [rect(across(len(values)), top, right - across(len(values)), bottom - top, "band")]
    late = len(values) > planned / 2
    aside = (left + 6 if late else right, up(boundary) - 6)
    parts += [
        line(left, up(boundary), right, up(boundary), "move"),
        text(*aside, f"boundary {boundary:g}", "strong halo" if late else "strong e halo"),
        text(right, up(1.0) - 6, "1: nothing known", "dim e halo"),
        line(left, bottom, right, bottom, "axis"),
        '<g class="c0">',
        polyline([(across(0), up(1.0)), *((across(at), up(e)) for at, e in enumerate(drawn, 1))], "line k"),
        "</g>",
        *_below(len(values), planned, across, bottom, stopped=stopped),
    ]
    if drawn:
        x, y, near = across(len(drawn)), up(drawn[-1]), "e" if len(drawn) > 0.8 * planned else ""
        parts.append(text(x + (-8 if near else 8), y - 8, significant(values[-1]), f"strong halo {near}"))
    told = f"{significant(values[-1]) if values else 1} after {len(values)} of {planned} pairs"
    return document(WIDTH, bottom + 34, "Evidence", f"{told}; the boundary is {boundary:g}", parts)


def _grid(up: Scale, left: float, right: float) -> list[str]:
    parts = [text(0, up.stop - 14, "evidence, log scale", "dim")]
    power = -2
    while 10.0**power <= up.high:
        if 10.0**power >= up.low * 0.999:
            y = up(10.0**power)
            parts += [line(left, y, right, y, "grid"), text(left - 8, y + 4, f"{10.0**power:g}", "e num")]
        power += 1
    return parts


def _below(pairs: int, planned: int, across: Scale, bottom: float, *, stopped: bool) -> list[str]:
    parts = [text(across(0), bottom + 18, "0", "m num")]
    where = f"pair {pairs}{': stop' if stopped else ''}"
    if across(pairs) > across.stop - 150:
        told = f"{where}, of {planned}" if pairs < planned else where
        return [*parts, text(across.stop, bottom + 18, told, "e num strong")]
    at = max(across(pairs), across.start + 60)
    return [
        *parts,
        text(across.stop, bottom + 18, f"{planned} planned", "e num dim"),
        text(at, bottom + 18, where, "m num strong"),
    ]
