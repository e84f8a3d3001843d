"""The certificate of one task, and the exit code for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from proctor.analysis.interval import wilson
from proctor.errors import Exit
from proctor.model.vetting import Check


class TaskVerdict(StrEnum):
    """What a task is, as far as it was tried."""

    SOUND = "sound"
    BROKEN = "broken"
    """The oracle never passes, the task cannot be read, or its tests give no reward."""
    LEAKING = "leaking"
    """It passes without any solution."""
    FLAKY = "flaky"
    """The oracle passes only sometimes."""
    ROTTING = "rotting"
    """It fails at a later date."""
    NETWORK = "network"
    """It fails without the network."""
    FRAGILE = "fragile"
    """It fails with one CPU, in another time zone or on a busy machine."""
    UNSETTLED = "unsettled"
    """Infrastructure failed, so some checks could not be made."""


PRECEDENCE = (
    TaskVerdict.BROKEN,
    TaskVerdict.LEAKING,
    TaskVerdict.FLAKY,
    TaskVerdict.ROTTING,
    TaskVerdict.NETWORK,
    TaskVerdict.FRAGILE,
    TaskVerdict.UNSETTLED,
    TaskVerdict.SOUND,
)
"""The verdict is the first of these that was found. What is proven comes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One trial that a finding rests on."""

    trial: int
    """Its number in the run."""
    key: str
    outcome: str
    message: str = ""
    folder: str = ""
    """Where its files are, logs among them, inside the run's folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One check of one task."""

    check: Check
    rollouts: int = 0
    passed: int = 0
    failed: int = 0
    """Caused by the task; for nop: did not pass."""
    unjudged: int = 0
    """Trials of nop to which the tests gave no reward at all."""
    errors: int = 0
    """Infrastructure or provider."""
    missing: int = 0
    """Trials that have not ended."""
    skipped: str = ""
    """Why it was not tried; empty when it was."""
    evidence: tuple[Evidence, ...] = ()

    @property
    def settled(self) -> bool:
        """Whether it says anything."""
        return self.passed + self.failed + self.unjudged > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFault:
    """One thing that is so, with the trials that show it."""

    verdict: TaskVerdict
    check: Check
    sentence: str
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCertificate:
    """Everything known of one task."""

    task: str
    digest: str
    path: str
    findings: tuple[TaskFault, ...]
    tried: Mapping[Check, Tried]
    notes: tuple[str, ...] = ()
    run_id: str = ""
    folder: str = ""
    backend: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def verdict(self) -> TaskVerdict:
        """The first in PRECEDENCE that holds."""
        found = {finding.verdict for finding in self.findings}
        return next((each for each in PRECEDENCE if each in found), TaskVerdict.SOUND)

    @property
    def flake_bound(self) -> float | None:
        """With 95 % confidence the undisturbed oracle fails no more often than this."""
        plain = self.tried.get(Check.ORACLE)
        if plain is None or not plain.settled:
            return None
        count = plain.passed + plain.failed
        return wilson(plain.failed / count, count).high


def exit_code(certificates: Iterable[TaskCertificate]) -> Exit:
    """0 all sound, 1 some are not, 4 what is not sound is only unsettled."""
    verdicts = {each.verdict for each in certificates}
    if verdicts - {TaskVerdict.SOUND, TaskVerdict.UNSETTLED}:
        return Exit.WORSE
    return Exit.INFRASTRUCTURE if TaskVerdict.UNSETTLED in verdicts else Exit.OK
