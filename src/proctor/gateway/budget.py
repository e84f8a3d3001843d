"""Keep calls within budgets: an upper estimate is reserved before each, and settled after it.

Reservations and settlements are written by one thread, as many at a time as have gathered meanwhile.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from proctor.gateway.meter import Call
from proctor.gateway.prices import Prices
from proctor.gateway.tokens import Access
from proctor.store.spending import Operation, Release, Reserve, Reserved, Scope, Settle, Spending, Timing


class ExhaustedError(Exception):
    """A budget does not allow the call; `scope` says whose: an attempt's, a run's or a day's."""

    def __init__(self, message: str, scope: str) -> None:
        super().__init__(message)
        self.scope = scope


@dataclass(frozen=True, slots=True)
class Reservation:
    """One call that may be made; to be settled or released."""

    reserve: Reserve
    day: str


class Books:
    """Reserves and settles for all attempts of a gateway."""

    def __init__(self, spending: Spending, prices: Prices) -> None:
        self._spending = spending
        self._prices = prices
        self._thread = ThreadPoolExecutor(1, "proctor-spending")
        self._queue: list[tuple[Operation, asyncio.Future[Reserved | None]]] = []
        self._writer: asyncio.Task[None] | None = None
        self._open: Counter[Scope] = Counter()
        """Reservations of this process that are not settled; only those can be worth waiting for."""
        self._waiting: set[asyncio.Future[None]] = set()
        """Who wants to know of the next settlement."""

    async def reserve(
        self, access: Access, model: str, *, prompt_bytes: int, max_tokens: int | None
    ) -> Reservation:
        """Hold back the most that a call may use. ExhaustedError when a budget does not have it."""
        upper = self._prices.upper(model, prompt_bytes, max_tokens)
        wanted = Reserve(
            id=secrets.token_hex(16),
            run_id=access.run_id,
            trial=access.trial,
            attempt=access.attempt,
            model=model,
            scopes=access.scopes,
            budgets=access.budgets,
            tokens=upper.total_tokens,
            nano_usd=price.nano_usd(upper) if (price := self._prices.of(model)) else None,
        )
        while True:
            change = asyncio.get_running_loop().create_future()
            self._waiting.add(change)
            try:
                answer = await self._asked(wanted)
                if not answer.refusal:
                    self._open.update(wanted.scopes)
                    return Reservation(wanted, answer.day)
                others = change.done() or any(self._open[scope] for scope in wanted.scopes)
                if not answer.waits or not others:
                    raise ExhaustedError(answer.refusal, answer.scope)
                await change
            finally:
                self._waiting.discard(change)

    async def settle(self, made: Reservation, call: Call) -> None:
        """Say what a call used and how it went; usage None: nobody knows, and its upper estimate stays."""
        usage = call.usage
        tokens = usage and {
            "prompt": usage.prompt_tokens,
            "completion": usage.completion_tokens,
            "cached": usage.cached_tokens,
            "cache_write": usage.cache_write_tokens,
            "reasoning": usage.reasoning_tokens,
        }
        timing = Timing(call.waited_s, call.first_token_s, call.worked_s, call.retries, call.status)
        settled = Settle(
            reserve=made.reserve, day=made.day, tokens=tokens or None, nano_usd=call.nano_usd, timing=timing
        )
        await self._done(made, settled)

    async def release(self, made: Reservation) -> None:
        """The call was never made."""
        await self._done(made, Release(made.reserve, made.day))

    async def close(self) -> None:
        """Write what is left."""
        while self._writer:
            await asyncio.wait([self._writer])
        self._thread.shutdown()

    async def _asked(self, wanted: Reserve) -> Reserved:
        written = self._write(wanted)
        try:
            answer = await asyncio.shield(written)
        except asyncio.CancelledError:
            # Whoever asked is gone; what may have been reserved for it is given back.
            written.add_done_callback(lambda done: self._undo(wanted, done))
            raise
        assert answer
        return answer

    def _undo(self, wanted: Reserve, done: asyncio.Future[Reserved | None]) -> None:
        answer = None if done.cancelled() or done.exception() else done.result()
        if answer and not answer.refusal:
            self._write(Release(wanted, answer.day))

    async def _done(self, made: Reservation, operation: Operation) -> None:
        written = self._write(operation)
        try:
            while not written.done():
                # Whoever ends the attempt waits for its books.
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([written])
            written.result()
        finally:
            self._open.subtract(made.reserve.scopes)
            self._open = +self._open
            for change in self._waiting:
                if not change.done():
                    change.set_result(None)

    def _write(self, operation: Operation) -> asyncio.Future[Reserved | None]:
        """Put it into the queue; it is written whether or not anybody waits for it."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Reserved | None] = loop.create_future()
        self._queue.append((operation, future))
        if self._writer is None:
            self._writer = loop.create_task(self._write_all())
        return future

    async def _write_all(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._queue:
                batch, self._queue = self._queue, []
                operations = [each for each, _ in batch]
                try:
                    answers: Sequence[Reserved | None] = await loop.run_in_executor(
                        self._thread, self._spending.apply, operations
                    )
                except Exception as error:  # noqa: BLE001 - each caller gets it and says what it could not do
                    for _, future in batch:
                        _fail(future, error)
                    continue
                for (_, future), answer in zip(batch, answers, strict=True):
                    if not future.done():
                        future.set_result(answer)
        finally:
            self._writer = None


def _fail(future: asyncio.Future[Reserved | None], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # a settlement may have nobody who waits for it
