"""Small runs to compare, in memory; the store and folder tests make theirs from the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial, trial_key
from proctor.model.record import AttemptRecord, Failure
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.runfolder.read import RunData, TrialResult

ENVIRONMENT = {
    "hostname": "bench-1",
    "cpu_model": "Example 9000",
    "cores": 8,
    "python": {"version": "3.11.7", "implementation": "CPython"},
    "packages": {"numpy": "2.1.0"},
}
Point = tuple[Mapping[str, Any], Sequence[float] | Outcome | None]


def make_run(points: Sequence[Point], *, run_id: str = "run-a", **more: Any) -> RunData:
    """Each point is its params and its durations, or how it failed, or None when it has not run."""
    trials = []
    for index, (params, result) in enumerate(points):
        key = trial_key(subject_digest=more.get("code", "v1"), params=params)
        trial = PlannedTrial(
            key=key, index=index, kind="experiment", subject="sort", subject_digest="d", body=0, params=params
        )
        record = None if result is None else _record(key, result)
        trials.append(TrialResult(trial, (record,) if record else (), record))
    return RunData(_info(run_id, "experiment", len(trials), more), tuple(trials))


def make_task_run(
    tasks: Mapping[str, Sequence[float | Outcome]],
    *,
    run_id: str = "run-a",
    agents: Sequence[str] = ("x",),
    contents: Mapping[str, str] | None = None,
) -> RunData:
    """Each task has its rollouts: a reward, or the error that someone else caused.

    `contents`: digests of tasks; the others have their names for one.
    """
    trials = []
    for agent in agents:
        for name, rollouts in tasks.items():
            for rollout, result in enumerate(rollouts):
                key = trial_key(subject_digest=name, rollout=rollout, agent=agent)
                trial = PlannedTrial(
                    key=key,
                    index=len(trials),
                    kind="task",
                    subject=name,
                    subject_digest=(contents or {}).get(name, name),
                    body=0,
                    rollout=rollout,
                    agent=agent,
                )
                error = isinstance(result, Outcome)
                record = AttemptRecord(
                    key=key,
                    number=1,
                    outcome=result if error else Outcome.PASSED if result >= 1 else Outcome.FAILED,
                    started_at=0.0,
                    ended_at=2.0,
                    reward=None if error else float(result),
                    usage={"cost_usd": 0.5},
                )
                trials.append(TrialResult(trial, (record,), record))
    return RunData(_info(run_id, "task", len(trials), {}), tuple(trials))


def _record(key: str, result: Sequence[float] | Outcome) -> AttemptRecord:
    failed = isinstance(result, Outcome)
    rows = (
        ()
        if failed
        else tuple({"duration_s": value, "ops_per_s": 1 / value if value else 0.0} for value in result)
    )
    return AttemptRecord(
        key=key,
        number=1,
        outcome=result if failed else Outcome.PASSED,
        started_at=0.0,
        ended_at=1.0,
        failure=Failure(phase="execute_once", type="ValueError", message="no") if failed else None,
        metrics={} if failed else {"duration_s": {"p50": sorted(result)[len(result) // 2]}, "bytes": 100},
        iterations=rows,
    )


def _info(run_id: str, kind: str, total: int, more: Mapping[str, Any]) -> RunInfo:
    return RunInfo(
        id=run_id,
        name=more.get("name", "sorting"),
        kind=kind,
        status=RunStatus.DONE,
        created_at=more.get("created_at", 0.0),
        seed=0,
        total=total,
        done=total,
        resolved={
            "parallel": more.get("parallel", 1),
            "experiments": [{"experiment": "sort", "gc": "disabled"}],
        },
        environment={**ENVIRONMENT, **more.get("environment", {})},
        vcs={"commit": "abc", "dirty": True},
    )


@pytest.fixture
def run() -> Callable[..., RunData]:
    return make_run


@pytest.fixture
def task_run() -> Callable[..., RunData]:
    return make_task_run
