"""One side of a comparison: points with samples, failures, and facts about where they were measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from proctor.analysis.clock import CPU, WALL, Waiting, waiting_in
from proctor.analysis.estimate import TaskRewards
from proctor.model.direction import Direction, declared_directions
from proctor.model.outcome import Blame, Outcome, reward_of
from proctor.model.place import attempt_folder, trial_folder
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord
from proctor.model.run import RunInfo
from proctor.quantity import number
from proctor.runfolder.read import RunData, metric_of
from proctor.verdicts.compare.facts import run_facts
from proctor.verdicts.compare.grounds import Ground, grounds
from proctor.verdicts.rollouts.columns import Layout, layout_of_plan
from proctor.verdicts.rollouts.table import Arm, Row

NOT_RUN = "not run"


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
    own_wait: float | None = None
    """Share of the time in which it waited for something else, of itself; None where it is not known."""
    key: str = ""
    """Identity of code and parameters; the same key means the same code. Empty when unknown."""
    content: str = ""
    """Task runs: the digest of the task. Empty when unknown."""
    arm: str = ""
    """Task runs: the name of the arm."""
    task: str = ""
    """Task runs: the task, without the arm."""
    folder: str = ""
    """Of its trial, or of the first of its rollouts, inside the run's folder; empty when unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmRewards:
    """One arm: the rewards of each of its tasks, with the rollouts that ended in somebody else's error."""

    name: str
    tasks: tuple[TaskRewards, ...]
    label: str = ""
    """As reports show it."""

    @property
    def passes(self) -> tuple[TaskRewards, ...]:
        """The same with 1 for a pass and 0 for everything else."""
        return tuple(
            replace(task, scored=tuple([float(reward >= 1) for reward in task.scored])) for task in self.tasks
        )

    def rewards(self, metric: str) -> tuple[TaskRewards, ...]:
        """What a score is made from, or a pass rate."""
        return self.passes if metric == "pass_rate" else self.tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultSet:
    """One side of a comparison."""

    label: str
    source: str
    """run, folder, result, pyperf, pytest-benchmark, hyperfine or asv"""
    kind: Literal["experiment", "task"] = "experiment"
    points: tuple[ResultPoint, ...] = ()
    arms: tuple[ArmRewards, ...] = ()
    """Task runs: a score belongs to one of them."""
    facts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Group → name → value. What must match before two results may be compared."""
    run_id: str = ""
    name: str = ""
    metric: str = "duration_s"
    """The main metric."""
    metrics: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    grounds: Mapping[str, Ground] = field(default_factory=dict)
    """Task runs: what the sandboxes of each task were made of, as far as the records tell."""
    folder: str = ""
    """The run's folder; empty when there is none."""
    better: Mapping[str, Direction] = field(default_factory=dict)
    """Metric → what its author declared to be better."""

    @property
    def tasks(self) -> tuple[TaskRewards, ...]:
        """Every task of every arm, under the name of its point."""
        several = len(self.arms) > 1
        return tuple(
            replace(task, name=cell_name(task.name, arm.name)) if several else task
            for arm in self.arms
            for task in arm.tasks
        )


def cell_name(task: str, arm: str) -> str:
    """A task and who did it, where several did."""
    return f"{task} × {arm}"


def from_run(data: RunData, metrics: Sequence[str], *, source: str = "run") -> ResultSet:
    """A stored run, with the values of the requested metrics. Streams the attempts: runs may be large."""
    info = data.info
    metrics = tuple(metrics) or default_metrics(info.kind)
    counted = {row.record.key: row.record for row in data.rows() if row.counts}
    pairs = [(trial.planned, counted.get(trial.planned.key)) for trial in data.trials]
    task = info.kind == "task"
    points, arms = _tasks(info, pairs, metrics) if task else (_points(pairs, metrics), ())
    return result_set(
        info,
        points=points,
        arms=arms,
        metrics=_known_metrics(record for _, record in pairs),
        trials=len(pairs),
        missing=sum(record is None for _, record in pairs),
        source=source,
        ran_on=grounds((trial.subject, record) for trial, record in pairs if record) if task else {},
    )


def result_set(
    info: RunInfo,
    *,
    points: tuple[ResultPoint, ...],
    arms: tuple[ArmRewards, ...],
    metrics: tuple[str, ...],
    trials: int,
    missing: int,
    source: str = "run",
    ran_on: Mapping[str, Ground] | None = None,
) -> ResultSet:
    """What a run came to, with what is known of the run itself."""
    return ResultSet(
        label=f"{info.name} {info.id}",
        source=source,
        kind="task" if info.kind == "task" else "experiment",
        points=points,
        arms=arms,
        facts=run_facts(info),
        better=declared_directions(info.resolved),
        run_id=info.id,
        name=info.name,
        metric=metric_of(info.kind),
        metrics=metrics,
        notes=(f"{missing} of {trials} trials have no result",) if missing else (),
        grounds=ran_on or {},
        folder=info.folder,
    )


def default_metrics(kind: str) -> tuple[str, ...]:
    """What is read where nobody named a metric: of experiments both clocks, one of which will lead."""
    return (WALL, CPU) if kind == "experiment" else (metric_of(kind),)


def samples_of(record: AttemptRecord, metric: str) -> tuple[float, ...]:
    """A metric's values: one per iteration where there are iterations, else what the attempt reported."""
    values = samples_among(metric, record.iterations, (record.metrics, record.usage, record.ledger))
    if not values and metric == "duration_s" and record.took_s:
        return (record.took_s,)
    return values


def samples_among(
    metric: str, iterations: Iterable[Mapping[str, Any]], places: Iterable[Mapping[str, Any]]
) -> tuple[float, ...]:
    """The values in the iterations, else the first that one of these places has."""
    values = tuple([value for row in iterations if (value := number(row.get(metric))) is not None])
    if values:
        return values
    for place in places:
        found = place.get(metric)
        if type(found) is not float and isinstance(found, Mapping):
            found = found.get("p50", found.get("mean"))
        if (value := number(found)) is not None:
            return (value,)
    return ()


def _points(
    pairs: Sequence[tuple[PlannedTrial, AttemptRecord | None]], metrics: Sequence[str]
) -> tuple[ResultPoint, ...]:
    points = []
    for trial, record in pairs:
        samples = {}
        waiting = waiting_in(record.ledger.get("noise")) if record else Waiting()
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
                waited=waiting.for_cpu,
                own_wait=waiting.own,
                key=trial.key,
                folder=trial_folder(trial),
            )
        )
    return tuple(points)


def _why_failed(record: AttemptRecord | None) -> str:
    if record is None:
        return NOT_RUN
    if record.outcome is Outcome.PASSED:
        return ""
    message = f": {record.failure.type} in {record.failure.phase}" if record.failure else ""
    return f"{record.outcome.value}{message}"


class _Task:
    """What the rollouts of one task by one arm came to."""

    def __init__(self) -> None:
        self.scored: list[float] = []
        self.errors = 0
        self.samples: dict[str, list[float]] = {}
        self.folder = ""
        self.contents: set[str] = set()


class TaskResults:
    """Gathers rollouts one by one: rewards and values of each task by each arm."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._tasks: dict[tuple[Row, Arm], _Task] = {}

    def add(
        self,
        index: int,
        outcome: Outcome | None,
        reward: float | None,
        samples: Mapping[str, Sequence[float]],
        folder: str,
        content: str = "",
    ) -> None:
        """One rollout, by its place in the plan; without an outcome it has not ended.

        `content`: the digest of its task.
        """
        task = self._tasks.setdefault(self._layout.at(index), _Task())
        task.contents.add(content)
        worth = reward_of(outcome, reward)
        if worth is None:
            task.errors += outcome is not None and outcome.error
            return
        task.folder = task.folder or folder
        task.scored.append(worth)
        for metric, values in samples.items():
            task.samples.setdefault(metric, []).extend(values)

    def gathered(self, metrics: Sequence[str]) -> tuple[tuple[ResultPoint, ...], tuple[ArmRewards, ...]]:
        """Values and rewards; the arm enters the name of a point only where there are several."""
        several = len(self._layout.arms) > 1
        points = []
        rewards: dict[Arm, list[TaskRewards]] = {arm: [] for arm in self._layout.arms}
        for (row, arm), task in self._tasks.items():
            name = cell_name(row.label, arm.name) if several else row.label
            samples = {metric: tuple(task.samples.get(metric, ())) for metric in metrics}
            content = "" if "" in task.contents else " ".join(sorted(task.contents))
            points.append(
                ResultPoint(
                    name=name,
                    subject=name,
                    samples=samples,
                    content=content,
                    arm=arm.name,
                    task=row.label,
                    folder=task.folder,
                )
            )
            rewards[arm].append(TaskRewards(name=row.label, scored=tuple(task.scored), errors=task.errors))
        arms = tuple(
            ArmRewards(name=arm.name, label=arm.label, tasks=tuple(tasks)) for arm, tasks in rewards.items()
        )
        return tuple(points), arms


def _tasks(
    info: RunInfo, pairs: Sequence[tuple[PlannedTrial, AttemptRecord | None]], metrics: Sequence[str]
) -> tuple[tuple[ResultPoint, ...], tuple[ArmRewards, ...]]:
    wanted = [metric for metric in metrics if metric != "reward"]
    found = TaskResults(layout_of_plan(info, (trial for trial, _ in pairs)))
    for index, (trial, record) in enumerate(pairs):
        if record is None:
            found.add(index, None, None, {}, "", trial.subject_digest)
            continue
        samples = {metric: samples_of(record, metric) for metric in wanted} if record.outcome.scored else {}
        folder = attempt_folder(trial, record.number)
        found.add(index, record.outcome, record.reward, samples, folder, trial.subject_digest)
    return found.gathered(wanted)


def _known_metrics(records: Iterable[AttemptRecord | None]) -> tuple[str, ...]:
    """Names for a hint; a few records tell."""
    names: set[str] = set()
    for seen, record in enumerate(each for each in records if each is not None):
        names |= set(record.metrics) | {name for row in record.iterations[:1] for name in row}
        if seen >= 20:
            break
    return tuple(sorted(names))
