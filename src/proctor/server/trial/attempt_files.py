"""The files of an attempt: of one that has ended by digest, of one that runs from its run's folder.

A name is looked up in a list that Proctor made, and never becomes a path by itself; in a folder no link is
followed.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from proctor.errors import NotFoundError
from proctor.model.record import Artifact, AttemptRecord
from proctor.render.trial_logs import folder_of
from proctor.server.problem import Problem
from proctor.server.state import State
from proctor.store.blobs import Blobs
from proctor.store.store import Store
from proctor.store.views.trials import Shown

MOST_FILES = 10_000
"""Files that are listed of a running attempt."""
_MOST_ENTRIES = 50_000
"""Files and folders that are looked at for it, and how deep: an agent may make any number of them."""
_MOST_DEPTH = 100
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One file."""

    path: str
    size: int
    media_type: str = "application/octet-stream"
    digest: str = ""
    """Empty while it may still change."""
    written_ns: int = 0
    """When it was last written to, while it may still change."""


@dataclass(frozen=True, slots=True)
class AttemptFiles:
    """Every file of one attempt."""

    number: int
    record: AttemptRecord | None
    """None while it runs."""
    folder: Path
    blobs: Blobs
    files: dict[str, FileInfo]

    @property
    def live(self) -> bool:
        """Whether it may still change."""
        return self.record is None

    def open(self, path: str) -> BinaryIO:
        """Read a file; a Problem when there is none of this name."""
        found = self.files.get(path)
        if found is None:
            raise Problem("not_found", f"Attempt {self.number} left no file '{path[:200]}'")
        try:
            return (
                self.blobs.open(found.digest, parts=True) if found.digest else _open_below(self.folder, path)
            )
        except (OSError, NotFoundError) as error:
            raise Problem("not_found", f"The file '{path[:200]}' is no longer stored") from error

    def read(self, path: str, limit: int) -> bytes:
        """A file's beginning, at most so many bytes."""
        with self.open(path) as file:
            return file.read(limit)


def find_trial(store: Store, run: str, index: int) -> Shown:
    """A trial by its index; a Problem when the run has none."""
    found = store.views.trials.shown(run, [index]) if 0 <= index < 1 << 31 else []
    if not found:
        raise Problem("not_found", f"Run {run} has no trial {index}")
    return found[0]


def files_of(store: Store, shared: State, run: str, index: int, attempt: int | None) -> AttemptFiles:
    """The files of an attempt: the one that is named, that runs, that counts, or the last."""
    trial = find_trial(store, run, index)
    records = [record for record, _ in store.views.trials.attempts(run, index, trial.planned.key)]
    by_number = {record.number: record for record in records}
    running = trial.attempts + 1 if trial.state in {"running", "leased"} else None
    counted = trial.record.number if trial.record else None
    number = attempt or running or counted or (records[-1].number if records else 1)
    if number not in by_number and number != running and attempt is not None:
        raise Problem("not_found", f"Trial {index} has no attempt {number}")
    record = by_number.get(number)
    run_dir = Path(store.run(run).folder or ".")
    folder = folder_of(run_dir, trial.planned, number)
    files = _kept(record) if record else {} if number != running else dict(_written(folder))
    return AttemptFiles(number, record, folder, shared.blobs, files)


def _kept(record: AttemptRecord) -> dict[str, FileInfo]:
    return {
        each.name: FileInfo(each.name, each.size_bytes, _media_type(each), each.digest)
        for each in record.artifacts
    }


def _media_type(artifact: Artifact) -> str:
    return "text/plain" if artifact.name.startswith("logs/") else artifact.media_type


def is_text(name: str) -> bool:
    """Whether an answer can hold the name of a file: an agent may give it any bytes."""
    return not any("\ud800" <= character <= "\udfff" for character in name)


def _written(folder: Path) -> Iterator[tuple[str, FileInfo]]:
    """What is in a folder now, by paths inside it; what is not a plain file is left out.

    An agent may be at work in it: what goes away meanwhile, or becomes something else, is left out too.
    """
    folders: deque[tuple[str, ...]] = deque([()])
    entries = files = 0
    while folders and entries < _MOST_ENTRIES:
        above = folders.popleft()
        for name, about in _entries(folder, above, _MOST_ENTRIES - entries):
            entries += 1
            if stat.S_ISDIR(about.st_mode) and len(above) < _MOST_DEPTH:
                folders.append((*above, name))
            elif stat.S_ISREG(about.st_mode) and is_text(path := "/".join((*above, name))):
                yield path, FileInfo(path, about.st_size, written_ns=about.st_mtime_ns)
                files += 1
                if files >= MOST_FILES:
                    return


def _entries(folder: Path, above: Sequence[str], most: int) -> list[tuple[str, os.stat_result]]:
    """Some names in a folder, in order, with what they are."""
    known = []
    try:
        with _folder_below(folder, above) as handle, os.scandir(handle) as found:
            for entry in islice(found, most):
                with suppress(OSError):
                    known.append((entry.name, entry.stat(follow_symlinks=False)))
    except OSError:
        return []
    return sorted(known, key=lambda entry: entry[0])


@contextmanager
def _folder_below(folder: Path, above: Sequence[str]) -> Iterator[int]:
    """A folder below another one, opened step by step: no part of the way may be a link."""
    handle = os.open(folder, _READ | os.O_DIRECTORY)
    try:
        for part in above:
            below = os.open(part, _READ | os.O_DIRECTORY, dir_fd=handle)
            os.close(handle)
            handle = below
        yield handle
    finally:
        os.close(handle)


def _open_below(folder: Path, path: str) -> BinaryIO:
    """Open a plain file below a folder."""
    *above, name = path.split("/")
    with _folder_below(folder, above) as handle:
        file = os.open(name, _READ, dir_fd=handle)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(f"{path}: not a plain file")
    return os.fdopen(file, "rb")
