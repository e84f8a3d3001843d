"""The folders of sandboxes that have ended. Small ones are put aside and removed many at a time.

A process that removes one folder costs more than the removing. All at the end would make whoever waits for
the run wait for that too.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

SMALL_BYTES = 256 << 10
"""What is larger is removed at once; a file counts as 4 KiB at least."""
TOGETHER = 100


class Remains:
    """Puts folders aside, at most so many. The one who owns all of them removes what is left at the end."""

    def __init__(self, remove: Callable[[str], Awaitable[None]]) -> None:
        self._remove = remove
        self._aside: Path | None = None
        self._count = 0

    async def put(self, folder: Path, owner: tuple[int, int] | None) -> None:
        """Take a folder out of the way. It and those beside it belong to `owner`, unless to this process."""
        if self._aside is None:
            aside = folder.with_name(f"ended-{folder.name}")
            aside.mkdir(mode=0o700)
            if owner:
                os.chown(aside, *owner)
            self._aside, self._count = aside, 0
        os.rename(folder, f"{self._aside}/{folder.name}")  # noqa: PTH104 - once per sandbox
        self._count += 1
        if self._count >= TOGETHER:
            full, self._aside = self._aside, None
            await self._remove(full.name)
