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
    """The result of the certificate."""

    GOOD = "good"
    """False alarms are compatible with what the gate promises, and useful changes are detected."""
    BLIND = "quiet_but_blind"
    """Few false alarms, but only changes of many times the margin are detected."""
    FALSE_ALARMS = "cries_wolf"
    """More false alarms than promised, and chance does not explain it."""
    TOO_LITTLE = "too_little_data"
    INFRASTRUCTURE = "infrastructure"
    """Nothing was scored: machines or providers failed."""

    @property
    def words(self) -> str:
        """As a person reads it."""
        return "too many false alarms" if self is Standing.FALSE_ALARMS else self.value.replace("_", " ")


EXIT_CODES = {
    Standing.GOOD: Exit.OK,
    Standing.BLIND: Exit.INCONCLUSIVE,
    Standing.FALSE_ALARMS: Exit.WORSE,
    Standing.TOO_LITTLE: Exit.INCONCLUSIVE,
    Standing.INFRASTRUCTURE: Exit.INFRASTRUCTURE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Pairs of identical sides, made in one way, and the verdicts of every rule on them."""

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
class Power:
    """The loss that a number of rollouts or iterations would detect, and what they cost."""

    count: int
    detectable: float | None
    """Smallest loss detected with 80 % probability, as a fraction. None: no loss would be detected."""
    total: int
    hours: float | None = None
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseCertificate:
    """The noise of a suite, what it can detect and what that costs."""

    kind: str
    """task or experiment"""
    run: str
    run_id: str
    digest: str
    """Digest of every result that was used."""
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
    """Rollouts per task and side, or iterations per point, that the sentence is about."""
    detectable: float | None = None
    """However it is spread: the larger one of the next two."""
    detectable_even: float | None = None
    detectable_concentrated: float | None = None
    """Scores: the loss spread over all tasks alike, and in a few tasks that lose everything."""
    power: tuple[Power, ...] = ()
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
        """0 good, 1 too many false alarms, 3 quiet but blind or too little data, 4 infrastructure."""
        return EXIT_CODES[self.standing]
