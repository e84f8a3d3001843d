"""How long an event loop stands still: what a test measures while something long is done beside it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Self

LONGEST_PAUSE_S = 0.25
"""Leases are renewed every few seconds, and gateways answer agents within milliseconds."""
_EVERY_S = 0.01


class Heartbeat:
    """Beats while its block lasts, and calls `on_beat` each time.

    A pause is the time between two beats in which this process computed: on a busy machine a beat may be
    late because others do, and that is nobody's fault. What only waits on the loop is found by `on_beat`:
    what waits for a beat that cannot come never ends.
    """

    def __init__(self, on_beat: Callable[[], None] = lambda: None) -> None:
        self.longest_s = 0.0
        self.beats = 0
        self.on_beat = on_beat

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._beat())
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(2 * _EVERY_S)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _beat(self) -> None:
        wall, computed = time.monotonic(), time.process_time()
        while True:
            await asyncio.sleep(_EVERY_S)
            before = wall, computed
            wall, computed = time.monotonic(), time.process_time()
            self.longest_s = max(self.longest_s, min(wall - before[0], computed - before[1]))
            self.beats += 1
            self.on_beat()
