"""Check tasks without running them: every rule over every task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from proctor.errors import TaskError
from proctor.tasks.lint import content, image, scripts
from proctor.tasks.lint.problems import (
    LEVELS,
    ImageContent,
    LookInside,
    Problem,
    ReviewedTask,
    TaskReport,
    from_text,
)
from proctor.tasks.read import read_task, refusals
from proctor.tasks.walk import task_folders

Proofs = Callable[[str, str], Mapping[str, set[str]]]
"""(name, digest) → agent → the outcomes it had on this very task."""
Unproven = tuple[Literal["oracle", "nop"], ...]
_RULES = (
    scripts.instructions,
    scripts.tests,
    scripts.solutions,
    image.base_images,
    image.leaks,
    content.sizes,
    content.performance,
    content.overrides,
    content.files,
    content.variables,
    content.literals,
)

_EPISODE_RULES = (image.base_images, content.sizes, content.files, content.literals)
"""What a step-by-step task can be checked for: it has no instruction, tests or solution."""


def check_folders(
    folder: Path,
    *,
    proofs: Proofs | None = None,
    look_inside: LookInside | None = None,
    cache_dir: Path | None = None,
) -> list[TaskReport]:
    """The task in a folder, or every task below it."""
    return [
        check_task(each, proofs=proofs, look_inside=look_inside, cache_dir=cache_dir)
        for each in task_folders(folder)
    ]


def check_task(
    folder: Path,
    *,
    proofs: Proofs | None = None,
    look_inside: LookInside | None = None,
    cache_dir: Path | None = None,
) -> TaskReport:
    """Everything that can be said about one task without running it."""
    try:
        task = read_task(folder, cache_dir)
    except TaskError as error:
        return TaskReport(name=folder.name, path=folder, findings=(from_text("error", str(error), folder),))
    subject = ReviewedTask(task, look_inside(task.environment) if look_inside else ImageContent())
    stepwise = task.kind == "episode"
    rules = _EPISODE_RULES if stepwise else _RULES
    findings = [
        *(from_text("warning", warning, folder) for warning in task.warnings),
        *(from_text("error", reason, folder) for reason in refusals(task)),
        *(finding for rule in rules for finding in rule(subject)),
    ]
    unproven: Unproven = ()
    if proofs and not stepwise:
        known = proofs(task.name, task.digest)
        findings += _shown_wrong(folder, known)
        unproven = _unproven(known)
    ordered = sorted(findings, key=lambda finding: LEVELS.index(finding.level))
    return TaskReport(name=task.name, path=folder, findings=tuple(ordered), unproven=unproven)


def _unproven(known: Mapping[str, set[str]]) -> Unproven:
    oracle: Unproven = () if known.get("oracle") else ("oracle",)
    nop: Unproven = () if known.get("nop", set()) & {"failed", "partial", "passed"} else ("nop",)
    return (*oracle, *nop)


def _shown_wrong(folder: Path, known: Mapping[str, set[str]]) -> Iterator[Problem]:
    """What runs of this very task have shown to be wrong with it."""
    oracle = known.get("oracle", set())
    if oracle and "passed" not in oracle:
        yield Problem(
            "warning",
            str(folder),
            f"the oracle ended as {', '.join(sorted(oracle))}, and has never passed here",
            hint="`proctor vet` shows how",
        )
    if "passed" in known.get("nop", set()):
        yield Problem(
            "error",
            str(folder),
            "nop has passed: the tests pass when nothing is done",
            hint="make the tests fail on the unchanged workspace",
        )
