"""What executes the trials of a run: one executor for each kind of execution, in one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from proctor.engine.base import Executor
from proctor.model.plan import PlannedTrial
from proctor.model.run import Execution
from proctor.model.trial import Lease
from proctor.runs.planning import experiment_sources, network_allow
from proctor.runs.ready import sandbox_name
from proctor.runs.secrets import granted, known_secrets, redactor_for, values_of
from proctor.store.blobs import Blobs

if TYPE_CHECKING:
    from proctor.runs.running import Job
    from proctor.sandbox.base import Backend
    from proctor.trial.task.prepare import TaskTrialPlan
    from proctor.trial.task.setting import TaskSetting

OnLog = Callable[[PlannedTrial, str, bytes], None]
"""Hears what agents and tests print: trial, log, bytes."""
Note = Callable[[Lease, str, Mapping[str, Any]], None]
"""Hears of the phases of an attempt and of its growing logs."""


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """For whom an executor works: the worker's name, and who hears what happens."""

    name: str
    on_log: OnLog | None = None
    note: Note | None = None


OpenExecutor = Callable[["Job", Blobs, WorkerContext], Executor]
"""Makes the executor of a run for a worker."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How the runs of one kind are executed."""

    open: OpenExecutor
    lost_may_end: bool = True
    """Whether a trial whose workers are lost again and again ends as the retry policy says."""
    shared: bool = True
    """Whether workers of other processes may take its trials."""


def kind_of(job: Job) -> Kind:
    """How a run is executed."""
    assert job.info.execution is not None
    return KINDS[job.info.execution]


def _experiment(job: Job, blobs: Blobs, worker: WorkerContext) -> Executor:
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
        worker=worker.name,
        home=job.settings.home,
        secrets=values_of(spec),
        redactor=redactor_for(spec, job.settings),
    )


def _task(job: Job, blobs: Blobs, worker: WorkerContext) -> Executor:
    from proctor.trial.task_executor import TaskExecutor

    return TaskExecutor(task_setting(job, blobs, worker), task_plans(job))


def _regrade(job: Job, blobs: Blobs, worker: WorkerContext) -> Executor:
    from proctor.runs.regrade import Workspaces
    from proctor.trial.regrade import RegradeExecutor

    workspaces = Workspaces(job.info.graded_run, job.settings, blobs)
    return RegradeExecutor(task_setting(job, blobs, worker), task_plans(job), workspaces.of)


def _vet(job: Job, blobs: Blobs, worker: WorkerContext) -> Executor:
    from proctor.runs.vet.executor import VetExecutor

    setting = task_setting(job, blobs, worker)
    return VetExecutor(setting, task_plans(job), cache_dir=job.settings.cache_dir)


def _perf(job: Job, blobs: Blobs, worker: WorkerContext) -> Executor:
    from proctor.runs.perf.executor import perf_executor

    return perf_executor(job, blobs, worker)


KINDS = {
    Execution.EXPERIMENT: Kind(_experiment),
    Execution.TASK: Kind(_task),
    Execution.REGRADE: Kind(_regrade),
    Execution.VET: Kind(_vet),
    # The guard finds out which episode ended a process; and a harness that is measured works alone.
    Execution.PERF: Kind(_perf, lost_may_end=False, shared=False),
}


def task_setting(
    job: Job, blobs: Blobs, worker: WorkerContext, backend: Backend | None = None
) -> TaskSetting:
    """What all rollouts of a run share: its back end, its images, its secrets."""
    from proctor.sandbox.base import RootOptions
    from proctor.sandbox.choose import open_images
    from proctor.trial.collect import Collector
    from proctor.trial.task.setting import TaskSetting

    spec, settings = job.spec, job.settings
    backend = backend or _backend(job)
    options = RootOptions(host_root=spec.sandbox.host_root, network_allow=network_allow(spec, settings))
    images = open_images(backend, settings.cache_dir / "images", options)
    return TaskSetting(
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
        worker=worker.name,
        on_log=worker.on_log,
        note=worker.note,
    )


def _backend(job: Job) -> Backend:
    from proctor.sandbox.certificates import read_ca_bundle
    from proctor.sandbox.choose import open_backend

    return open_backend(
        sandbox_name(job.spec, job.settings),
        job.settings.home / "sandboxes",
        network_allow=network_allow(job.spec, job.settings),
        ca_bundle=read_ca_bundle(job.settings.ca_bundle),
    )


def task_plans(job: Job) -> Callable[[PlannedTrial], TaskTrialPlan]:
    """How a rollout is done: its task, its agent and its variables."""
    from proctor.trial.task.prepare import Preparation

    return Preparation(job.spec, job.settings.cache_dir, values_of(job.spec)).plan
