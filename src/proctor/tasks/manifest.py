"""Harbor's `dataset.toml`: which tasks belong to a dataset, each with the digest of its content.

The digest is Harbor's own: over the files that Harbor publishes, without what the task's .gitignore names.
"""

from __future__ import annotations

import hashlib
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from proctor.disk import read_small
from proctor.errors import TaskError
from proctor.tasks.walk import is_task, own_name

MANIFEST = "dataset.toml"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_SINGLE = ("task.toml", "instruction.md", "README.md", "trajectory.json")
_FOLDERS = ("environment", "tests", "solution", "steps")
_USUALLY_IGNORED = ("__pycache__/", "*.pyc", ".DS_Store", "*.swp", "*.swo", "*~")


def listed_tasks(dataset: Path, folders: Iterable[Path]) -> frozenset[Path] | None:
    """Those of the folders that the manifest lists, each one checked; None without a manifest."""
    file = dataset / MANIFEST
    if not file.is_file():
        return None
    data = _read(file)
    _check_files(data.get("files", []), file)
    named = _by_name(folders)
    found = set()
    for row in _rows(data.get("tasks", []), file, "tasks"):
        name, digest = str(row.get("name")), str(row.get("digest"))
        if not _DIGEST.fullmatch(digest):
            raise TaskError(f"{file}: task '{name}': the digest '{digest[:80]}' is not sha256: and 64 digits")
        folder = named.get(name) or named.get(name.rpartition("/")[2])
        if folder is None:
            raise TaskError(
                f"{file}: the task '{name}' is not in this folder; tasks of Harbor's hub are not fetched"
            )
        actual = f"sha256:{content_digest(folder)}"
        if actual != digest:
            raise TaskError(
                f"{file}: the task '{name}' has changed: its digest is {actual}, the manifest says {digest}"
            )
        found.add(folder)
    if not found:
        raise TaskError(f"{file}: the manifest lists no tasks")
    return frozenset(found)


def content_digest(task: Path) -> str:
    """Harbor's digest of a task folder."""
    whole = hashlib.sha256()
    for name in _published(task):
        with (task / name).open("rb") as file:
            whole.update(f"{name}\0{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return whole.hexdigest()


def _published(task: Path) -> list[str]:
    from pathspec import PathSpec

    ignore = task / ".gitignore"
    lines = (
        read_small(ignore, 1 << 20).decode("utf-8", "replace").splitlines()
        if ignore.is_file()
        else _USUALLY_IGNORED
    )
    ignored = PathSpec.from_lines("gitignore", lines)
    names = [name for name in _SINGLE if (task / name).exists()]
    for folder in _FOLDERS:
        for root, _, files in os.walk(task / folder):
            paths = (Path(root) / each for each in files)
            names += [each.relative_to(task).as_posix() for each in paths if each.is_file()]
    return sorted(name for name in names if not ignored.match_file(name))


def _read(file: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(read_small(file, 16 << 20).decode())
    except (OSError, ValueError, RecursionError) as error:
        raise TaskError(f"{file}: not a dataset manifest: {error}") from error


def _rows(value: Any, file: Path, key: str) -> Iterator[Mapping[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(each, Mapping) for each in value):
        raise TaskError(f"{file}: expected [[{key}]] tables")
    yield from value


def _check_files(value: Any, file: Path) -> None:
    """Files beside the tasks; one without a digest is not checked, as in Harbor."""
    for row in _rows(value, file, "files"):
        name, digest = str(row.get("path")), str(row.get("digest") or "")
        place = file.parent / name
        if "/" in name or "\\" in name or name in {"", ".", ".."}:
            raise TaskError(f"{file}: '{name[:100]}' is not the name of a file beside the manifest")
        if not place.is_file():
            raise TaskError(f"{file}: the file '{name}' is missing")
        if digest and not _DIGEST.fullmatch(digest):
            raise TaskError(f"{file}: file '{name}': the digest '{digest[:80]}' is not sha256: and 64 digits")
        with place.open("rb") as opened:
            actual = f"sha256:{hashlib.file_digest(opened, 'sha256').hexdigest()}"
        if digest and actual != digest:
            raise TaskError(
                f"{file}: the file '{name}' has changed: its digest is {actual}, the manifest says {digest}"
            )


def _by_name(folders: Iterable[Path]) -> dict[str, Path]:
    """Folder of each task, by the name in its task.toml and by its folder's name."""
    tasks = [each for each in folders if is_task(each)]
    named = {each.name: each for each in reversed(tasks)}
    return named | {name: each for each in tasks if (name := own_name(each))}
