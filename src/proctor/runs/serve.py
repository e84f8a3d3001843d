"""Execute trials of runs that other processes coordinate, until there are none or a person says stop."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec import structs

from proctor.engine.lease import is_dead, worker_id
from proctor.engine.stop import Stop
from proctor.errors import NotFoundError, ProctorError, UsageError
from proctor.model.plan import PlannedTrial
from proctor.model.run import RunInfo
from proctor.model.trial import Lease, RunStatus, TrialState
from proctor.runs.executors import WorkerContext, kind_of
from proctor.runs.running import ReadyRun, ready_here, room_for
from proctor.runs.worker import Worker
from proctor.settings import Settings
from proctor.store.calls import StoreCalls
from proctor.store.open import open_store
from proctor.store.store import Store

_POLL_S = 0.5
"""How often to look for runs with trials to take."""
_OLDEST = 1000


@dataclass(slots=True)
class Server:
    """A worker process: takes trials of one run, or of every run of the store that is running."""

    settings: Settings
    run: str | None
    parallel: int
    stop: Stop
    say: Callable[[str], None]
    name: str = field(default_factory=worker_id)
    ended: int = 0
    _refused: set[str] = field(default_factory=set)

    @property
    def _place(self) -> Path:
        """Where the attempts of this worker write their files."""
        return self.settings.home / "worker" / self.name

    async def serve(self, *, until_idle: bool) -> None:
        """Return when asked to stop; with `until_idle` also when no run has a trial to take."""
        for left in self._place.parent.glob("*"):
            if is_dead(left.name):
                _clear(left)
        try:
            await self._serve(until_idle=until_idle)
        finally:
            for kept in _clear(self._place):
                self.say(f"experiments wrote files beside those of their trials, which are kept: {kept}")

    async def _serve(self, *, until_idle: bool) -> None:
        with open_store(self.settings.store_url) as store, StoreCalls(store) as calls:
            while not self.stop.draining:
                found = await calls(self._open_run, store)
                if found is not None:
                    await self._work_at(store, calls, found)
                elif until_idle:
                    return
                else:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self.stop.changed(), _POLL_S)

    def _open_run(self, store: Store) -> RunInfo | None:
        """The oldest run that somebody coordinates and that has pending trials."""
        if self.run:
            found = [store.run(self.run)]
        else:
            found = store.runs(status=RunStatus.RUNNING, limit=_OLDEST)[::-1]
        for info in found:
            if info.status is not RunStatus.RUNNING or info.id in self._refused:
                continue
            if store.state_counts(info.id)[TrialState.PENDING]:
                return info
        return None

    async def _work_at(self, store: Store, calls: StoreCalls, info: RunInfo) -> None:
        own = Stop()

        def spent(reason: str) -> None:
            own.drain(reason)
            self._refused.add(info.id)
            self.say(f"run {info.id}: {reason}; no more trials of it are taken")

        try:
            run = await calls(self._ready, store, info)
            context = WorkerContext(self.name, note=store.note, on_spent=spent)
            executor = kind_of(run).open(run, context)
        except ProctorError as error:
            if self.run:
                raise
            self._refused.add(info.id)
            self.say(f"run {info.id} is left to others: {error}")
            return
        self.say(f"run {info.id}: {info.name}")
        worker = Worker(
            store=store,
            run_id=info.id,
            executor=executor,
            listener=_Counting(self),
            stop=own,
            name=self.name,
            parallel=room_for(run, self.parallel),
            retries=run.spec.retries,
            lease_s=self.settings.lease_s,
            calls=calls,
        )
        watching = asyncio.create_task(self._watch(store, calls, info.id, own))
        try:
            await worker.run()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    def _ready(self, store: Store, info: RunInfo) -> ReadyRun:
        """All that is needed to execute a run, from the store."""
        # The folder is its coordinator's; what an attempt leaves reaches it through the blobs.
        info = structs.replace(store.run(info.id), folder=str(self._place / info.id))
        run = ready_here(store, info, self.settings)
        if not kind_of(run).shared:
            raise UsageError(f"run {info.id} measures the harness itself, which has to work alone")
        # Never alone: the coordinator's own process has a worker too, so what is measured may be disturbed.
        return replace(run, spec=replace(run.spec, parallel=max(2, self.parallel)))

    async def _watch(self, store: Store, calls: StoreCalls, run_id: str, own: Stop) -> None:
        """Hand on what a person asks for; take nothing more of a run that has been stopped."""
        while True:
            await asyncio.sleep(_POLL_S)
            if self.stop.requests > own.requests:
                own.request(times=self.stop.requests - own.requests)
            try:
                info = await calls(store.run, run_id)
                over = info.status is not RunStatus.RUNNING
            except NotFoundError:
                over = True
            if over and not own.draining:
                own.request()


def _clear(place: Path) -> list[Path]:
    """Remove what trials of a worker wrote: it is in the blobs. The folders that hold something else stay."""
    for run in place.glob("*"):
        shutil.rmtree(run / "trials", ignore_errors=True)
    for folder in (*place.glob("*"), place):
        with suppress(OSError):
            folder.rmdir()
    return list(place.glob("*"))


class _Counting:
    """Listens to a worker, for the count alone: the coordinator finds the rest in the store."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def started(self, trial: PlannedTrial, lease: Lease) -> None:
        """Nothing to do."""

    def ended(self, *_: object) -> None:
        """One more."""
        self.server.ended += 1
