"""Runs of agents on tasks that never happened, in the store that the commands read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from proctor.model.outcome import Outcome, from_reward
from proctor.model.plan import Plan, PlannedTrial
from proctor.model.record import AttemptRecord, Failure
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.render.reporters import write_reports
from proctor.runfolder.read import RunData
from proctor.runfolder.write import RunFolder
from proctor.settings import load_settings
from proctor.store.open import open_store

Ends = Mapping[tuple[str, str], Sequence[str | float | None]]
"""(task, agent) → how each rollout ended: an outcome, a reward, or nothing yet."""
StoreRollouts = Callable[..., RunInfo]


@pytest.fixture
def store_rollouts(tmp_path: Path) -> StoreRollouts:
    """Put a run into the store, and its folder under the rollouts folder when wanted."""

    def put(
        ends: Ends,
        *,
        name: str = "study",
        run_id: str = "20260101T000000-aaaaaa",
        status: RunStatus = RunStatus.DONE,
        kind: str = "task",
        folder: bool = False,
    ) -> RunInfo:
        pairs: list[tuple[PlannedTrial, AttemptRecord | None]] = []
        for (task, agent, *prompt), results in ends.items():
            overrides = {"overrides": {"prompt": prompt[0]}} if prompt else {}
            for rollout, end in enumerate(results):
                trial = PlannedTrial(
                    key=f"{len(pairs):064d}", index=len(pairs), kind=kind, subject=task,
                    subject_digest=f"d-{task}", body=0, agent=agent, rollout=rollout, path=f"tasks/{task}",
                    overrides=overrides,
                )  # fmt: skip
                pairs.append((trial, _record(trial, end)))
        plan = Plan(trials=tuple(trial for trial, _ in pairs))
        place = load_settings().rollouts_dir / name / run_id
        info = RunInfo(
            id=run_id, name=name, kind=kind, status=status, created_at=1000.0, started_at=1000.0, seed=1,
            total=len(pairs), folder=str(place) if folder else "", plan_digest=plan.digest,
        )  # fmt: skip
        with open_store(load_settings().store_url) as store:
            store.import_run(info, plan.trials, [(record, True) for _, record in pairs if record])
            if folder:
                RunFolder(place).finish(RunData.from_store(store, run_id), write_reports)
        return info

    return put


def _record(trial: PlannedTrial, end: str | float | None) -> AttemptRecord | None:
    if end is None:
        return None
    outcome = Outcome(end) if isinstance(end, str) else from_reward(end)
    reward = end if isinstance(end, float) else 0.0 if outcome.scored else None
    failure = None if outcome.scored else Failure(phase="start", type="SandboxError", message="no luck")
    return AttemptRecord(
        key=trial.key,
        number=1,
        outcome=outcome,
        started_at=1000.0 + trial.index,
        ended_at=1001.5 + trial.index,
        reward=reward,
        failure=failure,
    )
