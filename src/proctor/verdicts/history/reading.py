"""What one run says on every line of its series: parameter points, or agents and their tasks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING

from proctor.analysis.clock import CPU, WALL, Waiting, measured_cpu, waiting_in
from proctor.analysis.estimate import TaskRewards, denominators
from proctor.analysis.median import median_interval
from proctor.model.arms import whole_names
from proctor.model.describe import percentile
from proctor.model.outcome import Outcome, reward_of
from proctor.model.plan import point_label
from proctor.runfolder.read import stated_interval
from proctor.verdicts.compare.means import clustered_mean
from proctor.verdicts.compare.results import samples_among
from proctor.verdicts.compare.stored import values_of
from proctor.verdicts.history.model import Value
from proctor.verdicts.rollouts.columns import layout_of

if TYPE_CHECKING:
    from proctor.model.run import RunInfo
    from proctor.store.rows import ResultRow
    from proctor.store.store import Store

MOST_POINTS = 2_000
"""Parameter points that are followed when none is named."""
MOST_WITH_COST = 20_000
"""Rollouts of a run whose costs are looked up; of larger runs only when the cost is what was asked for."""
SHARES = ("pass_rate", "reward")

Key = tuple[str, str]
"""A line: its name and its metric."""


@dataclass(slots=True)
class Reading:
    """One run, read."""

    values: dict[Key, Value] = field(default_factory=dict)
    main: list[Key] = field(default_factory=list)
    """Lines that the verdict is about."""
    broken: int = 0
    subjects: frozenset[str] = frozenset()
    """Tasks; empty for experiments, whose points have lines of their own."""
    metrics: set[str] = field(default_factory=set)
    """Names that could have been asked for; from a few records."""
    passed_over: int = 0
    """Points that are left out because there are too many."""
    waiting: list[tuple[Waiting, bool]] = field(default_factory=list)
    """Of each point, with whether its CPU time was measured: what decides on the clock."""

    def of(self, metric: str) -> Reading:
        """The same with the values of one metric alone."""
        values = {key: value for key, value in self.values.items() if key[1] == metric}
        return replace(self, values=values, main=[key for key in self.main if key in values])


def read(store: Store, info: RunInfo, metric: str, only: str) -> Reading:
    """What a run says of a metric, or of both clocks, on the lines whose name has the text `only`."""
    if info.kind == "task":
        return _rollouts(store, info, metric, only.lower())
    return _points(store, info, (metric,) if metric else (WALL, CPU), only.lower())


def _points(store: Store, info: RunInfo, metrics: Sequence[str], only: str) -> Reading:
    found = Reading()
    for row in islice(store.results(info.id), None if only else MOST_POINTS):
        found.broken += row.outcome is not None and row.outcome.broken
        name = point_label(row.subject, row.params)
        if only not in name.lower() or row.outcome is not Outcome.PASSED:
            continue
        if len(found.metrics) < 100:
            found.metrics |= set(row.measured.metrics)
        values = {metric: value for metric in metrics if (value := _median(row, metric)) is not None}
        found.values |= {(name, metric): value for metric, value in values.items()}
        found.waiting.append((waiting_in(row.measured.ledger.get("noise")), measured_cpu(values)))
    found.main = list(found.values)
    if not only and info.total > MOST_POINTS:
        found.passed_over = info.total - MOST_POINTS
    return found


def _median(row: ResultRow, metric: str) -> Value | None:
    """The median over the iterations, with the interval that was stated or that they give."""
    stats = row.measured.metrics.get(metric)
    values = sorted(samples_among(metric, row.measured.iterations, ()))
    if values:
        stated = stated_interval(stats) if isinstance(stats, Mapping) else None
        low, high = stated or median_interval(values) or (None, None)
        return Value(value=percentile(values, 50), low=low, high=high, n=len(values))
    single = values_of(row, [metric]).get(metric)
    return Value(value=single[0]) if single else None


class _Arm:
    """One arm in one run."""

    def __init__(self) -> None:
        self.tasks: dict[str, list[float]] = {}
        self.errors: dict[str, int] = {}
        self.samples: dict[str, dict[str, list[float]]] = {}
        """Metric → task → values."""


def _rollouts(store: Store, info: RunInfo, metric: str, only: str) -> Reading:
    found = Reading()
    share = metric if metric in SHARES else "pass_rate"
    sampled = ["duration_s", "cost_usd"] if metric in SHARES else [metric]
    bodies = metric not in {*SHARES, "duration_s"} or info.total <= MOST_WITH_COST
    layout = layout_of(store, info)
    names = whole_names(arm.identity for arm in layout.arms)
    arms = {name or "no agent": _Arm() for name in names.values()}
    for index, row in enumerate(store.results(info.id, bodies=bodies)):
        outcome = row.outcome
        if bodies and outcome and len(found.metrics) < 100:
            found.metrics |= _names(row)
        place, identity = layout.at(index)
        task, arm = place.label, arms[names[identity.identity] or "no agent"]
        rewards = arm.tasks.setdefault(task, [])
        if outcome is None:
            continue
        found.broken += outcome.broken
        reward = reward_of(outcome, row.reward)
        if reward is not None:
            rewards.append(float(reward >= 1) if share == "pass_rate" else reward)
            for name, each in values_of(row, sampled).items():
                arm.samples.setdefault(name, {}).setdefault(task, []).extend(each)
        elif outcome.error:
            arm.errors[task] = arm.errors.get(task, 0) + 1
    found.metrics |= {*SHARES, "duration_s"}
    found.subjects = frozenset(task for arm in arms.values() for task in arm.tasks)
    for who, arm in arms.items():
        _add_arm(found, who, arm, metric, only, several=len(arms) > 1)
    return found


def _names(row: ResultRow) -> set[str]:
    return {
        str(name)
        for place in (row.measured.metrics, row.measured.usage, row.measured.ledger)
        for name, value in place.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def _add_arm(found: Reading, who: str, arm: _Arm, metric: str, only: str, *, several: bool) -> None:
    """The agent's own lines, then one per task."""
    if metric in SHARES:
        value = _score(arm.tasks, arm.errors)
        per_task = {task: _score({task: rewards}, {}) for task, rewards in arm.tasks.items() if rewards}
    else:
        value = _mean(arm.samples.get(metric, {}))
        per_task = {task: _mean({task: each}) for task, each in arm.samples.get(metric, {}).items()}
    if only in who.lower():
        if value:
            found.values[who, metric] = value
            found.main.append((who, metric))
        for name in ("duration_s", "cost_usd") if metric in SHARES else ():
            if (mean := _mean(arm.samples.get(name, {}))) and mean.value > 0:
                found.values[who, name] = mean
    for task, each in per_task.items():
        name = f"{task} × {who}" if several else task
        if each and only in name.lower():
            found.values[name, metric] = each


def _score(tasks: Mapping[str, Sequence[float]], errors: Mapping[str, int]) -> Value | None:
    """The share over tasks, with the interval of the widest claim that this many tasks can judge."""
    rewards = [
        TaskRewards(name=task, scored=tuple(each), errors=errors.get(task, 0)) for task, each in tasks.items()
    ]
    score = denominators(rewards).excluded
    if score is None:
        return None
    interval = score.interval()
    low, high = (end if math.isfinite(end) else None for end in (interval.low, interval.high))
    return Value(value=score.value, low=low, high=high, n=score.rollouts)


def _mean(tasks: Mapping[str, Sequence[float]]) -> Value | None:
    found = clustered_mean(tasks)
    return Value(value=found.value, low=found.low, high=found.high, n=found.n) if found else None


def together(readings: Iterable[Reading]) -> list[Value | None]:
    """The geometric mean over the points that every run has; nothing when they share fewer than two."""
    known = list(readings)
    shared = set.intersection(*(set(each.main) for each in known if each.main)) if known else set()
    shared = {key for key in shared if all(each.values[key].value > 0 for each in known if each.main)}
    if len(shared) < 2:
        return []
    return [
        Value(
            value=math.exp(math.fsum(math.log(each.values[key].value) for key in shared) / len(shared)),
            n=len(shared),
        )
        if each.main
        else None
        for each in known
    ]
