"""The four pictures of the harness: latency in order, where the time went, the machine, each task and agent.

They are drawn for a page, which has the colours, and as files that have their own: SVG, and PNG made from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import Any, Literal

from proctor.model.describe import percentile
from proctor.quantity import Unit, show, unit_for
from proctor.render.charts import svg
from proctor.render.charts.scale import Scale, linear, ticks
from proctor.render.charts.svg import tick_text
from proctor.runfolder.perf.episode import OWN, PHASES

WIDTH = 920.0
LEFT, RIGHT = 96.0, WIDTH - 20.0
HEAD = 26.0
"""Room for the title, which a page has above the picture."""
PIXELS = 2
"""Of a PNG, per unit of the SVG."""
FONT = Path(__file__).parent.parent / "fonts" / "DejaVuSans.ttf"
TONES: dict[str, str] = {
    "paper": "#ffffff",
    "ink": "#16191d",
    "ink-2": "#474f59",
    "ink-3": "#626b76",
    "rule": "#c9ced5",
    "grid": "#e5e8ec",
    "bad": "#b3261e",
    "s0": "#1f5fbf",
    "s1": "#c2570c",
    "s2": "#18794e",
    "s3": "#8b3fa8",
}
"""The colours of a file: those of a light page, by the same names."""
_STYLE = (
    "text{font-family:ui-sans-serif,system-ui,'Liberation Sans',Arial,sans-serif;font-size:12px}"
    ".f{fill:currentColor}.k{fill:none;stroke:currentColor;stroke-linecap:round;stroke-linejoin:round}"
)
TITLES = {
    "latency": "Wall clock of each episode",
    "overhead": "Where an episode's time goes",
    "system": "The machine during the run",
    "groups": "Each task and agent",
}
Point = tuple[float, float]
Anchor = Literal["start", "middle", "end"]


def drawings(
    summary: Mapping[str, Any], metrics: Mapping[str, Any], series: Mapping[str, Any]
) -> dict[str, partial[str]]:
    """Name → what draws the chart for a page, with its data. A run without an episode has none."""
    rows = sorted(series["episodes"], key=lambda row: row["started_s"])
    if not rows:
        return {}
    means = {phase: summary["overhead_s"][phase] / summary["episodes"] for phase in PHASES}
    samples = series["system"]["samples"]
    columns = {name: [float(row[name]) for row in samples] for name in ("at_s", *_PANELS)}
    groups = [
        (
            f"{each['task_ref'].partition('@')[0]} × {each['agent'].rpartition(':')[2]}",
            each["p50_wall_clock_s"],
            each["p95_wall_clock_s"],
        )
        for each in metrics["groups"]
    ]
    walls = [float(row["wall_clock_s"]) for row in rows]
    return {
        "latency": partial(latency, walls=walls, good=[bool(row["success"]) for row in rows]),
        "overhead": partial(overhead, means=means, share=summary["overhead_share"]),
        "system": partial(system, columns=columns),
        "groups": partial(by_group, groups=groups),
    }


def charts(
    summary: Mapping[str, Any], metrics: Mapping[str, Any], series: Mapping[str, Any]
) -> dict[str, tuple[str, bytes]]:
    """Name → the chart as SVG text and as PNG bytes, for files."""
    found = {}
    for name, draw in drawings(summary, metrics, series).items():
        alone = draw(title=TITLES[name])
        found[name] = (alone, png_of(alone))
    return found


def png_of(drawn: str) -> bytes:
    """The picture, with a font of the package, so that it looks the same on every machine."""
    import resvg_py

    return resvg_py.svg_to_bytes(
        svg_string=drawn,
        zoom=PIXELS,
        skip_system_fonts=True,
        font_files=[str(FONT)],
        sans_serif_family="DejaVu Sans",
    )


class Canvas:
    """A surface with its origin at the top left. Collects SVG elements; `document` is the picture."""

    def __init__(self, height: float, title: str, *, width: float = WIDTH) -> None:
        self._width = width
        self._height = height
        self._title = title
        self._parts: list[str] = []
        if title:
            self.text((LEFT - 80, 22), title, "ink")

    def text(self, at: Point, content: str, tone: str = "ink-2", anchor: Anchor = "start") -> None:
        """A line of text; `at` is on its base line."""
        self._parts.append(
            f'<text x="{at[0]:.1f}" y="{at[1]:.1f}" text-anchor="{anchor}" class="q-{tone} f">'
            f"{escape(content)}</text>"
        )

    def line(self, start: Point, end: Point, tone: str, width: float = 1.0) -> None:
        """A straight line."""
        drawn = svg.line(*start, *end, f"q-{tone} k")
        self._parts.append(drawn.replace("/>", f' stroke-width="{width:g}"/>'))

    def rect(self, at: Point, size: Point, tone: str, tooltip: str = "") -> None:
        """A filled rectangle."""
        self._parts.append(svg.rect(*at, *size, f"q-{tone} f", title=tooltip))

    def path(self, points: Sequence[Point], tone: str) -> None:
        """A line through points."""
        drawn = svg.polyline(points, f"q-{tone} k r")
        self._parts.append(drawn.replace("/>", ' stroke-width="1.5"/>'))

    def dots(self, points: Sequence[Point], tone: str, radius: float) -> None:
        """Round marks, all as one element."""
        self._parts.append(svg.dots(points, radius, f"q-{tone} k r"))

    def document(self, name: str, said: str) -> str:
        """The picture: of a page without a title of its own, else a whole file without external resources."""
        if not self._title:
            up = f'<g transform="translate(0 -{HEAD:g})">'
            return svg.document(
                self._width, self._height - HEAD, TITLES[name], said, [up, *self._parts, "</g>"]
            )
        colours = "".join(f".q-{tone}{{color:{value}}}" for tone, value in TONES.items())
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self._width:g} {self._height:g}" '
            f'width="{self._width:g}" height="{self._height:g}" role="img" '
            f'aria-label="{escape(f"{self._title}: {said}")}"><style>{_STYLE}{colours}</style>'
            f'<rect width="100%" height="100%" fill="{TONES["paper"]}"/>{"".join(self._parts)}</svg>\n'
        )


def latency(walls: Sequence[float], good: Sequence[bool], title: str = "") -> str:
    """A dot per episode in the order of its start, with the median and p95."""
    to = Canvas(300, title)
    top, bottom = 48.0, 250.0
    up = linear([0.0, *walls], bottom, top, zero=True)
    right = RIGHT - 84
    across = Scale(0.5, len(walls) + 0.5, LEFT, right)
    _y_axis(to, up, unit_for("wall_s", walls), right=right)
    _x_axis(to, across, bottom, "episode, in order of start", Unit(""))
    for tone, wanted in (("s0", True), ("bad", False)):
        known = [(at, wall) for at, wall in enumerate(walls, 1) if good[at - 1] is wanted]
        points = [(across(at), up(wall)) for at, wall in known]
        if points:
            to.dots(points, tone, 2.2 if len(walls) < 200 else 1.2)
    middle, high = (percentile(sorted(walls), percent) for percent in (50, 95))
    for value, name in ((middle, "p50"), (high, "p95")):
        to.line((LEFT, up(value)), (right, up(value)), "ink-3")
        to.text((right + 6, up(value) + 4), f"{name} {show('wall_s', value)}")
    failed = sum(not each for each in good)
    said = (
        f"{len(walls)} episodes, median {show('wall_s', middle)}, p95 {show('wall_s', high)}, {failed} failed"
    )
    return to.document("latency", said)


def overhead(means: Mapping[str, float], share: float, title: str = "") -> str:
    """Mean seconds of each phase in one episode; the harness's own phases are highlighted."""
    to = Canvas(250, title)
    across = linear([0.0, *means.values()], LEFT, RIGHT - 120, zero=True)
    for at, (phase, mean) in enumerate(means.items()):
        y = 46.0 + 30 * at
        tone = "s1" if phase in OWN else "s0"
        to.text((LEFT - 10, y + 15), phase, anchor="end")
        to.rect((LEFT, y), (max(1.0, across(mean) - LEFT), 20), tone, f"{phase}: {show('mean_s', mean)}")
        to.text((max(LEFT + 1, across(mean)) + 8, y + 15), show("mean_s", mean), "ink")
    said = f"{100 * share:.1f} % of the time is spent in the harness itself"
    to.text((LEFT, 240), f"mean per episode; orange: {said}", "ink-3")
    listed = ", ".join(f"{name} {show('mean_s', mean)}" for name, mean in means.items())
    return to.document("overhead", f"{said}; {listed}")


_PANELS = {
    "cpu_percent": ("CPU of the machine", "s0"),
    "harness_rss_bytes": ("memory of the harness", "s2"),
    "write_bytes": ("written to disks since the start", "s3"),
}


def system(columns: Mapping[str, Sequence[float]], title: str = "") -> str:
    """CPU, memory of the harness and disk writes over time, one above the other."""
    to = Canvas(430, title)
    times = columns["at_s"]
    if len(times) < 2:
        to.text((LEFT, 60), "too short a run for a time series", "ink-3")
        return to.document("system", "too short a run for a time series")
    across = Scale(times[0], max(times[-1], times[0] + 1e-6), LEFT, RIGHT)
    for at, (column, (name, tone)) in enumerate(_PANELS.items()):
        top = 52.0 + 118 * at
        seen = list(zip(times, columns[column], strict=True))
        if column == "harness_rss_bytes":
            seen = [(x, y) for x, y in seen if y] or seen
        values = [y for _, y in seen]
        up = Scale(0.0, max(*values, 1.0) * 1.08, top + 84, top)
        _y_axis(to, up, unit_for(column, values), count=3)
        to.text((LEFT, top - 6), name, "ink-3")
        to.path([(across(x), up(y)) for x, y in seen], tone)
    _x_axis(to, across, 52.0 + 118 * 2 + 84, "seconds since the harness began", Unit("s"))
    peak = show("rss_bytes", max(columns["harness_rss_bytes"]))
    return to.document("system", f"{len(times)} samples over {times[-1]:.1f} s, peak memory {peak}")


def by_group(groups: Sequence[tuple[str, float, float]], title: str = "") -> str:
    """Median of each group as a bar, p95 as a mark."""
    to = Canvas(70 + 26.0 * len(groups), title)
    left = 300.0
    across = linear([0.0, *(high for *_, high in groups)], left, RIGHT - 130, zero=True)
    for at, (name, middle, high) in enumerate(groups):
        y = 44.0 + 26 * at
        to.text((left - 10, y + 13), name if len(name) <= 38 else name[:37] + "…", anchor="end")
        to.rect((left, y), (max(1.0, across(middle) - left), 16), "s0", f"{name}: {show('wall_s', middle)}")
        to.line((across(high), y - 2), (across(high), y + 18), "s1", 2.0)
        to.text((across(high) + 10, y + 13), f"{show('wall_s', middle)} / {show('wall_s', high)}", "ink")
    to.text((left, 60 + 26.0 * len(groups)), "bar: median; line: p95", "ink-3")
    said = "; ".join(f"{name}: {show('wall_s', middle)}" for name, middle, _ in groups)
    return to.document("groups", said)


def _y_axis(to: Canvas, up: Scale, unit: Unit, count: int = 5, right: float = RIGHT) -> None:
    shown = Scale(up.low * unit.factor, up.high * unit.factor, up.start, up.stop)
    for tick in ticks(shown, count):
        to.line((LEFT, shown(tick)), (right, shown(tick)), "grid")
        to.text((LEFT - 8, shown(tick) + 4), tick_text(tick, Unit(unit.symbol)), anchor="end")


def _x_axis(to: Canvas, across: Scale, y: float, label: str, unit: Unit) -> None:
    to.line((across.start, y), (across.stop, y), "rule")
    for tick in ticks(across, 8):
        to.line((across(tick), y), (across(tick), y + 4), "rule")
        to.text((across(tick), y + 18), tick_text(tick, unit), anchor="middle")
    to.text(((across.start + across.stop) / 2, y + 38), label, "ink-3", "middle")
