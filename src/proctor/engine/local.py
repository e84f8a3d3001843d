"""Run trials in this process: claim, execute, commit, as many at a time as asked for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

from proctor.engine.base import Executor, Listener
from proctor.engine.retry import retry_delay_s
from proctor.engine.stop import Stop
from proctor.errors import FenceError
from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord, Failure
from proctor.model.spec import Retries
from proctor.model.trial import Lease, TrialState
from proctor.store.store import Store

_POLL_S = 1.0
"""How often to look for trials that another process made ready."""


class LocalEngine:
    """An asyncio scheduler over the store's leases. The store decides; this only asks."""

    def __init__(
        self,
        *,
        store: Store,
        run_id: str,
        executor: Executor,
        listener: Listener,
        stop: Stop,
        worker: str,
        parallel: int = 1,
        retries: Retries | None = None,
        lease_s: float = 30.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store = store
        self.run_id = run_id
        self.executor = executor
        self.listener = listener
        self.stop = stop
        self.worker = worker
        self.parallel = parallel
        self.retries = retries or Retries()
        self.lease_s = lease_s
        self.clock = clock
        self._running: dict[asyncio.Task[None], Lease] = {}
        self._ready_at: dict[str, float] = {}

    async def run(self) -> None:
        """Return when no trial is left, or when asked to stop and what ran is saved."""
        heartbeat = asyncio.create_task(self._renew_forever())
        stopping = asyncio.create_task(self.stop.changed())
        try:
            while True:
                self._fill()
                waiting = set(self._running)
                if not waiting and (self.stop.draining or not await self._wait_for_retry(stopping)):
                    break
                if waiting:
                    await self._step(waiting, stopping, heartbeat)
                if stopping.done():
                    stopping = asyncio.create_task(self.stop.changed())
        finally:
            await self._end(heartbeat, stopping)

    def _fill(self) -> None:
        """Claim as many trials as there is room for, and start them."""
        room = self.parallel - len(self._running)
        if self.stop.draining or room <= 0:
            return
        leases = self.store.claim(
            self.run_id, worker=self.worker, now=self.clock(), lease_s=self.lease_s, limit=room
        )
        for lease in leases:
            task = asyncio.create_task(self._attempt(lease))
            self._running[task] = lease
            self._ready_at.pop(lease.key, None)

    async def _step(
        self, waiting: set[asyncio.Task[None]], stopping: asyncio.Task[None], heartbeat: asyncio.Task[None]
    ) -> None:
        """Wait until an attempt ends or a person speaks; errors of the harness itself surface here."""
        done, _ = await asyncio.wait({*waiting, stopping, heartbeat}, return_when=asyncio.FIRST_COMPLETED)
        if self.stop.now:
            for task in self._running:
                task.cancel()
            await asyncio.wait(self._running)
            done |= set(self._running)
        if heartbeat in done:
            heartbeat.result()
        for task in done & set(self._running):
            del self._running[task]
            if not task.cancelled():
                task.result()

    async def _wait_for_retry(self, stopping: asyncio.Task[None]) -> bool:
        """Whether a trial is waiting for its next attempt; sleeps until one may start."""
        if not self.store.state_counts(self.run_id).get(TrialState.PENDING):
            return False
        delay = min(self._ready_at.values(), default=0.0) - self.clock()
        await asyncio.wait({stopping}, timeout=min(max(0.01, delay), _POLL_S))
        return True

    async def _attempt(self, lease: Lease) -> None:
        """One attempt from lease to commit. A lost lease means that someone else's result counts."""
        trial = self.store.trial(self.run_id, lease.key)
        started_at = self.clock()
        try:
            self.store.begin(lease, started_at)
            self.listener.started(trial, lease)
            record = await self.executor.execute(trial, lease)
            self._commit(trial, lease, record)
        except FenceError:
            return
        except asyncio.CancelledError:
            self._save_cancelled(trial, lease, started_at)
            raise

    def _commit(self, trial: PlannedTrial, lease: Lease, record: AttemptRecord) -> None:
        delay = retry_delay_s(record.outcome, lease.attempt, self.retries)
        now = self.clock()
        if delay is None:
            self.store.finish(lease, record, now=now, counts=True)
        else:
            self._ready_at[lease.key] = now + delay
            self.store.finish(lease, record, now=now, counts=False, ready_at=now + delay)
        self.listener.ended(trial, record, delay is None)

    def _save_cancelled(self, trial: PlannedTrial, lease: Lease, started_at: float) -> None:
        """Keep the attempt that a person ended; its trial stays to be done."""
        record = AttemptRecord(
            key=lease.key,
            number=lease.attempt,
            outcome=Outcome.CANCELLED,
            started_at=started_at,
            ended_at=self.clock(),
            failure=Failure(phase="run", type="Cancelled", message="stopped before it ended"),
            worker=self.worker,
        )
        try:
            self.store.finish(lease, record, now=self.clock(), counts=False)
        except FenceError:
            return
        self.listener.ended(trial, record, counts=False)

    async def _renew_forever(self) -> None:
        """Keep our leases; stop at once what has passed to another worker or was cancelled."""
        while True:
            await asyncio.sleep(self.lease_s / 3)
            held = list(self._running.values())
            if not held:
                continue
            now = self.clock()
            lost = {lease.key for lease in self.store.renew(held, now=now, lease_s=self.lease_s)}
            for task, lease in self._running.items():
                if lease.key in lost:
                    task.cancel()
                else:
                    self._running[task] = replace(lease, expires_at=now + self.lease_s)

    async def _end(self, *helpers: asyncio.Task[None]) -> None:
        for task in (*self._running, *helpers):
            task.cancel()
        await asyncio.gather(*self._running, *helpers, return_exceptions=True)
        await self.executor.close()
