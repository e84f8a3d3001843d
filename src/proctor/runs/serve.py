"""Execute trials of runs that other processes coordinate, until there are none or a person says stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec import structs

from proctor.engine.lease import worker_id
from proctor.engine.stop import Stop
from proctor.errors import NotFoundError, ProctorError, UsageError
from proctor.model.plan import Plan, PlannedTrial
from proctor.model.run import RunInfo
from proctor.model.trial import Lease, RunStatus, TrialState
from proctor.runs.executors import WorkerContext, kind_of
from proctor.runs.running import Job, checked, room_for
from proctor.runs.worker import Worker
from proctor.settings import Settings
from proctor.store.blobs import open_blobs
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

    async def serve(self, *, until_idle: bool) -> None:
        """Return when asked to stop; with `until_idle` also when no run has a trial to take."""
        with open_store(self.settings.store_url) as store:
            while not self.stop.draining:
                found = next(self._open_runs(store), None)
                if found is not None:
                    await self._work_at(store, found)
                elif until_idle:
                    return
                else:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self.stop.changed(), _POLL_S)

    def _open_runs(self, store: Store) -> Iterator[RunInfo]:
        """The runs that somebody coordinates and that have pending trials, oldest first."""
        if self.run:
            found = [store.run(self.run)]
        else:
            found = store.runs(status=RunStatus.RUNNING, limit=_OLDEST)[::-1]
        for info in found:
            if info.status is not RunStatus.RUNNING or info.id in self._refused:
                continue
            if store.state_counts(info.id)[TrialState.PENDING]:
                yield info

    async def _work_at(self, store: Store, info: RunInfo) -> None:
        try:
            job = self._job(store, info)
            blobs, context = open_blobs(self.settings.blobs_url), WorkerContext(self.name, note=store.note)
            executor = kind_of(job).open(job, blobs, context)
        except ProctorError as error:
            if self.run:
                raise
            self._refused.add(info.id)
            self.say(f"run {info.id} is left to others: {error}")
            return
        self.say(f"run {info.id}: {info.name}")
        own = Stop()
        worker = Worker(
            store=store,
            run_id=info.id,
            executor=executor,
            listener=_Counting(self),
            stop=own,
            name=self.name,
            parallel=room_for(job, self.parallel),
            retries=job.spec.retries,
            lease_s=self.settings.lease_s,
        )
        watching = asyncio.create_task(self._watch(store, info.id, own))
        try:
            await worker.run()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    def _job(self, store: Store, info: RunInfo) -> Job:
        """All that is needed to execute a run, from its row in the store."""
        info = store.run(info.id)
        if not Path(info.folder).is_dir():
            # Its coordinator has the folder; what an attempt leaves reaches it through the blobs.
            info = structs.replace(info, folder=str(self.settings.home / "worker" / info.id))
        job = checked(info, Plan(trials=tuple(store.planned(info.id))), self.settings)
        if not kind_of(job).shared:
            raise UsageError(f"run {info.id} measures the harness itself, which has to work alone")
        # Never alone: the coordinator's own process has a worker too, so what is measured may be disturbed.
        return replace(job, spec=replace(job.spec, parallel=max(2, self.parallel)))

    async def _watch(self, store: Store, run_id: str, own: Stop) -> None:
        """Hand on what a person asks for; take nothing more of a run that has been stopped."""
        while True:
            await asyncio.sleep(_POLL_S)
            if self.stop.requests > own.requests:
                own.request(times=self.stop.requests - own.requests)
            try:
                over = store.run(run_id).status is not RunStatus.RUNNING
            except NotFoundError:
                over = True
            if over and not own.draining:
                own.request()


class _Counting:
    """Listens to a worker, for the count alone: the coordinator finds the rest in the store."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def started(self, trial: PlannedTrial, lease: Lease) -> None:
        """Nothing to do."""

    def ended(self, *_: object) -> None:
        """One more."""
        self.server.ended += 1
