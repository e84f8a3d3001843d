"""One page of memory that a lane and its measured process both see.

It lets a child say where it is, and keep finished rows safe, without a system call beside the timer.
"""

from __future__ import annotations

import mmap
import struct
import time

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
