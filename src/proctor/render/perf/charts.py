"""The four pictures of a run: latency in order, where the time went, the machine, and each task and agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from proctor.model.describe import percentile
from proctor.quantity import Unit, show, unit_for
from proctor.render.charts.scale import Scale, linear, ticks
from proctor.render.charts.svg import tick_text
from proctor.render.perf.canvas import Canvas
from proctor.render.perf.png import png_of
from proctor.runfolder.perf.episode import OWN, PHASES

WIDTH = 920.0
LEFT, RIGHT = 96.0, WIDTH - 20.0
Draw = Callable[[Canvas], str]
"""Draws a chart and returns a sentence that describes it."""


def charts(
    summary: Mapping[str, Any], metrics: Mapping[str, Any], series: Mapping[str, Any]
) -> dict[str, tuple[str, bytes]]:
    """Name → the chart as SVG text and as PNG bytes. A run without an episode has none."""
    rows = series["episodes"]
    if not rows:
        return {}
    groups = metrics["groups"]
    drawn: dict[str, tuple[str, float, Draw]] = {
        "latency": ("Wall clock of each episode", 300, lambda to: latency(to, rows)),
        "overhead": ("Where an episode's time goes", 250, lambda to: overhead(to, summary)),
        "system": ("The machine during the run", 430, lambda to: system(to, series["system"]["samples"])),
        "groups": ("Each task and agent", 70 + 26.0 * len(groups), lambda to: by_group(to, groups)),
    }
    return {name: _both(*each) for name, each in drawn.items()}


def _both(title: str, height: float, draw: Draw) -> tuple[str, bytes]:
    canvas = Canvas(WIDTH, height)
    canvas.text((LEFT - 80, 22), title, "ink")
    svg = canvas.document(title, draw(canvas))
    return svg, png_of(svg)


def latency(to: Canvas, rows: Sequence[Mapping[str, Any]]) -> str:
    """A dot per episode in the order of its start, with the median and p95."""
    ordered = sorted(rows, key=lambda row: row["started_s"])
    walls = [float(row["wall_clock_s"]) for row in ordered]
    top, bottom = 48.0, 250.0
    up = linear([0.0, *walls], bottom, top, zero=True)
    right = RIGHT - 84
    across = Scale(0.5, len(walls) + 0.5, LEFT, right)
    _y_axis(to, up, unit_for("wall_s", walls), right=right)
    _x_axis(to, across, bottom, "episode, in order of start", Unit(""))
    for tone, good in (("s0", True), ("bad", False)):
        points = [
            (across(at), up(wall))
            for at, (row, wall) in enumerate(zip(ordered, walls, strict=True), 1)
            if row["success"] is good
        ]
        if points:
            to.dots(points, tone, 2.2 if len(walls) < 200 else 1.2)
    middle, high = (percentile(sorted(walls), percent) for percent in (50, 95))
    for value, name in ((middle, "p50"), (high, "p95")):
        to.line((LEFT, up(value)), (right, up(value)), "dim")
        to.text((right + 6, up(value) + 4), f"{name} {show('wall_s', value)}", "soft")
    failed = sum(not row["success"] for row in rows)
    return (
        f"{len(walls)} episodes, median {show('wall_s', middle)}, p95 {show('wall_s', high)}, {failed} failed"
    )


def overhead(to: Canvas, summary: Mapping[str, Any]) -> str:
    """Mean seconds of each phase in one episode; the harness's own phases are highlighted."""
    count = summary["episodes"]
    means = {phase: summary["overhead_s"][phase] / count for phase in PHASES}
    across = linear([0.0, *means.values()], LEFT, RIGHT - 120, zero=True)
    for at, (phase, mean) in enumerate(means.items()):
        y = 46.0 + 30 * at
        tone = "s1" if phase in OWN else "s0"
        to.text((LEFT - 10, y + 15), phase, "soft", "end")
        to.rect((LEFT, y), (max(1.0, across(mean) - LEFT), 20), tone, f"{phase}: {show('mean_s', mean)}")
        to.text((max(LEFT + 1, across(mean)) + 8, y + 15), show("mean_s", mean), "ink")
    share = f"{100 * summary['overhead_share']:.1f} % of the time is spent in the harness itself"
    to.text((LEFT, 240), f"mean per episode; orange: {share}", "dim")
    return f"{share}; " + ", ".join(f"{name} {show('mean_s', mean)}" for name, mean in means.items())


def system(to: Canvas, samples: Sequence[Mapping[str, Any]]) -> str:
    """CPU, memory of the harness and disk writes over time, one above the other."""
    if len(samples) < 2:
        to.text((LEFT, 60), "too short a run for a time series", "dim")
        return "too short a run for a time series"
    times = [float(row["at_s"]) for row in samples]
    across = Scale(times[0], max(times[-1], times[0] + 1e-6), LEFT, RIGHT)
    panels = (
        ("cpu_percent", "CPU of the machine", "s0", "cpu_percent"),
        ("harness_rss_bytes", "memory of the harness", "s2", "harness_rss_bytes"),
        ("write_bytes", "written to disks since the start", "s3", "write_bytes"),
    )
    for at, (column, title, tone, metric) in enumerate(panels):
        top = 52.0 + 118 * at
        seen = [(float(row["at_s"]), float(row[column])) for row in samples]
        if column == "harness_rss_bytes":
            seen = [(x, y) for x, y in seen if y] or seen
        values = [y for _, y in seen]
        up = Scale(0.0, max(*values, 1.0) * 1.08, top + 84, top)
        _y_axis(to, up, unit_for(metric, values), count=3)
        to.text((LEFT, top - 6), title, "dim")
        to.path([(across(x), up(y)) for x, y in seen], tone)
    _x_axis(to, across, 52.0 + 118 * 2 + 84, "seconds since the harness began", Unit("s"))
    peak = max(float(row["harness_rss_bytes"]) for row in samples)
    return f"{len(samples)} samples over {times[-1]:.1f} s, peak memory {show('rss_bytes', peak)}"


def by_group(to: Canvas, groups: Sequence[Mapping[str, Any]]) -> str:
    """Median of each group as a bar, p95 as a mark."""
    left = 300.0
    across = linear([0.0, *(each["p95_wall_clock_s"] for each in groups)], left, RIGHT - 130, zero=True)
    for at, each in enumerate(groups):
        y = 44.0 + 26 * at
        name = f"{each['task_ref'].partition('@')[0]} × {each['agent'].rpartition(':')[2]}"
        middle, high = each["p50_wall_clock_s"], each["p95_wall_clock_s"]
        to.text((left - 10, y + 13), name if len(name) <= 38 else name[:37] + "…", "soft", "end")
        to.rect((left, y), (max(1.0, across(middle) - left), 16), "s0", f"{name}: {show('wall_s', middle)}")
        to.line((across(high), y - 2), (across(high), y + 18), "s1", 2.0)
        to.text((across(high) + 10, y + 13), f"{show('wall_s', middle)} / {show('wall_s', high)}", "ink")
    to.text((left, 60 + 26.0 * len(groups)), "bar: median; line: p95", "dim")
    return "; ".join(f"{each['agent']}: {show('wall_s', each['p50_wall_clock_s'])}" for each in groups)


def _y_axis(to: Canvas, up: Scale, unit: Unit, count: int = 5, right: float = RIGHT) -> None:
    shown = Scale(up.low * unit.factor, up.high * unit.factor, up.start, up.stop)
    for tick in ticks(shown, count):
        to.line((LEFT, shown(tick)), (right, shown(tick)), "grid")
        to.text((LEFT - 8, shown(tick) + 4), tick_text(tick, Unit(unit.symbol)), "soft", "end")


def _x_axis(to: Canvas, across: Scale, y: float, label: str, unit: Unit) -> None:
    to.line((across.start, y), (across.stop, y), "axis")
    for tick in ticks(across, 8):
        to.line((across(tick), y), (across(tick), y + 4), "axis")
        to.text((across(tick), y + 18), tick_text(tick, unit), "soft", "middle")
    to.text(((across.start + across.stop) / 2, y + 38), label, "dim", "middle")
