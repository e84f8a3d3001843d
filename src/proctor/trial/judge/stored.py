"""Judge stored trials again: no agent and no test runs, and the first result is never touched."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proctor.errors import ProctorError
from proctor.model.outcome import Outcome, from_reward
from proctor.model.plan import PlannedTrial
from proctor.model.record import Artifact, AttemptRecord, Failure, judge_of, rubrics_of, unit_score
from proctor.model.trial import Lease
from proctor.threads import in_own_thread
from proctor.trial.collect import Collector
from proctor.trial.judge.attempt import decided, kept, without_secrets
from proctor.trial.judge.judge import Judged, judge
from proctor.trial.judge.prompt import Material
from proctor.trial.judge.work import DIFF, LOG, TRAJECTORY, material, steps_of
from proctor.trial.task.prepare import TaskTrialPlan, prepared
from proctor.trial.task.setting import JudgeSetting

_TAKEN_OVER = re.compile(r"verifier/(.+/)?reward\.(json|txt)|control\.json|" + re.escape(DIFF))
"""Files of the first result that the new one is to be read and checked with."""


@dataclass(frozen=True, slots=True)
class StoredAttempt:
    """What is judged: a record of an earlier run, and its files."""

    run_id: str
    record: AttemptRecord
    read: Callable[[str], bytes]
    """The beginning of a file by its name; empty where there is none."""


class JudgeExecutor:
    """Judges the stored trials of an earlier run."""

    def __init__(
        self,
        setting: JudgeSetting,
        plans: Callable[[PlannedTrial], TaskTrialPlan],
        earlier: Callable[[PlannedTrial], StoredAttempt | str],
    ) -> None:
        self.setting = setting
        self.plans = plans
        self.earlier = earlier

    async def execute(self, trial: PlannedTrial, lease: Lease) -> AttemptRecord:
        """One judgement; a trial without a result that counts is skipped, with the reason."""
        started_at = self.setting.clock()
        found = await in_own_thread(self.earlier, trial)
        if isinstance(found, str):
            return self._without(trial, lease, started_at, Outcome.SKIPPED, "NothingStored", found)
        try:
            plan = await prepared(self.plans, trial)
        except ProctorError as error:
            return self._without(trial, lease, started_at, Outcome.INVALID, type(error).__name__, str(error))
        return await self._judge(plan, trial, lease, found, started_at)

    async def _judge(
        self, plan: TaskTrialPlan, trial: PlannedTrial, lease: Lease, found: StoredAttempt, started_at: float
    ) -> AttemptRecord:
        assert plan.judge
        setting, record = self.setting, found.record
        outcome, reward = by_tests(record)
        metrics = {name: value for name, value in record.metrics.items() if name != "judge"}

        def work() -> Material:
            seen = material(
                plan.task,
                outcome=outcome.value,
                reward=reward,
                metrics=metrics,
                diff=found.read(DIFF),
                log=found.read(LOG),
                steps=steps_of(found.read(TRAJECTORY)),
            )
            return without_secrets(seen, setting.redactor)

        judged = await judge(
            setting.models,
            plan.judge,
            plan.criteria,
            await in_own_thread(work),
            trial,
            lease,
            rows=rubrics_of(record),
            unit_score=reward,
        )
        failure = record.failure if record.outcome is outcome else None
        outcome, reward, failure = decided(judged, outcome, reward, failure)
        folder = setting.collector.folder(trial, lease.attempt)
        files = await in_own_thread(self._files, judged, found, folder)
        notes = [f"judged again: the work of run {found.run_id}; neither agent nor tests ran"]
        if judged.missing:
            notes.append(f"the judge's score is missing: {judged.missing}")
        ended_at = setting.clock()
        again = AttemptRecord(
            key=trial.key,
            number=lease.attempt,
            outcome=outcome,
            reward=reward,
            failure=failure,
            started_at=started_at,
            ended_at=ended_at,
            phases_s={"judge": ended_at - started_at},
            metrics=_metrics(metrics, judged.rows, judged.summary),
            artifacts=tuple(files),
            notes=tuple(notes),
            worker=setting.worker,
            image=record.image,
            system_changes=record.system_changes,
            suspect=record.suspect,
        )
        await setting.collector.settle(folder)
        return setting.redactor.record(again)

    def _files(self, judged: Judged, found: StoredAttempt, folder: Path) -> list[Artifact]:
        collector, redactor = self.setting.collector, self.setting.redactor
        own = kept(judged, collector, folder, redactor)
        rubrics = collector.write_rubrics(folder, redactor, judged.rows)
        return [*own, *rubrics, *_taken_over(found, collector, folder)]

    def _without(
        self, trial: PlannedTrial, lease: Lease, at: float, outcome: Outcome, kind: str, why: str
    ) -> AttemptRecord:
        return AttemptRecord(
            key=trial.key,
            number=lease.attempt,
            outcome=outcome,
            started_at=at,
            ended_at=at,
            failure=Failure(phase="judge", type=kind, message=why),
            worker=self.setting.worker,
        )

    async def close(self) -> None:
        """End the gateway."""
        if self.setting.models:
            await self.setting.models.close()


def by_tests(record: AttemptRecord) -> tuple[Outcome, float | None]:
    """How an attempt ended by its tests, also where the judge had the last word."""
    if not judge_of(record).get("decides"):
        return record.outcome, record.reward
    reward = unit_score(record)
    if reward is None and record.failure and record.failure.phase == "judge":
        return Outcome.FAILED, None  # there are no tests, and the judge came to no score: the work is there
    if reward is None or record.outcome in _BY_AGENT:
        return record.outcome, reward
    return from_reward(reward), reward


_BY_AGENT = {Outcome.AGENT_TIMEOUT, Outcome.AGENT_ERROR, Outcome.BUDGET_EXHAUSTED}


def _metrics(
    metrics: Mapping[str, Any], rows: list[dict[str, object]], summary: Mapping[str, Any]
) -> dict[str, Any]:
    found = {**metrics, "rubrics": rows, "judge": dict(summary)}
    return {name: value for name, value in found.items() if value or name == "rewards"}


def _taken_over(found: StoredAttempt, collector: Collector, folder: Path) -> list[Artifact]:
    return [
        collector.keep(folder, each.name, found.read(each.name))
        for each in found.record.artifacts
        if _TAKEN_OVER.fullmatch(each.name)
    ]
