"""How many calls a provider's model gets at a time: found by trying, less when it refuses, shared fairly.

The limit doubles per round of accepted calls until the first refusal, is halved by each round of refusals,
and then grows by one per round of answers. Until that first refusal a call is accepted when its answer
begins, or when others wait and it has not been refused for a second: providers refuse at once, and models
think for long. While a provider asks to be left alone, nobody is let through. Where gateways share a store,
`shares.py` sets the limit, and what is seen here is reported there.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Mapping, Sized
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TypeVar

from proctor.store.limits import FIRST_LIMIT, MOST_PAUSE_S, Share

T = TypeVar("T", bound=Sized)
OVERLOADED = frozenset({429, 503, 529})
"""Statuses that say: fewer at a time."""
ACCEPTED_S = 1.0
"""A call that was not refused for so long is accepted."""


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


@dataclass(slots=True)
class Seen:
    """What the answers of a provider said."""

    answered: int = 0
    refused: list[int] = field(default_factory=list)
    """The epochs of calls whose refusal said something new."""
    pause_s: float = 0.0


@dataclass(slots=True, eq=False)
class Turn:
    """One call's place."""

    epoch: int
    """Goes back with `refused`."""
    began: float
    accepted: bool = False
    """Whether it has been counted."""


class Limiter:
    """The limit of one provider's model, or of this process's share of it."""

    def __init__(
        self,
        most: int,
        now: Callable[[], float] = time.monotonic,
        on_need: Callable[[], None] | None = None,
    ) -> None:
        self.limit = 0.0 if on_need else min(FIRST_LIMIT, float(most))
        self.most = most
        self.seen = Seen()
        """Since it was last reported."""
        self._now = now
        self._on_need = on_need
        """Told when a larger share, or another one, is wanted; None: the limit is this process's own."""
        self.alone = on_need is None
        """Whether nobody else wants a share."""
        self._busy: Counter[str] = Counter()
        self._slow_start = True
        self._epoch = 0
        """Counts refusals that changed the limit: those of calls that began before say nothing new."""
        self._closed_until = 0.0
        self._opening: asyncio.TimerHandle | None = None
        self._waiting: OrderedDict[str, OrderedDict[str, deque[asyncio.Future[None]]]] = OrderedDict()
        """By run, and in it by attempt. Those whose turn it was go to the end."""
        self._unheard: dict[Turn, None] = {}
        """Calls under way of which nothing was heard, oldest first; while the limit doubles."""
        self._listening: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def turn(self, run_id: str, attempt: str = "") -> AsyncIterator[Turn]:
        """One call's place."""
        await self._enter(run_id, attempt)
        turn = Turn(self._epoch, self._now())
        if self._slow_start:
            self._unheard[turn] = None
            self._listen()
        try:
            yield turn
        finally:
            self._unheard.pop(turn, None)
            self._leave(run_id)

    def answered(self, turn: Turn) -> None:
        """An answer has begun: there may be room for more."""
        self._unheard.pop(turn, None)
        self._accept(turn)

    def _accept(self, turn: Turn) -> None:
        if turn.accepted:
            return
        turn.accepted = True
        self.seen.answered += 1
        if self.alone and self.limit:
            grown = self.limit + (1.0 if self._slow_start else 1.0 / self.limit)
            self.limit = min(float(self.most), grown)
            self._let_in()

    def refused(self, epoch: int, pause_s: float | None) -> None:
        """A call was refused because there are too many."""
        if epoch == self._epoch:
            self._epoch += 1
            self._slow_start = False
            self.limit = max(1.0, self.limit / 2)
            self.seen.refused.append(epoch)
        if pause_s:
            self._closed_until = max(self._closed_until, self._now() + min(pause_s, MOST_PAUSE_S))
            self.seen.pause_s = max(self.seen.pause_s, min(pause_s, MOST_PAUSE_S))
        if self._on_need:
            self._on_need()

    @property
    def busy(self) -> int:
        """How many calls are under way."""
        return self._busy.total()

    def wanted(self) -> dict[str, int]:
        """By run: how many calls are under way or wait."""
        waiting = Counter({run: sum(map(len, queues.values())) for run, queues in self._waiting.items()})
        return dict(waiting + self._busy)

    @property
    def lacks(self) -> bool:
        """Whether calls wait for a larger share, or something was seen that others should know at once."""
        closed = self._now() < self._closed_until
        return bool(self.seen.refused) or (
            bool(self._waiting) and not closed and self.busy >= int(self.limit)
        )

    def take_share(self, share: Share) -> None:
        """From now on this is the process's part of the limit."""
        self.alone, self._slow_start, self._epoch = share.alone, share.slow_start, share.epoch
        self.limit = share.size if share.alone and share.share else float(share.share)
        self._closed_until = self._now() + share.closed_s
        self._let_in()

    def lose_share(self) -> None:
        """The share has lapsed, or was given back: who comes waits for another."""
        self.limit, self.alone = 0.0, False

    async def _enter(self, run_id: str, attempt: str) -> None:
        if not self._waiting and self.busy < int(self.limit) and self._now() >= self._closed_until:
            self._busy[run_id] += 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(run_id, OrderedDict()).setdefault(attempt, deque()).append(place)
        self._let_in()
        if self._on_need and not place.done():
            self._on_need()
        self._listen()
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self._leave(run_id)
            raise

    def _leave(self, run_id: str) -> None:
        self._busy[run_id] -= 1
        if not self._busy[run_id]:
            del self._busy[run_id]
        self._let_in()

    def _let_in(self) -> None:
        if not self._waiting:
            return
        closed_s = self._closed_until - self._now()
        if closed_s > 0:
            if self._opening is None or self._opening.cancelled():
                self._opening = asyncio.get_running_loop().call_later(closed_s, self._open)
            return
        while self._waiting and self.busy < int(self.limit):
            run_id, queues = next(iter(self._waiting.items()))
            attempt, places = next(iter(queues.items()))
            place = places.popleft()
            _next(queues, attempt, places)
            _next(self._waiting, run_id, queues)
            if not place.done():
                self._busy[run_id] += 1
                place.set_result(None)

    def _open(self) -> None:
        self._opening = None
        self._let_in()

    def _listen(self) -> None:
        """While calls wait, notice when those under way have not been refused for long enough."""
        if self._listening is None and self._waiting and self._unheard:
            due_s = next(iter(self._unheard)).began + ACCEPTED_S - self._now()
            self._listening = asyncio.get_running_loop().call_later(max(0.0, due_s), self._heard_nothing)

    def _heard_nothing(self) -> None:
        self._listening = None
        if not self._slow_start:
            self._unheard.clear()
        since = self._now() - ACCEPTED_S
        for turn in [each for each in self._unheard if each.began <= since]:
            del self._unheard[turn]
            self._accept(turn)
        self._listen()


def _next(queues: OrderedDict[str, T], key: str, queue: T) -> None:
    """Whose turn it was goes to the end, or away when nobody is left."""
    if queue:
        queues.move_to_end(key)
    else:
        del queues[key]
