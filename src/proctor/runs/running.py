"""Create a run, execute it, resume it and complete its documents."""

from __future__ import annotations

import logging
import secrets
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proctor.engine.base import Executor, Listener, Preflight
from proctor.engine.lease import worker_id
from proctor.engine.local import LocalEngine
from proctor.engine.stop import Stop
from proctor.errors import UsageError
from proctor.model.plan import Plan, PlannedTrial
from proctor.model.record import AttemptRecord
from proctor.model.run import RunInfo
from proctor.model.spec import Spec
from proctor.model.trial import Lease, RunStatus, TrialState
from proctor.processes import allow_open_files
from proctor.render.reporters import write_reports
from proctor.runfolder.read import RunData
from proctor.runfolder.write import RunFolder, claim_folder
from proctor.runs.holding import check_free, held
from proctor.runs.planning import experiment_sources, network_allow, pin_datasets, plan_spec
from proctor.runs.ready import check_gates, check_ready, sandbox_name
from proctor.runs.secrets import granted, known_secrets, redactor_for, values_of
from proctor.settings import Settings
from proctor.spec.load import from_mapping
from proctor.spec.refused import refuse_unhonoured
from proctor.spec.secrets import hidden
from proctor.store.blobs import Blobs, open_blobs
from proctor.store.open import open_store
from proctor.store.store import Store
from proctor.tasks.address import without_secrets

if TYPE_CHECKING:
    from proctor.sandbox.base import RootOptions

_OWN_FILES = 128
_FILES_PER_TRIAL = 12
"""Sockets, pipes and logs that a trial of a task may hold open at once."""
_log = logging.getLogger("proctor.runs")

REGRADES = "regrades"
"""In place of a written spec: the run whose workspaces are judged again."""
VETS = "vets"
"""In place of a written spec: the tasks that are vetted."""


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


def create(spec: Spec, written: Mapping[str, Any], settings: Settings, *, plan: Plan | None = None) -> Job:
    """Plan a run, or take a plan made elsewhere, write it to the store and begin its folder."""
    from proctor.trial.environment import capture_environment, capture_vcs

    refuse_unhonoured(spec)
    if spec.tasks and not plan:
        spec = pin_datasets(spec, settings)
    plan = plan or plan_spec(spec, settings)
    if not plan.trials:
        raise UsageError(f"{spec.name}: the spec has no trials")
    check_gates(spec, plan)
    check_ready(spec, plan, settings, agents_run=REGRADES not in written)
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
    )
    usual = settings.rollouts_dir if spec.tasks else settings.output_dir
    base = Path(spec.output_dir) if spec.output_dir else usual
    info = replace(info, folder=str(claim_folder(base, info.name, info.id).resolve()))
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


def reopen(ref: str, settings: Settings) -> Job:
    """A run that stopped before its end, ready to go on. Refused when its subject has changed since."""
    with open_store(settings.store_url) as store:
        info = store.run(ref)
        if info.status is RunStatus.CANCELLED:
            raise UsageError(
                f"run {info.id} ({info.name}) was cancelled and cannot be continued; what had ended is kept. "
                "Start a new run: 'proctor run' with the same spec"
            )
        check_free(store, info.id, Path(info.folder))
        plan = Plan(trials=tuple(store.planned(info.id)))
    spec = from_mapping(info.resolved, file=f"run {info.id}")
    now = {trial.key for trial in plan_spec(spec, settings).trials}
    changed = [trial for trial in plan.trials if trial.key not in now]
    if changed:
        raise UsageError(
            f"run {info.id} cannot be continued: {changed[0].subject} has changed since it was planned "
            f"({len(changed)} of {len(plan)} trials would measure something else). "
            "Start a new run, or restore the old code."
        )
    check_ready(spec, plan, settings, agents_run=REGRADES not in info.spec)
    return Job(info, spec, plan, settings)


OnLog = Callable[[PlannedTrial, str, bytes], None]
"""Hears what agents and tests print: trial, log, bytes."""


def _room(job: Job) -> int:
    """How many trials run in parallel: as many as requested, unless the limit of open files is too low."""
    if job.info.kind != "task":
        return job.spec.parallel
    allowed = allow_open_files()
    room = max(1, (allowed - _OWN_FILES) // _FILES_PER_TRIAL)
    if room < job.spec.parallel:
        _log.warning(
            "%d parallel trials need more open files than the limit of %d (ulimit -n); "
            "only %d run in parallel",
            job.spec.parallel,
            allowed,
            room,
        )
    return min(job.spec.parallel, room)


async def execute(job: Job, *, listener: Listener, stop: Stop, on_log: OnLog | None = None) -> RunStatus:
    """Run what is pending, then write the report. Results are saved also after errors."""
    worker, info = worker_id(), job.info
    with (
        open_store(job.settings.store_url) as store,
        held(store, info.id, job.folder, worker=worker),
    ):
        return await _execute(job, store, worker, listener=listener, stop=stop, on_log=on_log)


async def _execute(
    job: Job, store: Store, worker: str, *, listener: Listener, stop: Stop, on_log: OnLog | None
) -> RunStatus:
    settings, info = job.settings, job.info
    try:
        executor = _executor(job, open_blobs(settings.blobs_url), worker, on_log, store)
    except BaseException:
        _withdraw(store, job)
        raise
    await _preflight(store, job, executor)
    folder = RunFolder(job.folder, blobs=open_blobs(settings.blobs_url))
    folder.reopen(store)
    store.set_status(info.id, RunStatus.RUNNING)
    engine = LocalEngine(
        store=store,
        run_id=info.id,
        executor=executor,
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
        status = end_of(store, info.id)
    finally:
        finish(store, info.id, status, folder)
    return status


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


def finish(store: Store, run_id: str, status: RunStatus, folder: RunFolder) -> None:
    """Close the books: status in the store, summary and report in the folder."""
    store.set_status(run_id, status)
    folder.finish(RunData.from_store(store, run_id), write_reports)


def end_of(store: Store, run_id: str) -> RunStatus:
    """With which status a run ends whose engine has stopped: cancelled by a person, complete, or not."""
    if store.run(run_id).status is RunStatus.CANCELLED:
        return RunStatus.CANCELLED
    return RunStatus.INTERRUPTED if unfinished(store, run_id) else RunStatus.DONE


def unfinished(store: Store, run_id: str) -> int:
    """How many trials are still to be done."""
    states = store.state_counts(run_id)
    return sum(states.get(state, 0) for state in (TrialState.PENDING, TrialState.LEASED, TrialState.RUNNING))


def _executor(job: Job, blobs: Blobs, worker: str, on_log: OnLog | None, store: Store) -> Executor:
    if job.spec.tasks:
        return _task_executor(job, blobs, worker, on_log, store)
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
        secrets=values_of(spec),
        redactor=redactor_for(spec, job.settings),
    )


def root_options(spec: Spec, settings: Settings) -> RootOptions:
    """How the roots of a spec's sandboxes are made."""
    from proctor.sandbox.base import RootOptions

    return RootOptions(
        host_root=spec.sandbox.host_root,
        network_allow=network_allow(spec, settings),
    )


def _task_executor(job: Job, blobs: Blobs, worker: str, on_log: OnLog | None, store: Store) -> Executor:
    from proctor.sandbox.certificates import read_ca_bundle
    from proctor.sandbox.choose import open_backend, open_images
    from proctor.trial.collect import Collector
    from proctor.trial.task.prepare import Preparation
    from proctor.trial.task.setting import TaskSetting
    from proctor.trial.task_executor import TaskExecutor

    spec, settings = job.spec, job.settings
    backend = open_backend(
        sandbox_name(spec, settings),
        settings.home / "sandboxes",
        network_allow=network_allow(spec, settings),
        ca_bundle=read_ca_bundle(settings.ca_bundle),
    )
    images = open_images(backend, settings.cache_dir / "images", root_options(spec, settings))
    setting = TaskSetting(
        run_id=job.info.id,
        run_dir=job.folder,
        sandbox=spec.sandbox,
        backend=backend,
        make_root=images.root,
        end_builds=images.close,
        collector=Collector(job.folder, blobs),
        timeout_s=spec.timeout_s,
        model_base_url=settings.model_base_url,
        model_token=settings.model_api_key,
        model_ca_bundle=settings.ca_bundle,
        given=granted(spec),
        secrets=known_secrets(spec, settings),
        worker=worker,
        on_log=on_log,
        note=store.note,
    )
    plans = Preparation(spec, settings.cache_dir, values_of(spec)).plan
    if regrades := job.info.spec.get(REGRADES):
        from proctor.runs.regrade import Workspaces
        from proctor.trial.regrade import RegradeExecutor

        return RegradeExecutor(setting, plans, Workspaces(str(regrades), settings, blobs).of)
    if VETS in job.info.spec:
        from proctor.runs.vet.executor import VetExecutor

        return VetExecutor(setting, plans, cache_dir=settings.cache_dir)
    return TaskExecutor(setting, plans)


class Saving:
    """Writes each attempt to the run folder before other listeners are called."""

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
