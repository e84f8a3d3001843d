"""Which images tasks need, found without building or starting anything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from proctor.disk import read_small
from proctor.errors import TaskError
from proctor.model.task import Task, TaskEnvironment
from proctor.sandbox.image.stages import UnsupportedError, stages_of

_MOST_BYTES = 1 << 20


def needed_images(task: Task) -> tuple[str, ...]:
    """Every image that a task names: prebuilt, in its Dockerfiles, in its compose files; each once.

    TaskError when one of these files cannot be read.
    """
    verifiers = [task.verifier, *(step.verifier for step in task.steps)]
    environments = [task.environment, *(each.environment for each in verifiers if each.environment)]
    return tuple(dict.fromkeys(name for each in environments if each for name in _of(each)))


def _of(environment: TaskEnvironment) -> Iterator[str]:
    if environment.image:
        yield environment.image
    elif environment.dockerfile:
        yield from _in_dockerfile(environment.dockerfile)
    if environment.compose:
        yield from _in_compose(environment.compose)


def _in_dockerfile(file: Path) -> Iterator[str]:
    try:
        stages = stages_of(file)
        yield from stages.bases(stages.target())
    except UnsupportedError as error:
        raise TaskError(f"{file}:{error.line}: {error.what}: its image cannot be determined") from error


def _in_compose(file: Path) -> Iterator[str]:
    try:
        value: Any = yaml.safe_load(read_small(file, _MOST_BYTES))
        services = [each for each in dict(value["services"]).values() if isinstance(each, dict)]
    except (OSError, ValueError, LookupError, TypeError, RecursionError, yaml.YAMLError) as error:
        raise TaskError(f"{file}: cannot be read as a compose file") from error
    for service in services:
        image, build = str(service.get("image") or ""), service.get("build")
        if build:
            place = file.parent / str(build.get("context", ".") if isinstance(build, dict) else build)
            name = str(build.get("dockerfile", "Dockerfile")) if isinstance(build, dict) else "Dockerfile"
            if (place / name).is_file():
                yield from _in_dockerfile(place / name)
        elif image and "$" not in image:
            yield image  # a variable means the image that is made of the task itself
