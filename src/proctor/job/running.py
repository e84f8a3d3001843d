"""Create a run, execute it, take it up again, close its books."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from proctor.engine.base import Executor, Listener
from proctor.engine.lease import is_dead, worker_id
from proctor.engine.local import LocalEngine
from proctor.engine.stop import Stop
from proctor.errors import UsageError
from proctor.job.planning import experiment_sources, plan_spec
from proctor.model.plan import Plan, PlannedTrial
from proctor.model.record import AttemptRecord
from proctor.model.run import RunInfo
from proctor.model.spec import Spec
from proctor.model.trial import Lease, RunStatus, TrialState
from proctor.processes import allow_open_files
from proctor.report.data import RunData
from proctor.report.folder import RunFolder, claim_folder
from proctor.settings import Settings
from proctor.spec.load import from_mapping
from proctor.store.blobs import FolderBlobs
from proctor.store.open import open_store
from proctor.store.store import Store

_OWN_FILES = 128
_FILES_PER_TRIAL = 12
"""Sockets, pipes and logs that a trial of a task may hold open at once."""
_log = logging.getLogger("proctor.job")

REGRADES = "regrades"
"""In place of a written spec: the run whose workspaces are judged again."""
VETS = "vets"
"""In place of a written spec: the tasks that are vetted."""


@dataclass(frozen=True, slots=True)
class Job:
    """A run that exists in the store and has its folder; `execute` brings it to its end."""

    info: RunInfo
    spec: Spec
    plan: Plan
    settings: Settings

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return Path(self.info.folder)


def create(spec: Spec, written: Mapping[str, Any], settings: Settings, *, plan: Plan | None = None) -> Job:
    """Plan a run, or take a plan made elsewhere, write it to the store and begin its folder."""
    from proctor.trial.environment import capture_environment, capture_vcs

    plan = plan or plan_spec(spec, settings)
    if not plan.trials:
        raise UsageError(f"{spec.name}: the spec expands to no trial at all")
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
        spec=written,
        resolved=spec.to_mapping(),
        environment=capture_environment(),
        vcs=capture_vcs(Path(spec.base_dir)),
        versions=versions(),
        plan_digest=plan.digest,
    )
    usual = settings.rollouts_dir if spec.tasks else settings.output_dir
    base = Path(spec.output_dir) if spec.output_dir else usual
    info = replace(info, folder=str(claim_folder(base, info.name, info.id).resolve()))
    RunFolder(Path(info.folder)).begin(info, plan)
    with open_store(settings.store_url) as store:
        store.create_run(info, plan)
    return Job(info, spec, plan, settings)


def reopen(ref: str, settings: Settings) -> Job:
    """A run that stopped before its end, ready to go on. Refused when its subject has changed since."""
    with open_store(settings.store_url) as store:
        info = store.run(ref)
        plan = Plan(trials=tuple(store.planned(info.id)))
    spec = from_mapping(info.resolved, file=f"run {info.id}")
    now = {trial.key for trial in plan_spec(spec, settings).trials}
    changed = [trial for trial in plan.trials if trial.key not in now]
    if changed:
        raise UsageError(
            f"run {info.id} cannot go on: {changed[0].subject} has changed since it was planned "
            f"({len(changed)} of {len(plan)} trials would measure something else). "
            "Start a new run, or bring the old code back."
        )
    return Job(info, spec, plan, settings)


OnLog = Callable[[PlannedTrial, str, bytes], None]
"""Hears what agents and tests print: trial, log, bytes."""


def _room(job: Job) -> int:
    """How many trials run at a time: as many as asked for, unless this user may not open so many files."""
    if job.info.kind != "task":
        return job.spec.parallel
    allowed = allow_open_files()
    room = max(1, (allowed - _OWN_FILES) // _FILES_PER_TRIAL)
    if room < job.spec.parallel:
        _log.warning(
            "%d trials at a time need more open files than the %d that are allowed here (ulimit -n); "
            "%d run at a time",
            job.spec.parallel,
            allowed,
            room,
        )
    return min(job.spec.parallel, room)


async def execute(job: Job, *, listener: Listener, stop: Stop, on_log: OnLog | None = None) -> RunStatus:
    """Run what is pending, then write the report. Saves whatever happens."""
    settings, info = job.settings, job.info
    worker = worker_id()
    with open_store(settings.store_url) as store:
        for other in store.workers(info.id):
            if is_dead(other):
                store.release_worker(other, now=time.time())
        store.reap(time.time(), info.id)
        folder = RunFolder(job.folder, blobs=FolderBlobs(settings.blobs_dir))
        folder.reopen(store)
        store.set_status(info.id, RunStatus.RUNNING, time.time())
        engine = LocalEngine(
            store=store,
            run_id=info.id,
            executor=_executor(job, FolderBlobs(settings.blobs_dir), worker, on_log),
            listener=Saving(folder, listener),
            stop=stop,
            worker=worker,
            parallel=_room(job),
            retries=job.spec.retries,
            lease_s=settings.lease_s,
        )
        status = RunStatus.INTERRUPTED
        try:
            await engine.run()
            if store.run(info.id).status is RunStatus.CANCELLED:
                status = RunStatus.CANCELLED
            elif not unfinished(store, info.id):
                status = RunStatus.DONE
        finally:
            finish(store, info.id, status, folder)
    return status


def finish(store: Store, run_id: str, status: RunStatus, folder: RunFolder) -> None:
    """Close the books: status in the store, summary and report in the folder."""
    store.set_status(run_id, status, time.time())
    folder.finish(RunData.from_store(store, run_id))


def unfinished(store: Store, run_id: str) -> int:
    """How many trials are still to be done."""
    states = store.state_counts(run_id)
    return sum(states.get(state, 0) for state in (TrialState.PENDING, TrialState.LEASED, TrialState.RUNNING))


def _executor(job: Job, blobs: FolderBlobs, worker: str, on_log: OnLog | None) -> Executor:
    if job.spec.tasks:
        return _task_executor(job, blobs, worker, on_log)
    from proctor.trial.experiment_trial import ExperimentExecutor

    spec = job.spec
    return ExperimentExecutor(
        bodies=spec.experiments,
        run_id=job.info.id,
        run_dir=job.folder,
        sources=experiment_sources(spec),
        timeout_s=spec.timeout_s,
        contended=spec.parallel > 1,
        blobs=blobs,
        worker=worker,
        home=job.settings.home,
    )


def _task_executor(job: Job, blobs: FolderBlobs, worker: str, on_log: OnLog | None) -> Executor:
    from proctor.sandbox.choose import open_backend, open_images
    from proctor.trial.collect import Collector
    from proctor.trial.task.prepare import Preparation
    from proctor.trial.task_trial import TaskExecutor, TaskSetting

    spec, settings = job.spec, job.settings
    name = settings.sandbox if spec.sandbox.backend == "auto" else spec.sandbox.backend
    backend = open_backend(name, settings.home / "sandboxes")
    setting = TaskSetting(
        run_id=job.info.id,
        run_dir=job.folder,
        sandbox=spec.sandbox,
        backend=backend,
        make_root=open_images(backend, settings.cache_dir / "images").root,
        collector=Collector(job.folder, blobs),
        timeout_s=spec.timeout_s,
        model_base_url=settings.model_base_url,
        model_token=settings.model_api_key,
        worker=worker,
        on_log=on_log,
    )
    plans = Preparation(spec, settings.cache_dir).plan
    if regrades := job.info.spec.get(REGRADES):
        from proctor.job.regrade import Workspaces
        from proctor.trial.regrade import RegradeExecutor

        return RegradeExecutor(setting, plans, Workspaces(str(regrades), settings, blobs).of)
    if VETS in job.info.spec:
        from proctor.job.vet.executor import VetExecutor

        return VetExecutor(setting, plans, cache_dir=settings.cache_dir)
    return TaskExecutor(setting, plans)


class Saving:
    """Writes each attempt to the run folder before anyone else hears of it."""

    def __init__(self, folder: RunFolder, listener: Listener) -> None:
        self.folder = folder
        self.listener = listener

    def started(self, trial: PlannedTrial, lease: Lease) -> None:
        """Nothing to write yet."""
        self.listener.started(trial, lease)

    def ended(self, trial: PlannedTrial, record: AttemptRecord, counts: bool) -> None:
        """On disk first."""
        self.folder.append(trial, record, counts)
        self.listener.ended(trial, record, counts)


def new_run_id(now: float) -> str:
    """Sorts by time; the random tail keeps two runs of one second apart. Never from the seed."""
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(now))}-{secrets.token_hex(3)}"


def versions() -> dict[str, str]:
    """What made the numbers: Proctor and Python."""
    import platform
    from importlib.metadata import version

    return {"proctor": version("proctor-bench"), "python": platform.python_version()}
