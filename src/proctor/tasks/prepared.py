"""Read a prepared repository task: `tb_meta.json` beside a repository, its tests and its rubrics."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proctor.disk import read_small
from proctor.errors import TaskError
from proctor.model.task import AgentLimits, Repository, Rubric, Task, TaskEnvironment, VerifierSpec
from proctor.spec.node import nearest
from proctor.tasks import overrides
from proctor.tasks.digest import task_digest

KEYS = frozenset(
    {
        *("task_id", "name", "description", "repo", "instructions", "lm_instructions", "rubrics", "metadata"),
        *("test_scripts", "environment_variables", "docker_image", "workdir", "timeout_sec", "evaluation"),
    }
)
EVALUATION_KEYS = overrides.EVALUATION_KEYS | {"test_scripts"}
_REPO_KEYS = overrides.REPO_KEYS | {"path"}
_RUBRIC_KEYS = frozenset(
    {"id", "name", "weight", "tests", "test_scripts", "description", "text", "category", "metadata"}
)
_MOST_BYTES = 16 << 20


def read_prepared(folder: Path, cache_dir: Path | None = None) -> Task:
    """The task in a folder with `tb_meta.json`."""
    file = folder / "tb_meta.json"
    try:
        data = json.loads(read_small(file, _MOST_BYTES))
    except OSError as error:
        raise TaskError(f"{file}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise TaskError(f"{file}: not valid JSON: {error}") from error
    if not isinstance(data, dict):
        raise TaskError(f"{file}: expected a mapping")
    warnings = _unknown(data, KEYS, str(file))
    instruction = data.get("instructions", data.get("lm_instructions"))
    if not isinstance(instruction, str) or not instruction.strip():
        raise TaskError(f"{file}: 'instructions' is missing; the agent would not know what to do")
    evaluation = _mapping(data, "evaluation", file)
    warnings += _unknown(evaluation, EVALUATION_KEYS, f"{file}: evaluation")
    rubrics = data.get("rubrics")
    for number, row in enumerate(rubrics if isinstance(rubrics, list) else (), 1):
        warnings += _unknown(row if isinstance(row, dict) else {}, _RUBRIC_KEYS, f"{file}: rubric {number}")
    task = Task(
        name=str(data.get("name") or data.get("task_id") or folder.resolve().name),
        path=folder,
        digest=task_digest(folder, cache_dir),
        kind="prepared",
        description=str(data.get("description", "")),
        metadata=_mapping(data, "metadata", file),
        instruction=instruction,
        environment=_environment(data, folder, file),
        agent=AgentLimits(timeout_s=overrides.seconds(data, "timeout_sec", str(file))),
        verifier=VerifierSpec(
            timeout_s=overrides.seconds(evaluation, "timeout_sec", str(file)),
            env=_variables(evaluation, file),
        ),
        tests=folder / "tests" if (folder / "tests").is_dir() else None,
        solution=folder / "solution" if (folder / "solution/solve.sh").is_file() else None,
        repository=_repository(data, folder, file),
        rubrics=_rubrics({**evaluation, **data}, folder, file),
        warnings=warnings,
    )
    _check_judged(task, file)
    return task


def _unknown(data: Mapping[str, Any], known: frozenset[str], where: str) -> tuple[str, ...]:
    return tuple(
        f"{where}: '{key}' is not a key here{nearest(key, known)}" for key in data if key not in known
    )


def _check_judged(task: Task, file: Path) -> None:
    """A task that nothing judges is the author's mistake, known before anything runs."""
    if task.rubrics:
        if not any(each.tests and each.weight for each in task.rubrics):
            raise TaskError(f"{file}: no rubric with a weight has a test script; nothing would be judged")
    elif not (task.path / "tests/test.sh").is_file():
        raise TaskError(f"{file}: no rubrics with tests and no tests/test.sh; nothing would be judged")


def _variables(data: Mapping[str, Any], file: Path) -> dict[str, str]:
    found = {str(key): str(value) for key, value in _mapping(data, "environment_variables", file).items()}
    for name, value in found.items():
        if not name or "=" in name or "\0" in name + value:
            raise TaskError(f"{file}: {name!r} cannot be an environment variable")
    return found


def _environment(data: Mapping[str, Any], folder: Path, file: Path) -> TaskEnvironment:
    place = folder / "environment"
    dockerfile = place / "Dockerfile"
    image, workdir = data.get("docker_image"), data.get("workdir", "/app")
    if image is not None and (not isinstance(image, str) or not image):
        raise TaskError(f"{file}: docker_image is {image!r}, not the name of an image")
    if not isinstance(workdir, str) or not workdir.startswith("/") or "\0" in workdir:
        raise TaskError(f"{file}: workdir is {workdir!r}, not an absolute path")
    return TaskEnvironment(
        image=image,
        folder=place if place.is_dir() else None,
        dockerfile=dockerfile if dockerfile.is_file() else None,
        env=_variables(data, file),
        workdir=workdir,
    )


def _repository(data: Mapping[str, Any], folder: Path, file: Path) -> Repository:
    repo = data.get("repo", "repo")
    if isinstance(repo, str):
        repo = {"path": repo}
    if not isinstance(repo, dict):
        raise TaskError(f"{file}: 'repo' must be a folder name or a mapping")
    for key in repo:
        if key not in _REPO_KEYS:
            raise TaskError(f"{file}: repo: '{key}' is not a key here{nearest(key, _REPO_KEYS)}")
    sparse = repo.get("sparse_checkout", [])
    if not isinstance(sparse, list) or not all(isinstance(each, str) for each in sparse):
        raise TaskError(f"{file}: repo: sparse_checkout must be a list of paths")
    path = folder / str(repo.get("path", "repo"))
    if not path.resolve().is_relative_to(folder.resolve()):
        raise TaskError(f"{file}: repo.path points outside the task")
    here = path if path.is_dir() else None
    if here is None and not repo.get("git_url"):
        raise TaskError(f"{file}: no folder {path.name}/ and no repo.git_url: there is nothing to work on")
    return Repository(
        git_url=str(repo.get("git_url", "")),
        branch=str(repo.get("branch", "")),
        start_commit_sha=str(repo.get("start_commit_sha", "")),
        end_commit_sha=str(repo.get("end_commit_sha", "")),
        subdir=str(repo.get("subdir", "")),
        sparse_checkout=tuple(sparse),
        path=here,
    )


def _rubrics(data: Mapping[str, Any], folder: Path, file: Path) -> tuple[Rubric, ...]:
    """Rubrics with weights; one without tests is kept and shown as untested."""
    rows = data.get("rubrics", [])
    scripts = data.get("test_scripts", {})
    if not isinstance(rows, list):
        raise TaskError(f"{file}: 'rubrics' must be a list")
    if isinstance(scripts, list):
        scripts = {"all": scripts}
    if not isinstance(scripts, dict):
        raise TaskError(f"{file}: 'test_scripts' must be a mapping of rubric to scripts, or a list")
    if not rows:
        rows = [{"id": name} for name in scripts]
    return tuple(_rubric(row, number, scripts, folder, file) for number, row in enumerate(rows, 1))


def _rubric(row: object, number: int, scripts: Mapping[str, Any], folder: Path, file: Path) -> Rubric:
    if isinstance(row, str):
        row = {"description": row}
    if not isinstance(row, dict):
        raise TaskError(f"{file}: rubric {number} must be a mapping or a sentence")
    name = str(row.get("id", row.get("name", f"rubric-{number}")))
    weight = row.get("weight", 1.0)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < math.inf:
        raise TaskError(f"{file}: rubric '{name}': weight {weight!r} is not a number, zero or more")
    tests = row.get("tests", row.get("test_scripts", scripts.get(name, ())))
    tests = [tests] if isinstance(tests, str) else tests
    if not isinstance(tests, list | tuple) or not all(isinstance(each, str) for each in tests):
        raise TaskError(f"{file}: rubric '{name}': tests must be a list of scripts below tests/")
    for each in tests:
        script = folder / "tests" / str(each)
        if not script.resolve().is_relative_to(folder.resolve()) or not script.is_file():
            raise TaskError(f"{file}: rubric '{name}': tests/{each} is missing")
    description = str(row.get("description", row.get("text", "")))
    return Rubric(id=name, description=description, weight=float(weight), tests=tuple(map(str, tests)))


def _mapping(data: Mapping[str, Any], key: str, file: Path) -> dict[str, Any]:
    found = data.get(key, {})
    if not isinstance(found, dict):
        raise TaskError(f"{file}: '{key}' must be a mapping")
    return found
