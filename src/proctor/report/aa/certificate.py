"""What a noise certificate says, for scores and for times alike, and what it means to a shell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from proctor.analysis.aa import AlarmRate, Correlation
from proctor.analysis.flaky import TaskStability
from proctor.errors import Exit


class Standing(StrEnum):
    """What the certificate comes to."""

    GOOD = "good"
    """False alarms are compatible with what the gate promises."""
    CRIES_WOLF = "cries_wolf"
    """More false alarms than promised, and chance does not explain it."""
    TOO_LITTLE = "too_little_data"
    INFRASTRUCTURE = "infrastructure"
    """Nothing was scored: machines or providers failed."""


EXIT_CODES = {
    Standing.GOOD: Exit.OK,
    Standing.CRIES_WOLF: Exit.WORSE,
    Standing.TOO_LITTLE: Exit.INCONCLUSIVE,
    Standing.INFRASTRUCTURE: Exit.INFRASTRUCTURE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Identical sides made in one way, and what every rule said of them."""

    name: str
    """splits, simulated or repeats"""
    how: str
    """How the pairs were made, for a person."""
    per_side: str
    """How much data each side of a pair has."""
    gate: AlarmRate
    calls: Mapping[str, int]
    naive: tuple[AlarmRate, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What so many rollouts per task and side, or iterations per point, would find, and their price."""

    count: int
    detectable: float | None
    """Found four times in five: a fraction of the scale, or of the time. None: nothing would be."""
    total: int
    hours: float | None = None
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseCertificate:
    """A suite's noise, its reach and its price."""

    kind: str
    """task or experiment"""
    run: str
    run_id: str
    digest: str
    """Of every result that it rests on."""
    standing: Standing
    sentence: str
    next_steps: tuple[str, ...]
    metric: str
    margin: float
    level: float
    claim: str
    subjects: int
    """Tasks, or parameter points."""
    values: int
    """Scored rollouts, or iterations."""
    trials: tuple[Trial, ...] = ()
    count: int = 0
    """Rollouts per task and side, or iterations per point, that the sentence speaks of."""
    detectable: float | None = None
    reach: tuple[Reach, ...] = ()
    broken: int = 0
    broken_share: float = 0.0
    correlation: Correlation | None = None
    flaky: tuple[TaskStability, ...] = ()
    flaky_share: float | None = None
    noise: Mapping[str, Any] = field(default_factory=dict)
    """Times: the run-to-run spread that the gate assumes, and where it comes from."""
    drift: Mapping[str, Any] = field(default_factory=dict)
    """The first half of each task's rollouts, or of each point's iterations, against the second."""
    notes: tuple[str, ...] = ()
    simulations: int = 0
    seed: int = 0

    @property
    def exit_code(self) -> Exit:
        """0 good, 1 cries wolf, 3 too little data, 4 infrastructure."""
        return EXIT_CODES[self.standing]
