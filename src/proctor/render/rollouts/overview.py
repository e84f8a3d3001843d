"""Tasks × agents at a glance when there are too many rollouts for a field each: one field per task."""

from __future__ import annotations

from html import escape

from proctor.render.charts.distribution import WIDTH
from proctor.render.charts.svg import document, text
from proctor.render.rollouts.matrix import HATCH
from proctor.verdicts.rollouts.scores import ArmScore, Rollouts
from proctor.verdicts.rollouts.table import Cell
from proctor.verdicts.rollouts.words import rate

MOST_FIELDS = 6_000
"""Rollouts that are drawn one by one."""
MOST_TOLD = 4_000
"""Maximum number of squares with tooltips."""
_PITCH = 18.0
_HEAD = 34.0


def is_large(run: Rollouts) -> bool:
    """Whether a field per rollout would be a carpet, and most of the page."""
    return sum(len(cell.trials) for arm in run.arms for cell in arm.cells) > MOST_FIELDS


def overview(run: Rollouts) -> str:
    """A block per agent, its tasks in rows of fields."""
    across = int(WIDTH // _PITCH)
    told = sum(len(arm.cells) for arm in run.arms) <= MOST_TOLD
    parts = [HATCH]
    y = 0.0
    for arm in run.arms:
        parts += _block(arm, across, y, told=told)
        y += _HEAD + _PITCH * -(-len(arm.cells) // across) + 14
    said = "; ".join(f"{arm.arm.label}: {_counts(arm)}" for arm in run.arms)
    return document(WIDTH, y, "Tasks", said, parts)


def _counts(arm: ArmScore) -> str:
    scored = [cell for cell in arm.cells if cell.rewards]
    always = sum(cell.passed == len(cell.rewards) for cell in scored)
    never = sum(cell.passed == 0 for cell in scored)
    sometimes = len(scored) - always - never
    return f"{always} of {len(arm.cells)} tasks always pass, {sometimes} sometimes, {never} never"


def _block(arm: ArmScore, across: int, top: float, *, told: bool) -> list[str]:
    label = arm.arm.label if len(arm.arm.label) <= 60 else arm.arm.label[:59] + "…"
    parts = [text(0, top + 13, label, "strong"), text(WIDTH, top + 13, _counts(arm), "e dim num")]
    ordered = sorted(arm.cells, key=lambda cell: -cell.passed / len(cell.rewards) if cell.rewards else 1.0)
    for at, cell in enumerate(ordered):
        x, y = at % across * _PITCH, top + _HEAD - 10 + at // across * _PITCH
        parts.append(_field(cell, x, y, told=told))
    return parts


def _field(cell: Cell, x: float, y: float, *, told: bool) -> str:
    box = f'x="{x:g}" y="{y:g}" width="{_PITCH - 2:g}" height="{_PITCH - 2:g}" rx="3"'
    scored = len(cell.rewards)
    if not scored:
        look = 'class="mx mx-error"'
    elif not cell.passed:
        look = 'class="mx mx-fail"'
    else:
        look = f'class="mx mx-pass" fill-opacity="{0.15 + 0.85 * cell.passed / scored:.2f}"'
    if not told:
        return f"<rect {box} {look}/>"
    share = f"{cell.passed} of {scored} passed, {rate(cell.passed / scored)}" if scored else "nothing scored"
    return f"<rect {box} {look}><title>{escape(f'{cell.row.label}: {share}')}</title></rect>"
