"""From a `[[tasks]]` entry to the tasks it means: one folder, a folder of tasks, or a ZIP.

A folder may have Harbor's `dataset.toml`: which tasks belong to it, each with the digest of its content. The
digest is Harbor's own: over the files that it publishes, without what the task's .gitignore names.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from proctor.disk import read_small
from proctor.errors import TaskError
from proctor.model.spec import TaskEntry
from proctor.model.task import Task
from proctor.quantity import some
from proctor.tasks.archive import unpack
from proctor.tasks.fetch import Datasets, locate
from proctor.tasks.read import read_runnable
from proctor.tasks.walk import is_task, own_name, task_folders

MANIFEST = "dataset.toml"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_SINGLE = ("task.toml", "instruction.md", "README.md", "trajectory.json")
_FOLDERS = ("environment", "tests", "solution", "steps")
_USUALLY_IGNORED = ("__pycache__/", "*.pyc", ".DS_Store", "*.swp", "*.swo", "*~")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenTask:
    """A task that cannot be read. It is planned all the same and ends as `invalid`, so that others run."""

    name: str
    path: Path
    digest: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What an entry means."""

    tasks: tuple[Task, ...] = ()
    broken: tuple[BrokenTask, ...] = ()


def find_tasks(entry: TaskEntry, base_dir: Path, cache_dir: Path, registries: tuple[str, ...] = ()) -> Found:
    """The tasks of one entry. Only an entry that means nothing at all is an error here."""
    path = locate(entry, base_dir, Datasets(cache_dir=cache_dir, registries=registries))
    if path.suffix.lower() == ".zip" and path.is_file():
        path = _unpacked(path, cache_dir)
    if not path.is_dir():
        raise TaskError(f"{entry.path}: no such task folder, dataset or ZIP (looked in {base_dir} and here)")
    tasks: list[Task] = []
    broken: list[BrokenTask] = []
    folders = task_folders(path)
    listed = None if folders == [path] else listed_tasks(path, folders)
    if listed is not None:
        folders = [each for each in folders if each in listed]
    for folder in _chosen(folders, path, entry):
        try:
            tasks.append(read_runnable(folder, cache_dir))
        except TaskError as error:
            broken.append(_broken(folder, error))
    return Found(tasks=tuple(_with_unique_names(tasks, path)), broken=tuple(broken))


def _chosen(folders: Sequence[Path], root: Path, entry: TaskEntry) -> list[Path]:
    """The folders that the entry's patterns leave; a task that is named alone is always meant."""
    if list(folders) == [root]:
        return [root]
    chosen = [each for each in folders if _wanted(each, root, entry)]
    if not chosen:
        names = [each.relative_to(root).as_posix() for each in folders]
        raise TaskError(f"{entry.path}: include and exclude leave no task; there are {some(names, 4)}")
    return chosen


def _wanted(folder: Path, root: Path, entry: TaskEntry) -> bool:
    if not entry.include and not entry.exclude:
        return True
    names = {folder.name, folder.relative_to(root).as_posix(), *_own_names(folder)}
    chosen = not entry.include or _matches(names, entry.include)
    return chosen and not _matches(names, entry.exclude)


def _matches(names: set[str], patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for name in names for pattern in patterns)


def _own_names(folder: Path) -> list[str]:
    """The name a task gives itself, with and without its organisation."""
    name = own_name(folder)
    return [name, name.rpartition("/")[2]] if name else []


def _with_unique_names(tasks: Sequence[Task], root: Path) -> list[Task]:
    """Tasks of the same name in different categories get the path that tells them apart as their name."""
    counts = Counter(task.name for task in tasks)
    return [
        task if counts[task.name] == 1 else replace(task, name=task.path.relative_to(root).as_posix())
        for task in tasks
    ]


def _unpacked(archive: Path, cache_dir: Path) -> Path:
    """The archive's folder, unpacked once per content; it is named as the archive, as its task may be."""
    with archive.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    target = cache_dir / "archives" / digest[:32] / archive.stem
    if not target.exists():
        return unpack(archive, target)
    return next((each for each in (target, *target.iterdir()) if is_task(each)), target)


def _broken(folder: Path, error: TaskError) -> BrokenTask:
    digest = hashlib.sha256(f"broken\0{folder.name}\0{error}".encode()).hexdigest()
    return BrokenTask(name=folder.name, path=folder, digest=digest, error=str(error))


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
