"""A run of rollouts in the terminal: the sentence, the matrix, a line per agent. Plain text, no rich."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from string import ascii_uppercase
from typing import TYPE_CHECKING

from proctor.cli.table import colour, print_table, printable, seconds

if TYPE_CHECKING:
    from proctor.model.outcome import Outcome
    from proctor.report.data import RunData
    from proctor.report.rollouts.scores import ArmScore, Rollouts

MOST_TASKS = 60
GREEN, RED, YELLOW, DIM = "32", "31", "33;1", "2"


def print_rollouts(data: RunData) -> None:
    """Everything a person wants to know when a run has ended."""
    from proctor.report.rollouts.scores import rollouts
    from proctor.report.story import headline

    run = rollouts(data)
    print(printable(headline(data)))
    print()
    _print_matrix(data, run)
    print()
    _print_arms(run)
    _print_notes(run)


def _print_matrix(data: RunData, run: Rollouts) -> None:
    from proctor.report.rollouts.table import is_error
    from proctor.report.rollouts.words import glyph, meaning, outcomes_in_order

    names = [printable(arm.arm.label) for arm in run.arms]
    left = max(len(printable(row.label)) for row in run.table.rows[:MOST_TASKS])
    widths = [max(len(name), _longest(arm)) for name, arm in zip(names, run.arms, strict=True)]
    if left + sum(width + 2 for width in widths) > _columns():
        for letter, name in zip(_letters(len(names)), names, strict=True):
            print(f"{letter} = {name}")
        names = _letters(len(names))
        widths = [max(len(name), _longest(arm)) for name, arm in zip(names, run.arms, strict=True)]
    print("  ".join([" " * left, *(name.ljust(width) for name, width in zip(names, widths, strict=True))]))
    for row in run.table.rows[:MOST_TASKS]:
        parts = [printable(row.label).ljust(left)]
        for arm, width in zip(run.arms, widths, strict=True):
            cell = run.table.cells.get((row, arm.arm))
            outcomes = [trial.outcome for trial in cell.trials] if cell else []
            parts.append("".join(map(coloured, outcomes)) + " " * (width - len(outcomes)))
        print("  ".join(parts).rstrip())
    if len(run.table.rows) > MOST_TASKS:
        print(f"… and {len(run.table.rows) - MOST_TASKS} more tasks; summary.md has them all")
    found = outcomes_in_order(list(data.trials))
    said = (f"{glyph(each)} {meaning(each)}{' (not scored)' if is_error(each) else ''}" for each in found)
    print("   ".join(said))


def _longest(arm: ArmScore) -> int:
    return max(len(cell.trials) for cell in arm.cells)


def _letters(count: int) -> list[str]:
    return [ascii_uppercase[at] if at < 26 else f"A{at}" for at in range(count)]


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 120
    except (OSError, ValueError):
        return 160


def coloured(outcome: Outcome | None) -> str:
    """A sign in its colour, where colours are wanted."""
    from proctor.report.rollouts.words import glyph

    sign = glyph(outcome)
    return f"\x1b[{tone(outcome)}m{sign}\x1b[0m" if colour() else sign


def tone(outcome: Outcome | None) -> str:
    """The colour of an outcome, as a terminal's number."""
    if outcome is None:
        return DIM
    if not outcome.scored:
        return YELLOW
    return GREEN if outcome.value in {"passed", "partial"} else RED


def _print_arms(run: Rollouts) -> None:
    from proctor.report.rollouts import scores
    from proctor.report.rollouts.words import denominators_text, rate, reward_text, span

    k = run.shared_k
    partial = any(arm.partial for arm in run.arms)
    headers = ["agent", "pass rate", "95 % interval", "errors as zero – best case"]
    headers += [f"pass@{k}", f"pass^{k}"] if k > 1 else []
    headers += ["mean reward"] if partial else []
    headers += ["flaky tasks", "errors", "median time"]
    rows: list[Sequence[object]] = []
    for arm in run.arms:
        score = arm.passes.excluded
        cells = [
            printable(arm.arm.label),
            rate(score.value if score else None),
            span(score.these_tasks if score else None),
            denominators_text(arm),
        ]
        cells += [rate(each) for each in arm.at(k)] if k > 1 else []
        cells += (
            [reward_text(arm.rewards.excluded.value if arm.rewards.excluded else None)] if partial else []
        )
        middle = scores.durations(arm.trials).get("p50")
        rows.append([*cells, f"{arm.flaky} of {len(arm.cells)}", str(arm.errors), seconds(middle)])
    print_table(headers, rows, right=range(1, len(headers)))


def _print_notes(run: Rollouts) -> None:
    from proctor.report.rollouts.words import plural

    for arm in run.arms:
        if arm.missing:
            print(f"{printable(arm.arm.label)}: {plural(arm.missing, 'rollout')} without a result")
