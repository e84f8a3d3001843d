"""A watch over disk use: overlays have no quota of their own, so growth is looked at and stopped.

The free space of the disk is read often, which is cheap; trees are measured after it shrank, and now and
then, by the keeper's program, outside the sandbox's control groups and for a limited time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from proctor.errors import SandboxError

_log = logging.getLogger("proctor.sandbox")
PERIOD_S = 0.5
GRAIN_BYTES = 4 << 20
FLOOR_BYTES = 1 << 30
FLOOR_SHARE = 0.05
"""A disk is nearly full when less than one gigabyte and less than this share is free."""
WORTH_BYTES = 64 << 20
"""On a nearly full disk, a sandbox that uses less than this keeps running: stopping it frees nothing."""
INODE_BYTES = 4096
"""Each file counts as at least this much: a million empty ones fill a disk too. As in `measure.c`."""
MEASURE_S = 30
"""How long a tree, and then open files without a name, may be counted; what was seen by then counts."""
END_S = 3 * MEASURE_S
"""When a measurement that does not end by itself is given up."""
AGAIN_S = 60.0
"""Measured at least this often: what one sandbox writes may be what another frees."""
ROUND_S = 5.0
"""How long the watch waits for measurements before it looks at the disk again."""


def measure_command(
    program: str,
    paths: Sequence[str],
    *,
    limit_bytes: int | None = None,
    pid: int = 0,
    with_shm: bool = False,
) -> list[str]:
    """What counts bytes and inodes of trees, and of open files without a name in the processes of a sandbox.

    `pid` is one of these. Past the limit nothing is counted. `with_shm`: also what is in its /dev/shm.
    """
    words = [str(MEASURE_S), str(limit_bytes or 0), str(pid), "shm" if with_shm else "-"]
    return [program, "measure", *words, *paths]


def read_measure(code: int, out: str, errors: str) -> tuple[int, int]:
    """Bytes and inodes, from what that command wrote."""
    words = out.split()
    if code or len(words) != 3:
        raise SandboxError(f"cannot measure the disk in use: {errors.strip()[-200:] or f'exit code {code}'}")
    return int(words[0]), int(words[1])


def weight(used_bytes: int, inodes: int) -> int:
    """How much a tree counts for."""
    return max(used_bytes, inodes * INODE_BYTES)


@dataclass(slots=True, kw_only=True)
class Watched:
    """One sandbox under watch."""

    limit_bytes: int | None
    measure: Callable[[], Awaitable[tuple[int, int]]]
    end: Callable[[str, bool], Awaitable[None]]
    """Ends everything in it: why, and whether the host is to blame and not the sandbox itself."""
    used_bytes: int = 0
    free_bytes: int = 0
    """What the disk had left when the watch began; nothing when it was nearly full already."""
    measuring: asyncio.Task[None] | None = None


@dataclass(slots=True)
class StorageWatch:
    """Ends what runs in a sandbox that outgrew its limit, or in the largest when the disk is nearly full."""

    folder: Path
    floor_bytes: int = FLOOR_BYTES
    floor_share: float = FLOOR_SHARE
    watched: dict[str, Watched] = field(default_factory=dict)
    _free: int | None = None
    _looked: float = 0.0
    _task: asyncio.Task[None] | None = None

    def add(self, name: str, watched: Watched) -> None:
        """Begin to watch a sandbox."""
        self.watched[name] = watched
        watched.free_bytes = 0 if self._nearly_full() else self._free_bytes()
        if self._task is None or self._task.done():
            self._free = self._free_bytes()
            self._looked = time.monotonic()
            self._task = asyncio.get_running_loop().create_task(self._run())

    def remove(self, name: str) -> None:
        """Stop watching it."""
        watched = self.watched.pop(name, None)
        if watched and watched.measuring:
            watched.measuring.cancel()
        if not self.watched and self._task:
            self._task.cancel()
            self._task = None

    @property
    def grain_bytes(self) -> int:
        """How much the disk must shrink before trees are measured: a share of the smallest limit."""
        limits = [each.limit_bytes for each in self.watched.values() if each.limit_bytes is not None]
        return max(GRAIN_BYTES, min(limits) // 8) if limits else 1 << 62

    async def look(self) -> None:
        """Measure everyone and end who is over. Who takes long to measure keeps nobody waiting."""
        self._free = self._free_bytes()
        self._looked = time.monotonic()
        for name, watched in self.watched.items():
            if watched.measuring is None:
                watched.measuring = asyncio.create_task(self._measure(name, watched))
        if measuring := [each.measuring for each in self.watched.values() if each.measuring]:
            await asyncio.wait(measuring, timeout=ROUND_S)
        if self.watched and self._nearly_full():
            await self._end_largest()

    async def _measure(self, name: str, watched: Watched) -> None:
        limit_bytes = watched.limit_bytes
        try:
            async with asyncio.timeout(END_S):
                watched.used_bytes = weight(*await watched.measure())
            if limit_bytes is not None and watched.used_bytes > limit_bytes and name in self.watched:
                await watched.end(f"storage limit of {limit_bytes} bytes exceeded", False)
        except (SandboxError, OSError, TimeoutError) as error:
            # Most often it ended meanwhile.
            _log.debug("sandbox %s was not measured: %s", name, error)
        finally:
            watched.measuring = None

    async def _end_largest(self) -> None:
        largest = max(self.watched.values(), key=lambda watched: watched.used_bytes)
        if largest.used_bytes < WORTH_BYTES:
            return
        written = largest.free_bytes - self._free_bytes()
        by_itself = bool(largest.free_bytes) and largest.used_bytes * 2 > written
        whose = ", and most of what was written since this sandbox began is its own"
        reason = f"the disk of the host is nearly full{whose if by_itself else ''}"
        with contextlib.suppress(SandboxError):  # it may have ended meanwhile
            await largest.end(reason, not by_itself)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(PERIOD_S)
            with contextlib.suppress(OSError):  # one folder that went must not end the watch over the others
                if self._is_time():
                    await self.look()

    def _is_time(self) -> bool:
        free = self._free_bytes()
        shrunk = 0 if self._free is None else self._free - free
        # On a disk that stays nearly full, measuring again and again would find no sandbox that grows.
        if self._free is None or shrunk > self.grain_bytes or (shrunk > 0 and self._nearly_full()):
            return True
        self._free = max(free, self._free)
        limited = any(watched.limit_bytes is not None for watched in self.watched.values())
        return limited and time.monotonic() - self._looked > AGAIN_S

    def _free_bytes(self) -> int:
        """What is left in bytes and in inodes, added up: it shrinks when either does."""
        return sum(left for left, _ in self._room())

    def _nearly_full(self) -> bool:
        return any(left < min(self.floor_bytes, whole * self.floor_share) for left, whole in self._room())

    def _room(self) -> tuple[tuple[int, int], ...]:
        """What is left and what there is in all, of bytes and of inodes."""
        found = os.statvfs(self.folder)
        room = (found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)
        if not found.f_files:  # some file systems do not count them
            return (room,)
        return room, (found.f_favail * INODE_BYTES, found.f_files * INODE_BYTES)
