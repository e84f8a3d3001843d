"""What goes from a gateway to the store and when: calls before they are made, the rest a moment later.

One thread writes, as many entries at a time as have gathered. While the store is away, calls go on out of
what is held, as long as its lease lasts; their entries are written when it is back.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

from proctor.errors import StoreError
from proctor.gateway.purse import Purse
from proctor.store.database import ConflictError
from proctor.store.portions import LapsedError
from proctor.store.spending import Held, Note, Operation, Release, Reserve, Reserved, Settle, Spending

_LOG = logging.getLogger("proctor.gateway")
_FLUSH_S = 0.5
"""How long a settled call may be missing in the store's totals."""
_RENEW_S = 4.0
_MANY = 200
"""So many settled calls are written at once, without waiting for the next turn."""
_NOTE_WITHIN_S = 3.0
"""How long a call waits for its row when the store does not answer; then it goes on out of what is held."""
_SAY_EVERY_S = 60.0
T = TypeVar("T")
Answer = asyncio.Future[Reserved | None]


class Ledger:
    """The books of one gateway, as far as they are not in the store yet."""

    def __init__(
        self,
        spending: Spending,
        *,
        undoing: Callable[[Reserve], None] = lambda _: None,
        undone: Callable[[Reserve], None] = lambda _: None,
    ) -> None:
        """`undoing` hears of a call that may have been reserved for one who is gone, `undone` of its end."""
        self._spending = spending
        self._undoing, self._undone = undoing, undone
        self._thread = ThreadPoolExecutor(1, "proctor-spending")
        self._purse = Purse()
        self._notes: list[tuple[Note, Answer]] = []
        self._queue: list[tuple[Operation, Answer]] = []
        self._later: list[Settle | Release] = []
        """Of calls that were paid out of portions."""
        self._noted: dict[str, bool] = {}
        """Calls out of portions that no total has → whether the store has their rows."""
        self._writer: asyncio.Task[None] | None = None
        self._beat: asyncio.Task[None] | None = None
        self._said_at = float("-inf")
        self._flushing = False

    @property
    def known(self) -> bool:
        """Whether the store has answered before."""
        return self._beat is not None

    async def take(self, wanted: Reserve) -> str | None:
        """The day of a call that is paid out of what is held; its row is in the store. None: ask."""
        day = self._purse.take(wanted)
        if day is None:
            return None
        self._noted[wanted.id] = False
        written: Answer = asyncio.get_running_loop().create_future()
        self._notes.append((Note(wanted, day, self._purse.holder), written))
        self._wake()
        try:
            async with asyncio.timeout(_NOTE_WITHIN_S):
                answer = await asyncio.shield(written)
        except TimeoutError:
            self.say_away()
            return day
        except BaseException:
            self._forget_when(written, wanted, day)
            raise
        return answer.day if answer else day

    async def ask(self, wanted: Reserve) -> Reserved:
        """Have the store decide about one call."""
        written = self._write(replace(wanted, holder=self._purse.holder))
        try:
            answer = await asyncio.shield(written)
        except asyncio.CancelledError:
            # Whoever asked is gone; what may have been reserved for it is given back.
            self._forget_when(written, wanted, "")
            raise
        assert answer
        return answer

    def finish(self, operation: Settle | Release) -> Answer | None:
        """A call is over; what to wait for, unless it is written a moment later."""
        made = operation.reserve
        if made.id not in self._noted:
            return self._write(operation)
        self._purse.refund(made, operation.day, operation if isinstance(operation, Settle) else None)
        self._later.append(operation)
        if len(self._later) >= _MANY:
            self._flushing = True
            self._wake()
        return None

    async def flush(self) -> None:
        """Write all that is over. StoreErrors are logged: what is not written counts at its estimate."""
        if self._later or self._notes:
            self._flushing = True
            self._wake()
        while self._writer:
            await asyncio.wait([self._writer])

    async def close(self) -> None:
        """Write what is left and give everything back."""
        if self._beat:
            self._beat.cancel()
            await asyncio.wait([self._beat])
        await self.flush()
        if self._purse.joined:
            with suppress(StoreError):
                await self._in_thread(lambda: self._spending.leave(self._purse.holder))
        self._thread.shutdown()

    def say_away(self) -> None:
        """Tell a person, not too often, that the store does not answer."""
        now = time.monotonic()
        if now - self._said_at > _SAY_EVERY_S:
            self._said_at = now
            what = "go on within what is leased" if self._purse.holds else "wait until it answers again"
            _LOG.warning("the store does not answer; calls of models %s", what)

    # Writing

    def _write(self, operation: Operation) -> Answer:
        """Put it into the queue; it is written whether or not anybody waits for it."""
        future: Answer = asyncio.get_running_loop().create_future()
        self._queue.append((operation, future))
        self._wake()
        return future

    def _wake(self) -> None:
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write_all())

    async def _write_all(self) -> None:
        try:
            while True:
                fresh = [each for each in self._notes if not each[1].done()]
                if fresh and not await self._write_notes():
                    return
                if not self._queue and not self._flushing:
                    return
                self._flushing = False
                if self._notes and not await self._write_notes():
                    self._fail_queue()
                    return
                await self._write_totals()
        finally:
            self._writer = None
            if self._queue:
                self._wake()

    def _fail_queue(self) -> None:
        batch, self._queue = self._queue, []
        for _, future in batch:
            _fail(future, StoreError("the store does not answer"))

    async def _write_notes(self) -> bool:
        """The rows of calls that are about to be made; whether the store answered."""
        batch, self._notes = self._notes, []
        try:
            notes, now = [each for each, _ in batch], self._purse.store_now()
            await self._in_thread(lambda: self._spending.note(notes, now))
        except (ConflictError, LapsedError):
            # Others have what was held, or the run is gone: the store decides again, call by call.
            await self._lapse()
            self._queue += [(replace(each.reserve, budgets=()), future) for each, future in batch]
            return True
        except StoreError:
            self.say_away()
            self._notes = batch + self._notes
            for _, future in batch:
                if not future.done():
                    future.set_result(None)
            return False
        for each, future in batch:
            self._noted[each.reserve.id] = True
            if not future.done():
                future.set_result(None)
        return True

    async def _write_totals(self) -> None:
        """All that changes totals, in one transaction."""
        batch, self._queue = self._queue, []
        closing = [each for each in self._later if self._noted.get(each.reserve.id)]
        self._later = [each for each in self._later if not self._noted.get(each.reserve.id)]
        purse, asked_at = self._purse, time.monotonic()
        gone = purse.give_back(each for each, _ in batch if isinstance(each, Reserve) and each.holder)
        if not (batch or closing or gone):
            return
        made = [(each.reserve, each.day) for each in closing]
        held = Held(holder=purse.holder, joins=not purse.joined, portions=purse.held(gone, made))
        operations = [*(replace(each, noted=True) for each in closing), *(each for each, _ in batch)]
        try:
            answers = await self._in_thread(lambda: self._spending.apply(operations, held))
        except LapsedError:
            self._later = closing + self._later
            self._queue = batch + self._queue
            await self._lapse()
            return
        except Exception as error:  # noqa: BLE001 - each caller gets it and says what it could not do
            purse.put(gone)
            self._later = closing + self._later
            for _, future in batch:
                _fail(future, error)
            return
        for each, day in made:
            purse.booked(each, day)
            self._noted.pop(each.id, None)
        self._answered(answers[len(closing) :], batch, asked_at)

    def _answered(
        self, answers: Sequence[Reserved | None], batch: Sequence[tuple[Operation, Answer]], asked_at: float
    ) -> None:
        said = next((each for each in answers if each), None)
        if said:
            self._purse.renewed(asked_at, said.at)
            self._purse.granted(answers)
            if self._beat is None:
                self._beat = asyncio.get_running_loop().create_task(self._keep_alive())
        for (_, future), answer in zip(batch, answers, strict=True):
            if not future.done():
                future.set_result(answer)

    async def _lapse(self) -> None:
        """What was held belongs to others: calls that are over are settled as those that were asked for."""
        holder = self._purse.holder
        self._purse.begin_anew()
        self._noted.clear()
        with suppress(StoreError):
            await self._in_thread(lambda: self._spending.leave(holder))
        later, self._later = self._later, []
        for each in later:
            self._write(each)

    # Beside

    async def _keep_alive(self) -> None:
        """Renew the lease, take over from the dead, and write what has gathered."""
        renewed_at = time.monotonic()
        while True:
            await asyncio.sleep(_FLUSH_S)
            if self._later or self._notes or not self._purse.empty:
                self._flushing = True
                self._wake()
            if time.monotonic() - renewed_at < _RENEW_S or not self._purse.joined:
                continue
            asked_at, holder = time.monotonic(), self._purse.holder
            try:
                now = await self._in_thread(partial(self._spending.renew, holder))
                renewed_at = asked_at
                if holder == self._purse.holder:
                    self._purse.renewed(asked_at, now)
                if gone := await self._in_thread(self._spending.reap):
                    _LOG.warning("took back what %d gateways held that are gone", len(gone))
            except LapsedError:
                await self._lapse()
            except StoreError:
                self.say_away()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _forget_when(self, written: Answer, wanted: Reserve, day: str) -> None:
        """Whoever asked is gone: release the call once it is known what became of it."""
        self._undoing(wanted)

        def undo(done: Answer) -> None:
            answer = None if done.cancelled() or done.exception() else done.result()
            released: Answer | None = None
            if wanted.id in self._noted:
                released = self.finish(Release(wanted, day))
            elif answer and not answer.refusal:
                released = self._write(Release(wanted, answer.day))
            if released:
                released.add_done_callback(lambda _: self._undone(wanted))
            else:
                self._undone(wanted)

        written.add_done_callback(undo)


def _fail(future: Answer, error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # a settlement may have nobody who waits for it
