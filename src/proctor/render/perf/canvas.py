"""What a chart is drawn on: SVG with its own colours, readable on its own and made into a PNG in `png`."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Literal

from proctor.render.charts import svg

Anchor = Literal["start", "middle", "end"]
Point = tuple[float, float]

TONES: dict[str, str] = {
    "paper": "#ffffff",
    "ink": "#16191d",
    "soft": "#474f59",
    "dim": "#7b848f",
    "axis": "#c9ced5",
    "grid": "#e8ebef",
    "band": "#e4ecf7",
    "bad": "#b3261e",
    "s0": "#1f5fbf",
    "s1": "#c2570c",
    "s2": "#18794e",
    "s3": "#8b3fa8",
    "s4": "#0e7f8c",
    "s5": "#7a6320",
}
"""Every colour by name."""
_STYLE = "text{font-family:ui-sans-serif,system-ui,'Liberation Sans',Arial,sans-serif;font-size:12px}"


class Canvas:
    """A surface with its origin at the top left. Collects SVG elements; `document` is the file."""

    def __init__(self, width: float, height: float) -> None:
        self.width = width
        self.height = height
        self._parts: list[str] = []

    def text(self, at: Point, content: str, tone: str = "soft", anchor: Anchor = "start") -> None:
        """A line of text; `at` is on its base line."""
        self._parts.append(
            f'<text x="{at[0]:.1f}" y="{at[1]:.1f}" text-anchor="{anchor}" class="{tone} f">'
            f"{escape(content)}</text>"
        )

    def line(self, start: Point, end: Point, tone: str, width: float = 1.0) -> None:
        """A straight line."""
        drawn = svg.line(*start, *end, f"{tone} k")
        self._parts.append(drawn.replace("/>", f' stroke-width="{width:g}"/>'))

    def rect(self, at: Point, size: Point, tone: str, told: str = "") -> None:
        """A filled rectangle; `told` is its tooltip."""
        self._parts.append(svg.rect(*at, *size, f"{tone} f", title=told))

    def path(self, points: Sequence[Point], tone: str, width: float = 1.5) -> None:
        """A line through points."""
        drawn = svg.polyline(points, f"{tone} k")
        self._parts.append(drawn.replace("/>", f' stroke-width="{width:g}"/>'))

    def dots(self, points: Sequence[Point], tone: str, radius: float = 2.0) -> None:
        """Round marks, all as one element."""
        self._parts.append(svg.dots(points, radius, f"{tone} k"))

    def document(self, title: str, description: str) -> str:
        """The whole file, without external resources."""
        colours = "".join(f".{name}{{color:{value}}}" for name, value in TONES.items())
        told = escape(f"{title}: {description}")
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:g} {self.height:g}" '
            f'width="{self.width:g}" height="{self.height:g}" role="img" aria-label="{told}">'
            f"<style>{_STYLE}{colours}.f{{fill:currentColor}}"
            ".k{fill:none;stroke:currentColor;stroke-linecap:round;stroke-linejoin:round}</style>"
            f'<rect width="100%" height="100%" fill="{TONES["paper"]}"/>{"".join(self._parts)}</svg>\n'
        )
