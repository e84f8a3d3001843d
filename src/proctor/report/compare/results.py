"""One side of a comparison: points with samples, failures, and facts about where they were measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from proctor.analysis.estimate import TaskRewards
from proctor.model.outcome import Blame, Outcome
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord
from proctor.report.compare.facts import run_facts
from proctor.report.data import RunData, metric_of
from proctor.report.quantity import number


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultPoint:
    """One parameter point or benchmark: its values of each metric, or why it has none."""

    name: str
    subject: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    samples: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    failed: str = ""
    """Why it has no result to compare; empty when it has."""
    blame: Blame | None = None
    waited: float = 0.0
    """Share of the time in which the code was ready and waited for a CPU, as far as it was recorded."""
    key: str = ""
    """Identity of code and parameters; the same key means the same code. Empty when unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultSet:
    """One side of a comparison."""

    label: str
    source: str
    """run, folder, result, pyperf, pytest-benchmark, hyperfine or asv"""
    kind: Literal["experiment", "task"] = "experiment"
    points: tuple[ResultPoint, ...] = ()
    tasks: tuple[TaskRewards, ...] = ()
    """Task runs: rewards of each task, with the rollouts that ended in someone else's error counted apart."""
    facts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Group → name → value. What must match before two results may be compared."""
    run_id: str = ""
    name: str = ""
    metric: str = "duration_s"
    """What it is first of all about."""
    metrics: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def from_run(data: RunData, metrics: Sequence[str], *, source: str = "run") -> ResultSet:
    """A stored run, with the values of the metrics asked for. Streams the attempts: runs may be large."""
    info = data.info
    metrics = tuple(metrics) or (metric_of(info.kind),)
    counted = {row.record.key: row.record for row in data.rows() if row.counts}
    pairs = [(trial.planned, counted.get(trial.planned.key)) for trial in data.trials]
    missing = sum(record is None for _, record in pairs)
    notes = [f"{missing} of {len(pairs)} trials have no result"] if missing else []
    task = info.kind == "task"
    return ResultSet(
        label=f"{info.name} {info.id}",
        source=source,
        kind="task" if task else "experiment",
        points=_task_points(pairs, metrics) if task else _points(pairs, metrics),
        tasks=_task_rewards(pairs) if task else (),
        facts=run_facts(info),
        run_id=info.id,
        name=info.name,
        metric=metric_of(info.kind),
        metrics=_known_metrics(record for _, record in pairs),
        notes=tuple(notes),
    )


def samples_of(record: AttemptRecord, metric: str) -> tuple[float, ...]:
    """A metric's values: one per iteration where there are iterations, else what the attempt reported."""
    values = tuple(value for row in record.iterations if (value := number(row.get(metric))) is not None)
    if values:
        return values
    for place in (record.metrics, record.usage, record.ledger):
        found = place.get(metric)
        if isinstance(found, Mapping):
            found = found.get("p50", found.get("mean"))
        if (value := number(found)) is not None:
            return (value,)
    if metric == "duration_s" and record.ended_at > record.started_at:
        return (record.ended_at - record.started_at,)
    return ()


def _points(
    pairs: Sequence[tuple[PlannedTrial, AttemptRecord | None]], metrics: Sequence[str]
) -> tuple[ResultPoint, ...]:
    points = []
    for trial, record in pairs:
        samples = {}
        if record is not None and record.outcome is Outcome.PASSED:
            samples = {metric: values for metric in metrics if (values := samples_of(record, metric))}
        points.append(
            ResultPoint(
                name=trial.label,
                subject=trial.subject,
                params=trial.params,
                samples=samples,
                failed=_why_failed(record),
                blame=record.outcome.blame if record else None,
                waited=_waited(record) if record else 0.0,
                key=trial.key,
            )
        )
    return tuple(points)


def _waited(record: AttemptRecord) -> float:
    """Time off the CPU counts as waiting to the extent that something was waiting for a CPU meanwhile."""
    noise = record.ledger.get("noise")
    if not isinstance(noise, Mapping):
        return 0.0
    busy, pressure = number(noise.get("cpu_over_wall")), number(noise.get("cpu_pressure"))
    if busy is None or pressure is None:
        return 0.0
    return min(max((1 - busy) * pressure, 0.0), 1.0)


def _why_failed(record: AttemptRecord | None) -> str:
    if record is None:
        return "not run"
    if record.outcome is Outcome.PASSED:
        return ""
    message = f": {record.failure.type} in {record.failure.phase}" if record.failure else ""
    return f"{record.outcome.value}{message}"


def _task_name(trial: PlannedTrial, single: bool) -> str:
    if single:
        return trial.subject
    who = "/".join(part for part in (trial.agent, trial.model) if part)
    return f"{trial.subject} × {who}"


def _by_task(
    pairs: Sequence[tuple[PlannedTrial, AttemptRecord | None]],
) -> dict[str, list[AttemptRecord]]:
    """Attempts by task; agent and model enter the name only when a run has several."""
    single = len({(trial.agent, trial.model) for trial, _ in pairs}) == 1
    found: dict[str, list[AttemptRecord]] = {}
    for trial, record in pairs:
        records = found.setdefault(_task_name(trial, single), [])
        if record is not None:
            records.append(record)
    return found


def _task_rewards(pairs: Sequence[tuple[PlannedTrial, AttemptRecord | None]]) -> tuple[TaskRewards, ...]:
    neither = {Blame.PERSON, Blame.AUTHOR}
    return tuple(
        TaskRewards(
            name=name,
            scored=tuple(record.reward or 0.0 for record in records if record.outcome.scored),
            errors=sum(
                not record.outcome.scored and record.outcome.blame not in neither for record in records
            ),
        )
        for name, records in _by_task(pairs).items()
    )


def _task_points(
    pairs: Sequence[tuple[PlannedTrial, AttemptRecord | None]], metrics: Sequence[str]
) -> tuple[ResultPoint, ...]:
    points = []
    for name, records in _by_task(pairs).items():
        scored = [record for record in records if record.outcome.scored]
        samples = {
            metric: tuple(value for record in scored for value in samples_of(record, metric))
            for metric in metrics
            if metric != "reward"
        }
        points.append(ResultPoint(name=name, subject=name, samples=samples))
    return tuple(points)


def _known_metrics(records: Iterable[AttemptRecord | None]) -> tuple[str, ...]:
    """Names for a hint; a few records tell."""
    names: set[str] = set()
    for seen, record in enumerate(each for each in records if each is not None):
        names |= set(record.metrics) | {name for row in record.iterations[:1] for name in row}
        if seen >= 20:
            break
    return tuple(sorted(names))
