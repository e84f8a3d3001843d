"""A run with its results in memory, from a store or from a run folder; what every report is made from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from sys import intern
from typing import TYPE_CHECKING, Any, TypeVar

from proctor.errors import NotFoundError, UsageError
from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial
from proctor.model.record import SCHEMA_VERSION, AttemptRecord
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.report.check import run_from, trial_from
from proctor.report.files import read_document
from proctor.report.interval import median_interval
from proctor.report.quantity import number
from proctor.report.series import SeriesRow, read_series

if TYPE_CHECKING:
    from proctor.store.store import Store

T = TypeVar("T")

ITERATIONS_KEPT = 250_000
"""Iteration rows held in memory for the charts; the rest stay in the store or the folder."""
LEAN_FROM = 5_000
"""Runs of more trials than this share their strings: each JSON row brings its own copy of every name."""


@dataclass(frozen=True, slots=True)
class TrialResult:
    """A planned trial, every attempt at it, and the one that counts."""

    planned: PlannedTrial
    attempts: tuple[AttemptRecord, ...] = ()
    counted: AttemptRecord | None = None
    interval: tuple[float, float] | None = None
    """The 95 % interval of the median of `metric_of` the run; kept when the iterations are not."""

    @property
    def outcome(self) -> Outcome | None:
        """How the trial ended, or nothing when it has not."""
        return self.counted.outcome if self.counted else None

    def stat(self, metric: str, name: str) -> float | None:
        """One aggregate of a metric, when the attempt that counts has it."""
        stats = self.counted.metrics.get(metric) if self.counted else None
        if isinstance(stats, dict):
            return number(stats.get(name))
        return number(stats) if name in {"p50", "mean"} else None

    def values(self, metric: str) -> list[float]:
        """The metric's value in each iteration that is held in memory."""
        rows = self.counted.iterations if self.counted else ()
        return [value for row in rows if (value := number(row.get(metric))) is not None]


@dataclass(frozen=True, slots=True)
class RunData:
    """A run and the result of each of its trials, in plan order."""

    info: RunInfo
    trials: tuple[TrialResult, ...]
    warnings: tuple[str, ...] = ()
    """What the plan said before the run started."""
    trimmed: bool = False
    """Whether iteration rows were left behind to save memory; `rows` still has them."""
    source: Callable[[], Iterator[SeriesRow]] | None = field(default=None, compare=False, repr=False)
    memo: dict[str, Any] = field(default_factory=dict, init=False, compare=False, repr=False)
    """What `once` has worked out from this data."""

    @property
    def finished(self) -> list[TrialResult]:
        """The trials that have a result."""
        return [trial for trial in self.trials if trial.counted]

    def rows(self) -> Iterator[SeriesRow]:
        """Every attempt whole, streamed from where the data came from."""
        if self.trimmed and self.source:
            yield from self.source()
            return
        for trial in self.trials:
            for record in trial.attempts:
                yield SeriesRow(trial.planned, record, record is trial.counted)

    @classmethod
    def from_store(cls, store: Store, run_id: str) -> RunData:
        """A run as the store has it now."""
        info = store.run(run_id)

        def source() -> Iterator[SeriesRow]:
            for row in store.attempts(info.id):
                yield SeriesRow(row.trial, row.record, row.counts)

        return _gather(info, store.planned(info.id), source, warnings=store.warnings(info.id))

    @classmethod
    def from_folder(cls, path: Path) -> RunData:
        """A run as its folder has it; without the store, on any machine."""
        info, planned, warnings = read_manifest(path)
        by_key = {trial.key: trial for trial in planned}

        def source() -> Iterator[SeriesRow]:
            return read_series(path, run_id=info.id, trials=by_key)

        return _gather(info, planned, source, warnings=warnings)


def once(function: Callable[[RunData], T]) -> Callable[[RunData], T]:
    """Work something out of a run once, however many reports ask for it."""

    @wraps(function)
    def asked(data: RunData) -> T:
        name = function.__name__
        if name not in data.memo:
            data.memo[name] = function(data)
        found: T = data.memo[name]
        return found

    return asked


def read_manifest(path: Path) -> tuple[RunInfo, list[PlannedTrial], tuple[str, ...]]:
    """What was to be done, and from `summary.json`, when there is one, how far it got."""
    if not (path / "manifest.json").is_file():
        raise NotFoundError(f"{path}: not a run folder: it has no manifest.json")
    place = str(path / "manifest.json")
    manifest = read_document(path, "manifest.json")
    version = manifest.get("schema_version")
    if not isinstance(version, int) or not 1 <= version <= SCHEMA_VERSION:
        raise UsageError(
            f"{place}: schema version {version!r:.40}; this Proctor reads up to {SCHEMA_VERSION}"
        )
    plan = manifest.get("plan")
    if not isinstance(plan, dict) or not isinstance(plan.get("trials"), list):
        raise UsageError(f"{place}: 'plan.trials' is missing")
    planned = [trial_from(each, f"{place}: plan.trials[{at}]") for at, each in enumerate(plan["trials"])]
    warnings = plan.get("warnings", [])
    if not isinstance(warnings, list) or not all(isinstance(each, str) for each in warnings):
        raise UsageError(f"{place}: 'plan.warnings' must hold text")
    run: dict[str, Any] = {**_part(manifest, "run", place)}
    for name in ("spec", "resolved", "environment", "vcs", "versions"):
        run[name] = _part(manifest, name, place)
    # A run that never came to write its summary was cut off, whatever it believed when it began.
    run["status"] = RunStatus.INTERRUPTED.value
    if (path / "summary.json").exists():
        run |= _part(read_document(path, "summary.json"), "run", str(path / "summary.json"))
    run["folder"] = str(path.resolve())
    return run_from(run, place), planned, tuple(warnings)


def _part(document: dict[str, Any], name: str, place: str) -> dict[str, Any]:
    value = document.get(name, {})
    if not isinstance(value, dict):
        raise UsageError(f"{place}: '{name}' must be an object")
    return value


def metric_of(kind: str) -> str:
    """What a run is first of all about."""
    return "duration_s" if kind == "experiment" else "reward"


def stated_interval(stats: Mapping[str, Any]) -> tuple[float, float] | None:
    """The interval of the median that whoever measured has already worked out."""
    low, high = number(stats.get("p50_low")), number(stats.get("p50_high"))
    return (low, high) if low is not None and high is not None else None


def _gather(
    info: RunInfo,
    planned: Iterable[PlannedTrial],
    source: Callable[[], Iterator[SeriesRow]],
    *,
    warnings: tuple[str, ...] = (),
) -> RunData:
    """Attempts to their trials. The same attempt twice, or two that count: the later row is right."""
    metric = metric_of(info.kind)
    budget = ITERATIONS_KEPT
    lean = info.total > LEAN_FROM
    attempts: dict[str, dict[int, AttemptRecord]] = {}
    counted: dict[str, int] = {}
    intervals: dict[str, tuple[float, float] | None] = {}
    for row in source():
        record = row.record
        if row.counts:
            counted[record.key] = record.number
            intervals[record.key] = _interval(record, metric)
        budget -= len(record.iterations)
        if lean or budget < 0:
            record = _lean(record, row.trial, iterations=budget >= 0)
        attempts.setdefault(row.trial.key, {})[record.number] = record
    trials = []
    for trial in planned:
        tries = attempts.get(trial.key, {})
        trials.append(
            TrialResult(
                trial,
                tuple(tries[number] for number in sorted(tries)),
                tries.get(counted.get(trial.key, -1)),
                intervals.get(trial.key),
            )
        )
    return RunData(info, tuple(trials), warnings=warnings, trimmed=budget < 0, source=source)


def _interval(record: AttemptRecord, metric: str) -> tuple[float, float] | None:
    stats = record.metrics.get(metric)
    if isinstance(stats, dict) and (known := stated_interval(stats)):
        return known
    values = (number(row.get(metric)) for row in record.iterations)
    return median_interval(sorted(value for value in values if value is not None))


def _lean(record: AttemptRecord, trial: PlannedTrial, *, iterations: bool) -> AttemptRecord:
    """The same record in a third of the memory."""
    return replace(
        record,
        key=trial.key,
        worker=intern(record.worker),
        phases_s=_shared(record.phases_s),
        metrics={
            intern(name): _shared(stats) if isinstance(stats, dict) else stats
            for name, stats in record.metrics.items()
        },
        iterations=tuple(map(_shared, record.iterations)) if iterations else (),
    )


def _shared(row: Mapping[str, Any]) -> dict[str, Any]:
    return {intern(name): value for name, value in row.items()}
