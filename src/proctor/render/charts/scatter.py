"""Cost against score: one mark per agent or task, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from proctor.quantity import metric_title, show, unit_for
from proctor.render.charts.distribution import WIDTH
from proctor.render.charts.scale import Scale, fitting
from proctor.render.charts.svg import document, line, mark, text, x_axis

MOST_NAMED = 12
"""Maximum number of marks with names; above it, names would overlap and only tooltips remain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One mark: cost, score as a share, and the ends of their intervals where they are known."""

    label: str
    cost: float
    score: float
    cost_ends: tuple[float, float] | None = None
    score_ends: tuple[float, float] | None = None
    series: int = 0
    after: int | None = None
    """Index of the place to compare this one with; a line joins them."""


def scatter(places: Sequence[Place], *, metric: str, title: str) -> str:
    """Cheaper is further left, better is further up."""
    costs = [place.cost for place in places]
    ends = [end for place in places for end in place.cost_ends or () if end > 0 or min(costs) <= 0]
    left, right, top, bottom = 58.0, WIDTH - 150.0, 16.0, 300.0
    across = fitting([*costs, *ends], left, right, decades=1.0)
    most = max(1.0, *(place.score for place in places))
    up = Scale(0.0, most, bottom, top)
    parts = []
    for fifth in range(6):
        y = up(most * fifth / 5)
        parts += [
            line(left, y, right, y, "grid"),
            text(left - 10, y + 4, f"{most * fifth * 20:.0f} %", "e num"),
        ]
    parts += x_axis(
        across, bottom, top, metric, unit_for(metric, costs), f"{metric_title(metric)} of a rollout"
    )
    for place in places:
        if place.after is not None:
            before = places[place.after]
            ends_at = across.clip(place.cost), up.clip(place.score)
            parts.append(line(across.clip(before.cost), up.clip(before.score), *ends_at, "guide"))
    for place in places:
        parts += _place(place, across, up, metric)
    parts += _names(places, across, up)
    told = "; ".join(
        f"{each.label}: {100 * each.score:.0f} % for {show(metric, each.cost)}" for each in places[:12]
    )
    return document(WIDTH, bottom + 42, title, told, parts)


def _place(place: Place, across: Scale, up: Scale, metric: str) -> list[str]:
    x, y = across.clip(place.cost), up.clip(place.score)
    parts = [f'<g class="c{place.series % 6}">']
    if place.score_ends:
        low, high = (up.clip(end) for end in place.score_ends)
        parts.append(line(x, low, x, high, "ci"))
    if place.cost_ends:
        low, high = (
            across.clip(end) if end > 0 or not across.log else across.start for end in place.cost_ends
        )
        parts.append(line(low, y, high, y, "ci"))
    told = f"{place.label}: {100 * place.score:.1f} %, {show(metric, place.cost)}"
    return [*parts, mark(x, y, place.series, told), "</g>"]


def _names(places: Sequence[Place], across: Scale, up: Scale) -> list[str]:
    """Names beside their marks, pushed apart where marks are close."""
    if len(places) > MOST_NAMED:
        return []
    parts: list[str] = []
    taken: list[tuple[float, float, float]] = []
    for place in sorted(places, key=lambda each: -each.score):
        x, y = across.clip(place.cost) + 9, up.clip(place.score) - 7
        label = place.label if len(place.label) <= 30 else place.label[:29] + "…"
        wide = 7.0 * len(label)
        while any(abs(y - other) < 14 and x < stop and start < x + wide for start, stop, other in taken):
            y += 14
        taken.append((x, x + wide, y))
        parts.append(f'<g class="c{place.series % 6}">{text(x, y, label, "f halo")}</g>')
    return parts
