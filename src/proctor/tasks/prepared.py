"""Read a prepared repository task: `tb_meta.json` beside a repository, its tests and its rubrics."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proctor.errors import TaskError
from proctor.model.task import AgentLimits, Repository, Rubric, Task, TaskEnvironment, VerifierSpec
from proctor.spec.node import nearest
from proctor.tasks.digest import task_digest

KEYS = frozenset(
    {
        "task_id",
        "name",
        "description",
        "repo",
        "instructions",
        "lm_instructions",
        "rubrics",
        "test_scripts",
        "environment_variables",
        "docker_image",
        "workdir",
        "timeout_sec",
        "evaluation",
        "metadata",
    }
)
_REPO_KEYS = frozenset(
    {"git_url", "branch", "start_commit_sha", "end_commit_sha", "subdir", "sparse_checkout", "path"}
)


def read_prepared(folder: Path, cache_dir: Path | None = None) -> Task:
    """The task in a folder with `tb_meta.json`."""
    file = folder / "tb_meta.json"
    try:
        data = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise TaskError(f"{file}: not valid JSON: {error}") from error
    if not isinstance(data, dict):
        raise TaskError(f"{file}: expected a mapping")
    warnings = tuple(
        f"{file}: '{key}' is not a key here{nearest(key, KEYS)}" for key in data if key not in KEYS
    )
    instruction = data.get("instructions", data.get("lm_instructions"))
    if not isinstance(instruction, str) or not instruction.strip():
        raise TaskError(f"{file}: 'instructions' is missing; the agent would not know what to do")
    evaluation = _mapping(data, "evaluation", file)
    timeout = float(data.get("timeout_sec", 600))
    return Task(
        name=str(data.get("name") or data.get("task_id") or folder.resolve().name),
        path=folder,
        digest=task_digest(folder, cache_dir),
        kind="prepared",
        description=str(data.get("description", "")),
        metadata=_mapping(data, "metadata", file),
        instruction=instruction,
        environment=_environment(data, folder, file),
        agent=AgentLimits(timeout_s=timeout),
        verifier=VerifierSpec(timeout_s=float(evaluation.get("timeout_sec", 600))),
        tests=folder / "tests" if (folder / "tests").is_dir() else None,
        solution=folder / "solution" if (folder / "solution/solve.sh").is_file() else None,
        repository=_repository(data, folder, file),
        rubrics=_rubrics(data, folder, file),
        warnings=warnings,
    )


def _environment(data: Mapping[str, Any], folder: Path, file: Path) -> TaskEnvironment:
    place = folder / "environment"
    dockerfile = place / "Dockerfile"
    env = {str(key): str(value) for key, value in _mapping(data, "environment_variables", file).items()}
    return TaskEnvironment(
        image=data.get("docker_image"),
        folder=place if place.is_dir() else None,
        dockerfile=dockerfile if dockerfile.is_file() else None,
        env=env,
        workdir=str(data.get("workdir", "/app")),
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
    path = folder / str(repo.get("path", "repo"))
    if not path.resolve().is_relative_to(folder.resolve()):
        raise TaskError(f"{file}: repo.path leads out of the task")
    here = path if path.is_dir() else None
    if here is None and not repo.get("git_url"):
        raise TaskError(f"{file}: no folder {path.name}/ and no repo.git_url: there is nothing to work on")
    return Repository(
        git_url=str(repo.get("git_url", "")),
        branch=str(repo.get("branch", "")),
        start_commit_sha=str(repo.get("start_commit_sha", "")),
        end_commit_sha=str(repo.get("end_commit_sha", "")),
        subdir=str(repo.get("subdir", "")),
        sparse_checkout=tuple(map(str, repo.get("sparse_checkout", ()))),
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
    if isinstance(weight, bool) or not isinstance(weight, int | float) or weight < 0:
        raise TaskError(f"{file}: rubric '{name}': weight {weight!r} is not a number, zero or more")
    tests = row.get("tests", row.get("test_scripts", scripts.get(name, ())))
    tests = [tests] if isinstance(tests, str) else list(tests)
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
