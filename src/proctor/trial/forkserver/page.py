"""One page of memory that a lane and its measured process both see.

It lets a child say where it is, and keep finished rows safe, without a system call beside the timer.
"""

from __future__ import annotations

import mmap
import os
import struct
import time

from proctor.trial.forkserver.wire import encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


_MARK = struct.Struct("<QIi")
_LENGTH = struct.Struct("<I")
_LENGTH_AT = _MARK.size
_NUMBER = struct.Struct("<Q")
_NUMBER_AT = _LENGTH_AT + 8
_BACKLOG_AT = 64
BACKLOG_BYTES = (64 << 10) - _BACKLOG_AT


class Mark:
    """Where a child said it was: a phase, an iteration, and since when (monotonic nanoseconds)."""

    __slots__ = ("iteration", "phase", "since_ns")

    def __init__(self, phase: int, iteration: int, since_ns: int) -> None:
        self.phase = phase
        self.iteration = iteration
        self.since_ns = since_ns


PHASES = (
    "start",
    "construct",
    "setup",
    "warmup",
    "execute_once",
    "teardown",
    "instrument",
    "end",
    "link closed",
    "harness",
)
IDLE = 0


class SharedPage:
    """Memory that a lane and its child both see; it outlives the child."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _BACKLOG_AT + BACKLOG_BYTES)
        self.full = False

    def mark(self, phase: int, iteration: int = 0) -> None:
        """Say where we are; the time limit of this phase starts now."""
        _MARK.pack_into(self._memory, 0, time.monotonic_ns(), phase, iteration)

    def clear(self) -> None:
        """Between phases: the harness itself is at work."""
        self.mark(IDLE)

    def read_mark(self) -> Mark:
        """Where the child is, read until two looks agree."""
        while True:
            first = self._memory[: _MARK.size]
            if first == self._memory[: _MARK.size]:
                since_ns, phase, iteration = _MARK.unpack(first)
                return Mark(phase, iteration, since_ns)

    @property
    def backlog(self) -> bytes:
        """Whole frames that were written and perhaps not sent."""
        (length,) = _LENGTH.unpack_from(self._memory, _LENGTH_AT)
        return self._memory[_BACKLOG_AT : _BACKLOG_AT + min(length, BACKLOG_BYTES)]

    def append(self, data: bytes) -> bool:
        """Keep a frame; False when there is no room. The length is written last, so no half frame is seen."""
        (length,) = _LENGTH.unpack_from(self._memory, _LENGTH_AT)
        if self.full or length + len(data) > BACKLOG_BYTES:
            return False
        start = _BACKLOG_AT + length
        self._memory[start : start + len(data)] = data
        _LENGTH.pack_into(self._memory, _LENGTH_AT, length + len(data))
        return True

    def take(self, number: int) -> None:
        """Say which order is being carried out."""
        _NUMBER.pack_into(self._memory, _NUMBER_AT, number)

    @property
    def taken(self) -> int:
        """The order last begun by a process that carries out several."""
        (number,) = _NUMBER.unpack_from(self._memory, _NUMBER_AT)
        return int(number)

    def fill(self) -> None:
        """Take nothing more: after a gap nothing that follows can be trusted."""
        self.full = True

    def empty(self) -> None:
        """The backlog has been sent."""
        _LENGTH.pack_into(self._memory, _LENGTH_AT, 0)


FLUSH_EVERY_NS = 100_000_000


class RowsLostError(Exception):
    """The measured code closed the harness's descriptor, and the page cannot hold what there is to say."""


class RowWriter:
    """Rows wait in the page, so a crash keeps every finished one."""

    def __init__(self, handle: int, page: SharedPage) -> None:
        self._handle = handle
        self._page = page
        self._identity = _identity(handle)
        self._pid = os.getpid()
        self._flushed_ns = time.monotonic_ns()
        self.lost = False
        """Whether the descriptor is no longer ours to write to."""

    def row(self, message: Mapping[str, Any]) -> None:
        """Keep a row; it is sent with others when a tenth of a second has passed or the page is full."""
        self._keep(encode(message))
        if time.monotonic_ns() - self._flushed_ns > FLUSH_EVERY_NS:
            self.flush()

    def send(self, message: Mapping[str, Any]) -> None:
        """Send now, after everything that waits."""
        self._keep(encode(message))
        self.flush()

    def _keep(self, data: bytes) -> None:
        """Put a frame into the page, or past it when it is too large; RowsLostError when neither works."""
        if self._page.append(data):
            return
        if not self.lost:
            self.flush()
            if self._page.append(data):
                return
            self._write(data)
        if self.lost:
            self._page.fill()
            raise RowsLostError

    def flush(self) -> None:
        """Send what waits. When the descriptor is lost it stays in the page, where the lane finds it."""
        waiting = self._page.backlog
        if waiting and not self.lost:
            self._write(waiting)
            if not self.lost:
                self._page.empty()
        self._flushed_ns = time.monotonic_ns()

    def end_if_forked(self) -> None:
        """End silently if this process is a copy that the measured code forked."""
        if os.getpid() != self._pid:
            os._exit(0)

    def _write(self, data: bytes) -> None:
        self.end_if_forked()
        try:
            # The number may be a file of the measured code's by now: look before writing into it.
            self.lost = _identity(self._handle) != self._identity
            while data and not self.lost:
                data = data[os.write(self._handle, data) :]
        except OSError:
            self.lost = True


def _identity(handle: int) -> tuple[int, int]:
    found = os.fstat(handle)
    return found.st_dev, found.st_ino
