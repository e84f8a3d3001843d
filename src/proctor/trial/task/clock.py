"""The time that an agent has; it stands still while all calls of its models wait for a budget."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class AgentClock:
    """Of one attempt. Others tell it when time stands still."""

    def __init__(self) -> None:
        self.on_change: Callable[[bool], None] | None = None
        """Told when it stops and when it goes on."""
        self._limit: asyncio.Timeout | None = None
        self._left_s: float | None = None
        """Of the limit, while the clock stands still."""

    @asynccontextmanager
    async def limit(self, seconds: float) -> AsyncIterator[asyncio.Timeout]:
        """As `asyncio.timeout`, on this clock."""
        try:
            async with asyncio.timeout(seconds) as self._limit:
                yield self._limit
        finally:
            self._limit = self._left_s = None

    def stand_still(self, still: bool) -> None:
        """The clock stops, or goes on."""
        if self.on_change:
            self.on_change(still)
        limit = self._limit
        if limit is None or limit.expired():
            return
        now = asyncio.get_running_loop().time()
        if still and (when := limit.when()) is not None:
            self._left_s = when - now
            limit.reschedule(None)
        elif not still and self._left_s is not None:
            limit.reschedule(now + self._left_s)
            self._left_s = None
