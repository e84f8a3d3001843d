"""Judge a stored workspace again: the sandbox starts from what an agent left, and no agent runs.

For tests that were wrong, or have become stricter. How the agent ended is taken over from then;
the reward is new.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from proctor.model.outcome import Outcome, from_reward
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord, Failure
from proctor.model.task import Step
from proctor.model.trial import Lease
from proctor.sandbox.base import Root
from proctor.threads import in_own_thread
from proctor.trial.control import Controls
from proctor.trial.task.prepare import TaskTrialPlan
from proctor.trial.task.setting import TaskSetting
from proctor.trial.task_executor import TaskExecutor
from proctor.trial.task_trial import TaskAttempt
from proctor.trial.verify import Verdict, combine, too_low

STATE = "state.tar"
"""The artifact that holds everything the agent changed."""
_ENDS = {Outcome.AGENT_TIMEOUT, Outcome.AGENT_ERROR, Outcome.BUDGET_EXHAUSTED}


@dataclass(frozen=True, slots=True)
class EarlierAttempt:
    """What is taken over from the attempt that is judged again."""

    run_id: str
    record: AttemptRecord
    state: Path


class RegradeAttempt(TaskAttempt):
    """An attempt that begins where the agent had ended."""

    def __init__(
        self,
        setting: TaskSetting,
        plan: TaskTrialPlan,
        trial: PlannedTrial,
        lease: Lease,
        earlier: EarlierAttempt,
        controls: Controls | None = None,
    ) -> None:
        super().__init__(setting, plan, trial, lease, controls=controls)
        self.earlier = earlier
        self.notes.append(f"graded again: the workspace of run {earlier.run_id}; no agent ran")

    async def _start(self, root: Root, state: Path | None = None) -> None:
        await super()._start(root, state or self.earlier.state)

    def state_file(self) -> Path:
        """What the agent had left."""
        return self.earlier.state

    async def _set_up(self, root: Root) -> None:
        """Everything is in its place already."""

    async def _work_and_verify(self, step: Step | None) -> Verdict:
        if self.earlier.record.outcome in _ENDS:
            self.outcome, self.failure = self.earlier.record.outcome, self.earlier.record.failure
        return await self._verdict(step)

    async def _run_steps(self) -> None:
        """Only the last workspace is stored: the earlier steps keep the rewards they had."""
        known = self.earlier.record.metrics.get("steps") or {}
        done = [step for step in self.task.steps if step.name in known]
        last = done[-1] if done else self.task.steps[0]
        verdict = await self._work_and_verify(last)
        self.steps = {step.name: known.get(step.name) for step in done} | {last.name: verdict.reward}
        self.notes.append(f"of several steps only '{last.name}' was graded again")
        if verdict.reward is None:
            self._take(verdict)
            return
        earlier = [self.steps[step.name] for step in done if step is not last]
        judged = [Verdict(outcome=from_reward(each or 0.0), reward=each or 0.0) for each in earlier]
        untried = len(self.task.steps) - len(judged) - 1
        lost = 0 if too_low(last.min_reward, verdict) else untried
        self._take(combine(self.task.reward_strategy, [*judged, verdict], lost))


class RegradeExecutor(TaskExecutor):
    """Judges the stored workspaces of an earlier run."""

    runs_agents = False

    def __init__(
        self,
        setting: TaskSetting,
        plans: Callable[[PlannedTrial], TaskTrialPlan],
        earlier: Callable[[PlannedTrial], EarlierAttempt | str],
    ) -> None:
        super().__init__(setting, plans)
        self.earlier = earlier
        self._begun: dict[str, EarlierAttempt] = {}

    async def execute(self, trial: PlannedTrial, lease: Lease) -> AttemptRecord:
        """One judgement; a trial without a stored workspace is skipped, with the reason."""
        found = await in_own_thread(self.earlier, trial)  # a workspace may come from another machine
        if isinstance(found, str):
            now = self.setting.clock()
            return AttemptRecord(
                key=trial.key,
                number=lease.attempt,
                outcome=Outcome.SKIPPED,
                started_at=now,
                ended_at=now,
                failure=Failure(phase="setup", type="NothingStored", message=found),
                worker=self.setting.worker,
            )
        self._begun[trial.key] = found
        return await super().execute(trial, lease)

    def expect(self, trial: PlannedTrial) -> None:
        """Every one begins with what an earlier attempt left: there is nothing to start ahead."""

    def _attempt(self, plan: TaskTrialPlan, trial: PlannedTrial, lease: Lease) -> TaskAttempt:
        earlier = self._begun.pop(trial.key)
        return RegradeAttempt(self.setting, plan, trial, lease, earlier, self.controls)
