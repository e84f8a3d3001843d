"""Check before a run which variables of this machine its tasks want, and whether the spec grants them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from proctor.agents.oracle import Oracle
from proctor.errors import TaskError
from proctor.model.secret import OWN_PREFIX
from proctor.model.spec import Spec, TaskEntry
from proctor.model.task import Task, TaskEnvironment, VerifierSpec
from proctor.trial.task.setting import wanted


def check_grants(spec: Spec, entry: TaskEntry, task: Task, environ: Mapping[str, str] = os.environ) -> None:
    """TaskError for a variable that a task uses, has no default for, and does not get."""
    own = {*entry.environment_variables, *entry.sweep}
    for where, values in _tables(entry, task):
        for name in wanted(values):
            if name not in own:
                _check(spec, name, where, environ)
    for environment in _environments(task):
        if environment.compose:
            _check_compose(spec, environment, own, environ)


def _tables(entry: TaskEntry, task: Task) -> Iterator[tuple[str, Mapping[str, str]]]:
    file = task.path / "task.toml"
    yield f"{file}: [environment.env]", task.environment.env
    if Oracle.name in entry.agents:
        yield f"{file}: [solution.env]", task.solution_env
    for verifier in _verifiers(task):
        yield f"{file}: [verifier.env]", verifier.env
        if verifier.environment:
            yield f"{file}: [verifier.environment.env]", verifier.environment.env


def _verifiers(task: Task) -> list[VerifierSpec]:
    return [step.verifier for step in task.steps] or [task.verifier]


def _environments(task: Task) -> list[TaskEnvironment]:
    return [task.environment, *(each.environment for each in _verifiers(task) if each.environment)]


def _check(spec: Spec, name: str, where: str, environ: Mapping[str, str]) -> None:
    if name.startswith(OWN_PREFIX):
        raise TaskError(f"{where}: ${{{name}}} is a setting of Proctor's own, which no task gets")
    if name not in spec.pass_env:
        raise TaskError(
            f"{where}: the task uses ${{{name}}} of this machine, which the spec does not grant; "
            f'grant it with pass_env = ["{name}"] in the spec or with --pass-env {name}'
        )
    if name not in environ:
        raise TaskError(
            f"{where}: the task uses ${{{name}}}, which the spec grants, but it is not set; "
            f"set the environment variable {name}"
        )


def _check_compose(
    spec: Spec, environment: TaskEnvironment, own: Collection[str], environ: Mapping[str, str]
) -> None:
    from proctor.sandbox.container.composition import used, variables_of

    assert environment.compose is not None
    set_by_harbor = {*variables_of(environment), *environment.env, *own, *_HARBOR}
    for name in used(Path(environment.compose)):
        if name not in set_by_harbor:
            _check(spec, name, str(environment.compose), environ)


_HARBOR = ("PREBUILT_IMAGE_NAME", "CPUS", "MEMORY")
"""Set by Harbor only where the task says something about them."""
