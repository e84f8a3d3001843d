"""A worker: claims trials, executes them and commits what came of it, several at a time.

It knows nothing of a run's status and of its folder: those are the coordinator's. There may be many workers
on one run, in one process or in many; the store's leases keep them apart. Whose trials they are, and what
executes them, its source says: one run, or any run of the store.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from proctor.disk import is_lack_of_space
from proctor.engine.base import Expecting, Listener
from proctor.engine.retry import retry_delay_s
from proctor.engine.stop import Stop
from proctor.errors import FenceError, StoreError
from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord, Failure
from proctor.model.trial import Lease
from proctor.runs.sources import Held, Source
from proctor.runs.tickets import Tickets
from proctor.store.calls import StoreCalls
from proctor.store.steps import Ended, Taken
from proctor.store.store import Store

_LOOK_S = 0.5
"""How often to look whether a trial was cancelled or has passed to another worker."""

Told = tuple[PlannedTrial, AttemptRecord, bool]
"""What a listener receives when an attempt has ended."""


class Worker:
    """An asyncio scheduler over the store's leases. The store decides; this only asks."""

    def __init__(
        self,
        *,
        store: Store,
        source: Source,
        listener: Listener,
        stop: Stop,
        name: str,
        parallel: int = 1,
        lease_s: float = 30.0,
        clock: Callable[[], float] = time.time,
        calls: StoreCalls | None = None,
        tickets: Tickets | None = None,
        try_blobs: Callable[[], None] | None = None,
    ) -> None:
        """`tickets`: begin to take trials for them only, and of the store's own accord now and then.

        `try_blobs`: StoreError while what attempts leave cannot be stored; called in a thread. With it such
        an attempt is done again, and none begins until that works; without it the error ends the worker.
        """
        self.store = store
        self.source = source
        self.listener = listener
        self.stop = stop
        self.name = name
        self.parallel = parallel
        self.lease_s = lease_s
        self.clock = clock
        self._calls = calls or StoreCalls(store)
        self._tickets = tickets
        self._try_blobs = try_blobs
        self._without_blobs: asyncio.Task[None] | None = None
        """Waits for them."""
        self._running: dict[asyncio.Task[AttemptRecord], Held] = {}
        self._done: list[asyncio.Task[AttemptRecord]] = []
        self._saving = 0
        self._woken = asyncio.Event()
        """Set when an attempt or one of the helpers has ended: waiting for all of them would cost by each."""
        self._ready_at: dict[tuple[str, str], float] = {}
        self._began = clock()
        self._next: tuple[Expecting, PlannedTrial] | None = None
        if tickets:
            tickets.on_offer = self.wake

    @property
    def leaving(self) -> bool:
        """Whether it is to end with nothing to save, or at once."""
        return self.stop.now or (self.stop.draining and not self._running and not self._saving)

    @property
    def running(self) -> int:
        """How many attempts it executes now."""
        return len(self._running)

    def wake(self) -> None:
        """There may be something to take. From the loop's own thread."""
        self._woken.set()

    async def run(self) -> None:
        """Return when no trial is left, or when asked to stop and what ran is saved."""
        heartbeat = self._helper(self._keep_leases())
        stopping = self._helper(self.stop.changed())
        ended: list[tuple[Held, AttemptRecord]] = []
        try:
            while True:
                if told := await self._turn(ended):
                    # Those that begin give their first orders before the files of others are written.
                    await asyncio.sleep(0)
                    for each in told:
                        self.listener.ended(*each)
                self._look_ahead()
                if self._running:
                    ended = await self._step(heartbeat)
                elif self.stop.draining or not await self._wait():
                    break
                else:
                    ended = []
                if stopping.done():
                    stopping = self._helper(self.stop.changed())
        finally:
            await self._end(heartbeat, stopping)

    def _helper(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        task.add_done_callback(lambda _: self._woken.set())
        return task

    def _ended(self, task: asyncio.Task[AttemptRecord]) -> None:
        self._done.append(task)
        self._woken.set()

    def _room(self, ended: int) -> int:
        free = 0 if self.stop.draining or self._without_blobs else self.parallel - len(self._running)
        return free if self._tickets is None else self._tickets.room(free, ended)

    async def _turn(self, ended: list[tuple[Held, AttemptRecord]]) -> list[Told]:
        """Commit what has ended and take what comes next; then start; what ended."""
        room = self._room(len(ended))
        if not ended and room <= 0:
            return []
        now = self.clock()
        finished = [self._judged(held.lease, record) for held, record in ended]
        self._saving = len(finished)
        written, taken = await self.source.exchange(finished, room, self._running.values())
        self._saving = 0
        told: list[Told] = []
        for (held, record), judged, done in zip(ended, finished, written, strict=True):
            if done:
                told.append((held.trial, record, judged.counts))
                if not judged.counts:
                    self._ready_at[held.lease.run_id, held.lease.key] = now + judged.delay_s
        for lease, trial in taken.begun:
            self._begin(lease, trial, now)
        if room > 0:
            self._expect(taken)
        if self._tickets:
            self._tickets.turned(
                [held.lease for held, _ in ended],
                [lease for lease, _ in taken.begun],
                nothing=self.stop.draining or (room > 0 and not taken.begun and not self.source.opening),
            )
        return told

    def _begin(self, lease: Lease, trial: PlannedTrial, now: float) -> None:
        waited_s = max(0.0, now - self._ready_at.pop((lease.run_id, lease.key), self._began))
        task = asyncio.create_task(self.source.executor_of(lease.run_id).execute(trial, lease))
        self._running[task] = Held(trial, lease, now, waited_s)
        task.add_done_callback(self._ended)
        self.listener.started(trial, lease)

    def _expect(self, taken: Taken) -> None:
        """Keep which trial will probably start next, and whose executor can make it ready."""
        self._next = None
        if taken.upcoming and taken.begun:
            executor = self.source.executor_of(taken.begun[0][0].run_id)
            if isinstance(executor, Expecting):
                self._next = executor, taken.upcoming

    def _look_ahead(self) -> None:
        """Tell the executor which trial will start next, if it supports that."""
        full = len(self._running) >= self.parallel
        if self._next and full and not self.stop.draining:
            self._next[0].expect(self._next[1])

    def _judged(self, lease: Lease, record: AttemptRecord) -> Ended:
        """Whether the attempt counts; if not, its trial is to be tried again."""
        if (
            record.outcome is Outcome.CANCELLED
        ):  # what it was to spend is spent: it is to be done another time
            return Ended(lease, record, counts=False)
        delay_s = retry_delay_s(
            record.outcome, lease.attempt, self.source.retries_of(lease.run_id), record.failure
        )
        return Ended(lease, record, counts=delay_s is None, delay_s=delay_s or 0.0)

    async def _step(self, heartbeat: asyncio.Task[None]) -> list[tuple[Held, AttemptRecord]]:
        """Wait until an attempt ends or a person speaks; errors of the harness itself surface here."""
        await self._sleep(self.source.poll_s if self._free() else None)
        if self.stop.now:
            for task in self._running:
                task.cancel()
            await asyncio.wait(self._running)
        if heartbeat.done():
            heartbeat.result()
        ended = []
        done, self._done = ([*self._running] if self.stop.now else self._done), []
        for task in done:
            held = self._running.pop(task, None)
            if held is None:
                continue
            if task.cancelled():
                await self._save_cancelled(held)
                if self._tickets:
                    self._tickets.over(held.lease)
            else:
                ended.append((held, held.told(self._result(task, held))))
        return ended

    def _result(self, task: asyncio.Task[AttemptRecord], held: Held) -> AttemptRecord:
        """What came of an attempt. One whose files found no place, here or among the blobs, is done again."""
        error = task.exception()
        if error is not None and is_lack_of_space(error):
            kind, message = "DiskFull", f"the worker's disk is full: {error}"
        elif isinstance(error, StoreError) and self._try_blobs:
            kind, message = "BlobsAway", str(error)
            self._without_blobs = self._without_blobs or self._helper(self._wait_for_blobs(self._try_blobs))
        else:
            return task.result()
        return AttemptRecord(
            key=held.lease.key,
            number=held.lease.attempt,
            outcome=Outcome.SANDBOX_ERROR,
            started_at=held.started_at,
            ended_at=self.clock(),
            failure=Failure(phase="run", type=kind, message=message),
            worker=self.name,
        )

    async def _wait_for_blobs(self, try_blobs: Callable[[], None]) -> None:
        while True:
            try:
                await asyncio.to_thread(try_blobs)
            except StoreError:
                await asyncio.sleep(_LOOK_S)
            else:
                self._without_blobs = None
                return

    def _free(self) -> bool:
        return not self.stop.draining and len(self._running) < self.parallel

    async def _sleep(self, timeout_s: float | None) -> None:
        """Until something has ended or come, or it is time to look by itself."""
        if timeout_s is None:
            await self._woken.wait()
        else:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._woken.wait()
            except TimeoutError:
                if self._tickets:
                    self._tickets.look()
        self._woken.clear()

    async def _wait(self) -> bool:
        """Whether there may be more to do; sleeps until a retry is due, or it is time to look again."""
        if not await self.source.more():
            return False
        now, poll_s = self.clock(), self.source.idle_s
        due = min((at - now for at in self._ready_at.values() if at > now), default=poll_s)
        await self._sleep(min(max(0.01, due), poll_s))
        return True

    async def _save_cancelled(self, held: Held) -> None:
        """Keep the attempt that a person ended; its trial stays to be done."""
        lease = held.lease
        record = AttemptRecord(
            key=lease.key,
            number=lease.attempt,
            outcome=Outcome.CANCELLED,
            started_at=held.started_at,
            ended_at=self.clock(),
            failure=Failure(phase="run", type="Cancelled", message="stopped before it ended"),
            worker=self.name,
        )
        try:
            await self._calls(self.store.finish, lease, record, counts=False)
        except FenceError:
            return
        self.listener.ended(held.trial, record, counts=False)

    async def _keep_leases(self) -> None:
        """Keep our leases; stop at once what has passed to another worker or was cancelled."""
        third_s = self.lease_s / 3
        renewed = time.monotonic()
        while True:
            await asyncio.sleep(min(_LOOK_S, third_s))
            await self._calls(self.store.write_notes)
            leases = [held.lease for held in self._running.values()]
            if time.monotonic() - renewed + _LOOK_S / 2 < third_s:
                gone = await self._calls(self.store.lost, leases)
            else:
                gone = await self._calls(self.store.renew, leases, lease_s=self.lease_s)
                renewed = time.monotonic()
            lost = {(lease.run_id, lease.key) for lease in gone}
            for task, held in self._running.items():
                if (held.lease.run_id, held.lease.key) in lost:
                    task.cancel()

    async def _end(self, *helpers: asyncio.Task[None]) -> None:
        waiting = [self._without_blobs] if self._without_blobs else []
        for task in (*self._running, *helpers, *waiting):
            task.cancel()
        await asyncio.gather(*self._running, *helpers, *waiting, return_exceptions=True)
        await self.source.close()
