"""What executes the trials of a run: one executor for each kind of execution, in one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proctor.engine.base import Executor, StoppingRule
from proctor.model.plan import PlannedTrial
from proctor.model.run import Execution
from proctor.model.trial import Lease
from proctor.outbound import Reach
from proctor.runs.backends import Kept, SharedBackends, open_backend_of
from proctor.runs.planning import experiment_sources, network_allow
from proctor.runs.secrets import granted, known_secrets, redactor_for, values_of

if TYPE_CHECKING:
    from proctor.runs.running import ReadyRun
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
    on_spent: Callable[[str], None] = lambda _: None
    """Hears that a budget of the run, or of the day, is spent: no more trials are to begin."""
    backends: SharedBackends | None = None
    """The back ends that several runs of one process share; None: an executor opens and closes its own."""


OpenExecutor = Callable[["ReadyRun", WorkerContext], Executor]
"""Makes the executor of a run for a worker."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How the runs of one kind are executed."""

    open: OpenExecutor
    lost_may_end: bool = True
    """Whether a trial whose workers are lost again and again ends as the retry policy says."""
    shared: bool = True
    """Whether workers of other processes may take its trials."""
    rule: Callable[[ReadyRun], StoppingRule] | None = None
    """What may answer the run's question before its last trial."""


def kind_of(run: ReadyRun) -> Kind:
    """How a run is executed."""
    assert run.info.execution is not None
    return KINDS[run.info.execution]


def _experiment(run: ReadyRun, worker: WorkerContext) -> Executor:
    from proctor.trial.experiment_trial import ExperimentExecutor

    spec = run.spec
    return ExperimentExecutor(
        bodies=spec.experiments,
        run_id=run.info.id,
        run_dir=run.folder,
        sources=experiment_sources(spec),
        timeout_s=spec.timeout_s,
        contended=spec.parallel > 1,
        blobs=run.inputs.blobs,
        worker=worker.name,
        home=run.settings.home,
        project=str(Path(spec.base_dir).absolute()),
        secrets=values_of(spec, run.environ),
        redactor=redactor_for(spec, run.settings, run.environ),
    )


def _task(run: ReadyRun, worker: WorkerContext) -> Executor:
    from proctor.trial.task_executor import TaskExecutor

    return TaskExecutor(task_setting(run, worker), task_plans(run))


def _regrade(run: ReadyRun, worker: WorkerContext) -> Executor:
    from proctor.runs.regrade import Workspaces
    from proctor.trial.regrade import RegradeExecutor

    workspaces = Workspaces(run.info.graded_run, run.resources)
    return RegradeExecutor(task_setting(run, worker), task_plans(run), workspaces.of)


def _judge(run: ReadyRun, worker: WorkerContext) -> Executor:
    from proctor.runs.judging import StoredTrials
    from proctor.runs.models import model_gateway
    from proctor.trial.collect import Collector
    from proctor.trial.judge.stored import JudgeExecutor
    from proctor.trial.task.setting import JudgeSetting

    redactor = redactor_for(run.spec, run.settings, run.environ)
    setting = JudgeSetting(
        collector=Collector(run.folder, run.inputs.blobs),
        redactor=redactor,
        models=model_gateway(run, redactor, worker.on_spent),
        worker=worker.name,
    )
    trials = StoredTrials(run.info.graded_run, run.resources)
    return JudgeExecutor(setting, task_plans(run), trials.of)


def _vet(run: ReadyRun, worker: WorkerContext) -> Executor:
    from proctor.runs.vet.executor import VetExecutor

    setting = task_setting(run, worker)
    return VetExecutor(setting, task_plans(run), cache_dir=run.settings.cache_dir)


def _perf(run: ReadyRun, worker: WorkerContext) -> Executor:
    from proctor.runs.perf.executor import perf_executor

    return perf_executor(run, worker)


def _race_rule(run: ReadyRun) -> StoppingRule:
    from proctor.runs.race.rule import RaceRule

    return RaceRule(run.info, run.plan)


KINDS = {
    Execution.EXPERIMENT: Kind(_experiment),
    Execution.TASK: Kind(_task),
    Execution.REGRADE: Kind(_regrade),
    Execution.JUDGE: Kind(_judge),
    Execution.VET: Kind(_vet),
    # The guard finds out which episode ended a process; and a harness that is measured works alone.
    Execution.PERF: Kind(_perf, lost_may_end=False, shared=False),
    Execution.RACE: Kind(_task, rule=_race_rule),
}


def task_setting(run: ReadyRun, worker: WorkerContext, backend: Backend | None = None) -> TaskSetting:
    """What all rollouts of a run share: its back end, its images, its secrets."""
    from proctor.runs.exchange import exchange_of
    from proctor.runs.models import model_gateway
    from proctor.sandbox.base import RootOptions
    from proctor.sandbox.choose import open_images
    from proctor.trial.collect import Collector
    from proctor.trial.task.setting import TaskSetting

    spec, settings = run.spec, run.settings
    shared = worker.backends.of(run) if worker.backends and not backend else None
    backend = shared or backend or open_backend_of(run)
    options = RootOptions(
        host_root=spec.sandbox.host_root,
        network_allow=network_allow(spec, settings),
        project=run.project,
        exchange=exchange_of(run.resources),
    )
    images = open_images(backend, settings.cache_dir / "images", options)
    return TaskSetting(
        run_id=run.info.id,
        run_dir=run.folder,
        sandbox=spec.sandbox,
        backend=Kept(backend) if shared else backend,
        make_root=images.root,
        end_builds=images.close,
        collector=Collector(run.folder, run.inputs.blobs),
        timeout_s=spec.timeout_s,
        models=model_gateway(run, redactor_for(spec, settings, run.environ), worker.on_spent),
        given=granted(spec, run.environ),
        secrets=known_secrets(spec, settings, run.environ),
        worker=worker.name,
        on_log=worker.on_log,
        note=worker.note,
    )


def task_plans(run: ReadyRun) -> Callable[[PlannedTrial], TaskTrialPlan]:
    """How a rollout is done: its task, its agent and its variables."""
    from proctor.trial.task.prepare import Preparation

    reach = None if run.project is None else Reach(allow=network_allow(run.spec, run.settings))
    return Preparation(
        run.spec, run.settings.cache_dir, values_of(run.spec, run.environ), run.inputs.task, reach
    )
