"""Rules about the files of a task: links, large files, its own overrides."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from proctor.errors import TaskError
from proctor.tasks.lint.findings import Finding, Subject, from_text
from proctor.tasks.overrides import load_overrides

LARGE_BYTES = 50 << 20
_INPUTS = ("tests", "solution", "steps")


def overrides(subject: Subject) -> Iterator[Finding]:
    """`overrides.json`, which nothing reads before a run."""
    file = subject.task.path / "overrides.json"
    if file.is_file():
        try:
            load_overrides(file)
        except TaskError as error:
            yield from_text("error", str(error), subject.task.path)


def files(subject: Subject) -> Iterator[Finding]:
    """Links and large files."""
    root = subject.task.path
    waiting = [str(root)]
    while waiting:
        with os.scandir(waiting.pop()) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
        for entry in entries:
            if entry.is_symlink():
                yield _link(Path(entry.path), root)
            elif entry.is_dir():
                waiting += [entry.path] if entry.name != ".git" else []
            elif entry.is_file() and (size := entry.stat().st_size) > LARGE_BYTES:
                yield Finding(
                    level="warning",
                    place=entry.path,
                    message="a large file, part of every copy of the task",
                    detail=f"{size >> 20} MB",
                    hint="make or fetch it when the image is built",
                )


def _link(path: Path, root: Path) -> Finding:
    leads_out = not path.resolve().is_relative_to(root.resolve())
    if leads_out and path.relative_to(root).parts[0] in _INPUTS:
        return Finding(
            level="error",
            place=str(path),
            message="a link to something outside the task, which is not copied with it",
            hint="put the file itself here",
        )
    return Finding(
        level="warning",
        place=str(path),
        message="a link: it is lost when the task is packed",
        hint="put the file itself here",
    )
