"""Rules about tasks that measure a program: what would let its author win without being fast."""

from __future__ import annotations

import re
from collections.abc import Iterator

from proctor.tasks.lint.problems import Problem, ReviewedTask, line_with

_TABLE = re.compile(r"\[verifier\.performance\]")
_SEED = "PROCTOR_SEED"


def performance(subject: ReviewedTask) -> Iterator[Problem]:
    """`[verifier.performance]`; that it has a reference is checked when the task is read."""
    spec = subject.task.verifier.performance
    if spec is None:
        return
    file = subject.task.path / "task.toml"
    found = line_with(_TABLE, subject.text(file))
    place = f"{file}:{found[0]}" if found else str(file)
    if not spec.inputs and _SEED not in spec.command:
        yield Problem(
            "warning",
            place,
            "every round has the same input, so a program may hold its answer",
            hint=f"make the input of a round from {_SEED}: with 'inputs', or in the command",
        )
    if spec.metric == "custom" and "/tests/" not in spec.command:
        yield Problem(
            "warning",
            place,
            "the number comes from the measured program itself, which may write what it likes",
            hint="let a script of tests/ run the program and write the number",
        )
