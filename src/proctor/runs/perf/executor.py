"""Executes the episodes of the harness: warm sandboxes first, and no episode that would end the process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from proctor.errors import ProctorError
from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord, Failure
from proctor.model.task import Task
from proctor.model.trial import Lease
from proctor.runs.executors import WorkerContext, task_plans, task_setting
from proctor.sandbox.base import Root, SandboxRequest
from proctor.sandbox.fake import Fake, FakeCommand, FakeResult
from proctor.trial.task.prepare import prepared
from proctor.trial.task.sandboxes import limits_for
from proctor.trial.task.setting import TaskSetting
from proctor.trial.task_executor import TaskExecutor

if TYPE_CHECKING:
    from proctor.runs.running import ReadyRun

_NONE: Mapping[str, Guilt] = {}
_WORKED = "/tmp/an-agent-worked"  # noqa: S108 - a name in a dictionary, not a file
_SETTING_UP = ("mkdir -p", "/bin/true")
"""What the harness itself runs inside."""


@dataclass(frozen=True, slots=True)
class Guilt:
    """An episode that ended the process it ran in, alone: it is not tried again."""

    outcome: Outcome
    message: str
    started_at: float
    ended_at: float


def perf_executor(
    ready: ReadyRun, worker: WorkerContext, guilty: Mapping[str, Guilt] = _NONE
) -> PerfExecutor:
    """For real sandboxes, or for the pretended ones when those were asked for."""
    backend = _pretended() if ready.spec.sandbox.backend == "fake" else None
    setting = task_setting(ready, worker, backend)
    return PerfExecutor(TaskExecutor(setting, task_plans(ready)), guilty)


class PerfExecutor:
    """Executes, save the episodes that are known to end the process: those get their record at once."""

    def __init__(self, executor: TaskExecutor, guilty: Mapping[str, Guilt]) -> None:
        self.executor = executor
        self.guilty = guilty

    async def warm_up(self, trials: Sequence[PlannedTrial]) -> None:
        """Build every image and start one sandbox on each, so that the first episodes are like the others.

        What fails here fails again in an episode, where it is recorded.
        """
        setting = self.executor.setting
        await setting.backend.reap()
        roots: dict[str, None] = {}
        for path, trial in {trial.path: trial for trial in trials}.items():
            with suppress(ProctorError):
                task = (await prepared(self.executor.plans, trial)).task
                root = await setting.make_root(task)
                if (name := root.digest or str(path)) not in roots:
                    roots[name] = None
                    await _try_out(setting, task, root, trial.index)

    async def execute(self, trial: PlannedTrial, lease: Lease) -> AttemptRecord:
        """One episode."""
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
            worker=self.executor.setting.worker,
        )

    def expect(self, trial: PlannedTrial) -> None:
        """Make ready what comes next, unless it gets its record at once."""
        if trial.key not in self.guilty:
            self.executor.expect(trial)

    async def close(self) -> None:
        """End what is warm."""
        await self.executor.close()


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


def _pretended() -> Fake:
    """Sandboxes that execute nothing, for the cost of the harness alone.

    Every command succeeds at once; the tests give 1 where an agent ran a command, and 0 otherwise.
    """
    return Fake(handler=_handle)


def _handle(command: FakeCommand) -> FakeResult:
    if command.argv[-1] == "/tests/test.sh":
        reward = b"1\n" if _WORKED in command.files else b"0\n"
        command.files["/logs/verifier/reward.txt"] = reward
    elif not command.argv[-1].startswith(_SETTING_UP):
        command.files[_WORKED] = b""
    return FakeResult()
