"""One side of a comparison straight from the store: of runs of any size only what is compared is decoded.

The same `ResultSet` as `results.from_run` makes of a run in memory, at a fraction of its time and memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from proctor.analysis.estimate import TaskRewards
from proctor.model.arms import Arm, named, options_text
from proctor.model.outcome import Outcome
from proctor.model.plan import point_label
from proctor.processes import without_collections
from proctor.runfolder.read import metric_of
from proctor.verdicts.compare.grounds import Ground, grounds
from proctor.verdicts.compare.results import (
    NOT_RUN,
    ResultPoint,
    ResultSet,
    is_lost,
    result_set,
    samples_among,
    task_name,
    waited_in,
)

if TYPE_CHECKING:
    from proctor.model.run import RunInfo
    from proctor.store.rows import ResultRow
    from proctor.store.store import Store

LOOKED_AT = 21
"""Records that tell which metrics there are; for a hint."""
MOST_GROUNDS = 1000
"""Tasks whose images and limits are looked up."""
Watch = Callable[["ResultRow"], None]


def from_store(store: Store, ref: str, metrics: Sequence[str], *, watch: Watch | None = None) -> ResultSet:
    """A stored run, with the values of the requested metrics. `watch` sees every row as it passes."""
    info = store.run(ref)
    wanted = tuple(metrics) or (metric_of(info.kind),)
    with without_collections():
        read = _tasks if info.kind == "task" else _points
        return read(store, info, wanted, watch)


def values_of(row: ResultRow, metrics: Iterable[str]) -> dict[str, tuple[float, ...]]:
    """Metric → values; without those that the row lacks."""
    found, body = {}, row.measured
    for metric in metrics:
        values = samples_among(metric, body.iterations, (body.metrics, body.usage, body.ledger))
        if not values and metric == "duration_s" and (took_s := _took_s(row)):
            values = (took_s,)
        if values:
            found[metric] = values
    return found


def _took_s(row: ResultRow) -> float:
    return row.ended_at - row.started_at if row.work_s is None else row.work_s


def _known_metrics(store: Store, run_id: str) -> tuple[str, ...]:
    """Names for a hint; a few records tell."""
    names: set[str] = set()
    for row in islice((row for row in store.results(run_id) if row.outcome), LOOKED_AT):
        names |= set(row.measured.metrics)
        names |= {name for each in row.measured.iterations[:1] for name in each}
    return tuple(sorted(names))


def _points(store: Store, info: RunInfo, wanted: Sequence[str], watch: Watch | None) -> ResultSet:
    points = []
    for row in store.results(info.id):
        if watch:
            watch(row)
        passed = row.outcome is Outcome.PASSED
        points.append(
            ResultPoint(
                name=point_label(row.subject, row.params),
                subject=row.subject,
                params=row.params,
                samples=values_of(row, wanted) if passed else {},
                failed="" if passed else _why_failed(row),
                blame=row.outcome.blame if row.outcome else None,
                waited=waited_in(row.measured.ledger.get("noise")),
                key=row.key,
            )
        )
    return result_set(
        info,
        points=tuple(points),
        tasks=(),
        metrics=_known_metrics(store, info.id),
        trials=len(points),
        missing=sum(point.failed == NOT_RUN for point in points),
    )


def _why_failed(row: ResultRow) -> str:
    if row.outcome is None:
        return NOT_RUN
    failure = row.measured.failure
    return row.outcome.value + (f": {failure.type} in {failure.phase}" if failure else "")


class _Task:
    """What the rollouts of one task by one agent, with its model and options, came to."""

    def __init__(self) -> None:
        self.scored: list[float] = []
        self.errors = 0
        self.samples: dict[str, list[float]] = {}


def _tasks(store: Store, info: RunInfo, wanted: Sequence[str], watch: Watch | None) -> ResultSet:
    metrics = [metric for metric in wanted if metric != "reward"]
    tasks: dict[tuple[str, Arm], _Task] = {}
    first: dict[str, str] = {}
    trials = missing = 0
    for row in store.results(info.id, bodies=bool(metrics) or watch is not None):
        if watch:
            watch(row)
        trials += 1
        arm = Arm(row.agent, row.model, options_text(row.options))
        task = tasks.setdefault((row.subject, arm), _Task())
        if row.outcome is None:
            missing += 1
        elif row.outcome.scored:
            first.setdefault(row.subject, row.key)
            task.scored.append(row.reward or 0.0)
            for metric, found in values_of(row, metrics).items():
                task.samples.setdefault(metric, []).extend(found)
        else:
            task.errors += is_lost(row.outcome)
    arms = named(arm for _, arm in tasks)
    names = {key: task_name(key[0], arms[key[1]], single=len(arms) == 1) for key in tasks}
    points = tuple(
        ResultPoint(
            name=names[key],
            subject=names[key],
            samples={metric: tuple(task.samples.get(metric, ())) for metric in metrics},
            arm=arms[key[1]],
        )
        for key, task in tasks.items()
    )
    rewards = tuple(
        TaskRewards(name=names[key], scored=tuple(task.scored), errors=task.errors)
        for key, task in tasks.items()
    )
    return result_set(
        info,
        points=points,
        tasks=rewards,
        metrics=_known_metrics(store, info.id),
        trials=trials,
        missing=missing,
        ran_on=_grounds(store, info.id, first),
    )


def _grounds(store: Store, run_id: str, first: Mapping[str, str]) -> dict[str, Ground]:
    """By the first trial of each task that was judged: a run may be large, its tasks are few."""
    found = islice(first.items(), MOST_GROUNDS)
    return grounds(
        (task, row.record) for task, key in found for row in store.attempts_of(run_id, key) if row.counts
    )
