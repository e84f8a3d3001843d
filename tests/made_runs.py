"""Runs that never happened, for everything that reads runs: one point, sweeps, failures, retries."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from proctor.analysis.median import median_interval
from proctor.model.describe import describe
from proctor.model.outcome import Outcome
from proctor.model.plan import Plan, PlannedTrial, trial_key
from proctor.model.record import Artifact, AttemptRecord, Failure
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.runfolder.read import RunData, TrialResult

ENVIRONMENT = {
    "cpu_model": "Example CPU 9000 @ 3.1 GHz",
    "cores": 8,
    "memory_bytes": 34359738368,
    "governor": "performance",
    "kernel": "Linux 6.1.0",
    "load": [0.31, 0.42, 0.5],
    "packages": {"numpy": "2.1.0", "click": "8.1.7"},
}
STARTED = 1_760_000_000.0


def planned(
    index: int = 0, params: Mapping[str, Any] | None = None, subject: str = "sort_list", **more: Any
) -> PlannedTrial:
    fields: dict[str, Any] = {"kind": "experiment", "subject_digest": "d" * 64, "body": 0, "seed": 7, **more}
    key = trial_key(
        subject_digest=f"{subject}-{fields['body']}",
        params=params or {},
        seed=fields["seed"],
        rollout=fields.get("rollout", 0),
        agent=fields.get("agent"),
    )
    return PlannedTrial(key=key, index=index, subject=subject, params=params or {}, **fields)


def attempt(
    trial: PlannedTrial,
    values: Sequence[float] = (0.001, 0.0011, 0.0012),
    *,
    number: int = 1,
    outcome: Outcome = Outcome.PASSED,
    metrics: Mapping[str, Sequence[float]] | None = None,
    **more: Any,
) -> AttemptRecord:
    rows: list[dict[str, Any]] = [{"index": at, "duration_s": value} for at, value in enumerate(values)]
    for name, extra in (metrics or {}).items():
        for row, value in zip(rows, extra, strict=True):
            row[name] = value
    columns = {name: describe([row[name] for row in rows]) for name in ("duration_s", *(metrics or ()))}
    return AttemptRecord(
        key=trial.key,
        number=number,
        outcome=outcome,
        started_at=STARTED + trial.index,
        ended_at=STARTED + trial.index + 0.9,
        metrics=columns,
        iterations=tuple(rows),
        phases_s={"queue": 0.01, "setup": 0.05, "work": sum(values), "teardown": 0.002},
        worker="w1",
        **more,
    )


def run_of(
    pairs: Sequence[tuple[PlannedTrial, Sequence[AttemptRecord]]], *, name: str = "sorting", **more: Any
) -> RunData:
    trials = []
    for trial, attempts in pairs:
        counted = attempts[-1] if attempts else None
        values = sorted(row["duration_s"] for row in counted.iterations) if counted else []
        trials.append(TrialResult(trial, tuple(attempts), counted, median_interval(values)))
    plan = Plan(trials=tuple(trial for trial, _ in pairs))
    counts: dict[str, int] = {}
    for trial in trials:
        if trial.outcome:
            counts[trial.outcome.value] = counts.get(trial.outcome.value, 0) + 1
    fields: dict[str, Any] = {
        "id": "20251009T085320-a1b2c3",
        "kind": pairs[0][0].kind,
        "status": RunStatus.DONE,
        "created_at": STARTED - 1,
        "started_at": STARTED,
        "finished_at": STARTED + len(pairs) + 3.5,
        "seed": 7,
        "total": len(pairs),
        "done": sum(counts.values()),
        "counts": dict(sorted(counts.items())),
        "tags": ("nightly",),
        "spec": {"experiment": "sort_list", "sweep": {"size": [10, 100]}},
        "resolved": {"name": name, "experiments": [{"experiment": "sort_list"}], "seed": 7},
        "environment": ENVIRONMENT,
        "vcs": {"commit": "3f9e2d4c5b6a79880a1b2c3d4e5f60718293a4b5", "branch": "main", "dirty": True},
        "versions": {"proctor": "0.1.0", "python": "3.11.7"},
        "plan_digest": plan.digest,
        **more,
    }
    return RunData(RunInfo(name=name, **fields), tuple(trials))


def noisy(
    rng: random.Random, middle: float, count: int, spread: float = 0.03, *, spikes: float = 0.03
) -> list[float]:
    values = [middle * (1 + abs(rng.gauss(0, spread)) + spread * rng.random()) for _ in range(count)]
    return [value * (1.8 if rng.random() < spikes else 1.0) for value in values]


def single_point(count: int = 120) -> RunData:
    rng = random.Random(1)
    trial = planned(params={"size": 10_000, "algorithm": "timsort"})
    values = noisy(rng, 0.00123, count)
    extra = {
        "rss_bytes": [4.1e7 + 1e5 * rng.random() for _ in values],
        "swaps": [float(rng.randint(900, 999)) for _ in values],
    }
    artifact = Artifact(
        name="profile.prof", digest="a" * 64, size_bytes=2048, media_type="application/octet-stream"
    )
    return run_of([(trial, [attempt(trial, values, metrics=extra, artifacts=(artifact,))])])


def line_sweep(sizes: Sequence[int] = (100, 300, 1000, 3000, 10_000, 30_000, 100_000)) -> RunData:
    rng = random.Random(2)
    pairs = []
    for index, size in enumerate(sizes):
        trial = planned(index, {"size": size, "algorithm": "timsort"})
        values = noisy(rng, 4e-8 * size * (1 + 0.05 * index), 30)
        pairs.append((trial, [attempt(trial, values, metrics={"rss_bytes": [3e7 + 40.0 * size] * 30})]))
    return run_of(pairs)


def two_parameters() -> RunData:
    rng = random.Random(3)
    pairs: list[tuple[PlannedTrial, list[AttemptRecord]]] = []
    for algorithm, factor in (("timsort", 1.0), ("quicksort", 1.4), ("heapsort", 2.3), ("insertion", 0.0)):
        for size in (100, 1000, 10_000, 100_000):
            trial = planned(len(pairs), {"size": size, "algorithm": algorithm})
            middle = 4e-8 * size * factor if factor else 2e-9 * size * size
            if algorithm == "insertion" and size == 100_000:
                failure = Failure(
                    phase="execute_once",
                    type="TimeoutError",
                    message="over 30 s",
                    traceback="Traceback …\nTimeoutError: over 30 s",
                )
                pairs.append((trial, [attempt(trial, (), outcome=Outcome.AGENT_TIMEOUT, failure=failure)]))
            else:
                notes = ("contended: 2 points ran at a time",) if size == 1000 else ()
                pairs.append((trial, [attempt(trial, noisy(rng, middle, 25), notes=notes)]))
    return run_of(pairs)


def with_failures() -> RunData:
    rng = random.Random(4)
    pairs: list[tuple[PlannedTrial, list[AttemptRecord]]] = []
    for index, profile in enumerate(("balanced", "performance", "safety", "memory", "broken")):
        trial = planned(index, {"profile": profile, "workload": "mixed"}, subject="pragma_profile")
        lost = attempt(
            trial,
            (),
            outcome=Outcome.WORKER_LOST,
            failure=Failure(phase="work", type="WorkerLost", message="no heartbeat"),
        )
        if profile == "broken":
            failure = Failure(
                phase="setup",
                type="ValueError",
                message="profile 'broken' is <unknown> & refused",
                traceback="Traceback (most recent call last):\n  line 12, in setup\nValueError: refused",
            )
            pairs.append((trial, [attempt(trial, (), outcome=Outcome.FAILED, failure=failure)]))
        elif profile == "safety":
            pairs.append((trial, [lost, attempt(trial, noisy(rng, 0.034, 40, 0.2), number=2)]))
        else:
            pairs.append((trial, [attempt(trial, noisy(rng, 0.012 * (1 + 0.4 * index), 40))]))
    pairs.append((planned(5, {"profile": "extra", "workload": "mixed"}, subject="pragma_profile"), []))
    return run_of(pairs, name="pragma_profile_baseline", status=RunStatus.INTERRUPTED)


def rollouts() -> RunData:
    rng = random.Random(5)
    pairs: list[tuple[PlannedTrial, list[AttemptRecord]]] = []
    for task in ("org/hello-world", "org/fix-the-bug"):
        for rollout in range(4):
            trial = planned(
                len(pairs), {}, subject=task, kind="task", agent="oracle", model="m1", rollout=rollout
            )
            outcome = rng.choice([Outcome.PASSED, Outcome.FAILED, Outcome.SANDBOX_ERROR])
            reward = {Outcome.PASSED: 1.0, Outcome.FAILED: 0.0}.get(outcome)
            pairs.append((trial, [attempt(trial, (), outcome=outcome, reward=reward)]))
    return run_of(pairs, name="rollouts")


BUILDERS: dict[str, Callable[[], RunData]] = {
    "single": single_point,
    "lines": line_sweep,
    "two": two_parameters,
    "failures": with_failures,
    "rollouts": rollouts,
}


class Runs:
    """What tests ask for runs."""

    planned = staticmethod(planned)
    attempt = staticmethod(attempt)
    of = staticmethod(run_of)
    single = staticmethod(single_point)
    lines = staticmethod(line_sweep)
    two = staticmethod(two_parameters)
    failures = staticmethod(with_failures)
    rollouts = staticmethod(rollouts)

    @staticmethod
    def plan(data: RunData) -> Plan:
        return Plan(trials=tuple(trial.planned for trial in data.trials))

    @staticmethod
    def renamed(data: RunData, **fields: Any) -> RunData:
        return replace(data, info=structs.replace(data.info, **fields))


@pytest.fixture
def runs() -> type[Runs]:
    return Runs


@pytest.fixture(params=list(BUILDERS))
def any_run(request: pytest.FixtureRequest) -> RunData:
    return BUILDERS[request.param]()
