"""What an attempt leaves while it runs: its phases and its logs, and what others may follow of both.

A log is complete while it is small; a larger one keeps its beginning and its end. What lies between the two
limits is counted and left out, so a two-gigabyte log costs a few megabytes and still shows how work ended.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from proctor.disk import write_all
from proctor.trial.redact import RedactedStream, Redactor


class Phases:
    """A stopwatch per phase; a phase that is entered twice adds up."""

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        entered: Callable[[str], None] | None = None,
    ) -> None:
        self.seconds: dict[str, float] = {}
        self.current = ""
        self.clock = clock
        self.entered = entered
        """Hears the name of a phase that begins."""

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time what happens inside; `current` stays at the phase that raised."""
        self.current = name
        if self.entered:
            self.entered(name)
        began = self.clock()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + self.clock() - began


_PHASES = frozenset({"image", "start", "agent", "budget_wait", "verify"})
_STANDSTILL_S = 1.0
"""A wait for a budget that is shorter is not told."""
_EVERY_S = 1.0
"""At most this often a log's growth is told, for each log."""

Note = Callable[[str, Mapping[str, Any]], None]
"""Hears the kind of an event and its data; must be quick."""


class LiveEvents:
    """Tells of one attempt."""

    def __init__(self, note: Note, clock: Callable[[], float] = time.monotonic) -> None:
        self._note = note
        self._clock = clock
        self._bytes: dict[str, int] = {}
        self._told: dict[str, float] = {}
        self._waits: asyncio.TimerHandle | None = None

    def phase(self, name: str) -> None:
        """A phase begins. Short ones are not told."""
        if name in _PHASES:
            self._note("attempt.phase", {"phase": name})

    def stand_still(self, still: bool) -> None:
        """All calls of the agent wait for a budget, or do so no more."""
        if still:
            loop = asyncio.get_running_loop()
            self._waits = loop.call_later(_STANDSTILL_S, self.phase, "budget_wait")
        elif self._waits:
            if self._waits.when() <= asyncio.get_running_loop().time():
                self.phase("agent")
            self._waits.cancel()
            self._waits = None

    def log(self, name: str, data: bytes) -> None:
        """A log has grown."""
        self._bytes[name] = self._bytes.get(name, 0) + len(data)
        now = self._clock()
        if now - self._told.get(name, -_EVERY_S) >= _EVERY_S:
            self._told[name] = now
            self._note("attempt.log", {"name": name, "bytes": self._bytes[name]})


class LiveSteps:
    """The steps of a trajectory in a file, a line each, while the attempt runs; at its end it is removed."""

    FILE = "trajectory.jsonl"

    def __init__(self, folder: Path, redactor: Redactor) -> None:
        self._path = folder / self.FILE
        self._redactor = redactor
        self._bytes = 0

    def add(self, step: Mapping[str, Any]) -> None:
        """Append a step. A disk that refuses it ends the showing, not the attempt."""
        line = self._redactor.whole(json.dumps(self._redactor.value(dict(step))).encode()) + b"\n"
        self._bytes += len(line)
        if self._bytes > MOST_LIVE_BYTES:
            return
        with suppress(OSError):
            if self._bytes == len(line):
                self._path.parent.mkdir(parents=True, exist_ok=True)
            _append(str(self._path), line)


MOST_LIVE_BYTES = 64 << 20
HEAD_BYTES = 4 << 20
TAIL_BYTES = 4 << 20


class LogFile:
    """One log on disk: `name` holds the head, `name.1` and `name.2` take turns as the tail until `close`."""

    def __init__(
        self,
        path: Path,
        redactor: Redactor,
        *,
        head_bytes: int = HEAD_BYTES,
        tail_bytes: int = TAIL_BYTES,
        heard: Sequence[Callable[[bytes], None]] = (),
    ) -> None:
        self.path = path
        self._heard = heard
        self.total = 0
        self._stream: RedactedStream = redactor.stream()
        self._head_left = head_bytes
        self._part_bytes = max(1, tail_bytes)
        self._parts = (path.with_name(path.name + ".1"), path.with_name(path.name + ".2"))
        self._part = 0
        self._part_size = 0
        self._dropped = 0

    def write(self, data: bytes) -> None:
        """Append; old middle parts make room."""
        self._put(self._stream.feed(data))

    def close(self) -> int:
        """Join head and tail into one file, with a line that says how much is missing; how much that is."""
        self._put(self._stream.end())
        older, newer = self._parts[1 - self._part], self._parts[self._part]
        if not newer.exists() and not older.exists():
            return 0
        with self.path.open("ab") as sink:
            if self._dropped:
                sink.write(f"\n… {self._dropped} bytes left out …\n".encode())
            for part in (older, newer):
                if part.exists():
                    sink.write(part.read_bytes())
                    part.unlink()
        return self._dropped

    def _put(self, data: bytes) -> None:
        if not data:
            return
        self.total += len(data)
        for heard in self._heard:
            heard(data)
        head, rest = data[: self._head_left], data[self._head_left :]
        if head:
            self._head_left -= len(head)
            _append(str(self.path), head)
        while rest:
            room = self._part_bytes - self._part_size
            if room == 0:
                self._turn()
                continue
            _append(str(self._parts[self._part]), rest[:room])
            self._part_size += len(rest[:room])
            rest = rest[room:]

    def _turn(self) -> None:
        self._part = 1 - self._part
        self._part_size = 0
        old = self._parts[self._part]
        if old.exists():
            self._dropped += old.stat().st_size
            old.unlink()


class Logs:
    """The logs of one attempt, made as they are first written to. Listeners receive what is written."""

    def __init__(
        self, folder: Path, redactor: Redactor, listeners: Sequence[Callable[[str, bytes], None]] = ()
    ) -> None:
        self.folder = folder
        self.redactor = redactor
        self.listeners = listeners
        self._files: dict[str, LogFile] = {}

    def write(self, name: str, data: bytes) -> None:
        """Append to the log `name`, which is a plain file name."""
        if name not in self._files:
            self.folder.mkdir(parents=True, exist_ok=True)
            heard = [partial(listener, name) for listener in self.listeners]
            self._files[name] = LogFile(self.folder / Path(name).name, self.redactor, heard=heard)
        self._files[name].write(data)

    def close(self) -> list[str]:
        """Finish every log; a note for each that is not complete."""
        left_out = {name: file.close() for name, file in self._files.items()}
        return [
            f"{name}: {count:,} of {self._files[name].total:,} bytes were left out of the middle of this log"
            for name, count in left_out.items()
            if count
        ]


def _append(path: str, data: bytes) -> None:
    # Not kept open: hundreds of agents have two of them each.
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        write_all(fd, data)
    finally:
        os.close(fd)
