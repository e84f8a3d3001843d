"""Which trials of a plan an earlier run has already measured: the same key means the same trial."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from proctor.model.plan import Plan, PlannedTrial
from proctor.model.record import AttemptRecord

CONTENDED = ("contended", "timings are contended")
"""Starts of the note that marks timings taken while other trials ran in parallel."""


class Answer(Protocol):
    """An attempt as read from a store."""

    @property
    def record(self) -> AttemptRecord:
        """What is kept of it."""

    @property
    def counts(self) -> bool:
        """Whether it is the one of its trial that counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reuse:
    """A plan, split into trials with and without a result."""

    answered: tuple[PlannedTrial, ...]
    missing: tuple[PlannedTrial, ...]


def answered_keys(attempts: Iterable[Answer], *, contended: bool = False) -> frozenset[str]:
    """Keys with a usable result: it counts and was caused by the subject.

    Timings taken in parallel answer only a run that is `contended` itself.
    """
    return frozenset(
        attempt.record.key
        for attempt in attempts
        if attempt.counts
        and attempt.record.outcome.scored
        and (contended or not any(note.startswith(CONTENDED) for note in attempt.record.notes))
    )


def reuse(plan: Plan, attempts: Iterable[Answer], *, contended: bool = False) -> Reuse:
    """Split a plan by what earlier attempts have answered."""
    keys = answered_keys(attempts, contended=contended)
    return Reuse(
        answered=tuple(trial for trial in plan.trials if trial.key in keys),
        missing=tuple(trial for trial in plan.trials if trial.key not in keys),
    )
