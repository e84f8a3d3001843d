"""Findings about tasks for the terminal: the worst first, and what many tasks share said once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from proctor.cli.table import bold, printable
from proctor.quantity import plural
from proctor.tasks.lint.problems import LEVELS, Level, Problem, TaskReport

_SHOWN = 3
"""Places of a shared finding that are shown."""
_NOUNS: dict[Level, str] = {"error": "Errors", "warning": "Warnings", "hint": "Hints"}


def print_findings(reports: Sequence[TaskReport], folder: Path, *, every: bool = False) -> None:
    """Every finding once, with the places that have it; then the counts."""
    for level in LEVELS:
        groups = _groups(reports, level)
        if groups:
            print(bold(_NOUNS[level]))
        for message, found in groups.items():
            _print_group(message, found, every=every)
    for line in (*_not_shown(reports, folder), _counts(reports)):
        print(line)


def _groups(reports: Sequence[TaskReport], level: Level) -> dict[str, list[tuple[TaskReport, Problem]]]:
    """Message → who has it; what most have comes first."""
    found: dict[str, list[tuple[TaskReport, Problem]]] = {}
    for report in reports:
        for finding in report.of(level):
            found.setdefault(finding.message, []).append((report, finding))
    return dict(sorted(found.items(), key=lambda each: -len(each[1])))


def _print_group(message: str, found: Sequence[tuple[TaskReport, Problem]], *, every: bool) -> None:
    hints = {finding.hint for _, finding in found}
    hint = f"; {found[0][1].hint}" if len(hints) == 1 and found[0][1].hint else ""
    print(f"  {printable(message + hint)}")
    shown = found if every or len(found) <= _SHOWN + 1 else found[:_SHOWN]
    for _, finding in shown:
        own = [finding.detail, finding.hint if len(hints) > 1 else ""]
        print(f"    {printable('; '.join([finding.place, *filter(None, own)]).replace('; ', ': ', 1))}")
    rest = {str(report.path) for report, _ in found} - {str(report.path) for report, _ in shown}
    if rest:
        print(f"    … and {plural(len(rest), 'more task')}")


def _not_shown(reports: Sequence[TaskReport], folder: Path) -> list[str]:
    """What no run here has proven, in one line for all tasks."""
    oracle = sum("oracle" in report.unproven for report in reports)
    nop = sum("nop" in report.unproven for report in reports)
    if not oracle and not nop:
        return []
    if len(reports) == 1:
        said = [*["the oracle passes"] * bool(oracle), *["doing nothing fails"] * bool(nop)]
        what = " and that ".join(said)
    else:
        parts = [
            *[f"the oracle passes ({oracle} of {len(reports)} tasks)"] * bool(oracle),
            *[f"doing nothing fails ({nop} of {len(reports)})"] * bool(nop),
        ]
        what = ", nor that ".join(parts)
    return [printable(f"Not proven here: that {what}. `proctor vet {folder}` finds out")]


def _counts(reports: Sequence[TaskReport]) -> str:
    errors = sum(bool(report.errors) for report in reports)
    warned = sum(bool(report.of("warning")) and not report.errors for report in reports)
    fine = len(reports) - errors - warned
    return f"{plural(len(reports), 'task')}: {errors} with errors, {warned} with warnings, {fine} without"
