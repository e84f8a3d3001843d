"""What a run changes about a task: `overrides.json` and the spec's own. Applied to a copy, never in place.

Key by key the task's own `overrides.json` wins over the spec's, and that over what the task says by default.
"""

from __future__ import annotations

import errno
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from proctor.disk import read_small
from proctor.errors import TaskError
from proctor.model.task import Repository, Task
from proctor.spec.node import nearest

_SHAPES: Mapping[str, type | tuple[type, ...]] = {
    "remove_repo_paths": list,
    "inject_files": (dict, list),
    "overlay_files": (dict, list),
    "repo": dict,
    "lm_instructions": str,
    "environment_variables": dict,
    "evaluation": dict,
}
KEYS = frozenset(_SHAPES)
REPO_KEYS = frozenset(
    {"git_url", "branch", "start_commit_sha", "end_commit_sha", "subdir", "sparse_checkout"}
)
EVALUATION_KEYS = frozenset({"timeout_sec", "environment_variables"})
_NOT_YET = {
    "test_scripts": "cannot change which scripts judge a task yet; name them in the task's own tb_meta.json"
}
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
    for key in ("inject_files", "overlay_files"):
        for target in _pairs(data.get(key, {}), where):
            _inside(target[0], f"{where}: {key}")
    return data


def _check_evaluation(evaluation: Mapping[str, Any], where: str) -> None:
    for key in evaluation.keys() & _NOT_YET.keys():
        raise TaskError(f"{where}: '{key}' {_NOT_YET[key]}")
    _known(evaluation, EVALUATION_KEYS, where)
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
        changed = {**repo, "sparse_checkout": tuple(repo.get("sparse_checkout", ()))}
        repository = replace(task.repository or Repository(), path=None, **changed)
    return replace(
        task,
        instruction=str(overrides.get("lm_instructions", task.instruction)),
        verifier=verifier,
        environment=environment,
        repository=repository,
    )


def removals(overrides: Mapping[str, Any]) -> tuple[str, ...]:
    """Paths to remove from the workspace, relative to it."""
    return tuple(overrides.get("remove_repo_paths", ()))


def additions(overrides: Mapping[str, Any], base: Path) -> list[tuple[str, bytes | Path]]:
    """What to put into the workspace: (relative target, content or a file or folder beside the overrides)."""
    result: list[tuple[str, bytes | Path]] = []
    for target, value in _pairs(overrides.get("inject_files", {}), "inject_files"):
        result.append((target, value.encode() if isinstance(value, str) else json.dumps(value).encode()))
    for target, value in _pairs(overrides.get("overlay_files", {}), "overlay_files"):
        source = base / str(value)
        if not source.resolve().is_relative_to(base.resolve()) or not source.exists():
            raise TaskError(f"overlay_files: '{value}' is not in {base}")
        result.append((target, source))
    return result


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
        content = row.get("content", row.get("source")) if isinstance(row, dict) else None
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
