"""What one pass over a run's trials finds: outcomes, groups, failures, files. Trials are not kept.

A run may have a hundred thousand trials that are read as they are asked for: a report looks at each of them
once, and remembers numbers and the places of those few that it shows.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, TypeVar, overload

from proctor.analysis.clock import HeadlineClock, headline_clock, measured_cpu, waiting_in
from proctor.model.canonical import canonical_json
from proctor.model.outcome import Outcome
from proctor.model.record import AttemptRecord
from proctor.runfolder.read import RunData, TrialResult, metric_of

T = TypeVar("T")

MOST_FAILURES = 50
MOST_ATTEMPTS = 50
MOST_FILES = 200
NAMED = 5
"""Trials that are named of those that failed alike."""
NOISY = 0.10
"""Middle spread, as a fraction of the median, above which a point is called noisy."""
FEW = 6


class Chosen(Sequence[TrialResult]):
    """Some trials of a run, by their places: each is taken from the run when it is asked for."""

    def __init__(self, trials: Sequence[TrialResult], places: Sequence[int]) -> None:
        self._trials = trials
        self.places = places
        self._all = len(places) == len(trials) and all(at == place for at, place in enumerate(places))

    def __len__(self) -> int:
        return len(self.places)

    @overload
    def __getitem__(self, at: int) -> TrialResult: ...
    @overload
    def __getitem__(self, at: slice) -> Chosen: ...
    def __getitem__(self, at: int | slice) -> TrialResult | Chosen:
        if isinstance(at, slice):
            return Chosen(self._trials, self.places[at])
        return self._trials[self.places[at]]

    def __iter__(self) -> Iterator[TrialResult]:
        if self._all:
            return iter(self._trials)
        return (self._trials[place] for place in self.places)


@dataclass(frozen=True, slots=True)
class Group:
    """The trials of one experiment or task entry: what varies among them and what does not."""

    subject: str
    trials: Chosen
    varying: tuple[str, ...]
    fixed: Mapping[str, Any]
    outcomes: Counter[Outcome]
    medians: array[float]
    """Of the run's metric, by trial; not a number where there is none."""
    counts: array[int]
    """How many iterations each trial has."""

    def label(self, trial: TrialResult) -> str:
        """What sets this trial apart from the others of its group."""
        if trial.planned.kind == "task":
            return trial.planned.label
        parts = [f"{name}={short(trial.planned.params.get(name))}" for name in self.varying]
        return ", ".join(parts) or self.subject


@dataclass(slots=True)
class Alike:
    """Trials that failed in the same way."""

    count: int = 0
    first: list[int] = field(default_factory=list)
    """The places of the first few."""


@dataclass(slots=True)
class Survey:
    """A run, looked at once."""

    total: int = 0
    finished: int = 0
    attempts: int = 0
    retried: int = 0
    """Trials that needed more than one attempt."""
    suspects: int = 0
    noisy: int = 0
    few: int = 0
    """Points with too few iterations for an interval."""
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    """The first that occurs first."""
    notes: Counter[tuple[str, ...]] = field(default_factory=Counter)
    phases_s: dict[str, float] = field(default_factory=dict)
    """Every attempt's, added up."""
    failures: dict[tuple[str, ...], Alike] = field(default_factory=dict)
    """By outcome, phase, type and message: the first of them."""
    other_failures: set[int] = field(default_factory=set)
    """Kinds of failure that are not among those."""
    uncounted: list[tuple[int, AttemptRecord]] = field(default_factory=list)
    """The place of a trial, and an attempt at it that does not count: the first of them."""
    files: list[int] = field(default_factory=list)
    """Places of the first trials that left files."""
    groups: tuple[Group, ...] = ()

    def ranked(self) -> list[tuple[float, int]]:
        """The medians of the fastest and of the slowest trial with their places; one or none if there are."""
        ends = []
        for pick in (min, max):
            found = (
                (median, place)
                for group in self.groups
                for median, place in zip(group.medians, group.trials.places, strict=True)
                if not math.isnan(median)
            )
            ends += [each] if (each := pick(found, key=lambda pair: pair[0], default=None)) else []
        return ends if len(ends) == 2 and ends[0][1] != ends[1][1] else ends[:1]

    def group_of(self, place: int) -> Group:
        """The group that the trial in this place belongs to."""
        return next(group for group in self.groups if place in group.trials.places)


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


@once
def run_clock(data: RunData) -> HeadlineClock:
    """The metric that the run's report is about: of an experiment's times the clock that is to be trusted."""
    kind = data.info.kind
    if kind != "experiment":
        return HeadlineClock(metric_of(kind))
    counted = (trial.counted for trial in data.trials if trial.outcome is Outcome.PASSED)
    return headline_clock(
        (waiting_in(record.ledger.get("noise")), measured_cpu(record.metrics)) for record in counted if record
    )


@once
def survey(data: RunData) -> Survey:
    """Look at every trial, once."""
    found = Survey()
    open_groups: dict[tuple[int, str], _Gathering] = {}
    metric = run_clock(data).metric
    for place, trial in enumerate(data.trials):
        found.total += 1
        planned = trial.planned
        key = (planned.body, planned.subject)
        if key not in open_groups:
            open_groups[key] = _Gathering(planned.params)
        open_groups[key].add(place, trial, metric)
        found.attempts += len(trial.attempts)
        found.retried += len(trial.attempts) > 1
        _add_attempts(found, place, trial)
        if trial.counted:
            _add_result(found, place, trial.counted)
            if planned.kind == "experiment":
                _add_spread(found, trial, metric)
    found.groups = tuple(
        gathering.done(subject, data.trials) for (_, subject), gathering in open_groups.items()
    )
    return found


def _add_attempts(found: Survey, place: int, trial: TrialResult) -> None:
    counted = trial.counted.number if trial.counted else None
    for record in trial.attempts:
        for name, seconds in record.phases_s.items():
            if isinstance(seconds, int | float):
                found.phases_s[name] = found.phases_s.get(name, 0.0) + seconds
        if record.number != counted and len(found.uncounted) < MOST_ATTEMPTS:
            found.uncounted.append((place, record))


def _add_result(found: Survey, place: int, record: AttemptRecord) -> None:
    found.finished += 1
    found.outcomes[record.outcome] += 1
    found.suspects += record.suspect
    if record.notes:
        found.notes[record.notes] += 1
    if record.artifacts and len(found.files) <= MOST_FILES:
        found.files.append(place)
    if not _worth_telling(record):
        return
    failure = record.failure
    what = (failure.phase, failure.type, failure.message) if failure else ("", "", "")
    key = (record.outcome.value, *what)
    if key not in found.failures:
        if len(found.failures) >= MOST_FAILURES:
            found.other_failures.add(hash(key))
            return
        found.failures[key] = Alike()
    alike = found.failures[key]
    alike.count += 1
    if len(alike.first) < NAMED:
        alike.first.append(place)


def _worth_telling(record: AttemptRecord) -> bool:
    """Whether a failure is listed: an agent that did not solve its task is a normal result."""
    if record.outcome is Outcome.PASSED:
        return False
    return record.failure is not None or record.outcome not in {Outcome.FAILED, Outcome.PARTIAL}


def _add_spread(found: Survey, trial: TrialResult, metric: str) -> None:
    count, middle, mad = (trial.stat(metric, name) for name in ("count", "p50", "mad"))
    found.few += count is not None and count < FEW
    found.noisy += bool(mad and middle and (count or 0) >= FEW and 1.4826 * mad / middle > NOISY)


class _Gathering:
    """A group while its trials are being looked at."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        self._first = dict(params)
        self._varying: dict[str, None] = {}
        self._places = array("L")
        self._medians = array("d")
        self._counts = array("L")
        self._outcomes: Counter[Outcome] = Counter()

    def add(self, place: int, trial: TrialResult, metric: str) -> None:
        params, first = trial.planned.params, self._first
        for name in params if params.keys() == first.keys() else {**first, **params}:
            if name not in self._varying and _differs(first, params, name):
                self._varying[name] = None
        self._places.append(place)
        median = trial.stat(metric, "p50")
        self._medians.append(math.nan if median is None else median)
        self._counts.append(int(trial.stat(metric, "count") or 0))
        if trial.counted:
            self._outcomes[trial.counted.outcome] += 1

    def done(self, subject: str, trials: Sequence[TrialResult]) -> Group:
        first, varying = self._first, self._varying
        ordered = tuple(sorted(varying, key=list(first).index if set(varying) <= set(first) else str))
        fixed = {name: value for name, value in first.items() if name not in varying}
        chosen = Chosen(trials, self._places)
        return Group(subject, chosen, ordered, fixed, self._outcomes, self._medians, self._counts)


def _differs(first: Mapping[str, Any], other: Mapping[str, Any], name: str) -> bool:
    if (name in first) != (name in other):
        return True
    return bool(first[name] != other[name]) or type(first[name]) is not type(other[name])


def short(value: Any, limit: int = 40) -> str:
    """A parameter's value for a label."""
    if isinstance(value, float):
        text = f"{value:.6g}"
    elif isinstance(value, str):
        text = value
    else:
        text = canonical_json(value) if isinstance(value, dict | list | tuple) else str(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
