"""How long a plan will take and what it will cost, from what earlier runs took; and how much is not known."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from proctor.model.plan import Plan, PlannedTrial

_NOTHING: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The expected time and cost of a plan. Trials without history are counted, never guessed."""

    trials: int
    timed: int
    """Trials of which history has a time."""
    work_s: float
    """Sum over the timed trials."""
    wall_s: float
    """How long those take with the requested parallelism."""
    cost_usd: float | None
    """Sum over the trials of which history has a cost; None when it has none."""
    untimed: tuple[str, ...]
    """Subjects without history."""

    @property
    def complete(self) -> bool:
        """Whether every trial was timed before; otherwise the figures are a lower bound."""
        return self.timed == self.trials

    def to_mapping(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "trials": self.trials,
            "timed": self.timed,
            "work_s": self.work_s,
            "wall_s": self.wall_s,
            "cost_usd": self.cost_usd,
            "untimed": list(self.untimed),
            "complete": self.complete,
        }


def estimate(
    plan: Plan,
    history: Mapping[str, float],
    *,
    parallel: int = 1,
    costs: Mapping[str, float] = _NOTHING,
) -> Estimate:
    """Estimate from history, which maps a trial's label or its subject to the usual seconds or dollars."""
    times = [_known(trial, history) for trial in plan.trials]
    known = [time for time in times if time is not None]
    spent = [cost for trial in plan.trials if (cost := _known(trial, costs)) is not None]
    missing = (trial.subject for trial, time in zip(plan.trials, times, strict=True) if time is None)
    return Estimate(
        trials=len(plan),
        timed=len(known),
        work_s=sum(known),
        wall_s=_wall(known, parallel),
        cost_usd=sum(spent) if spent else None,
        untimed=tuple(dict.fromkeys(missing)),
    )


def _known(trial: PlannedTrial, history: Mapping[str, float]) -> float | None:
    for name in (trial.label, trial.label.rpartition(" #")[0], trial.subject):
        if name in history:
            return history[name]
    return None


def _wall(times: list[float], parallel: int) -> float:
    """When the last worker ends if each takes the next trial as soon as it is free, in plan order."""
    busy = [0.0] * max(1, min(parallel, len(times)))
    for time in times:
        heapq.heapreplace(busy, busy[0] + time)
    return max(busy)
