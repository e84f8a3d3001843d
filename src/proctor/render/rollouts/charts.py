"""Pictures of scores: pass rates with their intervals, pass@k over k, and the time of a trial."""

from __future__ import annotations

import math
from collections.abc import Sequence

from proctor.analysis.claim import Claim
from proctor.analysis.estimate import AtK
from proctor.quantity import duration
from proctor.render.charts.distribution import WIDTH
from proctor.render.charts.scale import Scale
from proctor.render.charts.svg import document, line, mark, polyline, rect, text
from proctor.verdicts.rollouts.scores import ArmScore, means, work
from proctor.verdicts.rollouts.words import rate, score_text, span

MOST_ARMS = 24
MOST_CURVES = 6
_ROW = 30.0


def pass_rates(arms: Sequence[ArmScore], claim: Claim) -> str:
    """A row per arm: the pass rate and its interval for a claim in figures, the intervals of both as bars."""
    arms = [arm for arm in arms if arm.passes.excluded][:MOST_ARMS]
    left = min(300.0, 7.2 * max((len(arm.arm.label) for arm in arms), default=0) + 18)
    right, top = WIDTH - 150.0, 12.0
    bottom = top + _ROW * len(arms)
    across = Scale(0.0, 1.0, left, right)
    parts = _percent_axis(across, top, bottom)
    for at, arm in enumerate(arms):
        parts += _rate_row(arm, claim, across, top + _ROW * (at + 0.5), at)
    told = "; ".join(f"{arm.arm.label} {score_text(arm.passes.excluded, claim)}" for arm in arms)
    told += f". Intervals: 95 %, for {claim}"
    return document(WIDTH, bottom + 24, "Pass rates", told, parts)


def _percent_axis(across: Scale, top: float, bottom: float) -> list[str]:
    parts = []
    for tenth in range(0, 11, 2):
        x = across(tenth / 10)
        parts += [
            line(x, top, x, bottom, "grid"),
            text(x, bottom + 17, f"{tenth * 10}{' %' if tenth == 10 else ''}", "m num"),
        ]
    return parts


def _rate_row(arm: ArmScore, claim: Claim, across: Scale, y: float, at: int) -> list[str]:
    score = arm.passes.excluded
    assert score is not None
    label = arm.arm.label if len(arm.arm.label) <= 40 else arm.arm.label[:39] + "…"
    parts = [text(across.start - 14, y + 4, label, "e"), f'<g class="c{at % 6}">']
    wide = score.tasks_like_these
    if wide:
        parts.append(line(across(wide.low), y, across(wide.high), y, "thin k"))
    low, high = across(score.these_tasks.low), across(score.these_tasks.high)
    parts.append(rect(low, y - 4, max(2.0, high - low), 8, "f soft", extra=' rx="4"'))
    if arm.errors and arm.passes.as_zero and arm.passes.best_case:
        for each, said in ((arm.passes.as_zero, "errors as zero"), (arm.passes.best_case, "best case")):
            x = across(each.value)
            title = f"<title>{said}: {rate(each.value)}</title>"
            parts.append(f'<path d="M{x:.1f} {y - 9:.1f}v18" class="k ends">{title}</path>')
    parts.append(
        mark(across(score.value), y, at, f"{arm.arm.label}: {score_text(score, claim)}, for {claim}")
    )
    parts.append("</g>")
    parts.append(text(across.stop + 16, y + 4, rate(score.value), "strong num"))
    parts.append(text(across.stop + 66, y + 4, span(score.interval(claim)), "dim num"))
    return parts


def at_k_curves(arms: Sequence[ArmScore]) -> str:
    """pass@k (solid) and pass^k (dashed): how much several tries help, and how much reliability costs."""
    arms = [arm for arm in arms if len(arm.curve) > 1][:MOST_CURVES]
    most = max(arm.common_k for arm in arms)
    left, top, bottom = 52.0, 16.0, 270.0
    right = WIDTH - 270.0
    across, up = Scale(1.0, float(most), left, right), Scale(0.0, 1.0, bottom, top)
    parts = []
    for fifth in range(6):
        y = up(fifth / 5)
        shown = f"{fifth * 20}{' %' if fifth == 5 else ''}"
        parts += [line(left, y, right, y, "grid"), text(left - 10, y + 4, shown, "e num")]
    named = -math.inf
    for k in sorted({at.k for arm in arms for at, _ in arm.curve}):
        if across(k) - named >= 22:
            parts.append(text(across(k), bottom + 18, str(k), "m num"))
            named = across(k)
    parts.append(text((left + right) / 2, bottom + 38, "k, rollouts", "m dim"))
    ends: list[tuple[float, int, str]] = []
    for number, arm in enumerate(arms):
        parts.append(f'<g class="c{number}">')
        at_k, hat_k = [at for at, _ in arm.curve], [hat for _, hat in arm.curve]
        if len(arms) == 1:
            parts.append(_band(at_k, across, up))
        for kind, series in (("pass@k", at_k), ("pass^k", hat_k)):
            parts += _curve(kind, series, number, across, up)
            who = f" {arm.arm.label}" if len(arms) > 1 else ""
            last = f"{kind.removesuffix('k')}{series[-1].k}"
            ends.append((up(series[-1].value), number, f"{last} {rate(series[-1].value)}{who}"))
        parts.append("</g>")
    parts += _ends(ends, right)
    told = "; ".join(
        f"{arm.arm.label}: pass@{arm.common_k} {rate(arm.curve[-1][0].value)}, "
        f"pass^{arm.common_k} {rate(arm.curve[-1][1].value)}"
        for arm in arms
    )
    return document(WIDTH, bottom + 44, "pass@k and pass^k", told, parts)


def _curve(kind: str, series: Sequence[AtK], number: int, across: Scale, up: Scale) -> list[str]:
    css = "line k" if kind == "pass@k" else "line k dashed"
    parts = [polyline([(across(each.k), up(each.value)) for each in series], css)]
    for each in series:
        told = f"{kind.replace('k', str(each.k))}: {rate(each.value)}"
        if each.interval:
            told += f", 95 % interval {span(each.interval)}"
        parts.append(mark(across(each.k), up(each.value), number, told))
    return parts


def _band(series: Sequence[AtK], across: Scale, up: Scale) -> str:
    known = [each for each in series if each.interval]
    if len(known) < 2:
        return ""
    upper = [f"{across(each.k):.1f} {up(each.interval.high):.1f}" for each in known if each.interval]
    lower = [f"{across(each.k):.1f} {up(each.interval.low):.1f}" for each in reversed(known) if each.interval]
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


def phase_bars(arms: Sequence[ArmScore]) -> str:
    """The time of an average trial, a bar per arm: agent and verifier, and nothing of the harness."""
    shown = [(arm, means(work(arm.trials))) for arm in arms]
    shown = [(arm, spent) for arm, spent in shown if sum(spent.values()) > 0][:MOST_ARMS]
    if not shown:
        return ""
    longest = max(sum(spent.values()) for _, spent in shown)
    left = min(260.0, 7.2 * max(len(arm.arm.label) for arm, _ in shown) + 18)
    right, top = WIDTH - 90.0, 4.0
    names = list(dict.fromkeys(name for _, spent in shown for name in spent))
    parts: list[str] = []
    for at, (arm, spent) in enumerate(shown):
        y = top + at * _ROW
        x = left
        label = arm.arm.label if len(arm.arm.label) <= 34 else arm.arm.label[:33] + "…"
        parts.append(text(left - 14, y + 16, label, "e"))
        for name, seconds in spent.items():
            width = (right - left) * seconds / longest
            css = f"phase ph{names.index(name) % 8}"
            parts.append(rect(x, y + 4, width, 17, css, title=f"{name}: {duration(seconds)}"))
            if width > 8.0 * len(name):
                parts.append(text(x + width / 2, y + 16.5, name, "m onphase"))
            x += width
        parts.append(text(x + 8, y + 16, duration(sum(spent.values())), "dim num"))
    told = "; ".join(
        f"{arm.arm.label}: " + ", ".join(f"{name} {duration(mean)}" for name, mean in spent.items())
        for arm, spent in shown
    )
    return document(WIDTH, top + _ROW * len(shown), "Mean time by phase", told, parts)
