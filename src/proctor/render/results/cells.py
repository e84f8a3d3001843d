"""Cells that results have in common: times, amounts, shares, rewards, outcomes by glyph and look, links."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from proctor.analysis.interval import Interval
from proctor.model.document import Cell, Column, Look, Sign, Table, Tone
from proctor.model.outcome import Blame, Outcome, is_pass
from proctor.model.place import attempt_folder, trial_folder
from proctor.model.plan import PlannedTrial
from proctor.quantity import MISSING, duration, metric_title, number, show, significant
from proctor.runfolder.read import TrialResult
from proctor.verdicts.rollouts.words import rate, span

if TYPE_CHECKING:
    from proctor.verdicts.compare.results import ResultSet

PENDING = "·"
GLYPHS = {
    Outcome.PASSED: "✓",
    Outcome.PARTIAL: "◐",
    Outcome.FAILED: "✗",
    Outcome.AGENT_TIMEOUT: "t",
    Outcome.AGENT_ERROR: "e",
    Outcome.BUDGET_EXHAUSTED: "b",
    Outcome.VERIFIER_ERROR: "V",
    Outcome.VERIFIER_TIMEOUT: "V",
    Outcome.REWARD_INVALID: "R",
    Outcome.SANDBOX_ERROR: "S",
    Outcome.IMAGE_ERROR: "I",
    Outcome.WORKER_LOST: "L",
    Outcome.STARVED: "M",
    Outcome.PROVIDER_ERROR: "P",
    Outcome.CANCELLED: "–",
    Outcome.SKIPPED: "–",
    Outcome.INVALID: "?",
}
"""One column each. Lower case: caused by the agent. Capitals: an error not caused by the agent."""


def time_cell(seconds: float | None, note: str = "") -> Cell:
    """How long something took."""
    return Cell(text=duration(seconds), value=seconds, note=note)


def amount_cell(metric: str, value: float | None, note: str = "") -> Cell:
    """A value of a metric, in the unit that fits."""
    return Cell(text=show(metric, value), value=value, note=note)


def rate_cell(value: float | None, *, strong: bool = False) -> Cell:
    """A share of rollouts."""
    return Cell(text=rate(value), value=value, strong=strong)


def share_cell(found: Interval | None) -> Cell:
    """An interval of shares."""
    low, high = (found.low, found.high) if found else (None, None)
    return Cell(text=span(found), low=low, high=high)


def reward_cell(value: object) -> Cell:
    """A reward or another score."""
    known = number(value)
    return Cell(text=reward_text(known), value=known)


def reward_text(reward: float | None) -> str:
    """A reward with no more digits than it needs."""
    return MISSING if reward is None else significant(reward, 3) if 0 < reward < 1 else f"{reward:g}"


def outcome_cell(trial: TrialResult) -> Cell:
    """How a trial ended, and after how many attempts."""
    tries = f"{len(trial.attempts)} attempts" if len(trial.attempts) > 1 else ""
    return outcome_of(trial.counted.outcome if trial.counted else None, tries)


def outcome_of(ended: Outcome | None, note: str = "") -> Cell:
    """An outcome as a badge. Red is for what somebody has to repair, or an agent did not do."""
    if ended is None:
        return Cell(text="no result", badge=True, note=note)
    tone: Tone = "bad" if ended.blame in {Blame.AGENT, Blame.TASK, Blame.AUTHOR} else "warn"
    known: dict[Outcome, Tone] = {Outcome.PASSED: "good", Outcome.PARTIAL: "warn"}
    text = ended.value.replace("_", " ")
    return Cell(text=text, tone=known.get(ended, tone), badge=True, note=note)


def glyph(outcome: Outcome | None) -> str:
    """One character for how a trial ended."""
    return GLYPHS[outcome] if outcome else PENDING


def look(outcome: Outcome | None, reward: float | None = None) -> Look:
    """Which of six looks a trial has in a matrix: what passed looks so, however it ended."""
    if is_pass(outcome, reward):
        return "pass"
    if outcome is None or (not outcome.scored and not outcome.error):
        return "none"
    if outcome.error:
        return "error"
    known: dict[Outcome, Look] = {
        Outcome.PARTIAL: "part",
        Outcome.FAILED: "fail",
    }
    return known.get(outcome, "own")


def sign_of(ended: Outcome | None, reward: float | None = None, tooltip: str = "", href: str = "") -> Sign:
    """An outcome in a matrix; a partial one is filled as far as it was rewarded."""
    level = min(max(0.5 if reward is None else reward, 0.12), 0.88) if ended is Outcome.PARTIAL else None
    shown: Look = look(ended, reward)
    return Sign(text=glyph(ended), look=shown, level=level, tooltip=tooltip, href=href)


def result_of(planned: PlannedTrial, attempt: int) -> str:
    """Where the result of an attempt is, inside the run folder."""
    if planned.kind == "task":
        return f"{attempt_folder(planned, attempt)}/evaluation_results.json"
    return f"{trial_folder(planned)}/result.json"


def linked(text: str, trial: TrialResult) -> Cell:
    """A text that leads to the trial's result, if there is one."""
    return Cell(text=text, href=result_of(trial.planned, trial.counted.number) if trial.counted else "")


def columns(
    first: str, rows: Mapping[str, Mapping[str, Cell | str]], *, title: str = "", caption: str = ""
) -> list[Table]:
    """A row per agent, a column for each quantity that one of them has."""
    names = list(dict.fromkeys(name for each in rows.values() for name in each))
    if not names:
        return []
    heads = (Column(metric_title(name), "number") for name in names)
    cells = tuple((label, *(each.get(name, MISSING) for name in names)) for label, each in rows.items())
    return [Table(columns=(Column(first, "prose"), *heads), rows=cells, title=title, caption=caption)]


def address(run: str, file: str, page: Path) -> str:
    """From the folder of a page to a file of a run; empty when there is no such file."""
    found = Path(run, file)
    return os.path.relpath(found, page) if run and found.is_file() else ""


def run_link(results: ResultSet, folder: Path, text: str = "") -> Cell:
    """A run or file by its name, which leads to its report."""
    return Cell(text=text or results.label, href=address(results.folder, "report.html", folder))


def trial_link(results: ResultSet, trial: str, folder: Path) -> str:
    """The address of a trial's result; empty when there is none."""
    if not trial:
        return ""
    places = (f"{trial}/result.json", f"{trial}/evaluation_results.json")
    return next(filter(None, (address(results.folder, place, folder) for place in places)), "")
