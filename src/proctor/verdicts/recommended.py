"""Which way of keeping a simulation's log to recommend: from a stored measurement, never beyond it.

The measurement is a run of `specs/recommended_config.yaml`. The nearest measured size that is no smaller than
the one asked about decides. Ways whose intervals overlap with the fastest are equal to it, and of equals the
one that loses least in a crash is taken.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from proctor.analysis.median import median_interval
from proctor.errors import UsageError
from proctor.experiments.simulation.logged import LoggedSimulation
from proctor.model.describe import percentile
from proctor.quantity import number
from proctor.runfolder.read import RunData

RUN_NAME = "recommended_config"
SPEC = "specs/recommended_config.yaml"
PACKAGED = Path(__file__).with_name("recommended.json")
_RENEW = f"'proctor run {SPEC}' measures anew"
_SAFEST = ("disk delete", "disk wal", "memory_persisted")
"""What a crash in the middle loses grows from left to right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way of keeping the log at one size, and how long a simulation took."""

    num_agents: int
    num_steps: int
    arm: str
    journal_mode: str
    commit_every: int
    median_s: float
    low_s: float
    high_s: float

    @property
    def kind(self) -> str:
        """`disk delete`, `disk wal` or `memory_persisted`."""
        return f"disk {self.journal_mode}" if self.arm == "disk" else self.arm

    @property
    def in_words(self) -> str:
        """For a sentence."""
        place = (
            "in memory and copied to disk at the end"
            if self.arm != "disk"
            else f"on disk ({self.journal_mode})"
        )
        steps = "step" if self.commit_every == 1 else f"{self.commit_every} steps"
        return f"log {place}, a transaction per {steps}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What a recommendation rests on."""

    run_id: str
    measured_at: str
    machine: str
    ways: tuple[Way, ...]
    shipped: bool = False
    """Whether it came with Proctor, and so from another machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """A configuration, and the sentences that say why."""

    config: LoggedSimulation
    text: str


def of_run(data: RunData) -> Measurement:
    """The measurement that a run is; UsageError when it is not one of the spec, or parts of it failed."""
    from datetime import UTC, datetime

    ways = [
        way
        for trial in data.trials
        if trial.counted
        for way in _ways(trial.planned.params, trial.counted.iterations)
    ]
    if not ways or len(ways) < len(data.trials):
        raise UsageError(f"run {data.info.id} is no complete measurement of {SPEC}; {_RENEW}")
    environment = data.info.environment
    python = environment.get("python")
    version = python.get("version") if isinstance(python, Mapping) else None
    machine = f"{environment.get('cpu_model') or 'unknown CPU'}, Python {version or 'unknown'}"
    day = datetime.fromtimestamp(data.info.created_at, UTC).date().isoformat()
    return Measurement(run_id=data.info.id, measured_at=day, machine=machine, ways=tuple(ways))


def packaged() -> Measurement:
    """The measurement that comes with Proctor."""
    found = json.loads(PACKAGED.read_text())
    return Measurement(**{**found, "ways": tuple(Way(**each) for each in found["ways"]), "shipped": True})


def as_json(measurement: Measurement) -> str:
    """As `packaged` reads it."""
    return json.dumps(asdict(measurement), indent=1) + "\n"


def recommend(measurement: Measurement, num_agents: int, num_steps: int) -> Recommendation:
    """The best measured way for a simulation of that size; UsageError outside what was measured."""
    agents = _next_measured("agents", num_agents, {way.num_agents for way in measurement.ways})
    steps = _next_measured("steps", num_steps, {way.num_steps for way in measurement.ways})
    ways = [way for way in measurement.ways if (way.num_agents, way.num_steps) == (agents, steps)]
    fastest = min(ways, key=lambda way: way.median_s)
    equals = [way for way in ways if way.low_s <= fastest.high_s]
    chosen = min(equals, key=lambda way: (_SAFEST.index(way.kind), way.median_s))
    return Recommendation(
        config=LoggedSimulation(
            num_agents=num_agents,
            num_steps=num_steps,
            use_in_memory_db=chosen.arm != "disk",
            persist_db_on_completion=True,
            journal_mode=chosen.journal_mode,
            commit_every=chosen.commit_every,
        ),
        text=_text(measurement, chosen, fastest, ways, len(equals)),
    )


def _ways(params: Mapping[str, Any], iterations: Iterable[Mapping[str, Any]]) -> Iterable[Way]:
    times = sorted(value for row in iterations if (value := number(row.get("duration_s"))) is not None)
    ends = median_interval(times)
    if ends is not None and params.get("arm") in {"disk", "memory_persisted"}:
        names = ("num_agents", "num_steps", "arm", "journal_mode", "commit_every")
        yield Way(
            **{name: params[name] for name in names},
            median_s=percentile(times, 50),
            low_s=ends[0],
            high_s=ends[1],
        )


def _next_measured(what: str, asked: int, measured: set[int]) -> int:
    if not min(measured) <= asked <= max(measured):
        raise UsageError(
            f"{asked} {what} is outside what was measured ({min(measured)} to {max(measured)}), and nothing "
            f"is extrapolated; widen the sweep in {SPEC} and run it"
        )
    return min(each for each in measured if each >= asked)


def _text(measurement: Measurement, chosen: Way, fastest: Way, ways: list[Way], equals: int) -> str:
    slowest = max(ways, key=lambda way: way.median_s)
    lines = [f"Recommended: {chosen.in_words}."]
    lines.append(
        f"Measured with {chosen.num_agents} agents and {chosen.num_steps} steps: {chosen.median_s:.3g} s "
        f"({chosen.low_s:.3g} to {chosen.high_s:.3g}); the slowest of {len(ways)} ways took "
        f"{slowest.median_s:.3g} s ({slowest.in_words})."
    )
    if equals > 1:
        lines.append(
            f"{equals} ways could not be told apart from the fastest ({fastest.in_words}); of these, this "
            "one loses least in a crash."
        )
    if chosen.arm != "disk":
        lines.append("A crash before the end loses the whole log.")
    shipped = " (it comes with Proctor)" if measurement.shipped else ""
    lines.append(
        f"Source: run {measurement.run_id} of {measurement.measured_at}{shipped}, on "
        f"{measurement.machine}; {_RENEW}."
    )
    return "\n".join(lines)
