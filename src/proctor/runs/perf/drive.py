"""Run the episodes in this process: warm up, then the engine. `guard` decides which process that is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from proctor.engine.base import Listener
from proctor.engine.lease import worker_id
from proctor.engine.local import LocalEngine
from proctor.engine.stop import Stop
from proctor.errors import ProctorError
from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord, Failure
from proctor.model.task import Task
from proctor.model.trial import Lease, RunStatus
from proctor.runfolder.write import RunFolder
from proctor.runs.holding import held
from proctor.runs.planning import network_allow
from proctor.runs.running import Job, Saving, end_of, finish, root_options
from proctor.runs.secrets import granted, known_secrets, values_of
from proctor.sandbox.base import Backend, Root, SandboxRequest
from proctor.sandbox.certificates import read_ca_bundle
from proctor.sandbox.choose import open_backend, open_images
from proctor.store.blobs import Blobs, open_blobs
from proctor.store.open import open_store
from proctor.trial.collect import Collector
from proctor.trial.task.prepare import Preparation
from proctor.trial.task.request import limits_for
from proctor.trial.task.setting import TaskSetting
from proctor.trial.task_executor import TaskExecutor


@dataclass(frozen=True, slots=True)
class Guilt:
    """An episode that ended the process it ran in, alone: it is not tried again."""

    outcome: Outcome
    message: str
    started_at: float
    ended_at: float


async def drive(
    job: Job,
    *,
    listener: Listener,
    stop: Stop,
    guilty: Mapping[str, Guilt],
    parallel: int,
    whole: Callable[[], bool] = lambda: True,
) -> RunStatus:
    """Finish what is pending. `whole`: whether the run's books are to be closed now in any case."""
    worker, info = worker_id(), job.info
    with (
        open_store(job.settings.store_url) as store,
        held(store, info.id, job.folder, worker=worker, again=True),
    ):
        folder = RunFolder(job.folder, blobs=open_blobs(job.settings.blobs_url))
        folder.reopen(store)
        executor = make_executor(job, open_blobs(job.settings.blobs_url), worker)
        await warm_up(executor, job)
        store.set_status(info.id, RunStatus.RUNNING)
        engine = LocalEngine(
            store=store,
            run_id=info.id,
            executor=_Sparing(executor, guilty, worker),
            listener=Saving(folder, listener),
            stop=stop,
            worker=worker,
            parallel=parallel,
            retries=job.spec.retries,
            lease_s=job.settings.lease_s,
        )
        await engine.run()
        status = end_of(store, info.id)
        if status is not RunStatus.INTERRUPTED or whole():
            finish(store, info.id, status, folder)
        folder.close()
        return status


def make_executor(job: Job, blobs: Blobs, worker: str) -> TaskExecutor:
    """What executes the episodes: real sandboxes, or the pretended ones when those were asked for."""
    spec, settings = job.spec, job.settings
    backend = _backend(job)
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
    )
    return TaskExecutor(setting, Preparation(spec, settings.cache_dir, values_of(spec)).plan)


def _backend(job: Job) -> Backend:
    if job.spec.sandbox.backend == "fake":
        from proctor.runs.perf.pretend import pretended

        return pretended()
    return open_backend(
        job.spec.sandbox.backend,
        job.settings.home / "sandboxes",
        network_allow=network_allow(job.spec, job.settings),
        ca_bundle=read_ca_bundle(job.settings.ca_bundle),
    )


async def warm_up(executor: TaskExecutor, job: Job) -> None:
    """Build every image and start one sandbox on each, so that the first episodes are like the others.

    What fails here fails again in an episode, where it is recorded.
    """
    setting = executor.setting
    await setting.backend.reap()
    roots: dict[str, None] = {}
    for path, trial in {trial.path: trial for trial in job.plan.trials}.items():
        with suppress(ProctorError):
            task = executor.plans(trial).task
            root = await setting.make_root(task)
            if (name := root.digest or str(path)) not in roots:
                roots[name] = None
                await _try_out(setting, task, root, trial.index)


async def _try_out(setting: TaskSetting, task: Task, root: Root, number: int) -> None:
    request = SandboxRequest(
        name=f"{setting.run_id}-warm-{number}",
        root=root,
        limits=limits_for(task, setting.sandbox),
        env=root.env,
        labels={"run": setting.run_id, "worker": setting.worker},
    )
    sandbox = setting.backend.sandbox(request)
    await sandbox.start()
    try:
        await sandbox.exec(["/bin/true"], cwd="/", timeout_s=30)
    finally:
        await sandbox.stop()


class _Sparing:
    """Executes, save the episodes that are known to end the process: those get their record at once."""

    def __init__(self, executor: TaskExecutor, guilty: Mapping[str, Guilt], worker: str) -> None:
        self.executor = executor
        self.guilty = guilty
        self.worker = worker

    async def execute(self, trial: PlannedTrial, lease: Lease) -> AttemptRecord:
        guilt = self.guilty.get(trial.key)
        if guilt is None:
            return await self.executor.execute(trial, lease)
        return AttemptRecord(
            key=trial.key,
            number=lease.attempt,
            outcome=guilt.outcome,
            started_at=guilt.started_at,
            ended_at=guilt.ended_at,
            reward=0.0,
            failure=Failure(phase="agent", type="HarnessEnded", message=guilt.message),
            worker=self.worker,
        )

    def expect(self, trial: PlannedTrial) -> None:
        """Make ready what comes next, unless it gets its record at once."""
        if trial.key not in self.guilty:
            self.executor.expect(trial)

    async def close(self) -> None:
        await self.executor.close()
