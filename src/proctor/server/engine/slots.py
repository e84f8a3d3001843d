"""Places for trials, shared by all runs of the engine: fair between people, first come first served for each.

Whoever holds the fewest places gets the next one that is free.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from time import monotonic

from msgspec.structs import replace

from proctor.engine.base import Executor, Expecting, Preflight, WarmsUp
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord
from proctor.model.trial import Lease


class Slots:
    """So many trials at a time, and no more."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @property
    def free(self) -> int:
        """How many places nobody has."""
        return self.total - self._held.total()

    @asynccontextmanager
    async def place(self, who: str) -> AsyncIterator[None]:
        """Wait for a place, and give it back."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(who, deque()).append(turn)
        self._hand_out()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._give_back(who)
            else:
                self._waiting[who].remove(turn)
            raise
        try:
            yield
        finally:
            self._give_back(who)

    def _give_back(self, who: str) -> None:
        self._held[who] -= 1
        self._hand_out()

    def _hand_out(self) -> None:
        while self.free > 0:
            wanting = [who for who, queue in self._waiting.items() if queue]
            if not wanting:
                return
            who = min(wanting, key=lambda each: self._held[each])
            turn = self._waiting[who].popleft()
            if turn.cancelled():
                continue
            self._held[who] += 1
            turn.set_result(None)


class InTurn:
    """An executor whose attempts wait for a place. Waiting is no part of what is measured."""

    def __init__(self, executor: Executor, slots: Slots, who: str) -> None:
        self._executor = executor
        self._slots = slots
        self._who = who

    async def execute(self, trial: PlannedTrial, lease: Lease) -> AttemptRecord:
        """As the executor does, when there is a place."""
        asked = monotonic()
        async with self._slots.place(self._who):
            waited_s = monotonic() - asked
            record = await self._executor.execute(trial, lease)
        queued_s = record.phases_s.get("queue", 0.0) + waited_s
        return replace(record, phases_s={**record.phases_s, "queue": queued_s})

    async def close(self) -> None:
        """End what the executor keeps."""
        await self._executor.close()

    def expect(self, trial: PlannedTrial) -> None:
        """Hand on which trial comes next, while there is room to prepare it."""
        if isinstance(self._executor, Expecting) and self._slots.free > 0:
            self._executor.expect(trial)

    async def preflight(self, trials: Sequence[PlannedTrial]) -> None:
        """Hand on the question whether the run could begin."""
        if isinstance(self._executor, Preflight):
            await self._executor.preflight(trials)

    async def warm_up(self, trials: Sequence[PlannedTrial]) -> None:
        """Hand on the preparation."""
        if isinstance(self._executor, WarmsUp):
            await self._executor.warm_up(trials)
