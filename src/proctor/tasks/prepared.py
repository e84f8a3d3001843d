"""Read a prepared repository task: `tb_meta.json` beside a repository, its tests and its rubrics."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from proctor.disk import read_small
from proctor.errors import TaskError
from proctor.model.task import AgentLimits, Repository, Task, TaskEnvironment, VerifierSpec
from proctor.spec.node import nearest
from proctor.tasks import overrides
from proctor.tasks.digest import task_digest
from proctor.tasks.rubrics import RUBRIC_KEYS, rubrics

KEYS = frozenset(
    {
        *("task_id", "name", "description", "repo", "instructions", "lm_instructions", "rubrics", "metadata"),
        *("test_scripts", "environment_variables", "docker_image", "workdir", "timeout_sec", "evaluation"),
        *("lm", "sensitivity"),
    }
)
EVALUATION_KEYS = overrides.EVALUATION_KEYS
_REPO_KEYS = overrides.REPO_KEYS | {"path"}
_LM_KEYS = frozenset({"instructions"})
_OLD_RUNNERS = ("codex-files", ".env")
"""What another runner puts beside a Dockerfile before it builds, and no archive of a task has."""
INSTRUCTIONS = "overlay_files/LM_INSTRUCTIONS.md"
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
    evaluation = _mapping(data, "evaluation", file)
    warnings += _unknown(evaluation, EVALUATION_KEYS, f"{file}: evaluation")
    warnings += _unknown(_mapping(data, "lm", file), _LM_KEYS, f"{file}: lm")
    judged = {**evaluation, **data}
    rows = judged.get("rubrics")
    for number, row in enumerate(rows if isinstance(rows, list) else (), 1):
        warnings += _unknown(row if isinstance(row, dict) else {}, RUBRIC_KEYS, f"{file}: rubric {number}")
    task = Task(
        name=str(data.get("name") or data.get("task_id") or folder.resolve().name),
        path=folder,
        digest=task_digest(folder, cache_dir),
        kind="prepared",
        description=str(data.get("description", "")),
        metadata=_metadata(data, file),
        instruction=_instruction(data, folder, file),
        environment=_environment(data, folder, file),
        agent=AgentLimits(timeout_s=overrides.seconds(data, "timeout_sec", str(file))),
        verifier=VerifierSpec(
            timeout_s=overrides.seconds(evaluation, "timeout_sec", str(file)),
            env=_variables(evaluation, file),
        ),
        tests=folder / "tests" if (folder / "tests").is_dir() else None,
        solution=folder / "solution" if (folder / "solution/solve.sh").is_file() else None,
        repository=_repository(data, folder, file),
        rubrics=rubrics(judged, folder, str(file)),
        warnings=warnings,
    )
    _check_judged(task, file)
    return replace(task, warnings=(*warnings, *_advice(task, file)))


def _metadata(data: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """What the author says of the task; whether it may be shared is kept with it."""
    found = _mapping(data, "metadata", file)
    return {**found, "sensitivity": data["sensitivity"]} if "sensitivity" in data else found


def _instruction(data: Mapping[str, Any], folder: Path, file: Path) -> str:
    """What the agent is to do: `instructions`, `lm_instructions`, `lm.instructions`, or a file for it."""
    own = _mapping(data, "lm", file).get("instructions")
    found = data.get("instructions", data.get("lm_instructions", own))
    if not found and (folder / INSTRUCTIONS).is_file():
        found = read_small(folder / INSTRUCTIONS, _MOST_BYTES).decode(errors="replace")
    if not isinstance(found, str) or not found.strip():
        raise TaskError(f"{file}: 'instructions' is missing; the agent would not know what to do")
    return found


def _advice(task: Task, file: Path) -> Iterator[str]:
    """What an author should know."""
    for rubric in task.rubrics:
        for script in rubric.scripts:
            if script.content is None:
                yield f"{file}: rubric '{rubric.id}': {script.path} has no content; the agent can change it"
    dockerfile = task.environment.dockerfile
    text = _dockerfile(dockerfile) if dockerfile and dockerfile.parent == task.path else ""
    for name in _OLD_RUNNERS:
        if (
            re.search(rf"^\s*COPY\s+{re.escape(name)}/?\s", text, re.MULTILINE)
            and not (task.path / name).exists()
        ):
            yield (
                f"{dockerfile}: it copies {name}, which is not in the folder; remove that line: agents are "
                "installed by Proctor, and no key enters an image"
            )


def _dockerfile(file: Path) -> str:
    try:
        return read_small(file, _MOST_BYTES).decode(errors="replace")
    except OSError:
        return ""


def _is_nested(data: Mapping[str, Any], folder: Path) -> bool:
    """Whether the repository is `/app/repo` inside of `/app`: with `lm`, or a Dockerfile beside the file."""
    return "workdir" not in data and ("lm" in data or (folder / "Dockerfile").is_file())


def _unknown(data: Mapping[str, Any], known: frozenset[str], where: str) -> tuple[str, ...]:
    return tuple(
        f"{where}: '{key}' is not a key here{nearest(key, known)}" for key in data if key not in known
    )


def _check_judged(task: Task, file: Path) -> None:
    """A task that nothing judges is the author's mistake, known before anything runs."""
    if task.rubrics:
        if not any(each.weight for each in task.rubrics):
            raise TaskError(f"{file}: every rubric has the weight 0; nothing would be judged")
    elif not (task.path / "tests/test.sh").is_file():
        raise TaskError(f"{file}: no rubrics with tests and no tests/test.sh; nothing would be judged")


def _variables(data: Mapping[str, Any], file: Path) -> dict[str, str]:
    found = {str(key): str(value) for key, value in _mapping(data, "environment_variables", file).items()}
    for name, value in found.items():
        if not name or "=" in name or "\0" in name + value:
            raise TaskError(f"{file}: {name!r} cannot be an environment variable")
    return found


def _environment(data: Mapping[str, Any], folder: Path, file: Path) -> TaskEnvironment:
    own = folder / "environment"
    place = folder if not own.is_dir() and (folder / "Dockerfile").is_file() else own
    dockerfile = place / "Dockerfile"
    usual = "/app/repo" if _is_nested(data, folder) else "/app"
    image, workdir = data.get("docker_image"), data.get("workdir", usual)
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
    in_image = here is None and "git clone" in _dockerfile(folder / "Dockerfile")
    if here is None and not in_image and not repo.get("git_url"):
        raise TaskError(f"{file}: no folder {path.name}/ and no repo.git_url: there is nothing to work on")
    return Repository(
        git_url=str(repo.get("git_url", "")),
        branch=str(repo.get("branch", "")),
        start_commit_sha=str(repo.get("start_commit_sha", "")),
        end_commit_sha=str(repo.get("end_commit_sha", "")),
        subdir=str(repo.get("subdir", "")),
        sparse_checkout=tuple(sparse),
        path=here,
        in_image=in_image,
        nested=_is_nested(data, folder),
    )


def _mapping(data: Mapping[str, Any], key: str, file: Path) -> dict[str, Any]:
    found = data.get(key, {})
    if not isinstance(found, dict):
        raise TaskError(f"{file}: '{key}' must be a mapping")
    return found
