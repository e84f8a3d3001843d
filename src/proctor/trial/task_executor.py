"""The task trials of one run: each attempt, the sandbox started ahead, and the controls they share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from proctor.errors import LastingProviderError, ProctorError, SandboxError
from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord, Failure
from proctor.model.trial import Lease
from proctor.trial.control import Controls
from proctor.trial.episode.attempt import EpisodeAttempt
from proctor.trial.task.agent import refuse_absent_programs, with_agent
from proctor.trial.task.prepare import TaskTrialPlan, prepared
from proctor.trial.task.sandboxes import NextSandbox, Started, sandbox_request
from proctor.trial.task.setting import TaskSetting, environment
from proctor.trial.task_trial import TaskAttempt


class TaskExecutor:
    """Executes the task trials of one run."""

    runs_agents = True
    """Whether attempts need the model of their trial."""

    def __init__(
        self,
        setting: TaskSetting,
        plans: Callable[[PlannedTrial], TaskTrialPlan],
        *,
        controlled: bool = True,
    ) -> None:
        """`controlled`: where the tests break, a control decides whether that is the agent's fault."""
        self.setting = setting
        self.plans = plans
        self.controls = Controls(setting) if controlled else None
        self._reaped = False
        self._next_sandbox = NextSandbox(self._start_ahead)

    async def execute(self, trial: PlannedTrial, lease: Lease) -> AttemptRecord:
        """One attempt. A task that cannot even be read is the author's fault, not a crash."""
        if not self._reaped:
            self._reaped = True
            # What cannot be removed now is found again at the next start; it must not stop this run.
            with suppress(SandboxError):
                await self.setting.backend.reap()
        try:
            plan = await prepared(self.plans, trial)
        except ProctorError as error:
            return self._not_started(trial, lease, Outcome.INVALID, "read", error)
        models = self.setting.models if self.runs_agents else None
        if models and (reason := models.lasting_refusal(plan.agent, trial, lease.run_id)):
            again = f"mend that, then run 'proctor resume {lease.run_id} --errors'"
            refused = LastingProviderError(f"not started, because {reason}; {again}")
            return self._not_started(trial, lease, Outcome.PROVIDER_ERROR, "start", refused)
        return await self._attempt(plan, trial, lease).run()

    def _not_started(
        self, trial: PlannedTrial, lease: Lease, outcome: Outcome, phase: str, error: ProctorError
    ) -> AttemptRecord:
        now = self.setting.clock()
        return AttemptRecord(
            key=trial.key,
            number=lease.attempt,
            outcome=outcome,
            started_at=now,
            ended_at=now,
            failure=Failure(phase=phase, type=type(error).__name__, message=str(error)),
            worker=self.setting.worker,
        )

    def _attempt(self, plan: TaskTrialPlan, trial: PlannedTrial, lease: Lease) -> TaskAttempt:
        kind = EpisodeAttempt if plan.task.kind == "episode" else TaskAttempt
        return kind(self.setting, plan, trial, lease, self._next_sandbox, self.controls)

    def expect(self, trial: PlannedTrial) -> None:
        """This trial comes next: its sandbox is started while others run."""
        self._next_sandbox.start_for(trial)

    async def _start_ahead(self, trial: PlannedTrial) -> Started | None:
        setting, plan = self.setting, await prepared(self.plans, trial)
        env = environment(setting, plan)  # first: without its variables no image is needed
        root = with_agent(await setting.make_root(plan.task), plan.agent)
        if root.compose:  # its companions would run for as long as it waits
            return None
        request = sandbox_request(setting, plan.task, trial, root, env, suffix="next")
        sandbox = setting.backend.sandbox(request)
        await sandbox.start()  # out of turn: who takes it holds a place among those that start already
        return request, sandbox

    async def preflight(self, trials: Sequence[PlannedTrial]) -> None:
        """UsageError when the sandboxes of these trials lack the program of their agent."""
        await refuse_absent_programs(self.setting, self.plans, trials)

    async def close(self) -> None:
        """End the gateway, what the back end keeps warm, and builds that no trial came to need."""
        await self._next_sandbox.close()
        if self.setting.models:
            await self.setting.models.close()
        if self.controls:
            await self.controls.close()
        if self.setting.end_builds:
            await self.setting.end_builds()
        await self.setting.backend.close()
