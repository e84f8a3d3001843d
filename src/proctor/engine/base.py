"""What a worker needs from the rest: something that executes a trial, and someone who listens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord
from proctor.model.trial import Lease


class Executor(Protocol):
    """Executes one attempt. Failures of the subject are recorded, never raised."""

    async def execute(self, trial: PlannedTrial, lease: Lease) -> AttemptRecord:
        """Run the attempt to its end. Cancelled: kill what it started, then let the cancellation pass."""

    async def close(self) -> None:
        """End every process that was kept warm."""


@runtime_checkable
class Expecting(Protocol):
    """An executor that makes something ready for a trial before it comes."""

    def expect(self, trial: PlannedTrial) -> None:
        """This trial will probably be the next."""


@runtime_checkable
class WarmsUp(Protocol):
    """An executor that makes ready what all trials share, before the first one counts."""

    async def warm_up(self, trials: Sequence[PlannedTrial]) -> None:
        """Called once in each process that executes the run."""


@runtime_checkable
class Preflight(Protocol):
    """An executor that can tell before the first trial that a run would be in vain."""

    async def preflight(self, trials: Sequence[PlannedTrial]) -> None:
        """UsageError that says what is missing."""


class StoppingRule(Protocol):
    """Decides after each result whether the question of a run is answered."""

    def answered(self, record: AttemptRecord) -> bool:
        """Hear the attempt that counts for a trial; True when no more trials are needed."""


class Listener(Protocol):
    """Is called for every change, in the worker's own thread; must be quick."""

    def started(self, trial: PlannedTrial, lease: Lease) -> None:
        """An attempt has begun."""

    def ended(self, trial: PlannedTrial, record: AttemptRecord, counts: bool) -> None:
        """An attempt is committed. `counts`: it is the trial's result; otherwise another will follow."""
