"""How many calls a provider's model gets at a time: found by trying, less when it refuses, shared fairly.

The limit doubles per round of answers until the first refusal, is halved by each round of refusals, and then
grows by one per round. While a provider asks to be left alone, nobody is let through.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

OVERLOADED = frozenset({429, 503, 529})
"""Statuses that say: fewer at a time."""
_FIRST_LIMIT = 8.0
_MOST_PAUSE_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """When a failed call is made again."""

    most: int = 6
    first_s: float = 0.5
    longest_s: float = 20.0
    within_s: float = 600.0
    """How long a call may wait in all, for its turn and between tries, when its client is kept alive."""
    silent_within_s: float = 90.0
    """The same when the client hears nothing meanwhile: several send again after 100 s."""

    def pause_s(self, tries: int, asked_s: float | None) -> float:
        """How long to wait before the next try: what the provider asked for, or ever longer and by chance."""
        if asked_s is not None:
            return asked_s
        return min(self.longest_s, self.first_s * 2.0**tries) * random.uniform(0.5, 1.0)  # noqa: S311


def asked_pause_s(headers: Mapping[str, str], now: Callable[[], float] = time.time) -> float | None:
    """How long a provider asks to be left alone; None when it does not say."""
    try:
        if "retry-after-ms" in headers:
            return max(0.0, float(headers["retry-after-ms"]) / 1000)
        value = headers.get("retry-after")
        if value is None:
            return None
        if value.replace(".", "", 1).strip().isdigit():
            return float(value)
        return max(0.0, parsedate_to_datetime(value).timestamp() - now())
    except (ValueError, TypeError):
        return None


class Limiter:
    """The limit of one provider's model."""

    def __init__(self, most: int, now: Callable[[], float] = time.monotonic) -> None:
        self.limit = min(_FIRST_LIMIT, float(most))
        self.busy = 0
        self._most = most
        self._now = now
        self._slow_start = True
        self._epoch = 0
        """Counts refusals that changed the limit: those of calls that began before say nothing new."""
        self._closed_until = 0.0
        self._opening: asyncio.TimerHandle | None = None
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """By run. The run whose turn it was goes to the end."""

    @asynccontextmanager
    async def turn(self, run_id: str) -> AsyncIterator[int]:
        """One call's place; what is yielded goes back with `refused`."""
        await self._enter(run_id)
        try:
            yield self._epoch
        finally:
            self.busy -= 1
            self._let_in()

    def answered(self) -> None:
        """A call was accepted: there may be room for more."""
        grown = self.limit + (1.0 if self._slow_start else 1.0 / self.limit)
        self.limit = min(float(self._most), grown)
        self._let_in()

    def refused(self, epoch: int, pause_s: float | None) -> None:
        """A call was refused because there are too many."""
        if epoch == self._epoch:
            self._epoch += 1
            self._slow_start = False
            self.limit = max(1.0, self.limit / 2)
        if pause_s:
            self._closed_until = max(self._closed_until, self._now() + min(pause_s, _MOST_PAUSE_S))

    async def _enter(self, run_id: str) -> None:
        if not self._waiting and self.busy < int(self.limit) and self._now() >= self._closed_until:
            self.busy += 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(run_id, deque()).append(place)
        self._let_in()
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.busy -= 1
                self._let_in()
            raise

    def _let_in(self) -> None:
        if not self._waiting:
            return
        closed_s = self._closed_until - self._now()
        if closed_s > 0:
            if self._opening is None or self._opening.cancelled():
                self._opening = asyncio.get_running_loop().call_later(closed_s, self._open)
            return
        while self._waiting and self.busy < int(self.limit):
            run_id, places = next(iter(self._waiting.items()))
            place = places.popleft()
            if places:
                self._waiting.move_to_end(run_id)
            else:
                del self._waiting[run_id]
            if not place.done():
                self.busy += 1
                place.set_result(None)

    def _open(self) -> None:
        self._opening = None
        self._let_in()
