"""A run with its results in memory, from a store or from a run folder; what every report is made from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from proctor.analysis.median import SMALLEST, median_interval
from proctor.errors import NotFoundError, UsageError
from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial
from proctor.model.record import SCHEMA_VERSION, AttemptRecord, AttemptRow
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.processes import without_collections
from proctor.quantity import number
from proctor.runfolder.compact import Compactor
from proctor.runfolder.files import read_document
from proctor.runfolder.series import checked, read_series

if TYPE_CHECKING:
    from proctor.store.store import Store

ITERATIONS_KEPT = 250_000
"""Iteration rows held in memory for the charts; the rest stay in the store or the folder."""
COMPACT_ITERATIONS_KEPT = 10_000
"""The same of runs whose records are held compactly: a chart has no room for so many points."""
COMPACT_FROM = 5_000
"""Records of runs with more trials than this are held compactly."""


class TrialResult(Struct, frozen=True, gc=False):
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
        if isinstance(stats, Mapping):
            return number(stats.get(name))
        return number(stats) if name in {"p50", "mean"} else None

    def interval_of(self, metric: str) -> tuple[float, float] | None:
        """The 95 % interval of the median of any metric."""
        if metric == metric_of(self.planned.kind):
            return self.interval
        return _interval(self.counted, metric) if self.counted else None

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
    source: Callable[[], Iterator[AttemptRow]] | None = field(default=None, compare=False, repr=False)
    memo: dict[str, Any] = field(default_factory=dict, init=False, compare=False, repr=False)
    """What `survey.once` has worked out from this data."""

    @property
    def finished(self) -> list[TrialResult]:
        """The trials that have a result."""
        return [trial for trial in self.trials if trial.counted]

    def rows(self) -> Iterator[AttemptRow]:
        """Every attempt whole, streamed from where the data came from."""
        if self.trimmed and self.source:
            yield from self.source()
            return
        for trial in self.trials:
            for record in trial.attempts:
                yield AttemptRow(record, counts=record is trial.counted, trial=trial.planned)

    @classmethod
    def from_store(cls, store: Store, run_id: str, *, brief: bool = False) -> RunData:
        """A run as the store has it now. `brief`: how trials ended, what they earned and how long they took.

        Without metrics, resources, failures and files the records of a large run are there in a third of the
        time; `rows` still has all of it.
        """
        info = store.run(run_id)

        def source() -> Iterator[AttemptRow]:
            return store.attempts(info.id)

        with without_collections():
            planned = list(store.planned(info.id))
            keys = [trial.key for trial in planned]
            found = (store.brief_records if brief else store.records)(info.id, keys)
            rows = ((record, counts) for _, record, counts in found)
            return _gather(info, planned, rows, source, warnings=store.warnings(info.id), trimmed=brief)

    @classmethod
    def from_folder(cls, path: Path) -> RunData:
        """A run as its folder has it; without the store, on any machine."""
        info, planned, warnings = read_manifest(path)
        by_key = {trial.key: trial for trial in planned}

        def source() -> Iterator[AttemptRow]:
            return read_series(path, run_id=info.id, trials=by_key)

        with without_collections():
            rows = ((row.record, row.counts) for row in source())
            return _gather(info, planned, rows, source, warnings=warnings)


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
    planned = [
        checked(each, PlannedTrial, f"{place}: plan.trials[{at}]") for at, each in enumerate(plan["trials"])
    ]
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
    return checked(run, RunInfo, place), planned, tuple(warnings)


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
    planned: Sequence[PlannedTrial],
    rows: Iterable[tuple[AttemptRecord, bool]],
    source: Callable[[], Iterator[AttemptRow]],
    *,
    warnings: tuple[str, ...] = (),
    trimmed: bool = False,
) -> RunData:
    """Attempts to their trials. The same attempt twice, or two that count: the later row is right."""
    metric = metric_of(info.kind)
    compactor = Compactor() if len(planned) > COMPACT_FROM else None
    budget = COMPACT_ITERATIONS_KEPT if compactor else ITERATIONS_KEPT
    places = {trial.key: at for at, trial in enumerate(planned)}
    attempts: list[tuple[AttemptRecord, ...]] = [()] * len(planned)
    counted: list[int | None] = [None] * len(planned)
    intervals: list[tuple[float, float] | None] = [None] * len(planned)
    for record, counts in rows:
        at = places.get(record.key)
        if at is None:
            continue
        if counts:
            counted[at], intervals[at] = record.number, _interval(record, metric)
        budget -= len(record.iterations)
        kept = record if budget >= 0 or not record.iterations else replace(record, iterations=())
        attempts[at] += (compactor.record(kept, planned[at].key) if compactor else kept,)
    trials = tuple(map(_result, planned, attempts, counted, intervals))
    trimmed = trimmed or budget < 0 or compactor is not None
    return RunData(info, trials, warnings=warnings, trimmed=trimmed, source=source)


def _result(
    trial: PlannedTrial,
    tries: tuple[AttemptRecord, ...],
    number: int | None,
    interval: tuple[float, float] | None,
) -> TrialResult:
    if len(tries) > 1:
        latest = {record.number: record for record in tries}
        tries = tuple(latest[number] for number in sorted(latest))
    chosen = next((record for record in tries if record.number == number), None)
    return TrialResult(trial, tries, chosen, interval)


def _interval(record: AttemptRecord, metric: str) -> tuple[float, float] | None:
    stats = record.metrics.get(metric)
    if isinstance(stats, Mapping) and (known := stated_interval(stats)):
        return known
    if len(record.iterations) < SMALLEST:
        return None
    return median_interval(sorted(values_in(record.iterations, metric)))


def values_in(rows: Iterable[Mapping[str, Any]], metric: str) -> Sequence[float]:
    """A metric's value in each row that has it."""
    return [value for row in rows if (value := number(row.get(metric))) is not None]
