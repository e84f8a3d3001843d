"""A worker: claims trials of a run, executes them and commits what came of it, several at a time.

It knows nothing of the run's status and of its folder: those are the coordinator's. There may be many workers
on one run, in one process or in many; the store's leases keep them apart.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from proctor.engine.base import Executor, Expecting, Listener
from proctor.engine.retry import retry_delay_s
from proctor.engine.stop import Stop
from proctor.errors import FenceError
from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord, Failure
from proctor.model.spec import Retries
from proctor.model.trial import Lease, TrialState
from proctor.store.calls import StoreCalls
from proctor.store.steps import Ended
from proctor.store.store import Store

_POLL_S = 0.25
"""How often to look for trials that another process made ready."""
_LOOK_S = 0.5
"""How often to look whether a trial was cancelled or has passed to another worker."""

Told = tuple[PlannedTrial, AttemptRecord, bool]
"""What a listener receives when an attempt has ended."""


@dataclass(frozen=True, slots=True)
class Held:
    """A trial this worker has claimed and begun."""

    trial: PlannedTrial
    lease: Lease
    started_at: float
    queued_s: float = 0.0
    """When it could have started if a slot had been free."""

    def told(self, record: AttemptRecord) -> AttemptRecord:
        """The record with the queue phase, which only the worker knows."""
        queued_s = self.queued_s + record.phases_s.get("queue", 0.0)
        return replace(record, phases_s={**record.phases_s, "queue": queued_s})


class Worker:
    """An asyncio scheduler over the store's leases. The store decides; this only asks."""

    def __init__(
        self,
        *,
        store: Store,
        run_id: str,
        executor: Executor,
        listener: Listener,
        stop: Stop,
        name: str,
        parallel: int = 1,
        retries: Retries | None = None,
        lease_s: float = 30.0,
        clock: Callable[[], float] = time.time,
        more: Callable[[], Awaitable[bool]] | None = None,
        calls: StoreCalls | None = None,
    ) -> None:
        """`more` is asked when nothing is at hand: whether there may be trials to claim later."""
        self.store = store
        self.run_id = run_id
        self.executor = executor
        self.listener = listener
        self.stop = stop
        self.name = name
        self.parallel = parallel
        self.retries = retries or Retries()
        self.lease_s = lease_s
        self.clock = clock
        self._calls = calls or StoreCalls(store)
        self._more = more or self._are_pending
        self._running: dict[asyncio.Task[AttemptRecord], Held] = {}
        self._done: list[asyncio.Task[AttemptRecord]] = []
        self._woken = asyncio.Event()
        """Set when an attempt or one of the helpers has ended: waiting for all of them would cost by each."""
        self._ready_at: dict[str, float] = {}
        self._began = clock()
        self._expecting = executor if isinstance(executor, Expecting) else None
        self._next: PlannedTrial | None = None

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
                elif self.stop.draining or not await self._wait(stopping):
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

    async def _turn(self, ended: list[tuple[Held, AttemptRecord]]) -> list[Told]:
        """Commit what has ended and take what comes next, in one transaction; then start; what ended."""
        room = 0 if self.stop.draining else self.parallel - len(self._running)
        if not ended and room <= 0:
            return []
        now = self.clock()
        finished = [self._judged(held.lease, record) for held, record in ended]
        written, taken = await self._calls(
            self.store.exchange,
            self.run_id,
            finished,
            worker=self.name,
            lease_s=self.lease_s,
            limit=room,
        )
        told: list[Told] = []
        for (held, record), judged, done in zip(ended, finished, written, strict=True):
            if done:
                told.append((held.trial, record, judged.counts))
                if not judged.counts:
                    self._ready_at[held.lease.key] = now + judged.delay_s
        if room > 0:
            self._next = taken.upcoming
        for lease, trial in taken.begun:
            waited_s = max(0.0, now - self._ready_at.pop(lease.key, self._began))
            task = asyncio.create_task(self.executor.execute(trial, lease))
            self._running[task] = Held(trial, lease, now, waited_s)
            task.add_done_callback(self._ended)
            self.listener.started(trial, lease)
        return told

    def _look_ahead(self) -> None:
        """Tell the executor which trial will start next, if it supports that."""
        full = len(self._running) >= self.parallel
        if self._expecting and self._next and full and not self.stop.draining:
            self._expecting.expect(self._next)

    def _judged(self, lease: Lease, record: AttemptRecord) -> Ended:
        """Whether the attempt counts; if not, its trial is to be tried again."""
        if (
            record.outcome is Outcome.CANCELLED
        ):  # what it was to spend is spent: it is to be done another time
            return Ended(lease, record, counts=False)
        delay_s = retry_delay_s(record.outcome, lease.attempt, self.retries, record.failure)
        return Ended(lease, record, counts=delay_s is None, delay_s=delay_s or 0.0)

    async def _step(self, heartbeat: asyncio.Task[None]) -> list[tuple[Held, AttemptRecord]]:
        """Wait until an attempt ends or a person speaks; errors of the harness itself surface here."""
        await self._woken.wait()
        self._woken.clear()
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
            else:
                ended.append((held, held.told(task.result())))
        return ended

    async def _wait(self, stopping: asyncio.Task[None]) -> bool:
        """Whether there may be more to do; sleeps until a retry is due, or it is time to look again."""
        if not await self._more():
            return False
        now = self.clock()
        due = min((at - now for at in self._ready_at.values() if at > now), default=_POLL_S)
        await asyncio.wait({stopping}, timeout=min(max(0.01, due), _POLL_S))
        return True

    async def _are_pending(self) -> bool:
        states = await self._calls(self.store.state_counts, self.run_id)
        return bool(states.get(TrialState.PENDING))

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
            lost = {lease.key for lease in gone}
            for task, held in self._running.items():
                if held.lease.key in lost:
                    task.cancel()

    async def _end(self, *helpers: asyncio.Task[None]) -> None:
        for task in (*self._running, *helpers):
            task.cancel()
        await asyncio.gather(*self._running, *helpers, return_exceptions=True)
        await self.executor.close()
