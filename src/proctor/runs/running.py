"""Create a run, execute it, resume it and complete its documents."""

from __future__ import annotations

import asyncio
import logging
import secrets
import shutil
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from msgspec import structs

from proctor.disk import spread
from proctor.engine.base import Executor, Listener, Preflight, WarmsUp
from proctor.engine.lease import worker_id
from proctor.engine.stop import Stop
from proctor.errors import StoreError, UsageError
from proctor.model.plan import Plan
from proctor.model.run import Execution, RunInfo
from proctor.model.spec import Spec
from proctor.model.trial import RunStatus
from proctor.runfolder.files import make_folder
from proctor.runfolder.write import RunFolder, claim_folder, folder_for
from proctor.runs.coordinator import Coordinator
from proctor.runs.executors import OnLog, OpenExecutor, WorkerContext, kind_of
from proctor.runs.holding import Hold, check_free
from proctor.runs.inputs import RunInputs, has_changed
from proctor.runs.models import with_tape
from proctor.runs.pack import Packer
from proctor.runs.planning import Find, pin_datasets, plan_spec, with_declared_directions
from proctor.runs.process_resources import Resources
from proctor.runs.ready import check_gates, check_ready, engine_of
from proctor.runs.room import room_for
from proctor.runs.shared_blobs import MARK, mark, refuse_other_blobs
from proctor.runs.sources import OneRun
from proctor.runs.versions import versions
from proctor.runs.worker import Worker
from proctor.settings import Settings
from proctor.spec.grammar import refuse_unhonoured
from proctor.spec.load import from_mapping
from proctor.spec.secrets import hidden
from proctor.store.calls import StoreCalls
from proctor.store.service.ownership import Owner
from proctor.store.store import Store
from proctor.tasks.address import without_secrets
from proctor.threads import in_own_thread

_log = logging.getLogger("proctor.runs")


@dataclass(frozen=True, slots=True)
class ReadyRun:
    """A run of the store that can be executed here; `execute` finishes it."""

    info: RunInfo
    spec: Spec
    plan: Plan
    resources: Resources
    inputs: RunInputs
    project: str | None = None
    """On whose behalf a server executes it; None: a person of this machine made it."""

    @property
    def settings(self) -> Settings:
        """By which it is executed."""
        return self.resources.settings

    @property
    def environ(self) -> Mapping[str, str]:
        """Where keys and other secrets are looked up; a server has other ones for each project."""
        return self.resources.environ

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return Path(self.info.folder)


def _python_of(spec: Spec) -> str | None:
    """The interpreter of a run's experiments, where all have the same one of their own."""
    pythons = {body.python for body in spec.experiments}
    return pythons.pop() if len(pythons) == 1 else None


def create(
    spec: Spec,
    written: Mapping[str, Any],
    resources: Resources,
    *,
    plan: Plan | None = None,
    execution: Execution | None = None,
    owner: Owner | None = None,
    find: Find | None = None,
) -> ReadyRun:
    """Plan a run, or take a plan made elsewhere, write it to the store and begin its folder.

    `owner`: to whom it belongs on a server, where it waits in the queue; whoever coordinates it begins its
    folder then. `find`: as for `plan_spec`.
    """
    from proctor.trial.environment import capture_vcs, environment_at

    settings, environ = resources.settings, resources.environ
    refuse_unhonoured(spec)
    engine = engine_of(spec.engine, settings, place=spec.place("engine"))
    spec = replace(spec, engine="local" if execution is Execution.PERF else engine)
    blobs = resources.blobs
    spec = with_tape(spec, resources)
    if spec.tasks and not plan:
        spec = pin_datasets(spec, settings)
    plan = plan or plan_spec(spec, settings, environ, find=find)
    if not plan.trials:
        raise UsageError(f"{spec.name}: the spec has no trials")
    spec = with_declared_directions(spec, plan)
    check_gates(spec, plan)
    check_ready(spec, plan, settings, execution, environ, here=spec.engine == "local")
    created_at = time.time()
    info = RunInfo(
        id=new_run_id(created_at),
        name=spec.name,
        kind=spec.kind,
        status=RunStatus.PENDING,
        created_at=created_at,
        seed=spec.seed,
        total=len(plan),
        tags=spec.tags,
        notes=spec.notes,
        spec=hidden(without_secrets(written), spec.secrets),
        resolved=spec.to_mapping(),
        environment=environment_at(int(created_at), _python_of(spec)),
        # What is submitted to a server has no working copy there.
        vcs={} if owner else capture_vcs(Path(spec.base_dir)),
        versions=versions(),
        plan_digest=plan.digest,
        execution=execution or Execution(spec.kind),
    )
    choose_folder = folder_for if owner else claim_folder
    folder = choose_folder(_base(spec, settings), info.name, info.id).resolve()
    info = structs.replace(info, folder=str(folder))
    try:
        if not owner:
            RunFolder(folder).begin(info, plan)
        with resources.stores.borrow() as store:
            # A measured harness works alone, where its tasks are.
            packer = None if execution is Execution.PERF else Packer(store.inputs, blobs, settings)
            stored = packer.pack(spec, plan) if packer else []
            if packer and store.remote:
                stored.append(mark(blobs))
            store.create_run(info, plan, stored, owner)
    except BaseException:
        if not owner:
            _remove_folder(folder)
        raise
    inputs = RunInputs(blobs, settings.cache_dir, {each.name: each for each in stored})
    return ReadyRun(info, spec, plan, resources, inputs, owner.project if owner else None)


def _base(spec: Spec, settings: Settings) -> Path:
    usual = settings.rollouts_dir if spec.tasks else settings.output_dir
    return Path(spec.output_dir) if spec.output_dir else usual


def _remove_folder(folder: Path) -> None:
    """The folder of a run that did not come to be, and its parent where that was made for it."""
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        folder.parent.rmdir()


def _withdraw(store: Store, run: ReadyRun) -> None:
    """Take back a run of which nothing was executed; one that has begun before stays as it was."""
    if store.run(run.info.id).status is RunStatus.PENDING and not store.counts(run.info.id):
        store.delete_run(run.info.id)
        _remove_folder(run.folder)


def reopen(ref: str, resources: Resources, *, wait: bool = False, engine: str = "auto") -> ReadyRun:
    """A run that stopped before its end, ready to go on: with what it was made from, wherever that is now.

    With `wait` another process may still execute it. `engine`: where, whatever it was before.
    """
    chosen = engine_of(engine, resources.settings)
    with resources.stores.borrow() as store:
        info = store.run(ref)
        if info.status is RunStatus.CANCELLED:
            raise UsageError(
                f"run {info.id} ({info.name}) was cancelled and cannot be continued; what had ended is kept. "
                "Start a new run: 'proctor run' with the same spec"
            )
        refuse_imported(info)
        if not wait:
            check_free(store, info.id, Path(info.folder))
        run = ready_here(store, info, resources, here=chosen == "local")
        run = replace(run, spec=replace(run.spec, engine=chosen), info=_with_folder(store, run))
        resolved = {**run.info.resolved, "engine": chosen}
        if resolved == run.info.resolved:
            return run
        run = replace(run, info=structs.replace(run.info, resolved=resolved))
        store.set_resolved(run.info)
        return run


def refuse_imported(info: RunInfo) -> None:
    """What another tool executed has neither a spec nor stored workspaces here."""
    if info.imported:
        raise UsageError(
            f"run {info.id} ({info.name}) was imported from {info.imported}, where its trials ran; it cannot "
            "be continued or graded here. 'proctor run' on the same tasks makes a run to compare it with"
        )


def with_budgets(run: ReadyRun, budgets: Mapping[str, Any]) -> ReadyRun:
    """The run with other budgets, for every worker that goes on with it; those that are None stay."""
    given = {name: value for name, value in budgets.items() if value is not None}
    if not given:
        return run
    changed = structs.replace(run.info, resolved={**run.info.resolved, **given})
    with run.resources.stores.borrow() as store:
        store.set_resolved(changed)
    return replace(run, info=changed, spec=replace(run.spec, **given))


def _with_folder(store: Store, run: ReadyRun) -> RunInfo:
    """The run with a folder that can be written here: its own, or a new one where that cannot be made."""
    try:
        if not run.folder.is_dir():
            make_folder(run.folder.parent)
            spread(run.folder.parent)
            make_folder(run.folder)
    except StoreError:
        base = _base(replace(run.spec, output_dir=None), run.settings)
        folder = claim_folder(base, run.info.name, run.info.id).resolve()
        _log.warning("%s cannot be written here; the run goes on in %s", run.folder, folder)
        moved = structs.replace(run.info, folder=str(folder))
        store.set_folder(moved)
        return moved
    return run.info


def ready_here(store: Store, info: RunInfo, resources: Resources, *, here: bool = True) -> ReadyRun:
    """A run of the store that this process can execute; UsageError when its subject is another one here.

    Without `here` others execute it.
    """
    settings, environ = resources.settings, resources.environ
    plan = Plan(trials=tuple(store.planned(info.id)))
    spec = from_mapping(info.resolved, file=f"run {info.id}")
    inputs = RunInputs(resources.blobs, settings.cache_dir, store.inputs.of(info.id))
    refuse_other_blobs(inputs.blobs, inputs.stored.get(MARK), info.id)
    if inputs.stored:
        spec = inputs.spec(spec, plan)
    else:
        _refuse_another(info, plan, plan_spec(spec, settings, environ))
    check_ready(spec, plan, settings, info.execution, environ, here=here)
    project = store.service.ownership.project(info.id)
    return ReadyRun(info, spec, plan, resources, inputs, project)


def _refuse_another(info: RunInfo, plan: Plan, here: Plan) -> None:
    """Of a run that brought nothing, the project must be here as it was planned."""
    now = {trial.key for trial in here.trials}
    changed = [trial for trial in plan.trials if trial.key not in now]
    if changed:
        raise UsageError(has_changed(changed[0].subject, len(changed), len(plan), f"run {info.id}"))


async def execute(
    run: ReadyRun,
    *,
    listener: Listener,
    stop: Stop,
    on_log: OnLog | None = None,
    wait: bool = False,
    parallel: int | None = None,
    open_executor: OpenExecutor | None = None,
    goes_on: Callable[[], bool] = lambda: False,
    keep: bool = False,
    engine: str | None = None,
) -> RunStatus:
    """Execute a run: one coordinator and one worker in this process. Results are saved after errors too.

    `wait`: until another process that coordinates the run has ended or died; else that is a RunHeldError.
    `goes_on`: after a stop, whether the caller goes on at once, so that the books stay open.
    `keep`: a run that cannot begin stays in the store; else it is taken back.
    `engine`: where, if not as the run says; with `celery` this process coordinates only, and workers execute.
    """
    name = worker_id()
    with run.resources.stores.borrow() as store, StoreCalls(store) as calls:
        hold = Hold(store, run.info.id, run.folder, holder=name, lease_s=run.settings.lease_s)
        kind = kind_of(run)
        coordinator = Coordinator(
            store,
            hold,
            RunFolder(run.folder, blobs=run.inputs.blobs),
            listener=listener,
            again=not kind.lost_may_end,
            rule=kind.rule(run) if kind.rule else None,
            calls=calls,
        )
        if not await coordinator.lead(stop, wait=wait):
            return RunStatus.INTERRUPTED
        keeping = asyncio.create_task(coordinator.keep())
        try:
            if (engine or run.spec.engine) == "celery" and kind.shared and not open_executor:
                from proctor.runs.dispatch import by_workers

                await coordinator.begin()
                waiting = by_workers(coordinator, stop, calls, run.resources.broker)
                try:
                    await _until_either_ends(waiting, keeping)
                finally:
                    await coordinator.tick()
                    status = await coordinator.close(stop)
                return status
            context = WorkerContext(name, on_log, store.note, stop.drain)
            executor = await _ready(store, run, open_executor or kind.open, context, keep=keep)
            await coordinator.begin()
            worker = Worker(
                store=store,
                source=OneRun(
                    store,
                    run.info.id,
                    executor,
                    worker=name,
                    lease_s=run.settings.lease_s,
                    retries=run.spec.retries,
                    more=coordinator.unfinished,
                    calls=calls,
                ),
                listener=coordinator,
                stop=stop,
                name=name,
                parallel=room_for(run, parallel or run.spec.parallel),
                lease_s=run.settings.lease_s,
                calls=calls,
            )
            try:
                await _until_either_ends(worker.run(), keeping)
            finally:
                status = await coordinator.close(stop, goes_on=goes_on())
            return status
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            await calls(hold.release)


async def _until_either_ends(working: Coroutine[Any, Any, None], keeping: asyncio.Task[None]) -> None:
    """The worker ends when nothing is left; a coordinator that fails ends the worker."""
    task = asyncio.create_task(working)
    try:
        await asyncio.wait({task, keeping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    if keeping.done():
        keeping.result()
    task.result()


async def _ready(
    store: Store, run: ReadyRun, open_executor: OpenExecutor, context: WorkerContext, *, keep: bool
) -> Executor:
    """The executor, with everything made ready; a run that cannot begin is taken back."""
    try:
        executor = await in_own_thread(open_executor, run, context)
    except BaseException:
        if not keep:
            _withdraw(store, run)
        raise
    await _preflight(store, run, executor, keep=keep)
    if isinstance(executor, WarmsUp):
        await executor.warm_up(run.plan.trials)
    return executor


async def _preflight(store: Store, run: ReadyRun, executor: Executor, *, keep: bool) -> None:
    """What an executor finds missing before the first trial; the run is taken back then."""
    if not isinstance(executor, Preflight) or store.counts(run.info.id):
        return
    try:
        await executor.preflight(run.plan.trials)
    except BaseException:
        await executor.close()
        if not keep:
            _withdraw(store, run)
        raise


def new_run_id(now: float) -> str:
    """Sorts by time; the random tail keeps two runs of one second apart. Never from the seed."""
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(now))}-{secrets.token_hex(3)}"
