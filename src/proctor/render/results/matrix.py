"""The matrix: tasks × rollouts, a sign per trial, or a sign per task where there are too many trials."""

from __future__ import annotations

from proctor.model.document import Column, Look, Matrix, Section, Sign
from proctor.model.outcome import Outcome
from proctor.quantity import plural
from proctor.render.results.cells import outcome_of, result_of, reward_cell, sign_of, time_cell
from proctor.runfolder.read import TrialResult
from proctor.verdicts.rollouts.scores import ArmScore, Rollouts
from proctor.verdicts.rollouts.table import Cell
from proctor.verdicts.rollouts.words import meaning, rate

MOST_ROWS = 300
BRIEF = 60
"""Tasks in a terminal."""
MOST_SIGNS = 6_000
"""Rollouts that are drawn one by one; of more, tasks are."""
MOST_TASKS = 2_000
"""Tasks of an agent that are drawn then."""
MOST_NOTED = 2_000
"""Signs that say what they stand for and lead there; of more, these words would be most of the page."""
_MATRIX = "One square per rollout, tasks that pass most often first; a square links to its trial's result."
_HATCHED = (
    " Hatched squares with a capital letter are errors not caused by the agent; they are not in the score."
)
_OVERVIEW = (
    "One square per task, sorted by pass rate; the more of it is filled, the more of its scored rollouts "
    "passed. Hatched: nothing was scored. All rollouts are in series.jsonl."
)


def matrix(run: Rollouts) -> Section:
    """Every rollout of the run, tasks that pass most often first."""
    if sum(arm.rollouts for arm in run.arms) > MOST_SIGNS:
        return Section(title="Every task", blocks=(_overview(run),), name="matrix")
    rows, arms = run.table.rows[:MOST_ROWS], run.arms
    noted = sum(arm.rollouts for arm in arms) <= MOST_NOTED
    cells = [[run.table.cells.get((row, arm.arm)) for arm in arms] for row in rows]
    block = Matrix(
        columns=tuple(Column(arm.arm.label, note=_arm_note(arm)) for arm in arms),
        rows=tuple(
            (row.label, tuple(_signs(cell, noted=noted) if cell else () for cell in line))
            for row, line in zip(rows, cells, strict=True)
        ),
        legend=_legend(run),
        caption=(_MATRIX if noted else _MATRIX.partition(";")[0] + ".")
        + _HATCHED * any(a.errors for a in arms),
        brief=BRIEF,
        total=len(run.table.rows),
        rest="task_results/ lists all of them",
    )
    return Section(title="Every rollout", blocks=(block,), name="matrix")


def _arm_note(arm: ArmScore) -> str:
    score = arm.passes.excluded
    said = f"{rate(score.value)} passed" if score else "nothing scored"
    return said + (f", {plural(arm.errors, 'error')}" if arm.errors else "")


def _legend(run: Rollouts) -> tuple[tuple[Sign, str], ...]:
    found = _in_order(run)
    return tuple((sign_of(each), meaning(each) + " (not scored)" * _is_error(each)) for each in found)


def _is_error(outcome: Outcome | None) -> bool:
    return outcome is not None and outcome.error


def _signs(cell: Cell, *, noted: bool) -> tuple[Sign, ...]:
    if not noted:
        return tuple(sign_of(*each) for each in zip(cell.outcomes, cell.worths, strict=True))
    return tuple(_noted(trial) for trial in cell.trials)


def _noted(trial: TrialResult) -> Sign:
    """One trial: its sign, what a pointer sees, and a link to its result."""
    record, label = trial.counted, trial.planned.label
    if record is None:
        return sign_of(None, tooltip=f"{label}: no result yet")
    said = f"{label}: {outcome_of(record.outcome).text}"
    said += f", reward {reward_cell(record.reward).text}" if record.reward is not None else ""
    said += f", {time_cell(took).text}" if (took := record.took_s) is not None else ""
    said += f", attempt {record.number}" if len(trial.attempts) > 1 else ""
    if failure := record.failure:
        said += f"\n{failure.phase}: {failure.type}: {failure.message[:300]}"
    return sign_of(record.outcome, record.reward, said, result_of(trial.planned, record.number))


def _overview(run: Rollouts) -> Matrix:
    """A sign per task where there are too many rollouts for a sign each."""
    rows = []
    for arm in run.arms:
        ordered = sorted(
            arm.cells, key=lambda cell: -cell.passed / len(cell.rewards) if cell.rewards else 1.0
        )
        noted = len(ordered) <= MOST_NOTED
        rows.append((arm.arm.label, (tuple(_task_sign(cell, noted=noted) for cell in ordered[:MOST_TASKS]),)))
    signs: tuple[tuple[str, Look, str], ...] = (
        ("✓", "pass", "always passes"),
        ("◐", "part", "passes sometimes"),
        ("✗", "fail", "never passes"),
        ("–", "error", "nothing scored"),
    )
    return Matrix(
        columns=(Column("", note="; ".join(f"{arm.arm.label}: {_counts(arm)}" for arm in run.arms)),),
        rows=tuple(rows),
        legend=tuple((Sign(text=text, look=each), said) for text, each, said in signs),
        counted=False,
        caption=_OVERVIEW,
    )


def _counts(arm: ArmScore) -> str:
    scored = [cell for cell in arm.cells if cell.rewards]
    always = sum(cell.passed == len(cell.rewards) for cell in scored)
    never = sum(cell.passed == 0 for cell in scored)
    sometimes = len(scored) - always - never
    return f"{always} of {len(arm.cells)} tasks always pass, {sometimes} sometimes, {never} never"


def _task_sign(cell: Cell, *, noted: bool) -> Sign:
    scored = len(cell.rewards)
    share = f"{cell.passed} of {scored} passed, {rate(cell.passed / scored)}" if scored else "nothing scored"
    tooltip = f"{cell.row.label}: {share}" if noted else ""
    if not scored:
        return Sign(text="–", look="error", tooltip=tooltip)
    if cell.passed in {0, scored}:
        return Sign(text="✓" if cell.passed else "✗", look="pass" if cell.passed else "fail", tooltip=tooltip)
    return Sign(text="◐", look="part", tooltip=tooltip, level=cell.passed / scored)


def _in_order(run: Rollouts) -> list[Outcome | None]:
    """The outcomes that occur, as a legend lists them: errors last."""
    found = {outcome for arm in run.arms for outcome in arm.use.outcomes}
    known: list[Outcome | None] = [*Outcome, None]
    return sorted((each for each in known if each in found), key=_is_error)
