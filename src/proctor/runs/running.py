"""Create a run, execute it, resume it and complete its documents."""

from __future__ import annotations

import asyncio
import logging
import secrets
import shutil
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import structs

from proctor.engine.base import Executor, Listener, Preflight, WarmsUp
from proctor.engine.lease import worker_id
from proctor.engine.stop import Stop
from proctor.errors import UsageError
from proctor.model.plan import Plan
from proctor.model.run import Execution, RunInfo
from proctor.model.spec import Spec
from proctor.model.trial import RunStatus
from proctor.processes import allow_open_files
from proctor.runfolder.write import RunFolder, claim_folder
from proctor.runs.coordinator import Coordinator
from proctor.runs.executors import OnLog, OpenExecutor, WorkerContext, kind_of
from proctor.runs.holding import Hold, check_free
from proctor.runs.planning import pin_datasets, plan_spec
from proctor.runs.ready import check_gates, check_ready
from proctor.runs.worker import Worker
from proctor.settings import Settings
from proctor.spec.load import from_mapping
from proctor.spec.refused import refuse_unhonoured
from proctor.spec.secrets import hidden
from proctor.store.blobs import Blobs, open_blobs
from proctor.store.open import open_store
from proctor.store.store import Store
from proctor.tasks.address import without_secrets

_OWN_FILES = 128
_FILES_PER_TRIAL = 12
"""Sockets, pipes and logs that a trial of a task may hold open at once."""
_log = logging.getLogger("proctor.runs")


@dataclass(frozen=True, slots=True)
class Job:
    """A run that exists in the store and has its folder; `execute` finishes it."""

    info: RunInfo
    spec: Spec
    plan: Plan
    settings: Settings

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return Path(self.info.folder)


def create(
    spec: Spec,
    written: Mapping[str, Any],
    settings: Settings,
    *,
    plan: Plan | None = None,
    execution: Execution | None = None,
) -> Job:
    """Plan a run, or take a plan made elsewhere, write it to the store and begin its folder."""
    from proctor.trial.environment import capture_environment, capture_vcs

    refuse_unhonoured(spec)
    if spec.tasks and not plan:
        spec = pin_datasets(spec, settings)
    plan = plan or plan_spec(spec, settings)
    if not plan.trials:
        raise UsageError(f"{spec.name}: the spec has no trials")
    check_gates(spec, plan)
    check_ready(spec, plan, settings, agents_run=execution is not Execution.REGRADE)
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
        environment=capture_environment(),
        vcs=capture_vcs(Path(spec.base_dir)),
        versions=versions(),
        plan_digest=plan.digest,
        execution=execution or Execution(spec.kind),
    )
    usual = settings.rollouts_dir if spec.tasks else settings.output_dir
    base = Path(spec.output_dir) if spec.output_dir else usual
    info = structs.replace(info, folder=str(claim_folder(base, info.name, info.id).resolve()))
    try:
        RunFolder(Path(info.folder)).begin(info, plan)
        with open_store(settings.store_url) as store:
            store.create_run(info, plan)
    except BaseException:
        _remove_folder(Path(info.folder))
        raise
    return Job(info, spec, plan, settings)


def _remove_folder(folder: Path) -> None:
    """The folder of a run that did not come to be, and its parent where that was made for it."""
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        folder.parent.rmdir()


def _withdraw(store: Store, job: Job) -> None:
    """Take back a run of which nothing was executed; one that has begun before stays as it was."""
    if store.run(job.info.id).status is RunStatus.PENDING and not store.counts(job.info.id):
        store.delete_run(job.info.id)
        _remove_folder(job.folder)


def reopen(ref: str, settings: Settings, *, wait: bool = False) -> Job:
    """A run that stopped before its end, ready to go on. Refused when its subject has changed since.

    With `wait` another process may still execute it.
    """
    with open_store(settings.store_url) as store:
        info = store.run(ref)
        if info.status is RunStatus.CANCELLED:
            raise UsageError(
                f"run {info.id} ({info.name}) was cancelled and cannot be continued; what had ended is kept. "
                "Start a new run: 'proctor run' with the same spec"
            )
        if not wait:
            check_free(store, info.id, Path(info.folder))
        plan = Plan(trials=tuple(store.planned(info.id)))
    return checked(info, plan, settings)


def checked(info: RunInfo, plan: Plan, settings: Settings) -> Job:
    """A run of the store that this process can execute; UsageError when its subject is another one here."""
    spec = from_mapping(info.resolved, file=f"run {info.id}")
    now = {trial.key for trial in plan_spec(spec, settings).trials}
    changed = [trial for trial in plan.trials if trial.key not in now]
    if changed:
        raise UsageError(
            f"run {info.id} cannot be continued: {changed[0].subject} has changed since it was planned "
            f"({len(changed)} of {len(plan)} trials would measure something else). "
            "Start a new run, or restore the old code."
        )
    check_ready(spec, plan, settings, agents_run=info.execution is not Execution.REGRADE)
    return Job(info, spec, plan, settings)


def room_for(job: Job, parallel: int) -> int:
    """How many trials run in parallel: as many as requested, unless the limit of open files is too low."""
    if job.info.kind != "task":
        return parallel
    allowed = allow_open_files()
    room = max(1, (allowed - _OWN_FILES) // _FILES_PER_TRIAL)
    if room < parallel:
        _log.warning(
            "%d parallel trials need more open files than the limit of %d (ulimit -n); "
            "only %d run in parallel",
            parallel,
            allowed,
            room,
        )
    return min(parallel, room)


async def execute(
    job: Job,
    *,
    listener: Listener,
    stop: Stop,
    on_log: OnLog | None = None,
    wait: bool = False,
    parallel: int | None = None,
    open_executor: OpenExecutor | None = None,
    goes_on: Callable[[], bool] = lambda: False,
) -> RunStatus:
    """Execute a run here: one coordinator and one worker in this process. Results are saved after errors too.

    `wait`: until another process that coordinates the run has ended or died; else that is a RunHeldError.
    `goes_on`: after a stop, whether the caller goes on at once, so that the books stay open.
    """
    name, blobs = worker_id(), open_blobs(job.settings.blobs_url)
    with open_store(job.settings.store_url) as store:
        hold = Hold(store, job.info.id, job.folder, holder=name, lease_s=job.settings.lease_s)
        coordinator = Coordinator(
            store,
            hold,
            RunFolder(job.folder, blobs=blobs),
            listener=listener,
            again=not kind_of(job).lost_may_end,
        )
        if not await coordinator.lead(stop, wait=wait):
            return RunStatus.INTERRUPTED
        keeping = asyncio.create_task(coordinator.keep())
        try:
            context = WorkerContext(name, on_log, store.note)
            executor = await _ready(store, job, open_executor or kind_of(job).open, context, blobs)
            coordinator.begin()
            worker = Worker(
                store=store,
                run_id=job.info.id,
                executor=executor,
                listener=coordinator,
                stop=stop,
                name=name,
                parallel=room_for(job, parallel or job.spec.parallel),
                retries=job.spec.retries,
                lease_s=job.settings.lease_s,
                more=coordinator.unfinished,
            )
            try:
                await _until_either_ends(worker.run(), keeping)
            finally:
                status = await coordinator.close(stop, goes_on=goes_on())
            return status
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            hold.release()


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
    store: Store, job: Job, open_executor: OpenExecutor, context: WorkerContext, blobs: Blobs
) -> Executor:
    """The executor, with everything made ready; a run that cannot begin is taken back."""
    try:
        executor = open_executor(job, blobs, context)
    except BaseException:
        _withdraw(store, job)
        raise
    await _preflight(store, job, executor)
    if isinstance(executor, WarmsUp):
        await executor.warm_up(job.plan.trials)
    return executor


async def _preflight(store: Store, job: Job, executor: Executor) -> None:
    """What an executor finds missing before the first trial; the run is taken back then."""
    if not isinstance(executor, Preflight) or store.counts(job.info.id):
        return
    try:
        await executor.preflight(job.plan.trials)
    except BaseException:
        await executor.close()
        _withdraw(store, job)
        raise


def new_run_id(now: float) -> str:
    """Sorts by time; the random tail keeps two runs of one second apart. Never from the seed."""
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(now))}-{secrets.token_hex(3)}"


def versions() -> dict[str, str]:
    """What made the numbers: Proctor and Python."""
    import platform
    from importlib.metadata import version

    return {"proctor": version("proctor-bench"), "python": platform.python_version()}
