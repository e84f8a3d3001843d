"""What a task may ask for and no sandbox here can give: it is read, and refused before anything starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from proctor.errors import TaskError
from proctor.model.task import MAIN_SERVICE, Task, TaskEnvironment
from proctor.tasks.read import read_task


def read_runnable(folder: Path, cache_dir: Path | None = None) -> Task:
    """The task in a folder; TaskError when it is wrong, or asks for what cannot be given."""
    task = read_task(folder, cache_dir)
    for reason in refusals(task):
        raise TaskError(reason)
    return task


def refusals(task: Task) -> Iterator[str]:
    """Every reason why a task cannot be run, with its file."""
    file = task.path / "task.toml"
    verifiers = (task.verifier, *(step.verifier for step in task.steps))
    environments = [task.environment, *(each.environment for each in verifiers if each.environment)]
    for reason in dict.fromkeys(each for place in environments for each in _lacking(place)):
        yield f"{file}: {reason}"
    services = {
        *(each.service for each in (*task.artifacts, *(a for step in task.steps for a in step.artifacts))),
        *(hook.service for each in verifiers for hook in each.collect),
    } - {MAIN_SERVICE}
    if services and task.environment.compose is None:
        names = ", ".join(sorted(services))
        yield f"{file}: it collects files from services ({names}), and environment/ has no docker-compose.yaml"


def _lacking(environment: TaskEnvironment) -> Iterator[str]:
    if environment.os == "windows":
        yield "os = 'windows' needs Windows containers, which Proctor does not run; only Linux tasks can be run"
    if environment.gpus:
        count = f"{environment.gpus} GPU{'s' * (environment.gpus > 1)}"
        yield f"it asks for {count}, and Proctor's sandboxes have none; set gpus = 0 if it can do without"
    if environment.tpu:
        yield f"it asks for a TPU ({environment.tpu}), and Proctor's sandboxes have none"
