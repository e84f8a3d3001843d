"""A run with its results in memory, from a store or from a run folder; what every report is made from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from proctor.analysis.median_interval import SMALLEST, median_interval
from proctor.errors import NotFoundError, UsageError
from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial
from proctor.model.quick import quick
from proctor.model.record import SCHEMA_VERSION, AttemptRecord
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.processes import without_collections
from proctor.quantity import number
from proctor.runfolder.check import run_from, trial_from
from proctor.runfolder.files import read_document
from proctor.runfolder.series import SeriesRow, read_series
from proctor.store.late import Iterations

if TYPE_CHECKING:
    from proctor.store.store import Store

T = TypeVar("T")

ITERATIONS_KEPT = 250_000
"""Iteration rows held in memory for the charts; the rest stay in the store or the folder."""
LEAN_FROM = 5_000
"""Runs of more trials than this share what is alike in their records."""
_MOST_ALIKE = 10_000


@quick
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
        """How the trial ended; None when it has not."""
        return self.counted.outcome if self.counted else None

    def stat(self, metric: str, name: str) -> float | None:
        """One aggregate of a metric, when the attempt that counts has it."""
        stats = self.counted.metrics.get(metric) if self.counted else None
        if isinstance(stats, dict):
            return number(stats.get(name))
        return number(stats) if name in {"p50", "mean"} else None

    def count(self, metric: str) -> int:
        """How many iterations that are held in memory have the metric."""
        return len(self.values(metric))

    def values(self, metric: str) -> Sequence[float]:
        """The metric's value in each iteration that is held in memory."""
        return values_in(self.counted.iterations, metric) if self.counted else ()


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
                yield SeriesRow(trial.planned, _whole(record), record is trial.counted)

    @classmethod
    def from_store(cls, store: Store, run_id: str, *, brief: bool = False) -> RunData:
        """A run as the store has it now. `brief`: how trials ended, what they earned and how long they took.

        Without metrics, resources, failures and files the records of a large run are there in a third of the
        time; `rows` still has all of it.
        """
        info = store.run(run_id)

        def source() -> Iterator[SeriesRow]:
            for row in store.attempts(info.id):
                yield SeriesRow(row.trial, row.record, row.counts)

        with without_collections():
            planned = list(store.planned(info.id))
            keys = {trial.index: trial.key for trial in planned}
            if brief:
                found = store.brief_records(info.id, keys)
            elif info.total > LEAN_FROM:
                found = store.records(info.id, keys, _Alike().share, late=True)
            else:
                found = store.records(info.id, keys)
            rows = ((record, counts) for _, record, counts in found)
            data = _gather(info, planned, rows, source, warnings=store.warnings(info.id))
            return replace(data, trimmed=True) if brief else data

    @classmethod
    def from_folder(cls, path: Path) -> RunData:
        """A run as its folder has it; without the store, on any machine."""
        info, planned, warnings = read_manifest(path)
        by_key = {trial.key: trial for trial in planned}

        def source() -> Iterator[SeriesRow]:
            return read_series(path, run_id=info.id, trials=by_key)

        with without_collections():
            prepare = _Alike().share if info.total > LEAN_FROM else None
            found = read_series(path, run_id=info.id, trials=by_key, prepare=prepare)
            rows = ((row.record, row.counts) for row in found)
            return _gather(info, planned, rows, source, warnings=warnings)


def _whole(record: AttemptRecord) -> AttemptRecord:
    """The record with plain iterations, for writing all of it."""
    rows = record.iterations
    return replace(record, iterations=tuple(rows)) if isinstance(rows, Iterations) else record


def once(function: Callable[[RunData], T]) -> Callable[[RunData], T]:
    """Calculate something from a run once and keep it for all reports."""

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


def count_outcomes(trials: Iterable[TrialResult]) -> Counter[Outcome]:
    """How many trials ended in each way, the first that occurs first."""
    return Counter(trial.counted.outcome for trial in trials if trial.counted)


def metric_of(kind: str) -> str:
    """What a run is first of all about."""
    return "duration_s" if kind == "experiment" else "reward"


def stated_interval(stats: Mapping[str, Any]) -> tuple[float, float] | None:
    """The interval of the median that was calculated when it was measured."""
    low, high = number(stats.get("p50_low")), number(stats.get("p50_high"))
    return (low, high) if low is not None and high is not None else None


def _gather(
    info: RunInfo,
    planned: Iterable[PlannedTrial],
    rows: Iterable[tuple[AttemptRecord, bool]],
    source: Callable[[], Iterator[SeriesRow]],
    *,
    warnings: tuple[str, ...] = (),
) -> RunData:
    """Attempts to their trials. The same attempt twice, or two that count: the later row is right."""
    metric = metric_of(info.kind)
    budget = ITERATIONS_KEPT
    attempts: dict[str, tuple[AttemptRecord, ...]] = {}
    counted: dict[str, int] = {}
    intervals: dict[str, tuple[float, float] | None] = {}
    for record, counts in rows:
        key = record.key
        if counts:
            counted[key] = record.number
            intervals[key] = _interval(record, metric)
        kept = record
        if count := len(record.iterations):
            budget -= count
            kept = record if budget >= 0 else replace(record, iterations=())
        attempts[key] = (*attempts[key], kept) if key in attempts else (kept,)
    trials = []
    for trial in planned:
        tries = attempts.get(trial.key, ())
        if len(tries) > 1:
            latest = {record.number: record for record in tries}
            tries = tuple(latest[number] for number in sorted(latest))
        number = counted.get(trial.key)
        chosen = None
        for record in tries:
            if record.number == number:
                chosen = record
        trials.append(TrialResult(trial, tries, chosen, intervals.get(trial.key)))
    return RunData(info, tuple(trials), warnings=warnings, trimmed=budget < 0, source=source)


def _interval(record: AttemptRecord, metric: str) -> tuple[float, float] | None:
    stats = record.metrics.get(metric)
    if isinstance(stats, dict) and (known := stated_interval(stats)):
        return known
    if len(record.iterations) < SMALLEST:
        return None
    return median_interval(sorted(values_in(record.iterations, metric)))


def values_in(rows: Sequence[Mapping[str, Any]], metric: str) -> Sequence[float]:
    """A metric's value in each row that has it."""
    column = rows.column(metric) if isinstance(rows, Iterations) else None
    if column is not None:
        return column
    return [value for row in rows if (value := number(row.get(metric))) is not None]


class _Alike:
    """What thousands of records have in common becomes one object: a third of the memory."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def share(self, body: dict[str, Any]) -> None:
        """How limits were enforced and where, and rewards of a single number, are rarely new."""
        ledger, metrics = body.get("ledger"), body.get("metrics")
        self._share(body, "image")
        if type(ledger) is dict:
            self._share(ledger, "backend")
            self._share(ledger, "enforced")
            self._share(ledger, "limits")
        if type(metrics) is dict:
            self._share(metrics, "rewards")

    def _share(self, mapping: dict[str, Any], name: str) -> None:
        value = mapping.get(name)
        if type(value) is dict or type(value) is str:
            # As text, because 1, 1.0 and true are equal and are not written alike.
            key = repr(value)
            if key in self._known or len(self._known) < _MOST_ALIKE:
                mapping[name] = self._known.setdefault(key, value)
