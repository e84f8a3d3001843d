"""The logs of a trial in its run's folder: which there are, their last lines, and what is being written now.

While an attempt runs, a long log has its beginning in `name` and its end in `name.1` and `name.2`, which
take turns; when the attempt ends they become one file. See `trial/progress.py`, which writes them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from proctor.model.place import attempt_folder, trial_folder
from proctor.model.plan import PlannedTrial
from proctor.render.results.trial_files import EVAL_LOG

CHUNK = 1 << 16
_PARTS = (".1", ".2")
_PLACES = (("logs", ""), ("artifacts", "stdout.txt"), ("artifacts", "stderr.txt"))
"""Where logs are: all files of a folder, or one file of it."""


@dataclass(frozen=True, slots=True)
class Log:
    """One log, perhaps still growing."""

    name: str
    path: Path

    @property
    def size_bytes(self) -> int:
        """What is there now, the parts of a growing log included."""
        return sum(plain_size(path) or 0 for path in (self.path, *(_part(self.path, end) for end in _PARTS)))


def folder_of(run_dir: Path, trial: PlannedTrial, attempt: int) -> Path:
    """The folder of one attempt. Experiments have one folder per trial, rewritten by each attempt."""
    return run_dir / (attempt_folder(trial, attempt) if trial.kind == "task" else trial_folder(trial))


def latest_attempt(run_dir: Path, trial: PlannedTrial) -> int:
    """The newest attempt that has a folder; 0: none."""
    number = 0
    while folder_of(run_dir, trial, number + 1).is_dir():
        number += 1
        if trial.kind != "task":
            break
    return number


def logs_in(folder: Path) -> list[Log]:
    """Every log of an attempt by name, the verifier's last: that is the order of events."""
    found: dict[str, Path] = {}
    for place, only in _PLACES:
        inside = folder / place
        for path in [inside / only] if only else _entries(inside):
            is_part = path.name.endswith(_PARTS) and os.path.lexists(inside / path.name[:-2])
            if not is_part and plain_size(path) is not None:
                found.setdefault(path.name, path)
    ordered = sorted(found.items(), key=lambda item: (item[0] == EVAL_LOG, item[0]))
    return [Log(name, path) for name, path in ordered]


def _entries(folder: Path) -> list[Path]:
    """What is in a folder, which may be gone or have become something else."""
    try:
        return [] if folder.is_symlink() else sorted(folder.iterdir())
    except OSError:
        return []


def plain_size(path: Path) -> int | None:
    """The size of a plain file; None for what is not one, not there, or not to be looked at."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def open_plain(path: Path) -> int:
    """Open a plain file in a folder, neither of which may be a link; OSError for anything else."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    folder = os.open(path.parent, flags | os.O_DIRECTORY)
    try:
        file = os.open(path.name, flags, dir_fd=folder)
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(f"{path}: not a plain file")
    return file


def chosen(logs: list[Log], name: str | None) -> list[Log]:
    """The logs that a name means: `verifier`, `agent` (the others), or a file's name, with or without end."""
    if name is None:
        return logs
    if name == "verifier":
        return [log for log in logs if log.name == EVAL_LOG]
    if name == "agent":
        named = [log for log in logs if Path(log.name).stem == "agent"]
        return named or [log for log in logs if log.name != EVAL_LOG]
    return [log for log in logs if name in {log.name, Path(log.name).stem}]


def read(log: Log, *, tail: int | None = None) -> Iterator[bytes]:
    """The log in pieces, or its last lines; never whole in memory."""
    with _Source(log.path) as source:
        if tail is not None:
            source.skip_to_last(tail)
        while chunk := source.more():
            yield chunk


class Follower:
    """Reads a log as it grows. Files stay open, so what is removed meanwhile is still read whole."""

    def __init__(self, log: Log, *, tail: int | None = None) -> None:
        self.log = log
        self._source: _Source | None = None
        self._in_parts = False
        self._tail = tail
        self._seen: set[int] = set()

    def more(self) -> Iterator[bytes]:
        """What is new since the last call."""
        if self._source is None:
            try:
                self._source = _Source(self.log.path)
            except OSError:
                return
            if self._tail is not None:
                self._source.skip_to_last(self._tail)
        # Asked before the parts are looked for: once there are parts, the head only grows by being joined
        # with them at the end, and that must not be printed again.
        size = self._source.size()
        parts = self._new_parts()
        yield from self._source.rest(size if parts and not self._in_parts else None)
        for number, part in enumerate(parts):
            if self._in_parts and number:
                yield b"\n(some output was written faster than it could be shown)\n"
            self._source.close()
            self._source, self._in_parts = part, True
            yield from part.rest()

    def close(self) -> None:
        """Let go of the file."""
        if self._source:
            self._source.close()

    def _new_parts(self) -> list[_Source]:
        found = []
        for end in _PARTS:
            try:
                source = _Source(_part(self.log.path, end))
            except OSError:
                continue
            number, written_ns = source.identity()
            if number in self._seen:
                source.close()
            else:
                self._seen.add(number)
                found.append((written_ns, number, source))
        return [source for _, _, source in sorted(found, key=lambda each: each[:2])]


class _Source:
    """An open log. What is not a plain file is not opened: a link could lead anywhere."""

    def __init__(self, path: Path) -> None:
        self._fd = open_plain(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def identity(self) -> tuple[int, int]:
        state = os.fstat(self._fd)
        return state.st_ino, state.st_mtime_ns

    def more(self) -> bytes:
        return os.read(self._fd, CHUNK)

    def rest(self, up_to: int | None = None) -> Iterator[bytes]:
        """What was not read yet, to the end or to a place in the file."""
        left = None if up_to is None else up_to - os.lseek(self._fd, 0, os.SEEK_CUR)
        while left is None or left > 0:
            chunk = self.more() if left is None else os.read(self._fd, min(CHUNK, left))
            if not chunk:
                return
            left = None if left is None else left - len(chunk)
            yield chunk

    def skip_to_last(self, lines: int) -> None:
        """Go to the beginning of the last so many lines, from the end backwards."""
        size = end = os.lseek(self._fd, 0, os.SEEK_END)
        left = lines
        while end > 0 and left >= 0:
            start = max(0, end - CHUNK)
            block = os.pread(self._fd, end - start, start)
            if end == size and block.endswith(b"\n"):
                block = block[:-1]  # the end of the last line begins no new one
            while left >= 0:
                place = block.rfind(b"\n")
                if place < 0:
                    break
                left -= 1
                if left == 0 or lines == 0:
                    os.lseek(self._fd, size if lines == 0 else start + place + 1, os.SEEK_SET)
                    return
                block = block[:place]
            end = start
        os.lseek(self._fd, size if lines == 0 else 0, os.SEEK_SET)


def _part(path: Path, end: str) -> Path:
    return path.with_name(path.name + end)
