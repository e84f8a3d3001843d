"""Executes the trials of a vetting: each as any other, with the disturbance of its check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from proctor.model.outcome import Outcome
from proctor.model.plan import MARKER, PlannedTrial
from proctor.model.record import AttemptRecord
from proctor.model.trial import Lease
from proctor.model.vetting import Check, check_of
from proctor.runs.vet.burners import Burners, Turns
from proctor.runs.vet.perturb import DisturbedBackend, NotTried, disturbance
from proctor.trial.task.prepare import TaskTrialPlan
from proctor.trial.task.setting import TaskSetting
from proctor.trial.task_executor import TaskExecutor


class VetExecutor:
    """One executor for each kind of surroundings, all on one back end."""

    def __init__(
        self,
        setting: TaskSetting,
        plans: Callable[[PlannedTrial], TaskTrialPlan],
        *,
        cache_dir: Path,
        burners: Burners | None = None,
    ) -> None:
        self.setting = setting
        self.burners = burners or Burners()
        self.turns = Turns(self.burners)

        def unmarked(trial: PlannedTrial) -> TaskTrialPlan:
            plan = plans(trial)
            return replace(plan, env={name: value for name, value in plan.env.items() if name != MARKER})

        self.executors: dict[Check, TaskExecutor] = {}
        for check in Check:
            change = disturbance(check, cache_dir)
            backend = DisturbedBackend(setting.backend, change) if change else setting.backend
            # Here the tests are what is judged: nothing that breaks them is blamed on a reference solution.
            own = replace(setting, backend=backend)
            self.executors[check] = TaskExecutor(own, unmarked, controlled=False)

    async def execute(self, trial: PlannedTrial, lease: Lease) -> AttemptRecord:
        """One attempt, in its turn. A disturbance that did not take is no result, and is not tried again."""
        check = check_of(trial)
        async with self.turns.take(busy=check is Check.LOADED):
            record = await self.executors[check].execute(trial, lease)
        if record.failure and record.failure.type == NotTried.__name__:
            return structs.replace(record, outcome=Outcome.SKIPPED)
        return record

    async def close(self) -> None:
        """End what is warm, and what burns."""
        self.burners.stop()
        if self.setting.end_builds:
            await self.setting.end_builds()
        await self.setting.backend.close()
