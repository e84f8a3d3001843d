"""Pictures of scores: pass rates with their intervals, pass@k over k, and the time of a trial."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from proctor.quantity import duration
from proctor.render.charts.distribution import WIDTH
from proctor.render.charts.scale import Scale
from proctor.render.charts.svg import document, line, mark, polyline, rect, text
from proctor.verdicts.rollouts.words import rate

MOST_ARMS = 24
MOST_CURVES = 6
_ROW = 30.0
Ends = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class RateBar:
    """One competitor's pass rate; None where nothing was scored."""

    label: str
    value: float | None
    near: Ends | None = None
    """The interval for these tasks."""
    wide: Ends | None = None
    """The interval for tasks like these."""
    as_zero: float | None = None
    best_case: float | None = None
    """With the errors as failures and as passes; None where there are no errors."""


@dataclass(frozen=True, slots=True)
class AtK:
    """One point of a curve."""

    k: int
    value: float
    ends: Ends | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One competitor's pass@k and pass^k, over the same tasks at every k."""

    label: str
    at_k: Sequence[AtK]
    hat_k: Sequence[AtK]


@dataclass(frozen=True, slots=True)
class PhaseBar:
    """One competitor's average trial: seconds of each phase."""

    label: str
    phases_s: Mapping[str, float]


def pass_rates(bars: Sequence[RateBar], claim: str) -> str:
    """A row per competitor: the pass rate and its interval for a claim in figures, both intervals as bars."""
    bars = [bar for bar in bars if bar.value is not None][:MOST_ARMS]
    left = min(300.0, 7.2 * max((len(bar.label) for bar in bars), default=0) + 18)
    right, top = WIDTH - 150.0, 12.0
    bottom = top + _ROW * len(bars)
    across = Scale(0.0, 1.0, left, right)
    parts = _percent_axis(across, top, bottom)
    for at, bar in enumerate(bars):
        parts += _rate_row(bar, across, top + _ROW * (at + 0.5), at)
    told = "; ".join(f"{bar.label} {_rate_text(bar)}" for bar in bars)
    return document(WIDTH, bottom + 24, "Pass rates", f"{told}. Intervals: 95 %, for {claim}", parts)


def _rate_text(bar: RateBar) -> str:
    return f"{rate(bar.value)} ({_span(bar.wide or bar.near)})"


def _span(ends: Ends | None) -> str:
    return f"{ends[0] * 100:.0f}–{ends[1] * 100:.0f} %" if ends else ""


def _percent_axis(across: Scale, top: float, bottom: float) -> list[str]:
    parts = []
    for tenth in range(0, 11, 2):
        x = across(tenth / 10)
        parts += [
            line(x, top, x, bottom, "grid"),
            text(x, bottom + 17, f"{tenth * 10}{' %' if tenth == 10 else ''}", "m num"),
        ]
    return parts


def _rate_row(bar: RateBar, across: Scale, y: float, at: int) -> list[str]:
    assert bar.value is not None
    label = bar.label if len(bar.label) <= 40 else bar.label[:39] + "…"
    parts = [text(across.start - 14, y + 4, label, "e"), f'<g class="c{at % 6}">']
    if bar.wide:
        parts.append(line(across(bar.wide[0]), y, across(bar.wide[1]), y, "thin k"))
    if bar.near:
        low, high = map(across, bar.near)
        parts.append(rect(low, y - 4, max(2.0, high - low), 8, "f soft", extra=' rx="4"'))
    for value, said in ((bar.as_zero, "errors as zero"), (bar.best_case, "best case")):
        if value is not None:
            title = f"<title>{said}: {rate(value)}</title>"
            parts.append(f'<path d="M{across(value):.1f} {y - 9:.1f}v18" class="k ends">{title}</path>')
    parts.append(mark(across(bar.value), y, at, f"{bar.label}: {_rate_text(bar)}"))
    parts.append("</g>")
    parts.append(text(across.stop + 16, y + 4, rate(bar.value), "strong num"))
    parts.append(text(across.stop + 66, y + 4, _span(bar.wide or bar.near), "dim num"))
    return parts


def at_k_curves(curves: Sequence[Curve]) -> str:
    """pass@k (solid) and pass^k (dashed): how much several tries help, and how much reliability costs."""
    most = max(curve.at_k[-1].k for curve in curves)
    left, top, bottom = 52.0, 16.0, 270.0
    right = WIDTH - 270.0
    across, up = Scale(1.0, float(most), left, right), Scale(0.0, 1.0, bottom, top)
    parts = []
    for fifth in range(6):
        y = up(fifth / 5)
        shown = f"{fifth * 20}{' %' if fifth == 5 else ''}"
        parts += [line(left, y, right, y, "grid"), text(left - 10, y + 4, shown, "e num")]
    named = -math.inf
    for k in sorted({at.k for curve in curves for at in curve.at_k}):
        if across(k) - named >= 22:
            parts.append(text(across(k), bottom + 18, str(k), "m num"))
            named = across(k)
    parts.append(text((left + right) / 2, bottom + 38, "k, rollouts", "m dim"))
    ends: list[tuple[float, int, str]] = []
    for number, curve in enumerate(curves):
        parts.append(f'<g class="c{number}">')
        if len(curves) == 1:
            parts.append(_band(curve.at_k, across, up))
        for kind, series in (("pass@k", curve.at_k), ("pass^k", curve.hat_k)):
            parts += _curve(kind, series, number, across, up)
            who = f" {curve.label}" if len(curves) > 1 else ""
            last = f"{kind.removesuffix('k')}{series[-1].k}"
            ends.append((up(series[-1].value), number, f"{last} {rate(series[-1].value)}{who}"))
        parts.append("</g>")
    parts += _ends(ends, right)
    told = "; ".join(
        f"{curve.label}: pass@{curve.at_k[-1].k} {rate(curve.at_k[-1].value)}, "
        f"pass^{curve.hat_k[-1].k} {rate(curve.hat_k[-1].value)}"
        for curve in curves
    )
    return document(WIDTH, bottom + 44, "pass@k and pass^k", told, parts)


def _curve(kind: str, series: Sequence[AtK], number: int, across: Scale, up: Scale) -> list[str]:
    css = "line k" if kind == "pass@k" else "line k dashed"
    parts = [polyline([(across(each.k), up(each.value)) for each in series], css)]
    for each in series:
        told = f"{kind.replace('k', str(each.k))}: {rate(each.value)}"
        if each.ends:
            told += f", 95 % interval {_span(each.ends)}"
        parts.append(mark(across(each.k), up(each.value), number, told))
    return parts


def _band(series: Sequence[AtK], across: Scale, up: Scale) -> str:
    known = [(across(each.k), *map(up, each.ends)) for each in series if each.ends]
    if len(known) < 2:
        return ""
    upper = [f"{x:.1f} {high:.1f}" for x, _, high in known]
    lower = [f"{x:.1f} {low:.1f}" for x, low, _ in reversed(known)]
    return f'<path d="M{"L".join([*upper, *lower])}z" class="band"/>'


def _ends(ends: list[tuple[float, int, str]], right: float) -> list[str]:
    """Each curve's name at its end, pushed apart where curves end together."""
    parts, last = [], -math.inf
    for y, number, label in sorted(ends):
        last = max(y, last + 15)
        shown = label if len(label) <= 38 else label[:37] + "…"
        parts.append(line(right + 6, y, right + 14, last, "grid"))
        parts.append(f'<g class="c{number}">{text(right + 18, last + 4, shown, "f")}</g>')
    return parts


def phase_bars(bars: Sequence[PhaseBar]) -> str:
    """The time of an average trial, a bar per competitor: agent and verifier, and nothing of the harness."""
    bars = bars[:MOST_ARMS]
    longest = max(sum(bar.phases_s.values()) for bar in bars)
    left = min(260.0, 7.2 * max(len(bar.label) for bar in bars) + 18)
    right, top = WIDTH - 90.0, 4.0
    names = list(dict.fromkeys(name for bar in bars for name in bar.phases_s))
    parts: list[str] = []
    for at, bar in enumerate(bars):
        y = top + at * _ROW
        x = left
        label = bar.label if len(bar.label) <= 34 else bar.label[:33] + "…"
        parts.append(text(left - 14, y + 16, label, "e"))
        for name, seconds in bar.phases_s.items():
            width = (right - left) * seconds / longest
            css = f"phase ph{names.index(name) % 8}"
            parts.append(rect(x, y + 4, width, 17, css, title=f"{name}: {duration(seconds)}"))
            if width > 8.0 * len(name):
                parts.append(text(x + width / 2, y + 16.5, name, "m onphase"))
            x += width
        parts.append(text(x + 8, y + 16, duration(sum(bar.phases_s.values())), "dim num"))
    told = "; ".join(
        f"{bar.label}: " + ", ".join(f"{name} {duration(mean)}" for name, mean in bar.phases_s.items())
        for bar in bars
    )
    return document(WIDTH, top + _ROW * len(bars), "Mean time by phase", told, parts)
