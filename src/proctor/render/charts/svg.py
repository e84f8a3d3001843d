"""SVG as text: few elements, everything escaped, colours by class only."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path

from proctor.quantity import Unit, significant, unit_for
from proctor.render.charts.scale import Scale, ticks

CHART_CSS = (Path(__file__).parent / "chart.css").read_text()
"""The style of every chart; its colours are variables set by the page that contains the chart."""


def document(width: float, height: float, title: str, description: str, parts: Iterable[str]) -> str:
    """A whole chart, with a name and a description for those who cannot see it."""
    size = f'viewBox="0 0 {width:g} {height:g}" style="max-width:{width:g}px;--own:{width:g}px"'
    told = escape(f"{title}: {description}")
    return f'<svg class="chart" {size} role="img" aria-label="{told}">{"".join(parts)}</svg>'


def text(x: float, y: float, content: str, css: str = "") -> str:
    """A line of text; x is its start, middle or end, as the class says."""
    name = f' class="{css}"' if css else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{name}>{escape(content)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, css: str) -> str:
    """A straight line."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{css}"/>'


def rect(
    x: float, y: float, width: float, height: float, css: str, *, extra: str = "", title: str = ""
) -> str:
    """A rectangle; `title` is its tooltip."""
    inside = f"<title>{escape(title)}</title>" if title else ""
    head = f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(0.0, width):.1f}" height="{max(0.0, height):.1f}"'
    return f'{head} class="{css}"{extra}>{inside}</rect>' if inside else f'{head} class="{css}"{extra}/>'


def dots(points: Iterable[tuple[float, float]], radius: float, css: str) -> str:
    """Many round marks as one element: a zero-length stroke with round caps each."""
    path = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in points)
    return f'<path d="{path}" class="{css}" stroke-width="{2 * radius:g}"/>' if path else ""


def polyline(points: Iterable[tuple[float, float]], css: str) -> str:
    """A line through points."""
    joined = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path d="M{joined}" class="{css}"/>' if joined else ""


_MARKS = (
    "M{x0} {y}a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0 -{d} 0z",
    "M{x0} {y0}h{d}v{d}h-{d}z",
    "M{x} {y0}L{x1} {y1}H{x0}z",
    "M{x} {y0}L{x1} {y}L{x} {y1}L{x0} {y}z",
    "M{x} {y1}L{x1} {y0}H{x0}z",
    "M{x0} {y0}h{d}v{d}h-{d}z",
)


def mark(x: float, y: float, series: int, title: str) -> str:
    """A mark whose shape tells the series as well as its colour does."""
    radius = (4.0, 3.6, 4.4, 4.8, 4.4, 3.0)[series % 6]
    names = {"x": x, "y": y, "x0": x - radius, "x1": x + radius, "y0": y - radius, "y1": y + radius}
    rounded = {name: f"{value:.1f}" for name, value in names.items()}
    path = _MARKS[series % 6].format(**rounded, r=f"{radius:g}", d=f"{2 * radius:g}")
    return f'<path d="{path}" class="f"><title>{escape(title)}</title></path>'


def x_axis(
    scale: Scale, y: float, top: float, metric: str, unit: Unit, label: str, *, count: int = 6
) -> list[str]:
    """Ticks below, grid lines above them, and what the axis shows."""
    parts = [line(scale.start, y, scale.stop, y, "axis")]
    for tick, shown in labelled(scale, count, metric, unit):
        x = scale(tick)
        parts += [line(x, top, x, y, "grid"), text(x, y + 17, shown, "m num")]
    name = label + (", log scale" if scale.log else "")
    return [*parts, text((scale.start + scale.stop) / 2, y + 36, name, "m dim")]


def y_axis(scale: Scale, left: float, right: float, metric: str, unit: Unit, label: str) -> list[str]:
    """Ticks at the left, grid lines across, the name above."""
    parts = []
    for tick, shown in labelled(scale, 5, metric, unit):
        y = scale(tick)
        parts += [line(left, y, right, y, "grid"), text(left - 8, y + 4, shown, "e num")]
    name = label + (", log scale" if scale.log else "")
    return [*parts, text(0, min(scale.start, scale.stop) - 14, name, "dim")]


def labelled(scale: Scale, count: int, metric: str, unit: Unit) -> list[tuple[float, str]]:
    """Ticks with their text: one unit on a linear axis, each its own on one of many decades."""
    if scale.log:
        return [
            (tick, tick_text(tick, unit_for(metric, [tick]) if metric else unit))
            for tick in ticks(scale, count)
        ]
    # Round in the unit that is shown: 100 MiB, and not 95.4.
    shown = Scale(scale.low * unit.factor, scale.high * unit.factor, scale.start, scale.stop)
    return [(tick / unit.factor, tick_text(tick / unit.factor, unit)) for tick in ticks(shown, count)]


def tick_text(value: float, unit: Unit) -> str:
    """A round number with the digits it needs and no more."""
    digits = significant(value * unit.factor, 6)
    if "." in digits and "e" not in digits:
        digits = digits.rstrip("0").rstrip(".")
    if unit.symbol == "$":
        return f"${digits}"
    return f"{digits} {unit.symbol}".rstrip()
