"""A run of experiments in the terminal: what was fixed, a row per point, and what to know before quoting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from proctor.cli.table import print_table, printable, say
from proctor.render.document.terminal import clean

if TYPE_CHECKING:
    from proctor.runfolder.read import RunData, TrialResult
    from proctor.verdicts.run.story import Group

MOST_POINTS = 30


def print_points(data: RunData) -> None:
    """The sentence, the table of each experiment and the warnings: what the page says, in the same words."""
    from proctor.runfolder.read import metric_of
    from proctor.verdicts.run.story import groups, headline

    say(clean(headline(data)))
    left = MOST_POINTS
    found = groups(data)
    for group in found:
        shown = group.trials[:left]
        if shown:
            if len(found) > 1:
                print(f"\n{printable(group.subject)}")
            _print_group(group, shown, metric_of(data.info.kind))
        left -= len(shown)
    if len(data.trials) > MOST_POINTS:
        print(f"… and {len(data.trials) - MOST_POINTS} more points; the report has them all")
    print_warnings(data)


def print_warnings(data: RunData) -> None:
    """What a reader has to know before quoting a number."""
    from proctor.verdicts.run.story import warnings

    for each in warnings(data):
        say(f"! {clean(each)}", indent="  ")


def _print_group(group: Group, shown: Sequence[TrialResult], metric: str) -> None:
    from proctor.verdicts.run.points import HEADERS, all_passed, numbers
    from proctor.verdicts.run.story import short

    fixed = ", ".join(f"{name}={short(value)}" for name, value in group.fixed.items())
    if fixed:
        say(f"fixed: {printable(fixed)}", indent="  ")
    names = list(group.varying) or ["experiment"]
    outcomes = [] if all_passed(group.trials) else ["outcome"]
    rows = []
    for trial in shown:
        params = trial.planned.params
        label = [printable(short(params.get(name))) for name in group.varying] or [printable(group.subject)]
        found = numbers(trial, metric)
        rows.append([*label, *([found.outcome] * len(outcomes)), *map(clean, found.cells)])
    first = len(names) + len(outcomes)
    figures = [at for at, name in enumerate(group.varying) if _is_number(shown, name)]
    print_table(
        [*map(printable, names), *outcomes, *HEADERS],
        rows,
        right=[*figures, *range(first, first + len(HEADERS))],
    )


def _is_number(trials: Sequence[TrialResult], name: str) -> bool:
    return all(isinstance(trial.planned.params.get(name), int | float) for trial in trials)
