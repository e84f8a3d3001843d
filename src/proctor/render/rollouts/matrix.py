"""The matrix: tasks × rollouts, a field per trial. Shape says what colour says; errors are apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from urllib.parse import quote

from proctor.model.outcome import Outcome
from proctor.model.place import attempt_folder
from proctor.quantity import duration
from proctor.render.charts.distribution import WIDTH
from proctor.render.charts.svg import document, text
from proctor.runfolder.read import TrialResult
from proctor.verdicts.rollouts.scores import ArmScore, Rollouts
from proctor.verdicts.rollouts.table import Cell, Row, is_error
from proctor.verdicts.rollouts.words import glyph, meaning, outcomes_in_order, rate, reward_text

MOST_ROWS = 300
MOST_TOLD = 4_000
"""Maximum number of squares with tooltips; above it, tooltips would be most of the page."""
_HEAD = 46.0
_COUNT = 52.0
_BETWEEN = 20.0
HATCH = (
    '<defs><pattern id="mx-hatch" width="5" height="5" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><rect width="5" height="5" class="mx-under"/>'
    '<line x1="0" y1="0" x2="0" y2="5" class="mx-lines"/></pattern></defs>'
)


@dataclass(frozen=True, slots=True)
class _Grid:
    """How large everything is."""

    left: float
    pitch: float
    told: bool

    @property
    def size(self) -> float:
        """A field's side."""
        return self.pitch - (3 if self.pitch >= 14 else 1.5)

    def width(self, arm: ArmScore) -> float:
        """What one arm's block needs."""
        return max(self.pitch * _longest(arm), 84.0) + _COUNT


def _longest(arm: ArmScore) -> int:
    return max(len(cell.trials) for cell in arm.cells)


def matrix(run: Rollouts) -> str:
    """The whole picture; arms that do not fit beside each other go below."""
    rows = run.table.rows[:MOST_ROWS]
    trials = sum(len(arm.trials) for arm in run.arms)
    left = min(250.0, 7.2 * max(len(row.label) for row in rows) + 14)
    widest = max(_longest(arm) for arm in run.arms)
    pitch = min(26.0, max(8.0, (WIDTH - left - _COUNT) / widest))
    grid = _Grid(left, pitch, trials <= MOST_TOLD)
    parts, y = [HATCH], 0.0
    for band in _bands(run.arms, grid):
        parts += _band(band, rows, grid, y)
        y += _HEAD + pitch * len(rows) + _BETWEEN
    description = "; ".join(
        f"{arm.arm.label}: {arm.passed} of {arm.scored} scored rollouts passed, {arm.errors} errors"
        for arm in run.arms
    )
    return document(WIDTH, y - _BETWEEN + 4, "Tasks and rollouts", description, parts)


def _bands(arms: Sequence[ArmScore], grid: _Grid) -> list[list[ArmScore]]:
    bands: list[list[ArmScore]] = [[]]
    used = grid.left
    for arm in arms:
        if bands[-1] and used + grid.width(arm) > WIDTH:
            bands.append([])
            used = grid.left
        bands[-1].append(arm)
        used += grid.width(arm)
    return bands


def _band(band: Sequence[ArmScore], rows: Sequence[Row], grid: _Grid, top: float) -> list[str]:
    parts = []
    first = top + _HEAD
    for at, row in enumerate(rows):
        y = first + at * grid.pitch
        parts.append(text(grid.left - 12, y + grid.size / 2 + 4, _cut(row.label, grid.left), "e"))
    x = grid.left
    for arm in band:
        parts += _header(arm, grid, x, first)
        by_row = {cell.row: cell for cell in arm.cells}
        for at, row in enumerate(rows):
            if row in by_row:
                parts += _cell(by_row[row], grid, x, first + at * grid.pitch)
        x += grid.width(arm)
    return parts


def _header(arm: ArmScore, grid: _Grid, x: float, y: float) -> list[str]:
    score = arm.passes.excluded
    shown = rate(score.value) if score else "nothing scored"
    name = _cut(arm.arm.label, grid.width(arm) - 8)
    said = f"{shown} passed" if score else shown
    errors = f", {arm.errors} error{'s' * (arm.errors != 1)}" if arm.errors else ""
    return [
        f"<g><title>{escape(arm.arm.label)}</title>{text(x, y - 27, name, 'strong')}</g>",
        text(x, y - 11, said + errors, "dim num"),
    ]


def _cell(cell: Cell, grid: _Grid, x: float, y: float) -> list[str]:
    parts = [_field(trial, grid, x + at * grid.pitch, y) for at, trial in enumerate(cell.trials)]
    scored = len(cell.rewards)
    count = f"{cell.passed}/{scored}" if scored else "–"
    place = x + max(grid.pitch * len(cell.trials), 24.0) + 6
    if grid.pitch >= 11:
        parts.append(text(place, y + grid.size / 2 + 4, count, "dim num"))
    return parts


def _field(trial: TrialResult, grid: _Grid, x: float, y: float) -> str:
    """One trial: a square, its sign, what a pointer sees, and a link to its result."""
    size = grid.size
    inside = square(trial.outcome, x, y, size, reward=trial.counted.reward if trial.counted else None)
    if not grid.told:
        return inside
    number = trial.counted.number if trial.counted else 1
    told = f"<title>{escape(_told(trial))}</title>"
    if trial.counted is None:
        return f"<g>{told}{inside}</g>"
    place = f"{attempt_folder(trial.planned, number)}/evaluation_results.json"
    return f'<a href="{escape(quote(place))}">{told}{inside}</a>'


def square(outcome: Outcome | None, x: float, y: float, size: float, *, reward: float | None = None) -> str:
    """The field of one outcome; the legend draws the same."""
    radius = min(4.0, size / 5)
    box = f'x="{x:.1f}" y="{y:.1f}" width="{size:.1f}" height="{size:.1f}" rx="{radius:.1f}"'
    kind = css_class(outcome)
    parts = [f'<rect {box} class="mx {kind}"/>']
    if outcome is Outcome.PARTIAL:
        part = min(max(reward if reward is not None else 0.5, 0.12), 0.88) * size
        level = f'x="{x:.1f}" y="{y + size - part:.1f}" width="{size:.1f}" height="{part:.1f}"'
        parts.append(f'<rect {level} rx="{radius:.1f}" class="mx-level"/>')
    if size >= 9:
        parts.append(_sign(outcome, x, y, size))
    return "".join(parts)


def css_class(outcome: Outcome | None) -> str:
    """Which of six looks an outcome has."""
    if outcome is None or (not outcome.scored and not is_error(outcome)):
        return "mx-none"
    if is_error(outcome):
        return "mx-error"
    return {Outcome.PASSED: "mx-pass", Outcome.PARTIAL: "mx-part", Outcome.FAILED: "mx-fail"}.get(
        outcome, "mx-agent"
    )


def _sign(outcome: Outcome | None, x: float, y: float, size: float) -> str:
    """A tick and a cross are drawn, so that no font can lack them; the rest are letters."""

    def at(*points: tuple[float, float]) -> str:
        return "L".join(f"{x + px * size:.1f} {y + py * size:.1f}" for px, py in points)

    if outcome is Outcome.PASSED:
        return f'<path d="M{at((0.26, 0.53), (0.43, 0.7), (0.75, 0.32))}" class="mx-sign mx-on"/>'
    if outcome is Outcome.FAILED:
        path = f"M{at((0.31, 0.31), (0.69, 0.69))}M{at((0.69, 0.31), (0.31, 0.69))}"
        return f'<path d="{path}" class="mx-sign mx-cross"/>'
    if outcome is Outcome.PARTIAL:
        return ""
    if outcome is None:
        return f'<path d="M{x + size / 2:.1f} {y + size / 2:.1f}h0" class="mx-sign mx-dot"/>'
    css = "mx-letter m mx-warn" if is_error(outcome) else "mx-letter m mx-own" if outcome.scored else "m dim"
    letter = text(x + size / 2, y + size / 2 + size * 0.21, glyph(outcome), css)
    return letter.replace("<text ", f'<text style="font-size:{size * 0.6:.1f}px" ', 1)


def _told(trial: TrialResult) -> str:
    record = trial.counted
    if record is None:
        return f"{trial.planned.label}: no result yet"
    said = f"{trial.planned.label}: {meaning(record.outcome)}"
    if record.reward is not None:
        said += f", reward {reward_text(record.reward)}"
    if record.took_s is not None:
        said += f", {duration(record.took_s)}"
    if len(trial.attempts) > 1:
        said += f", attempt {record.number}"
    if record.failure:
        said += f"\n{record.failure.phase}: {record.failure.type}: {record.failure.message[:300]}"
    return said


def legend(trials: list[TrialResult]) -> str:
    """What each sign means: only those that occur, errors last."""
    found = outcomes_in_order(trials)
    ordered = [*(each for each in found if not is_error(each)), *(each for each in found if is_error(each))]
    items = []
    for outcome in ordered:
        drawn = f'<svg class="chart" viewBox="0 0 16 16" aria-hidden="true">{square(outcome, 1, 1, 14)}</svg>'
        apart = " <small>not scored</small>" if is_error(outcome) else ""
        items.append(f"<li>{drawn}{escape(meaning(outcome))}{apart}</li>")
    return f'<ul class="legend">{"".join(items)}</ul>'


def _cut(label: str, width: float) -> str:
    room = max(4, int(width / 7.0))
    return label if len(label) <= room else label[: room - 1] + "…"
