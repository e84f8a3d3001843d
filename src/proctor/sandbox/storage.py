"""A watch over disk use: overlays have no quota of their own, so growth is looked at and stopped.

The free space of the disk is read often, which is cheap; trees are measured only after it shrank.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

PERIOD_S = 0.5
GRAIN_BYTES = 16 << 20
FLOOR_BYTES = 1 << 30
SHARE = 20
"""Looking takes at most one part in this many of the time, however many sandboxes there are."""
INODE_BYTES = 4096
"""Each file counts as at least this much: a million empty ones fill a disk too."""


@dataclass(slots=True, kw_only=True)
class Watched:
    """One sandbox under watch."""

    limit_bytes: int | None
    measure: Callable[[], Awaitable[tuple[int, int]]]
    end: Callable[[str], Awaitable[None]]
    used_bytes: int = 0


@dataclass(slots=True)
class StorageWatch:
    """Ends what runs in a sandbox that outgrew its limit, or in the largest when the disk is nearly full."""

    folder: Path
    floor_bytes: int = FLOOR_BYTES
    watched: dict[str, Watched] = field(default_factory=dict)
    _free: int | None = None
    _task: asyncio.Task[None] | None = None

    def add(self, name: str, watched: Watched) -> None:
        """Begin to watch a sandbox."""
        self.watched[name] = watched
        if self._task is None or self._task.done():
            self._free = self._free_bytes()
            self._task = asyncio.get_running_loop().create_task(self._run())

    def remove(self, name: str) -> None:
        """Stop watching it."""
        self.watched.pop(name, None)
        if not self.watched and self._task:
            self._task.cancel()
            self._task = None

    @property
    def grain_bytes(self) -> int:
        """How much the disk must shrink before trees are measured."""
        limits = [each.limit_bytes for each in self.watched.values() if each.limit_bytes is not None]
        return min([GRAIN_BYTES, *(limit // 4 for limit in limits)])

    async def look(self) -> None:
        """Measure everyone and end who is over."""
        self._free = self._free_bytes()
        for name, each in list(self.watched.items()):
            used, inodes = await each.measure()
            each.used_bytes = max(used, inodes * INODE_BYTES)
            if each.limit_bytes is not None and each.used_bytes > each.limit_bytes and name in self.watched:
                await each.end(f"storage limit of {each.limit_bytes} bytes exceeded")
        if self.watched and self._free_bytes() < self.floor_bytes:
            largest = max(self.watched.values(), key=lambda each: each.used_bytes)
            await largest.end("the disk of the host is nearly full")

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(PERIOD_S)
            free = self._free_bytes()
            if self._free is None or free < self._free - self.grain_bytes or free < self.floor_bytes:
                started = time.monotonic()
                await self.look()
                await asyncio.sleep(min(30.0, SHARE * (time.monotonic() - started)))
            elif free > self._free:
                self._free = free

    def _free_bytes(self) -> int:
        status = os.statvfs(self.folder)
        return min(status.f_bavail * status.f_frsize, status.f_favail * INODE_BYTES or 1 << 62)
