"""Find the tasks below a folder, whatever categories it sorts them into, and say what is there instead."""

from __future__ import annotations

import itertools
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path

from proctor.disk import read_small
from proctor.errors import TaskError
from proctor.quantity import some
from proctor.tasks.archive import MARKERS

DEEPEST = 8
"""How many folders below the top a task may be."""
MOST_OTHERS = 10_000
"""How many folders without a task are looked into: who names `/` means something else."""
_SKIPPED = frozenset({"node_modules", "__pycache__", "venv"})
_PARTS_OF_A_TASK = ("instruction.md", "tests/test.sh", "environment/Dockerfile", "steps")
_LOOKS = "a task is a folder with task.toml, instruction.md, environment/ and tests/test.sh"
_OLDER = (
    "task.yaml is the older Terminal-Bench format, which Proctor does not read; `harbor task migrate` "
    "converts it"
)


def is_task(folder: Path) -> bool:
    """Whether a folder is a task."""
    return any((folder / marker).is_file() for marker in MARKERS)


def own_name(folder: Path) -> str:
    """The name that a task gives itself; empty when it has none, or when its task.toml cannot be read."""
    try:
        about = tomllib.loads(read_small(folder / "task.toml", 1 << 20).decode()).get("task")
    except (OSError, ValueError, RecursionError):  # said when the task is read
        return ""
    name = about.get("name") if isinstance(about, dict) else None
    return name if isinstance(name, str) else ""


def task_folders(root: Path) -> list[Path]:
    """The tasks in a folder and below, in order of their paths; TaskError when there is none.

    What looks like a task and has no task.toml is listed too: its author wants to hear of it.
    """
    if not root.is_dir():
        raise TaskError(f"{root}: no such folder")
    if is_task(root):
        return [root]
    found = list(_below(root, 1, root, itertools.count(1)))
    if not any(is_task(each) for each in found):
        raise TaskError(f"{root}: no task in it, {_there(root)}; {_LOOKS}{_older(root)}")
    return found


def _below(folder: Path, depth: int, root: Path, others: Iterator[int]) -> Iterator[Path]:
    """Nothing inside a task is a task, whatever its files are called."""
    for place in _folders(folder):
        if is_task(place):
            yield place
            continue
        if place.is_symlink():  # it may lead in circles
            continue
        if next(others) > MOST_OTHERS:
            many = f"more than {MOST_OTHERS:,} folders below it are no tasks"
            raise TaskError(f"{root}: {many}; name the folder that has the tasks")
        inner = list(_below(place, depth + 1, root, others)) if depth < DEEPEST else []
        if inner:
            yield from inner
        elif _incomplete(place):
            yield place


def _folders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as listing:
            names = [each.name for each in listing if each.is_dir()]
    except OSError:  # a folder that may not be read holds no task for this user
        return []
    return [folder / name for name in sorted(names) if not name.startswith(".") and name not in _SKIPPED]


def _incomplete(folder: Path) -> bool:
    return sum((folder / part).exists() for part in _PARTS_OF_A_TASK) > 1


def _there(root: Path) -> str:
    """What a folder holds, for somebody who expected tasks."""
    entries = sorted(each for each in root.iterdir() if not each.name.startswith("."))
    if not entries:
        return "it is empty"
    names = [f"{each.name}/" if each.is_dir() else each.name for each in entries]
    return f"only {some(names, 4)}"


def _older(root: Path) -> str:
    places = [root, *_folders(root)]
    return f" ({_OLDER})" if any((each / "task.yaml").is_file() for each in places) else ""
