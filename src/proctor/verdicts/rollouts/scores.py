"""Results of each agent and model: pass rates with intervals, three ways to count errors, pass@k, usage."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from proctor.analysis.estimate import (
    AtK,
    Denominators,
    TaskRewards,
    denominators,
    pass_at_k,
    pass_hat_k,
)
from proctor.analysis.flaky import Stability, TaskStability, task_stability
from proctor.model.describe import describe, percentile
from proctor.model.record import WORK
from proctor.quantity import number
from proctor.runfolder.read import RunData, TrialResult, once
from proctor.verdicts.rollouts.table import Arm, Cell, Row, Table, arrange

ALL_K_UP_TO = 10
LEDGER = ("peak_memory_bytes", "cpu_s", "throttled_s", "oom_kills", "read_bytes", "write_bytes", "disk_bytes")
UNKNOWN = "unknown"
"""In place of a number that could not be measured, and in a ledger: quantity → why."""
UNKNOWN_COST = "unknown_cost"
"""How many calls of models cost what nobody knows."""
USAGE = ("prompt_tokens", "completion_tokens", "cost_usd", "requests", "steps", "tool_calls")


@dataclass(frozen=True, slots=True)
class ArmScore:
    """One competitor over all its tasks."""

    arm: Arm
    cells: tuple[Cell, ...]
    passes: Denominators
    """Of the share that passed."""
    rewards: Denominators
    """Of the mean reward; the same unless some rewards were partial."""
    at_k: tuple[AtK, ...]
    hat_k: tuple[AtK, ...]
    stability: Mapping[Row, TaskStability]

    @property
    def trials(self) -> list[TrialResult]:
        """Every trial of the arm."""
        return [trial for cell in self.cells for trial in cell.trials]

    @property
    def scored(self) -> int:
        """How many rollouts count."""
        return sum(len(cell.rewards) for cell in self.cells)

    @property
    def passed(self) -> int:
        """How many of them passed."""
        return sum(cell.passed for cell in self.cells)

    @property
    def errors(self) -> int:
        """How many ended in an error not caused by the agent."""
        return sum(cell.errors for cell in self.cells)

    @property
    def missing(self) -> int:
        """How many have no result."""
        return sum(cell.missing for cell in self.cells)

    @property
    def partial(self) -> bool:
        """Whether a reward between none and all makes the mean reward another number than the pass rate."""
        return any(0 < reward < 1 for cell in self.cells for reward in cell.rewards)

    @property
    def common_k(self) -> int:
        """The largest k that every scored task has rollouts for; beyond it other tasks are compared."""
        return min((len(cell.rewards) for cell in self.cells if cell.rewards), default=0)

    @property
    def curve(self) -> list[tuple[AtK, AtK]]:
        """pass@k and pass^k over the same tasks at every k."""
        most = self.common_k
        return [(at, hat) for at, hat in zip(self.at_k, self.hat_k, strict=True) if at.k <= most]

    def at(self, k: int) -> tuple[float | None, float | None]:
        """pass@k and pass^k over all tasks."""
        return next(((at.value, hat.value) for at, hat in self.curve if at.k == k), (None, None))

    @property
    def flaky(self) -> int:
        """How many tasks both passed and failed."""
        return sum(each.stability is Stability.FLAKY for each in self.stability.values())


@dataclass(frozen=True, slots=True)
class Rollouts:
    """A whole run of rollouts."""

    table: Table
    arms: tuple[ArmScore, ...]
    """In plan order."""

    @property
    def best(self) -> ArmScore:
        """The arm with the highest pass rate; the first of equals."""
        return max(self.arms, key=lambda each: each.passes.excluded.value if each.passes.excluded else -1.0)

    @property
    def shared_k(self) -> int:
        """The largest k at which every arm with a score has pass@k over all its tasks; 0 when none has."""
        known = [{at.k for at, _ in arm.curve} for arm in self.arms if arm.scored]
        return max(set.intersection(*known), default=0) if known else 0


@once
def rollouts(data: RunData) -> Rollouts:
    """The numbers of a run of task trials."""
    table = arrange(data)
    return Rollouts(table, tuple(_score(arm, tuple(table.of(arm))) for arm in table.arms))


def _score(arm: Arm, cells: tuple[Cell, ...]) -> ArmScore:
    counts = [(len(cell.rewards), cell.passed) for cell in cells]
    known = [scored for scored, _ in counts if scored]
    ks = sorted({*wanted_k(max(known, default=0)), *known})
    at = (pass_at_k(counts, k) for k in ks)
    hat = (pass_hat_k(counts, k) for k in ks)
    return ArmScore(
        arm=arm,
        cells=cells,
        passes=denominators([_passes(cell) for cell in cells]),
        rewards=denominators(
            [TaskRewards(name=cell.row.label, scored=cell.rewards, errors=cell.errors) for cell in cells]
        ),
        at_k=tuple(each for each in at if each),
        hat_k=tuple(each for each in hat if each),
        stability={
            cell.row: task_stability(cell.row.label, [reward >= 1 for reward in cell.rewards])
            for cell in cells
        },
    )


def _passes(cell: Cell) -> TaskRewards:
    passes = tuple(float(reward >= 1) for reward in cell.rewards)
    return TaskRewards(name=cell.row.label, scored=passes, errors=cell.errors)


def wanted_k(most: int) -> list[int]:
    """Every k while there are few, then steps of a half more; the largest always."""
    found = list(range(1, min(most, ALL_K_UP_TO) + 1))
    while found and found[-1] < most:
        found.append(min(most, math.ceil(found[-1] * 1.5)))
    return found


def durations(trials: Iterable[TrialResult]) -> dict[str, float | int]:
    """How long agent and verifier of the attempts that count worked."""
    found = (trial.counted.took_s for trial in trials if trial.counted)
    return describe(took for took in found if took is not None)


def phases(trials: Iterable[TrialResult]) -> dict[str, list[float]]:
    """How long each phase of the attempts that count took, agent and verifier first."""
    found = _columns([trial.counted.phases_s for trial in trials if trial.counted])
    work = {name: found.pop(name) for name in WORK if name in found}
    return {**work, **found}


def work(trials: Iterable[TrialResult]) -> dict[str, list[float]]:
    """The phases that are a rollout's duration."""
    return {name: values for name, values in phases(trials).items() if name in WORK}


def around(trials: Iterable[TrialResult]) -> dict[str, list[float]]:
    """The phases that are the harness's: image, queue, start, setup, collect, stop."""
    return {name: values for name, values in phases(trials).items() if name not in WORK}


def ledger(trials: Iterable[TrialResult]) -> dict[str, list[float]]:
    """What the attempts that count used of the machine; only what was measured."""
    return _columns([trial.counted.ledger for trial in trials if trial.counted], LEDGER)


def unknown(trials: Iterable[TrialResult]) -> dict[str, str]:
    """What could not be measured in an attempt that counts, and why; the first reason for each quantity."""
    found: dict[str, str] = {}
    for trial in trials:
        reasons = trial.counted.ledger.get(UNKNOWN) if trial.counted else None
        if isinstance(reasons, Mapping):
            for name in LEDGER:
                if name in reasons:
                    found.setdefault(name, str(reasons[name]))
    return found


def usage(trials: Iterable[TrialResult]) -> dict[str, float]:
    """Totals of tokens, money and calls over every attempt: what did not count was paid for too.

    Where the cost of some calls is unknown there is no total cost, but how many these are.
    """
    used = [record.usage for trial in trials for record in trial.attempts]
    totals = {name: math.fsum(_finite([each.get(name) for each in used])) for name in (*USAGE, UNKNOWN_COST)}
    if totals[UNKNOWN_COST]:
        del totals["cost_usd"]
    return {name: total for name, total in totals.items() if total}


def enforced(trials: Iterable[TrialResult]) -> dict[str, str]:
    """How each limit was enforced, or why not; the first statement about each."""
    found: dict[str, str] = {}
    last = None
    for trial in trials:
        limits = trial.counted.ledger.get("enforced") if trial.counted else None
        if limits is not last and isinstance(limits, Mapping):
            for name, how in limits.items():
                found.setdefault(str(name), str(how))
            last = limits
    return found


def described(columns: Mapping[str, Iterable[float]]) -> dict[str, dict[str, float | int]]:
    """Every column with the numbers people quote."""
    return {name: describe(values) for name, values in columns.items()}


def means(columns: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The mean of every column."""
    return {name: math.fsum(values) / len(values) for name, values in columns.items()}


def middles(columns: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The median of every column."""
    return {name: percentile(sorted(map(float, values)), 50) for name, values in columns.items()}


def _columns(rows: Sequence[Mapping[str, Any]], names: Iterable[str] | None = None) -> dict[str, list[float]]:
    """Every column of numbers, or the named ones; without those that have none."""
    wanted = dict.fromkeys(chain.from_iterable(rows)) if names is None else names
    columns = {name: _finite([row.get(name) for row in rows]) for name in wanted}
    return {name: values for name, values in columns.items() if values}


def _finite(values: Iterable[object]) -> list[float]:
    """The numbers among them. Of a hundred thousand one is rarely not finite: all are asked at once."""
    found = [value for value in values if type(value) is float or type(value) is int]
    try:
        fine = all(map(math.isfinite, found))
    except OverflowError:
        fine = False
    return found if fine else [amount for each in found if (amount := number(each)) is not None]
