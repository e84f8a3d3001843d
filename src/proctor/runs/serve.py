"""A worker process: executes trials of runs that other processes coordinate, of many runs at a time.

What it can execute it writes to the registry of the store; which trials it gets the store decides. Where a
broker is set it is told of work by messages, and looks by itself now and then; else it looks often.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from proctor import owner
from proctor.engine.lease import is_dead, worker_id
from proctor.engine.stop import Stop
from proctor.errors import NotFoundError, StoreError, UsageError
from proctor.model.plan import PlannedTrial
from proctor.model.trial import Lease
from proctor.runs.any_run import AnyRun, Opened
from proctor.runs.backends import remove_left
from proctor.runs.capacity import Capacity, Scale
from proctor.runs.executors import WorkerContext, kind_of
from proctor.runs.process_resources import Resources
from proctor.runs.room import room_of_files
from proctor.runs.running import ready_here
from proctor.runs.secrets import Grant
from proctor.runs.shared_blobs import check_blobs, try_blobs
from proctor.runs.tickets import Tickets
from proctor.runs.versions import refuse_other_version
from proctor.runs.worker import Worker
from proctor.store import again
from proctor.store.calls import StoreCalls
from proctor.store.fleet import WorkerInfo
from proctor.store.store import Store

if TYPE_CHECKING:
    from proctor.engine.celery.consumer import Listening

_POLL_S = 0.5
"""How often to look for trials to take."""
_SLOW_POLL_S = 5.0
"""… beside a broker, which says when there are some."""
_BEAT_S = 5.0
"""How often a worker says that it is there."""


@dataclass(slots=True)
class Server:
    """A worker process: takes trials of one run, or of every run of the store that is running."""

    resources: Resources
    run: str | None
    parallel: int
    stop: Stop
    say: Callable[[str], None]
    labels: tuple[str, ...] = ()
    least: int = 0
    """With this many trials at a time it begins, and grows to `parallel` while the machine has room."""
    name: str = field(default_factory=worker_id)
    grant_of: Callable[[str], Grant] = lambda _: Grant()
    """The keys of a run's providers, from a server; they are held in memory with what executes the run."""
    ended: int = 0

    @property
    def _place(self) -> Path:
        """Where the attempts of this worker write their files."""
        return self.resources.settings.home / "worker" / self.name

    async def serve(self, *, until_idle: bool) -> None:
        """Return when asked to stop; with `until_idle` also when no run has a trial to take."""
        self._place.parent.mkdir(parents=True, exist_ok=True)
        _clear_dead(self._place.parent)
        await remove_left(self.resources.settings)
        owner.hold(_lock_of(self._place))
        try:
            with self.resources.stores.borrow() as store, StoreCalls(store) as calls:
                await self._serve(store, calls, until_idle=until_idle)
        finally:
            await self.resources.backends.close()
            again.hurried.clear()
            for kept in _clear(self._place):
                self.say(f"experiments wrote files beside those of their trials, which are kept: {kept}")
            owner.release(_lock_of(self._place), remove=True)

    async def _serve(self, store: Store, calls: StoreCalls, *, until_idle: bool) -> None:
        only = (await calls(store.run, self.run)).id if self.run else ""
        capacity = await asyncio.to_thread(self._capacity, store)
        told = bool(self.resources.settings.broker) and not until_idle
        source = AnyRun(
            store,
            calls,
            capacity.offers,
            lambda run_id: self._open(store, calls, run_id, source),
            worker=self.name,
            lease_s=self.resources.settings.lease_s,
            say=self.say,
            only=only,
            until_idle=until_idle,
            poll_s=_SLOW_POLL_S if told else _POLL_S,
            place=self.resources.settings.home,
            leaving=lambda: worker.leaving,
        )
        tickets = Tickets() if told else None
        worker = Worker(
            store=store,
            source=source,
            listener=_Counting(self),
            stop=self.stop,
            name=self.name,
            parallel=self.least or room_of_files(self.parallel),
            lease_s=self.resources.settings.lease_s,
            calls=calls,
            tickets=tickets,
            try_blobs=lambda: try_blobs(self.resources.blobs),
        )

        def opened() -> None:
            if tickets:
                tickets.look()
            worker.wake()

        source.woken = opened
        # Before anything is taken: by the registry others know whose memory its trials use.
        await calls(store.fleet.seen, self._described(worker, capacity, source, only))
        listening = self._listen(tickets, capacity) if tickets else None
        releasing = asyncio.create_task(self._release(listening)) if listening else None
        beating = asyncio.create_task(self._beat(store, calls, worker, capacity, source, only))
        hurrying = asyncio.create_task(self._hurry(worker))
        try:
            await worker.run()
        finally:
            again.hurried.set()
            helpers = [each for each in (beating, releasing, hurrying) if each]
            for each in helpers:
                each.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
            if tickets and listening:
                tickets.close()
                await asyncio.to_thread(listening.stop)
            with suppress(StoreError):
                await calls(store.fleet.gone, self.name)

    def _capacity(self, store: Store) -> Capacity:
        """What it can execute here, and what not is said; ProctorError where its files would be lost."""
        check_blobs(store, self.resources.blobs)
        found = Capacity.here(self.resources.settings, self.labels)
        for obstacle in found.obstacles:
            self.say(f"no sandbox of {obstacle}")
        return found

    def _listen(self, tickets: Tickets, capacity: Capacity) -> Listening:
        from proctor.engine.celery.consumer import Listening

        listening = Listening(
            self.resources.broker,
            tickets.offer,
            parallel=room_of_files(self.parallel),
            backends=capacity.offers.backends,
            name=self.name,
        )
        listening.start(asyncio.get_running_loop())
        return listening

    async def _release(self, listening: Listening) -> None:
        """Asked to stop, leave what the broker has to others."""
        while not self.stop.draining:
            await self.stop.changed()
        await asyncio.to_thread(listening.release)

    async def _hurry(self, worker: Worker) -> None:
        """Asked to stop, wait for the store only while there is something to save."""
        while not self.stop.draining:
            await self.stop.changed()
        while not worker.leaving:  # noqa: ASYNC110 - several things have to end, and it is a matter of seconds
            await asyncio.sleep(_POLL_S)
        again.hurried.set()

    def _open(self, store: Store, calls: StoreCalls, run_id: str, source: AnyRun) -> Opened:
        """All that is needed to execute a run, from the store; called in a thread."""
        # The folder is its coordinator's; what an attempt leaves reaches it through the blobs.
        info = store.run(run_id)
        refuse_other_version(info)
        info = structs.replace(info, folder=str(self._place / run_id))
        grant = self.grant_of(run_id)
        ours = self.resources.settings
        settings = replace(ours, providers={**ours.providers, **grant.providers})
        resources = self.resources.for_project(settings, {**self.resources.environ, **grant.keys})
        try:
            run = ready_here(store, info, resources)
        except NotFoundError as error:
            store.run(run_id)  # unless it was deleted meanwhile, a blob of it is what is missing
            raise UsageError(f"something that it is made from is missing: {error}") from error
        if not kind_of(run).shared:
            raise UsageError(f"run {run_id} measures the harness itself, which has to work alone")
        if self._disturbed(store, run.spec.engine):
            run = replace(run, spec=replace(run.spec, parallel=max(2, run.spec.parallel)))

        def spent(reason: str) -> None:
            if source.refuse(run_id, reason):
                calls.later(store.service.queue.tell, run_id, "run.spent", {"reason": reason})

        context = WorkerContext(self.name, note=store.note, on_spent=spent, backends=run.resources.backends)
        return run, kind_of(run).open(run, context)

    def _disturbed(self, store: Store, engine: str) -> bool:
        """Whether others on this host may execute trials too: the coordinator, or another worker."""
        host = self.name.partition(":")[0]
        return engine != "celery" or any(
            each.host == host and each.name != self.name for each in store.fleet.live()
        )

    async def _beat(
        self, store: Store, calls: StoreCalls, worker: Worker, capacity: Capacity, source: AnyRun, only: str
    ) -> None:
        """Say again and again that this worker is there; and grow or shrink, where that was asked for."""
        scale = Scale(self.least, room_of_files(self.parallel)) if self.least else None
        while True:
            await asyncio.sleep(_BEAT_S)
            if scale:
                worker.parallel = scale.next(worker.parallel, worker.running)
                worker.wake()
            with suppress(StoreError):
                await calls(store.fleet.seen, self._described(worker, capacity, source, only))

    def _described(self, worker: Worker, capacity: Capacity, source: AnyRun, only: str) -> WorkerInfo:
        return capacity.described(
            self.name,
            worker.parallel,
            running=worker.running,
            run=only,
            draining=self.stop.draining,
            left=source.left,
        )


def _lock_of(place: Path) -> Path:
    """Held by a worker for as long as it lives: other PID namespaces cannot see its process."""
    return place.with_name(f"{place.name}.lock")


def _clear_dead(parent: Path) -> None:
    """Remove what workers that are gone have left."""
    for lock in parent.glob("*.lock"):
        if owner.is_held(lock) is False:
            _clear(lock.with_name(lock.name.removesuffix(".lock")))
            lock.unlink(missing_ok=True)
    for place in parent.glob("*"):
        if place.suffix != ".lock" and not _lock_of(place).exists() and is_dead(place.name):
            _clear(place)


def _clear(place: Path) -> list[Path]:
    """Remove what trials of a worker wrote: it is in the blobs. The folders that hold something else stay."""
    for run in place.glob("*"):
        for part in ("trials", "controls"):
            shutil.rmtree(run / part, ignore_errors=True)
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

    def ended(self, *_: object, **__: object) -> None:
        """One more."""
        self.server.ended += 1
