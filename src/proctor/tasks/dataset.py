"""From a `[[tasks]]` entry to the tasks it means: one folder, a folder of tasks, or a ZIP."""

from __future__ import annotations

import fnmatch
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from proctor.errors import TaskError
from proctor.model.spec import TaskEntry
from proctor.model.task import Task
from proctor.tasks.archive import unpack
from proctor.tasks.fetch import Datasets, locate
from proctor.tasks.manifest import listed_tasks
from proctor.tasks.runnable import read_runnable
from proctor.tasks.walk import is_task, own_name, task_folders

__all__ = ["BrokenTask", "Found", "find_tasks", "is_task"]


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
    return Found(tasks=tuple(_told_apart(tasks, path)), broken=tuple(broken))


def _chosen(folders: Sequence[Path], root: Path, entry: TaskEntry) -> list[Path]:
    """The folders that the entry's patterns leave; a task that is named alone is always meant."""
    if list(folders) == [root]:
        return [root]
    chosen = [each for each in folders if _wanted(each, root, entry)]
    if not chosen:
        names = [each.relative_to(root).as_posix() for each in folders]
        more = f" and {len(names) - 4} more" if len(names) > 4 else ""
        raise TaskError(
            f"{entry.path}: include and exclude leave no task; there are {', '.join(names[:4])}{more}"
        )
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


def _told_apart(tasks: Sequence[Task], root: Path) -> list[Task]:
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
