"""Runs of rollouts drawn at random, and what their scores are, worked out in the plainest way there is."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from tests.made_rollouts import planned, record

from proctor.analysis.estimate import Score, TaskRewards, denominators
from proctor.model.arms import Arm, named, options_text
from proctor.model.plan import Plan, PlannedTrial
from proctor.model.record import AttemptRecord
from proctor.model.run import RunInfo, written_import
from proctor.model.trial import RunStatus
from proctor.store.store import Store

SCORED = {"passed", "failed", "partial", "agent_timeout", "agent_error", "budget_exhausted"}
LEFT_OUT = {"cancelled", "skipped"}
ENDS: Sequence[tuple[str | None, float | None]] = (
    ("passed", 1.0), ("passed", 1.0), ("passed", None), ("failed", 0.0), ("failed", 0.0), ("failed", None),
    ("partial", 0.25), ("partial", 0.5), ("agent_timeout", 1.0), ("agent_timeout", 0.0),
    ("agent_timeout", 0.5), ("agent_error", None), ("budget_exhausted", 1.0), ("verifier_error", None),
    ("sandbox_error", None), ("provider_error", None), ("worker_lost", None), ("invalid", None),
    ("skipped", None), (None, None),
)  # fmt: skip
"""How a rollout may end, with its reward; None: it has no result."""


@dataclass
class Cell:
    """One task by one arm."""

    rewards: list[float] = field(default_factory=list)
    errors: int = 0
    missing: int = 0


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What an arm of a run came to."""

    score: Score | None
    pass_rate: Score | None
    as_zero: float | None
    best_case: float | None
    scored: int
    passed: int
    errors: int
    missing: int


@dataclass(kw_only=True)
class DrawnRun:
    """A run, and the truth about it."""

    info: RunInfo
    pairs: list[tuple[PlannedTrial, list[AttemptRecord]]]
    arms: dict[str, Truth]

    @property
    def passed(self) -> int:
        return sum(arm.passed for arm in self.arms.values())

    @property
    def scored(self) -> int:
        return sum(arm.scored for arm in self.arms.values())

    @property
    def errors(self) -> int:
        return sum(arm.errors for arm in self.arms.values())

    def put(self, store: Store) -> None:
        counted = [(each, each is tries[-1]) for _, tries in self.pairs for each in tries]
        store.import_run(self.info, [trial for trial, _ in self.pairs], counted)


def drawn_run(number: int) -> DrawnRun:
    """The run of a number: always the same."""
    rng = random.Random(f"run {number}")
    arms = _arms(rng)
    tasks = [(f"task-{at}", 0) for at in range(rng.randint(1, 8))]
    if rng.random() < 0.2:
        tasks.append(("task-0", 60))  # the same task once more, with a time limit of its own
    pairs: list[tuple[PlannedTrial, list[AttemptRecord]]] = []
    cells: dict[Arm, dict[tuple[str, int], Cell]] = {}
    for arm, variables in arms:
        for task, limit in tasks:
            if cells and rng.random() < 0.15:
                continue  # not every arm does every task
            for rollout in range(rng.randint(1, 4)):
                changes = {"agent_timeout_s": limit} if limit else {}
                trial = _trial(len(pairs), task, arm, {**variables, "SAME": "1"}, changes, rollout)
                outcome, reward = rng.choice(ENDS)
                pairs.append((trial, _attempts(rng, trial, outcome, reward)))
                cell = cells.setdefault(arm, {}).setdefault((task, limit), Cell())
                _count(cell, outcome, reward)
    rng.shuffle(pairs)
    pairs = [_numbered(at, *pair) for at, pair in enumerate(pairs)]
    if len({arm.variables for arm in cells}) == 1:  # what is the same in all trials was not swept
        cells = {arm._replace(variables=()): found for arm, found in cells.items()}
    names = named(cells)
    return DrawnRun(
        info=_info(number, pairs, imported=rng.random() < 0.1),
        pairs=pairs,
        arms={names[arm]: _truth(list(found.values())) for arm, found in cells.items()},
    )


def _arms(rng: random.Random) -> list[tuple[Arm, dict[str, str]]]:
    """Arms that differ in one thing or in several: agent, version, model, options, a swept variable."""
    agent = Arm("terminal", "local/large", options_text({"options": {"temperature": 0}}), "1.0")
    kinds = {
        "one": [agent],
        "agents": [agent, Arm("oracle", None, "{}", "1.0")],
        "models": [agent, agent._replace(model="local/small")],
        "options": [agent, agent._replace(options=options_text({"options": {"temperature": 1}}))],
        "versions": [agent, agent._replace(version="1.1")],
        "many": [agent, agent._replace(model="local/small"), Arm("oracle", None, "{}", "1.0")],
    }
    chosen = kinds[rng.choice(["one", *kinds])]
    if rng.random() < 0.7:
        return [(arm, {}) for arm in chosen]
    return [
        (arm._replace(variables=(("MODE", mode),)), {"MODE": mode})
        for arm in chosen
        for mode in ("fast", "slow")
    ]


def _trial(
    index: int, task: str, arm: Arm, variables: dict[str, str], changes: dict[str, Any], rollout: int
) -> PlannedTrial:
    import json

    options = json.loads(arm.options)
    overrides = {"environment_variables": variables, **changes}
    overrides |= {"agent_options": options} if options else {}
    return planned(
        index, task, arm.agent or "", model=arm.model, agent_version=arm.version, overrides=overrides,
        rollout=rollout, body=index, subject_digest=f"digest of {task}",
    )  # fmt: skip


def _attempts(
    rng: random.Random, trial: PlannedTrial, outcome: str | None, reward: float | None
) -> list[AttemptRecord]:
    if outcome is None:
        return []
    more: dict[str, Any] = {"suspect": outcome == "passed" and rng.random() < 0.2}
    if rng.random() < 0.1:
        more["metrics"] = {"rewards": {}, "steps": {"one": 1.0, "two": reward or 0.0}}
    usage = {"cost_usd": 0.01 * (1 + trial.index % 3), "prompt_tokens": 100, "completion_tokens": 10}
    lost = [record(trial, "sandbox_error", None)] if rng.random() < 0.15 else []
    last = record(trial, outcome, reward, number=len(lost) + 1, usage=usage, **more)
    return [*lost, _rewarded(last, reward)]


def _rewarded(made: AttemptRecord, reward: float | None) -> AttemptRecord:
    """Exactly this reward: `record` fills in one where there is none."""
    from msgspec.structs import replace

    return replace(made, reward=reward)


def _numbered(
    at: int, trial: PlannedTrial, tries: list[AttemptRecord]
) -> tuple[PlannedTrial, list[AttemptRecord]]:
    from msgspec.structs import replace

    return replace(trial, index=at), tries


def _count(cell: Cell, outcome: str | None, reward: float | None) -> None:
    if outcome in SCORED:
        cell.rewards.append(reward if reward is not None else 1.0 if outcome == "passed" else 0.0)
    elif outcome is None or outcome in LEFT_OUT:
        cell.missing += 1
    else:
        cell.errors += 1


def _info(number: int, pairs: list[tuple[PlannedTrial, list[AttemptRecord]]], *, imported: bool) -> RunInfo:
    at = 1_760_000_000.0 + 60 * number
    ended = sum(bool(tries) for _, tries in pairs)
    return RunInfo(
        id=f"20260101T{number:06d}-abcdef",
        name=f"series-{number // 4}",
        kind="task",
        status=RunStatus.DONE,
        created_at=at,
        started_at=at,
        finished_at=at + 50,
        seed=1,
        total=len(pairs),
        done=ended,
        spec=written_import("harbor", {}) if imported else {"tasks": [{"dataset": "tasks"}]},
        resolved={"name": "drawn"},
        plan_digest=Plan(trials=tuple(trial for trial, _ in pairs)).digest,
    )


def _truth(cells: list[Cell]) -> Truth:
    """The score is the mean over tasks of the mean reward of a task's scored rollouts."""
    means = [fmean(cell.rewards) for cell in cells if cell.rewards]
    score = _readings(cells)
    if means:
        assert score.excluded is not None
        assert math.isclose(score.excluded.value, fmean(means))
    passes = [
        Cell([float(reward >= 1) for reward in cell.rewards], cell.errors, cell.missing) for cell in cells
    ]
    return Truth(
        score=score.excluded,
        pass_rate=_readings(passes).excluded,
        as_zero=score.as_zero.value if score.as_zero else None,
        best_case=score.best_case.value if score.best_case else None,
        scored=sum(len(cell.rewards) for cell in cells),
        passed=sum(reward >= 1 for cell in cells for reward in cell.rewards),
        errors=sum(cell.errors for cell in cells),
        missing=sum(cell.missing for cell in cells),
    )


def _readings(cells: list[Cell]) -> Any:
    return denominators(
        [
            TaskRewards(name=str(at), scored=tuple(cell.rewards), errors=cell.errors)
            for at, cell in enumerate(cells)
        ]
    )
