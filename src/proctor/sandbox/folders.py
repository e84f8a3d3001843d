"""The state folders of sandboxes. Many share one folder, which is removed when the last of them has ended.

A process that removes one small folder costs more than the removing, and a file is made faster where none
was deleted lately. Removing all at the end would make the run last longer.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

SMALL_BYTES = 256 << 10
"""What is larger is removed at once; a file counts as 4 KiB at least."""
TOGETHER = 100
_MOST_WAITING = 1000
"""Small ones that wait for others to end, at most."""


@dataclass(slots=True)
class Shared:
    """A folder with the state of several sandboxes."""

    path: Path
    made: int = 0
    live: int = 0
    waiting: int = 0
    """Ended, and to be removed with the others."""

    @property
    def over(self) -> bool:
        """Whether it is empty and will not be used again."""
        return self.made >= TOGETHER and not self.live


@dataclass(frozen=True, slots=True)
class Place:
    """The state folder of one sandbox."""

    shared: Shared
    path: Path


class Folders:
    """Makes state folders below one folder. Its owner removes what is left at the end."""

    def __init__(self, remove: Callable[[Path], Awaitable[None]]) -> None:
        self._remove = remove
        self._shared: Shared | None = None
        self._waiting = 0

    @property
    def may_wait(self) -> bool:
        """Whether a small one that ends now may be left for later."""
        return self._waiting < _MOST_WAITING

    def make(self, base: Path, name: str, owner: tuple[int, int] | None) -> Place:
        """An empty folder for a sandbox, which belongs to `owner`, unless to this process."""
        shared = self._shared
        if shared is None or shared.made >= TOGETHER:
            shared = Shared(base / f"with-{name}")
            _make(str(shared.path), owner)
            self._shared = shared
        path = shared.path / name
        _make(str(path), owner)
        shared.made += 1
        shared.live += 1
        return Place(shared, path)

    async def ended(self, place: Place, *, removed: bool) -> None:
        """Its sandbox has ended; unless the folder was removed, it goes with the others."""
        shared = place.shared
        shared.live -= 1
        if not removed:
            shared.waiting += 1
            self._waiting += 1
        if shared.over:
            self._waiting -= shared.waiting
            await self._remove(shared.path)


def _make(folder: str, owner: tuple[int, int] | None) -> None:
    os.mkdir(folder, mode=0o700)  # noqa: PTH102 - once per sandbox
    if owner:
        os.chown(folder, *owner)
