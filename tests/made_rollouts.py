"""Rollouts that never happened: several agents and models on several tasks, with every kind of end."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from proctor.model.outcome import Outcome, from_reward
from proctor.model.plan import Plan, PlannedTrial, trial_key
from proctor.model.record import Artifact, AttemptRecord, Failure
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.runfolder.read import RunData, TrialResult

STARTED = 1_760_000_000.0
TASKS = (
    "config-edit",
    "git-surgery",
    "log-forensics",
    "median-bug",
    "shell-quiz",
    "slow-build",
    "sqlite-report",
    "start-service",
    "two-steps",
)


def planned(index: int, task: str, agent: str = "oracle", **more: Any) -> PlannedTrial:
    fields: dict[str, Any] = {"rollout": 0, "model": None, "overrides": {}, "body": 0, **more}
    key = trial_key(
        subject_digest=task,
        agent=agent,
        model=fields["model"],
        overrides=fields["overrides"],
        rollout=fields["rollout"],
        params={"body": fields["body"]},
    )
    digest = fields.pop("subject_digest", "d" * 64)
    return PlannedTrial(
        key=key, index=index, kind="task", subject=task, subject_digest=digest, agent=agent,
        agent_version=fields.pop("agent_version", "1"), path=f"tasks/{task}", **fields,
    )  # fmt: skip


def record(
    trial: PlannedTrial, outcome: Outcome | str = "passed", reward: float | None = None, **more: Any
) -> AttemptRecord:
    outcome = Outcome(outcome)
    if reward is None and outcome.scored:
        reward = 1.0 if outcome is Outcome.PASSED else 0.0
    took = 2.0 + trial.index % 7 / 3
    started = more.pop("started_at", STARTED + trial.index * 0.5)
    fields: dict[str, Any] = {
        "number": 1,
        "phases_s": {
            "image": 0.01,
            "start": 0.012,
            "setup": 0.02,
            "agent": took - 0.6,
            "verify": 0.4,
            "collect": 0.05,
            "stop": 0.004,
        },
        "metrics": {"rewards": {"reward": reward}} if reward is not None else {},
        "ledger": {
            "peak_memory_bytes": (40 + trial.index % 30) << 20,
            "cpu_s": 0.4 + trial.index % 5 / 10,
            "throttled_s": 0.0,
            "oom_kills": 0,
            "read_bytes": 1 << 20,
            "write_bytes": 3 << 20,
            "backend": "bubblewrap",
            "enforced": {"memory": "cgroup v2", "cpu": "cgroup v2", "disk": "not enforced: no quota here"},
        },
        "worker": "w",
        **more,
    }
    if not outcome.scored and "failure" not in fields:
        fields["failure"] = Failure(phase="start", type="SandboxError", message="the sandbox <did> not start")
    return AttemptRecord(
        key=trial.key, outcome=outcome, reward=reward, started_at=started, ended_at=started + took, **fields
    )


def run_of(
    pairs: Sequence[tuple[PlannedTrial, Sequence[AttemptRecord]]], *, name: str = "sample_tasks", **more: Any
) -> RunData:
    trials = [TrialResult(trial, tuple(tries), tries[-1] if tries else None) for trial, tries in pairs]
    counts: dict[str, int] = {}
    for each in trials:
        if each.outcome:
            counts[each.outcome.value] = counts.get(each.outcome.value, 0) + 1
    fields: dict[str, Any] = {
        "id": "20251009T085320-a1b2c3",
        "kind": "task",
        "status": RunStatus.DONE,
        "created_at": STARTED - 1,
        "started_at": STARTED,
        "finished_at": STARTED + len(pairs) * 0.6 + 3,
        "seed": 7,
        "total": len(pairs),
        "done": sum(counts.values()),
        "counts": dict(sorted(counts.items())),
        "spec": {"tasks": [{"dataset": "tasks"}]},
        "resolved": {"name": name, "tasks": [{"dataset": "tasks", "agent": ["oracle"]}], "seed": 7},
        "environment": {"cpu_model": "Example CPU 9000", "cores": 8},
        "vcs": {"commit": "3f9e2d4c5b6a79880a1b2c3d4e5f60718293a4b5", "branch": "main", "dirty": False},
        "versions": {"proctor": "0.1.0", "python": "3.11.7"},
        "plan_digest": Plan(trials=tuple(trial for trial, _ in pairs)).digest,
        **more,
    }
    return RunData(RunInfo(name=name, **fields), tuple(trials))


@dataclass
class Study:
    """Builds a run cell by cell."""

    pairs: list[tuple[PlannedTrial, list[AttemptRecord]]] = field(default_factory=list)

    def cell(
        self, task: str, ends: Sequence[str | float | None], agent: str = "oracle", **more: Any
    ) -> Study:
        """One rollout per end: an outcome, a reward, or None for no result."""
        for rollout, end in enumerate(ends):
            trial = planned(len(self.pairs), task, agent, rollout=rollout, **more)
            if end is None:
                self.pairs.append((trial, []))
            elif isinstance(end, str):
                self.pairs.append((trial, [record(trial, end)]))
            else:
                self.pairs.append((trial, [record(trial, from_reward(end), end)]))
        return self

    def data(self, **more: Any) -> RunData:
        return run_of(self.pairs, **more)


def comparison(seed: int = 5, rollouts: int = 5) -> RunData:
    """Three competitors with models on nine tasks; errors, partial rewards and flaky tasks among them."""
    rng = random.Random(seed)
    arms: Mapping[tuple[str, str | None], float] = {
        ("oracle", None): 1.0,
        ("terminal", "local/large"): 0.75,
        ("terminal", "local/small"): 0.4,
        ("nop", None): 0.0,
    }
    pairs: list[tuple[PlannedTrial, list[AttemptRecord]]] = []
    for rollout in range(rollouts):
        for at, task in enumerate(TASKS):
            for (agent, model), skill in arms.items():
                trial = planned(len(pairs), task, agent, model=model, rollout=rollout)
                usage = (
                    {
                        "prompt_tokens": rng.randint(2000, 9000),
                        "completion_tokens": rng.randint(200, 900),
                        "cost_usd": rng.random() / 50,
                        "steps": rng.randint(3, 20),
                        "tool_calls": rng.randint(3, 20),
                    }
                    if model
                    else {"steps": 1, "tool_calls": 1}
                )
                chance = min(1.0, max(0.0, skill + (4 - at) / 10 if 0 < skill < 1 else skill))
                end: str | float = float(rng.random() < chance)
                if model and rng.random() < 0.12:
                    end = rng.choice(
                        ["agent_timeout", "provider_error", "agent_error", "sandbox_error", 0.5, 0.8]
                    )
                tries = []
                if isinstance(end, str):
                    tries.append(record(trial, end, usage=usage))
                else:
                    if rng.random() < 0.03:
                        tries.append(record(trial, "worker_lost"))
                    tries.append(record(trial, from_reward(end), end, number=len(tries) + 1, usage=usage))
                pairs.append((trial, tries))
    return run_of(pairs, name="model_comparison")


class Rolled:
    """What tests ask for rollouts."""

    study = Study
    planned = staticmethod(planned)
    record = staticmethod(record)
    of = staticmethod(run_of)
    comparison = staticmethod(comparison)
    artifact = Artifact
    tasks = TASKS

    @staticmethod
    def plan(data: RunData) -> Plan:
        return Plan(trials=tuple(trial.planned for trial in data.trials))


@pytest.fixture
def rolled() -> type[Rolled]:
    return Rolled
