"""A watch over disk use: overlays have no quota of their own, so growth is looked at and stopped.

The free space of the disk is read often, which is cheap; trees are measured only after it shrank.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from proctor.errors import SandboxError

PERIOD_S = 0.5
GRAIN_BYTES = 4 << 20
FLOOR_BYTES = 1 << 30
FLOOR_SHARE = 0.05
"""A disk is nearly full when less than one gigabyte and less than this share is free."""
WORTH_BYTES = 64 << 20
"""On a nearly full disk, a sandbox that uses less than this keeps running: stopping it frees nothing."""
INODE_BYTES = 4096
"""Each file counts as at least this much: a million empty ones fill a disk too."""


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


@dataclass(slots=True)
class StorageWatch:
    """Ends what runs in a sandbox that outgrew its limit, or in the largest when the disk is nearly full."""

    folder: Path
    floor_bytes: int = FLOOR_BYTES
    floor_share: float = FLOOR_SHARE
    watched: dict[str, Watched] = field(default_factory=dict)
    _free: int | None = None
    _task: asyncio.Task[None] | None = None

    def add(self, name: str, watched: Watched) -> None:
        """Begin to watch a sandbox."""
        self.watched[name] = watched
        watched.free_bytes = 0 if self._nearly_full() else self._free_bytes()
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
        """How much the disk must shrink before trees are measured: a share of the smallest limit."""
        limits = [each.limit_bytes for each in self.watched.values() if each.limit_bytes is not None]
        return max(GRAIN_BYTES, min(limits) // 8) if limits else 1 << 62

    async def look(self) -> None:
        """Measure everyone and end who is over."""
        self._free = self._free_bytes()
        for name, each in list(self.watched.items()):
            try:
                used, inodes = await each.measure()
            except SandboxError:
                continue  # it ended meanwhile
            each.used_bytes = weight(used, inodes)
            if each.limit_bytes is not None and each.used_bytes > each.limit_bytes and name in self.watched:
                await each.end(f"storage limit of {each.limit_bytes} bytes exceeded", False)
        if self.watched and self._nearly_full():
            largest = max(self.watched.values(), key=lambda each: each.used_bytes)
            if largest.used_bytes >= WORTH_BYTES:
                written = largest.free_bytes - self._free_bytes()
                by_itself = bool(largest.free_bytes) and largest.used_bytes * 2 > written
                whose = ", and most of what was written since this sandbox began is its own"
                await largest.end(
                    f"the disk of the host is nearly full{whose if by_itself else ''}", not by_itself
                )

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(PERIOD_S)
            free = self._free_bytes()
            shrunk = 0 if self._free is None else self._free - free
            # On a disk that stays nearly full, measuring again and again would find no sandbox that grows.
            if self._free is None or shrunk > self.grain_bytes or (shrunk > 0 and self._nearly_full()):
                await self.look()
            elif free > self._free:
                self._free = free

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
