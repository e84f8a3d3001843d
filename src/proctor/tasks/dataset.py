"""From a `[[tasks]]` entry to the tasks it means: one folder, a folder of tasks, or a ZIP."""

from __future__ import annotations

import fnmatch
import hashlib
from dataclasses import dataclass
from pathlib import Path

from proctor.errors import TaskError
from proctor.model.spec import TaskEntry
from proctor.model.task import Task
from proctor.tasks.archive import MARKERS, unpack
from proctor.tasks.read import read_task


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


def find_tasks(entry: TaskEntry, base_dir: Path, cache_dir: Path) -> Found:
    """The tasks of one entry. Only an entry that means nothing at all is an error here."""
    path = _resolve(entry.path, base_dir)
    if path.suffix.lower() == ".zip" and path.is_file():
        path = _unpacked(path, cache_dir)
    if not path.is_dir():
        raise TaskError(f"{entry.path}: no such task folder, dataset or ZIP (looked in {base_dir} and here)")
    if is_task(path):
        folders = [path]
    else:
        folders = [each for each in sorted(path.iterdir()) if each.is_dir() and not each.name.startswith(".")]
        folders = [each for each in folders if _wanted(each.name, entry)]
        if not any(is_task(each) for each in folders):
            raise TaskError(f"{entry.path}: no task in it; a task folder has a task.toml")
    tasks: list[Task] = []
    broken: list[BrokenTask] = []
    for folder in folders:
        try:
            tasks.append(read_task(folder, cache_dir))
        except TaskError as error:
            broken.append(_broken(folder, error))
    return Found(tasks=tuple(tasks), broken=tuple(broken))


def is_task(folder: Path) -> bool:
    """Whether a folder is a task."""
    return any((folder / marker).is_file() for marker in MARKERS)


def _wanted(name: str, entry: TaskEntry) -> bool:
    chosen = not entry.include or any(fnmatch.fnmatch(name, pattern) for pattern in entry.include)
    return chosen and not any(fnmatch.fnmatch(name, pattern) for pattern in entry.exclude)


def _resolve(written: str, base_dir: Path) -> Path:
    """Against the spec's folder first, then the working folder."""
    return next((each for each in (base_dir / written, Path(written)) if each.exists()), Path(written))


def _unpacked(archive: Path, cache_dir: Path) -> Path:
    """The archive's folder, unpacked once per content."""
    with archive.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    target = cache_dir / "archives" / digest[:32]
    if not target.exists():
        return unpack(archive, target)
    return next((each for each in (target, *target.iterdir()) if is_task(each)), target)


def _broken(folder: Path, error: TaskError) -> BrokenTask:
    digest = hashlib.sha256(f"broken\0{folder.name}\0{error}".encode()).hexdigest()
    return BrokenTask(name=folder.name, path=folder, digest=digest, error=str(error))
