"""What a run changes about a task: `overrides.json` and the spec's own. Applied to a copy, never in place.

Key by key the task's own `overrides.json` wins over the spec's, and that over what the task says by default.
"""

from __future__ import annotations

import errno
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from proctor.disk import read_small
from proctor.errors import TaskError
from proctor.model.task import Repository, Rubric, Task
from proctor.spec.node import nearest
from proctor.tasks import rubrics

_SHAPES: Mapping[str, type | tuple[type, ...]] = {
    "remove_repo_paths": list,
    "inject_files": (dict, list),
    "overlay_files": (dict, list),
    "overlay_repo_files": (dict, list),
    "repo": dict,
    "prompt": str,
    "lm_instructions": str,
    "environment_variables": dict,
    "evaluation": dict,
    "rubrics": list,
    "test_scripts": (dict, list),
}
KEYS = frozenset(_SHAPES)
REPO_KEYS = frozenset(
    {"git_url", "branch", "start_commit_sha", "end_commit_sha", "subdir", "sparse_checkout"}
)
EVALUATION_KEYS = frozenset({"timeout_sec", "environment_variables", "rubrics", "test_scripts"})
OVERLAYS = ("overlay_files", "overlay_repo_files")
_PATH = re.compile(r"\S*/\S*|\S+\.[A-Za-z]\w{0,5}")
"""One word that looks like a path: as the content of a file it would be a mistake."""
_MAX_BYTES = 16 << 20


def load_overrides(file: Path) -> dict[str, Any]:
    """The overrides in a file, checked."""
    try:
        data = json.loads(read_small(file, _MAX_BYTES))
    except OSError as error:
        hint = "; put large files beside it and name them in overlay_files" * (error.errno == errno.EFBIG)
        raise TaskError(f"{file}: {error.strerror or error}{hint}") from error
    except (ValueError, RecursionError) as error:
        raise TaskError(f"{file}: not valid JSON: {error}") from error
    return check_overrides(data, str(file))


def check_overrides(data: object, where: str) -> dict[str, Any]:
    """The same data, or a TaskError that names what is wrong with it."""
    if not isinstance(data, dict):
        raise TaskError(f"{where}: expected a mapping, found {type(data).__name__}")
    _known(data, KEYS, where)
    for key, shape in _SHAPES.items():
        if key in data and not isinstance(data[key], shape):
            raise TaskError(f"{where}: '{key}' is a {type(data[key]).__name__}")
    _known(data.get("repo", {}), REPO_KEYS, f"{where}: repo")
    _check_evaluation(data.get("evaluation", {}), f"{where}: evaluation")
    for path in data.get("remove_repo_paths", ()):
        _inside(path, f"{where}: remove_repo_paths")
    for key in ("inject_files", *OVERLAYS):
        for target in _pairs(data.get(key, {}), where):
            _inside(target[0], f"{where}: {key}")
    return data


def _check_evaluation(evaluation: Mapping[str, Any], where: str) -> None:
    _known(evaluation, EVALUATION_KEYS, where)
    for key in ("rubrics", "test_scripts"):
        if key in evaluation and not isinstance(evaluation[key], _SHAPES[key]):
            raise TaskError(f"{where}: '{key}' is a {type(evaluation[key]).__name__}")
    seconds(evaluation, "timeout_sec", where)
    if not isinstance(evaluation.get("environment_variables", {}), dict):
        raise TaskError(f"{where}: 'environment_variables' must be a mapping")


def seconds(data: Mapping[str, Any], key: str, where: str, default: float = 600.0) -> float:
    """A time limit."""
    value = data.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise TaskError(f"{where}: {key} is {value!r}, not a number of seconds above 0")
    return float(value)


def merge(own: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The task's own over the spec's, key by key; mappings are merged one level down."""
    merged = dict(config)
    for key, value in own.items():
        if isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = {**merged[key], **value}
        else:
            merged[key] = value
    return merged


def apply(task: Task, overrides: Mapping[str, Any]) -> Task:
    """The task with everything changed that needs no file system."""
    if not overrides:
        return task
    evaluation = overrides.get("evaluation", {})
    verifier = replace(
        task.verifier,
        timeout_s=float(evaluation.get("timeout_sec", task.verifier.timeout_s)),
        env={**task.verifier.env, **_texts(evaluation.get("environment_variables", {}))},
    )
    environment = replace(
        task.environment, env={**task.environment.env, **_texts(overrides.get("environment_variables", {}))}
    )
    repo = overrides.get("repo")
    repository = task.repository
    if repo:
        known = task.repository or Repository()
        changed = {**repo, "sparse_checkout": tuple(repo.get("sparse_checkout", known.sparse_checkout))}
        repository = replace(known, path=None, in_image=False, **changed)
    words = (overrides.get("prompt"), overrides.get("lm_instructions"), task.instruction)
    return replace(
        task,
        instruction=str(next(each for each in words if each is not None)),
        rubrics=_rubrics(task, {**overrides, **evaluation}),
        verifier=verifier,
        environment=environment,
        repository=repository,
    )


def _rubrics(task: Task, changed: Mapping[str, Any]) -> tuple[Rubric, ...]:
    """The rubrics under some overrides: what is not given stays, the tests of a rubric that stays too."""
    given = {key: changed[key] for key in ("rubrics", "test_scripts") if changed.get(key)}
    if not given:
        return task.rubrics
    if task.kind != "prepared":
        raise TaskError(f"overrides: '{next(iter(given))}' is for prepared tasks, and {task.name} is not one")
    if "rubrics" not in given:
        scripts = rubrics.written_scripts(given["test_scripts"], task.path, "overrides")
        if scripts is not None:
            bare = [replace(each, tests=()) for each in task.rubrics]
            return rubrics.with_scripts(bare, scripts, "overrides")
        given["rubrics"] = [
            {"id": each.id, "criterion": each.description, "weight": each.weight} for each in task.rubrics
        ]
    found = rubrics.rubrics(given, task.path, "overrides")
    if "test_scripts" in given:
        return found
    before = {each.id: each for each in task.rubrics}
    return tuple(
        replace(each, tests=each.tests or before[each.id].tests, scripts=before[each.id].scripts)
        if each.id in before
        else each
        for each in found
    )


def removals(overrides: Mapping[str, Any]) -> tuple[str, ...]:
    """Paths and patterns to remove from the workspace, relative to it."""
    return tuple(overrides.get("remove_repo_paths", ()))


def additions(
    overrides: Mapping[str, Any], base: Path, keys: Sequence[str] = ("inject_files", *OVERLAYS)
) -> list[tuple[str, bytes | Path]]:
    """What these keys put into the workspace: (relative target, content or a file beside the overrides)."""
    result: list[tuple[str, bytes | Path]] = []
    for key in keys:
        for target, value in _pairs(overrides.get(key, {}), key):
            result.append((target, _injected(value) if key == "inject_files" else _overlay(value, base, key)))
    return result


def overlay_sources(overrides: Mapping[str, Any], base: Path) -> dict[str, Path]:
    """The files and folders beside the overrides that are laid over the workspace, by how they are named."""
    found = {}
    for key in OVERLAYS:
        for _, value in _pairs(overrides.get(key, {}), key):
            if isinstance(place := _overlay(value, base, key), Path):
                found[str(value)] = place
    return found


def _injected(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()


def _overlay(value: Any, base: Path, key: str) -> bytes | Path:
    """A file or folder beside the overrides, or else the content of the file itself."""
    if isinstance(value, _Content):
        return value.encode()
    text = str(value)
    source = base / text if len(text) < 1024 and "\0" not in text and "\n" not in text else None
    if source is not None and source.resolve().is_relative_to(base.resolve()) and source.exists():
        return source
    if not isinstance(value, str) or _PATH.fullmatch(text):
        raise TaskError(
            f"{key}: '{text[:100]}' is not in {base}; for a file with this content write "
            "{path: …, content: …}"
        )
    return text.encode()


class _Content(str):
    """Text that was written as the content of a file, whatever it looks like."""

    __slots__ = ()


def _pairs(value: Any, where: str) -> list[tuple[str, Any]]:
    """Both spellings: {target: content}, or [{path|target, content|source}]."""
    if isinstance(value, Mapping):
        return [(str(target), content) for target, content in value.items()]
    pairs = []
    for row in value:
        if isinstance(row, str):
            pairs.append((row, row))
            continue
        target = row.get("path", row.get("target")) if isinstance(row, dict) else None
        content = row.get("source", row.get("content")) if isinstance(row, dict) else None
        if isinstance(content, str) and "source" not in row:
            content = _Content(content)
        if target is None or content is None:
            raise TaskError(f"{where}: each file needs 'path' and 'content' or 'source'")
        pairs.append((str(target), content))
    return pairs


def _inside(path: object, where: str) -> None:
    if not isinstance(path, str) or PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
        raise TaskError(f"{where}: {path!r} is not a relative path inside the workspace")


def _known(data: Mapping[str, Any], known: frozenset[str], where: str) -> None:
    for key in data:
        if key not in known:
            raise TaskError(f"{where}: '{key}' is not a key here{nearest(key, known)}")


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {str(key): str(value) for key, value in values.items()}
