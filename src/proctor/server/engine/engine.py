"""The engine: executes queued runs of the store, several at a time, until it is told to stop.

It keeps nothing that a restart would lose: the queue is in the store, and a run that was cut off goes on
where its lease ended. Told to stop, it ends what runs at once; the attempts are kept as cancelled, and their
trials are done when the next engine goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from time import monotonic
from typing import NamedTuple

from proctor.engine.base import Executor
from proctor.engine.stop import Stop
from proctor.errors import NotFoundError, ProctorError, RunHeldError, StoreError
from proctor.model.plan import PlannedTrial
from proctor.model.trial import Lease, RunStatus
from proctor.runs.executors import WorkerContext, kind_of
from proctor.runs.process_resources import Resources
from proctor.runs.running import ReadyRun, execute, reopen
from proctor.server.auth.vault import Vault, environ_of
from proctor.server.engine.choice import choose, choose_all
from proctor.server.engine.slots import InTurn, Slots
from proctor.server.tracing.tracing import Tracing
from proctor.store.calls import StoreThreads
from proctor.store.outage import Outage
from proctor.store.service.queue import Queued
from proctor.store.store import Store
from proctor.threads import in_own_thread

_log = logging.getLogger("proctor.engine")

HELD_BACK = "the other trials are held back"
"""Why a run stops of which only one trial was asked for: no failure."""
QUOTAS_S = 5.0
"""How often to look at what projects have spent."""
THREADS = 4
"""How many calls of the store about the queue are under way at once."""
POLL_S = 0.5
"""How often to look for runs; the server wakes the engine when it has one."""
HELD_BACK_S = 1.0
"""How often runs begin while people submit more of them: then the processors are the server's first."""


class _Silent:
    """Listens to a worker: the page reads what happens from the store."""

    def started(self, trial: PlannedTrial, lease: Lease) -> None:
        """Nothing to do."""

    def ended(self, *_: object) -> None:
        """Nothing to do."""


class Active(NamedTuple):
    """A run that is being executed."""

    queued: Queued
    stop: Stop
    task: asyncio.Task[None]


@dataclass(slots=True)
class Engine:
    """One process that executes queued runs."""

    resources: Resources
    vault: Vault
    total: int
    """Trials at a time, over all runs."""
    stop: Stop = field(default_factory=Stop)
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    tracing: Tracing | None = None
    person: str = ""
    """On a server of one person, under which name they submit: their runs are as from a command line."""
    held_back: bool = False
    """Whether people are submitting runs now."""
    outage: Outage = field(default_factory=lambda: Outage(_log))
    _began_at: float = -HELD_BACK_S
    _active: dict[str, Active] = field(default_factory=dict)
    _quotas_at: float = 0.0
    _held: dict[str, float] = field(default_factory=dict)
    """Runs that another process executes, and when to look again."""
    _calls: StoreThreads = field(init=False)

    def __post_init__(self) -> None:
        self._calls = StoreThreads(self.resources.stores, THREADS)

    @property
    def leads(self) -> bool:
        """Whether it only coordinates, because workers execute: with a broker, unless it has places too."""
        settings = self.resources.settings
        return bool(settings.broker) and not settings.serve_parallel

    async def run(self) -> None:
        """Return when asked to stop and everything is saved."""
        slots = Slots(self.total)
        with self.resources.stores.borrow():
            pass  # a store that cannot be opened ends this process, and its server starts another later
        stopping = asyncio.create_task(self.stop.changed())
        while not self.stop.draining:
            await self._turn(slots)
            waking = asyncio.create_task(self.woken.wait())
            await asyncio.wait({waking, stopping}, timeout=POLL_S, return_when=asyncio.FIRST_COMPLETED)
            waking.cancel()
            self.woken.clear()
        stopping.cancel()
        for active in self._active.values():
            active.stop.request(times=2)
        tasks = [active.task for active in self._active.values()]
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.resources.backends.close()
        self._calls.close()

    async def _turn(self, slots: Slots) -> None:
        if self.outage.resting:
            return
        try:
            if self.outage.goes_on:
                await self._calls(Store.try_writing)
                self.outage.worked()
            await self._look()
            await self._begin(slots)
        except StoreError as error:
            self.outage.failed(error)

    async def _look(self) -> None:
        """Stop what is not to be executed any more; what runs of it is finished."""
        if not self._active:
            return
        reasons = await self._calls(self._reasons, dict(self._active))
        for run_id, reason in reasons.items():
            if run_id in self._active and not (stop := self._active[run_id][1]).draining:
                stop.drain(reason)

    def _reasons(self, store: Store, active: Mapping[str, Active]) -> dict[str, str]:
        """The runs to stop, each with the reason; empty: a person asked for it."""
        wanted = store.service.queue.wanted(active)
        held = store.service.rollouts.only_held(active)
        spent = self._overspent(store, {each.queued.project for each in active.values()})
        found = {
            run_id: spent[each.queued.project]
            for run_id, each in active.items()
            if each.queued.project in spent
        }
        found |= dict.fromkeys(held, HELD_BACK)
        return found | {run_id: "" for run_id in active if run_id not in wanted}

    def _overspent(self, store: Store, projects: Collection[str]) -> dict[str, str]:
        """Projects that have spent what they may spend in a day; looked at now and then."""
        if monotonic() < self._quotas_at:
            return {}
        self._quotas_at = monotonic() + QUOTAS_S
        accounts = store.service.accounts
        found = {}
        for project in projects:
            limit = accounts.project(project).day_usd
            if limit is not None and accounts.spent_today_usd(project) >= limit:
                found[project] = f"the project '{project}' has spent its ${limit:.2f} of today"
        return found

    async def _begin(self, slots: Slots) -> None:
        now = asyncio.get_running_loop().time()
        if self.held_back and now - self._began_at < HELD_BACK_S:
            return
        self._held = {run: at for run, at in self._held.items() if at > now}
        waiting = [
            each
            for each in await self._calls(lambda store: store.service.queue.waiting())
            if each.run_id not in self._held
        ]
        active_now = [active.queued for active in self._active.values()]
        chosen = choose_all(waiting, active_now) if self.leads else choose(waiting, active_now, self.total)
        if chosen:
            self._began_at = now
        for each in chosen:
            stop = Stop()
            task = asyncio.create_task(self._carry_out(each, stop, slots))
            self._active[each.run_id] = Active(each, stop, task)
            task.add_done_callback(partial(self._ended, each.run_id))

    def _ended(self, run_id: str, _: asyncio.Task[None]) -> None:
        self._active.pop(run_id, None)
        self.woken.set()

    async def _carry_out(self, queued: Queued, stop: Stop, slots: Slots) -> None:
        """Execute one run; whatever stops it is written to its place in the queue."""
        try:
            status = await self._execute(queued, stop, slots)
        except RunHeldError:
            self._held[queued.run_id] = asyncio.get_running_loop().time() + 2.0
        except NotFoundError:
            _log.info("run %s was deleted", queued.run_id)
        except ProctorError as error:
            await self._saved(self._give_up, queued, str(error))
        except Exception as error:  # noqa: BLE001 - one run must not end the others; it is told in the queue
            _log.exception("run %s", queued.run_id)
            await self._saved(self._give_up, queued, f"{type(error).__name__}: {error}")
        else:
            over = status in {RunStatus.DONE, RunStatus.CANCELLED} or bool(stop.reason)
            if status is RunStatus.DONE:
                await in_own_thread(self._judge, queued)
            if over:
                await self._saved(self._leave_queue, queued, stop.reason)

    async def _saved(self, save: Callable[[Store, Queued, str], None], queued: Queued, why: str) -> None:
        """Write how a run ended. Where that fails, the store does, and the run stays in the queue."""
        try:
            await self._calls(save, queued, why)
        except StoreError as error:
            self.outage.failed(error)
        except ProctorError as error:
            _log.warning("run %s: %s", queued.run_id, error)

    async def _execute(self, queued: Queued, stop: Stop, slots: Slots) -> RunStatus:
        run = await in_own_thread(self._ready, queued)

        def in_turn(ready: ReadyRun, context: WorkerContext) -> Executor:
            shared = replace(context, backends=ready.resources.backends)
            return InTurn(kind_of(ready).open(ready, shared), slots, queued.owner)

        parallel = min(self.total, queued.parallel or run.spec.parallel)
        traced = self.tracing.run(queued.run_id, project=queued.project) if self.tracing else None
        status, problem = "", "it was cut off"
        try:
            found = await execute(
                run,
                listener=traced or _Silent(),
                stop=stop,
                parallel=1 if queued.alone else parallel,
                open_executor=None if self.leads else kind_of(run).open if queued.alone else in_turn,
                keep=True,
                engine="celery" if self.leads else "local",
            )
            status, problem = found.value, ""
        finally:
            if traced:
                traced.finish(status, problem)
        return found

    def _judge(self, queued: Queued) -> None:
        """A run whose gates cannot be judged is done all the same; why is in the log."""
        from proctor.server.engine.judging import judge_ended

        try:
            judge_ended(self.resources, queued.run_id, queued.project)
        except ProctorError as error:
            _log.warning("run %s: its gates could not be judged: %s", queued.run_id, error)

    def _ready(self, queued: Queued) -> ReadyRun:
        ours = self.resources
        environ = ours.stores.now(environ_of, self.vault, queued.project, ours.environ, queued.run_id)
        engine = "celery" if self.leads else "local"
        run = reopen(queued.run_id, ours.for_project(ours.settings, environ), engine=engine)
        return replace(run, project=None) if self.person and queued.owner == self.person else run

    def _give_up(self, store: Store, queued: Queued, why: str) -> None:
        store.service.queue.want(queued.run_id, wanted=False, failure=why, event="run.failed")
        if store.run(queued.run_id).status not in {RunStatus.DONE, RunStatus.CANCELLED}:
            store.set_status(queued.run_id, RunStatus.INTERRUPTED)
        _log.warning("run %s: %s", queued.run_id, why)

    def _leave_queue(self, store: Store, queued: Queued, reason: str) -> None:
        failure = "" if reason == HELD_BACK else reason
        store.service.queue.want(queued.run_id, wanted=False, failure=failure)
        if not reason:
            store.service.keys.forget_run(queued.project, queued.run_id)
