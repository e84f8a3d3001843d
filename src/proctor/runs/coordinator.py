"""A coordinator owns a run: its status, its reaping, its folder and the closing of its books.

It executes nothing. Workers commit to the store; those of its own process also tell it, and what others have
committed it finds in the store. It works under a lease: when that has passed to another coordinator, it
writes nothing more and waits for its turn.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from typing import ParamSpec, TypeVar

from proctor.engine.base import Listener, StoppingRule
from proctor.engine.lease import is_dead
from proctor.engine.stop import Stop
from proctor.errors import ProctorError
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord, AttemptRow
from proctor.model.trial import Lease, RunStatus, TrialState
from proctor.render.reporters import write_reports
from proctor.runfolder.read import RunData
from proctor.runfolder.write import RunFolder
from proctor.runs.holding import Hold
from proctor.store.calls import StoreCalls
from proctor.store.store import Store
from proctor.threads import in_own_thread, to_its_end

_log = logging.getLogger("proctor.runs")
ANSWERED = "the run's question was answered before this trial ended"
_P = ParamSpec("_P")
_T = TypeVar("_T")
_PAGE = 200
"""How many results of others are written before listeners hear of them."""
TICK_S = 1.0
"""How often it renews, reaps and looks for what other workers have committed."""
_LONGEST_PAUSE_S = 20.0
"""Between two tries to copy artifacts, while blobs cannot be had."""


class Coordinator:
    """Coordinates one run. It is the listener of the worker in its own process."""

    def __init__(
        self,
        store: Store,
        hold: Hold,
        folder: RunFolder,
        *,
        listener: Listener,
        again: bool = False,
        rule: StoppingRule | None = None,
        calls: StoreCalls | None = None,
    ) -> None:
        """`again`: a lost trial is always tried again, whatever the run's policy says.

        `rule`: hears every result; when it is satisfied, what has not ended is cancelled.
        """
        self.store = store
        self.run_id = hold.run_id
        self.hold = hold
        self.folder = folder
        self.listener = listener
        self.again = again
        self.rule = rule
        self._answer: asyncio.Task[int] | None = None
        """Cancels the rest, once the run's question is answered."""
        self._calls = calls or StoreCalls(store)
        self._alone = asyncio.Lock()
        """Held by whoever brings folder and store together: a tick, the beginning or the end."""
        self._begun = False
        self._catching_up = False
        self._ticked_at = time.time()
        self._awake_at = 0.0
        self._seen = 0
        """The event up to which attempts are known to be in the folder."""

    async def lead(self, stop: Stop, *, wait: bool) -> bool:
        """Become the coordinator; with `wait` when the present one ends or dies, else RunHeldError.

        False when a person stopped the waiting.
        """
        while not await self._calls(self.hold.take):
            if not wait:
                raise await self._calls(self.hold.refusal)
            if await _stopped(stop, within_s=TICK_S):
                return False
        return True

    async def begin(self) -> None:
        """The run is running: take back what dead workers held, and bring the folder up to date."""
        async with self._alone:
            await self._calls(self.hold.set_status, RunStatus.RUNNING)
            await self._catch_up()
            self._begun = True

    async def keep(self) -> None:
        """Lead for as long as the run lasts; after a loss of the lease, wait for it.

        Blobs may be far away: what is written to the folder holds up neither the lease nor the reaping, and
        artifacts hold up neither rows nor rules.
        """
        keeping = (self._keep_lease(), self._keep_folder(), self._keep_artifacts())
        tasks = [asyncio.create_task(each) for each in keeping]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep_lease(self) -> None:
        while True:
            await asyncio.sleep(min(TICK_S, self.hold.lease_s / 3))
            await self._hold_on()

    async def _keep_folder(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            await self._write_others()

    async def _keep_artifacts(self) -> None:
        """Copy artifacts behind the rows. What cannot be had now is tried again, and demanded at the end."""
        pause_s = TICK_S
        while True:
            await asyncio.sleep(pause_s)
            try:
                while self._begun and await in_own_thread(self.folder.copy_some, self._leads):
                    pause_s = TICK_S
            except ProctorError as error:
                if pause_s == TICK_S:
                    _log.warning("%s: the artifacts follow later", error)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _leads(self) -> bool:
        return self.hold.ours

    async def tick(self) -> None:
        """Renew, reap, and write what other workers have committed."""
        await self._hold_on()
        await self._write_others()

    async def _hold_on(self) -> None:
        if await self._calls(self.hold.renew):
            if not self._has_slept():
                await self._calls(self.reap)
        elif await self._calls(self.hold.take) and self._begun:
            async with self._alone:
                await self._catch_up()

    def _has_slept(self) -> bool:
        """Whether this machine stood still: then its workers have leases that ended, and renew them first."""
        now, third_s = time.time(), self.hold.lease_s / 3
        if now - self._ticked_at > max(third_s, 5 * TICK_S):
            self._awake_at = now + third_s
        self._ticked_at = now
        return now < self._awake_at

    def reap(self) -> None:
        """Take back the trials of workers that are dead, or whose lease has ended."""
        for worker in self.store.workers(self.run_id):
            if worker == self.hold.before or is_dead(worker):
                self.store.release_worker(worker, again=self.again)
        self.store.reap(self.run_id, again=self.again)

    async def unfinished(self) -> bool:
        """Whether trials are left, with whatever worker."""
        return bool(await self._calls(unfinished, self.store, self.run_id))

    def started(self, trial: PlannedTrial, lease: Lease) -> None:
        """The worker beside it has begun an attempt: nothing to write yet."""
        self.listener.started(trial, lease)

    def ended(self, trial: PlannedTrial, record: AttemptRecord, counts: bool) -> None:
        """An attempt is committed: on disk first, then to the listener. What another leads is not ours.

        While the folder is brought up to date in another thread, the next tick writes it.
        """
        mine = self.hold.ours and not self._catching_up
        if mine and not self.folder.has(record.key, record.number):
            self.folder.append(trial, record, counts)
        self._hear(record, counts=counts)
        self.listener.ended(trial, record, counts)

    def _hear(self, record: AttemptRecord, *, counts: bool) -> None:
        """Tell the rule; when no more trials are needed, cancel what has not ended."""
        if self.rule and counts and self.rule.answered(record) and not self._answer:
            self._answer = asyncio.create_task(self._calls(self.store.cancel, self.run_id, ANSWERED))

    async def close(self, stop: Stop, *, goes_on: bool = False) -> RunStatus:
        """Close the books: status in the store, summary and report in the folder, then the last artifacts.

        With `goes_on` a run with trials left stays as it is: somebody will go on with it at once.
        """
        async with self._alone:
            return await self._close(stop, goes_on=goes_on)

    async def _close(self, stop: Stop, *, goes_on: bool) -> RunStatus:
        while not await self._calls(self.hold.renew) and not await self._calls(self.hold.take):
            if stop.draining or await _stopped(stop, within_s=TICK_S):
                return RunStatus.INTERRUPTED  # the other coordinator has the run and goes on with it
        if self._answer:
            await self._answer
        status = await self._calls(end_of, self.store, self.run_id)
        if goes_on and status is RunStatus.INTERRUPTED:
            self.folder.close()
            return status
        await self._calls(self.hold.set_status, status)
        await self._aside(self._write_end)
        over = status is not RunStatus.INTERRUPTED  # else a resume copies what is left
        await in_own_thread(self.folder.copy_rest, lambda: self._leads() and (over or not stop.now))
        return status

    def _write_end(self) -> None:
        """Summary and reports, also those of users: from all records, and for as long as that takes."""
        with self.store.apart() as store:
            self.folder.conclude(RunData.from_store(store, self.run_id), write_reports)

    async def _catch_up(self) -> None:
        self._catching_up = True
        try:
            self._seen = await self._aside(self._reconcile)
        finally:
            self._catching_up = False
        if self.rule:
            for record in await self._aside(self._results):
                self._hear(record, counts=True)
            if self._answer:  # before a worker begins what nobody needs
                await self._answer

    def _results(self) -> list[AttemptRecord]:
        """What earlier coordinators and other workers have committed."""
        with self.store.apart() as store:
            return [row.record for row in store.attempts(self.run_id) if row.counts]

    def _reconcile(self) -> int:
        """Bring the folder up to date; the event up to which it is."""
        self.reap()
        seen = self.store.coordination.last_event(self.run_id)
        with self.store.apart() as store:
            self.folder.reopen(store)
        return seen

    async def _write_others(self) -> None:
        """Write what others have committed, a page at a time."""
        async with self._alone:
            while self._begun and self.hold.ours and await self._write_page():
                pass

    async def _write_page(self) -> bool:
        found = await self._calls(self.store.coordination.ended_since, self.run_id, self._seen, _PAGE)
        missing = {(key, number) for _, key, number in found if not self.folder.has(key, number)}
        rows: list[AttemptRow] = []
        if missing:
            self._catching_up = True  # until it is written, results of our own worker wait for the next page
            try:
                rows = await self._aside(self._write_missing, missing)
            finally:
                self._catching_up = False
        for row in rows:
            if row.record.worker != self.hold.holder:  # our own worker has told both itself
                self._hear(row.record, counts=row.counts)
                self.listener.ended(row.trial, row.record, row.counts)
        if found:
            self._seen = found[-1][0]
        return bool(found)

    def _write_missing(self, missing: Collection[tuple[str, int]]) -> list[AttemptRow]:
        """Write attempts that have ended to the folder."""
        with self.store.apart() as store:
            rows = store.attempts_of(self.run_id, *{key for key, _ in missing})
        rows = [row for row in rows if (row.record.key, row.record.number) in missing]
        if rows:
            self.folder.append_all(rows)
        return rows

    async def _aside(self, function: Callable[_P, _T], *args: _P.args, **more: _P.kwargs) -> _T:
        """Call what may take long beside the loop and the calls of the store, which renew all leases.

        Cancelled, it still waits for the end of the call: folder and store are let go of next.
        """
        return await to_its_end(in_own_thread(function, *args, **more))


async def _stopped(stop: Stop, *, within_s: float) -> bool:
    """Wait; whether a person asked to stop meanwhile."""
    try:
        async with asyncio.timeout(within_s):
            await stop.changed()
    except TimeoutError:
        return stop.draining
    return True


def end_of(store: Store, run_id: str) -> RunStatus:
    """The status of a run at which nobody works any more: cancelled by a person, complete, or not."""
    if store.run(run_id).status is RunStatus.CANCELLED:
        return RunStatus.CANCELLED
    return RunStatus.INTERRUPTED if unfinished(store, run_id) else RunStatus.DONE


def unfinished(store: Store, run_id: str) -> int:
    """How many trials are still to be done."""
    states = store.state_counts(run_id)
    return sum(states.get(state, 0) for state in (TrialState.PENDING, TrialState.LEASED, TrialState.RUNNING))
