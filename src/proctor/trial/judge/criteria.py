"""What a judge scores: the rubrics of the spec, else the task's own, else whether the task was done."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from proctor.errors import TaskError
from proctor.model.spec import Criterion, JudgeSpec
from proctor.model.task import Task
from proctor.spec.node import nearest

WHOLE = Criterion(
    id="task", criterion="The work does all that the instruction asks for, correctly, and nothing else."
)
"""For tasks without rubrics. The tests score the same thing, so both can be compared."""
_KEYS = ("id", "criterion", "weight")


def criteria_of(task: Task, judge: JudgeSpec) -> tuple[Criterion, ...]:
    """What to score about a task; TaskError when its own rubrics cannot be read."""
    if judge.rubrics:
        return judge.rubrics
    own = [
        Criterion(id=each.id, criterion=each.description or each.id, weight=each.weight)
        for each in task.rubrics
        if each.weight
    ]
    return tuple(own or _from_metadata(task)) or (WHOLE,)


def check_scored(task: Task, judge: JudgeSpec | None) -> None:
    """TaskError for a task that neither tests nor the judge would give a reward."""
    if task.needs_judge and (judge is None or judge.reward != "judge"):
        raise TaskError(
            f"{task.path}: no rubric that counts has a test script, so only a judge can score this task: "
            'add judge = { model = "…", reward = "judge" } to the spec\'s entry'
        )


def _from_metadata(task: Task) -> Sequence[Criterion]:
    """`rubrics` of a task's metadata: sentences, or tables with `id`, `criterion` and `weight`."""
    rows = task.metadata.get("rubrics", ())
    where = f"{task.path}: metadata.rubrics"
    if not isinstance(rows, list | tuple):
        raise TaskError(f"{where}: expected a list of sentences or tables, found {type(rows).__name__}")
    found = [_criterion(row, f"{where}: rubric {number}", number) for number, row in enumerate(rows, 1)]
    if len({each.id for each in found}) < len(found):
        raise TaskError(f"{where}: two rubrics have the same id")
    return found


def _criterion(row: Any, where: str, number: int) -> Criterion:
    if isinstance(row, str):
        row = {"criterion": row}
    if not isinstance(row, dict):
        raise TaskError(f"{where}: expected a sentence or a table, found {type(row).__name__}")
    for key in row:
        if key not in _KEYS:
            raise TaskError(f"{where}: '{key}' is not a key here{nearest(str(key), _KEYS)}")
    text, weight = row.get("criterion"), row.get("weight", 1.0)
    if not isinstance(text, str) or not text.strip():
        raise TaskError(f"{where}: it has no 'criterion': say in a sentence what is to be met")
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < math.inf:
        raise TaskError(f"{where}: weight {weight!r} is not a number above 0")
    return Criterion(id=str(row.get("id", f"rubric-{number}")), criterion=text, weight=float(weight))
